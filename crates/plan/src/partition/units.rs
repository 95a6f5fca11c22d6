//! In which units a cache is divided, where nobody says.

use forebay_block::BlockSize;

use super::exact::DynamicProgram;
use super::problem::{Problem, Sizes};
use super::watch::unwatched;

/// Steps of a dynamic program that need no patience: half a second.
const STEPS: u64 = 1 << 30;
/// Units of one tier at most.
const ONE_TIER_MAX: u64 = 8192;
/// Units of each of two tiers at most.
const TWO_TIERS_MAX: u64 = 128;
/// Units that annealing, which is not slower for it, divides a tier into at most.
const ANNEALED_MAX: u64 = 1 << 16;

/// Units of a power of two blocks, as small as [`exact`](super::exact) can take in half
/// a second, for the problem that `build` makes of them; for annealing as small as is useful. Units
/// that are `given`, in bytes and 0 where none is, stay as they are, however long that takes.
pub fn choose_units<'a>(
    sizes: Sizes,
    given: Sizes,
    block_size: BlockSize,
    anneals: bool,
    build: impl Fn(Sizes) -> Problem<'a>,
) -> Sizes {
    let most = match sizes {
        _ if anneals => ANNEALED_MAX,
        Sizes { dram_bytes: 0, .. } | Sizes { flash_bytes: 0, .. } => ONE_TIER_MAX,
        _ => TWO_TIERS_MAX,
    };
    let of = |bytes: u64, given: u64| {
        let mut unit = if given > 0 { given } else { block_size.bytes() };
        while given == 0 && bytes / unit > most {
            unit *= 2;
        }
        unit
    };
    let mut units = Sizes {
        dram_bytes: of(sizes.dram_bytes, given.dram_bytes),
        flash_bytes: of(sizes.flash_bytes, given.flash_bytes),
    };
    let is_quick = |units: Sizes| DynamicProgram::new(&build(units), STEPS, &mut unwatched).is_ok();
    // How many units there are of what may be divided into fewer.
    let count = |size: u64, unit: u64, given: u64| if given > 0 { 0 } else { size / unit };
    loop {
        let dram = count(sizes.dram_bytes, units.dram_bytes, given.dram_bytes);
        let flash = count(sizes.flash_bytes, units.flash_bytes, given.flash_bytes);
        if anneals || dram.max(flash) == 0 || is_quick(units) {
            return units;
        }
        match dram > flash {
            true => units.dram_bytes *= 2,
            false => units.flash_bytes *= 2,
        }
        if dram.max(flash) <= 2 {
            return units;
        }
    }
}
