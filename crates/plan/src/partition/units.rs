//! Chooses the units in which a cache is divided.

use forebay_block::BlockSize;

use super::exact::DynamicProgram;
use super::problem::{Problem, Sizes};
use super::watch::unwatched;

/// Most steps of a dynamic program that count as quick: half a second.
const STEPS: u64 = 1 << 30;
/// Most units of a single tier.
const ONE_TIER_MAX: u64 = 8192;
/// Most units of each of two tiers.
const TWO_TIERS_MAX: u64 = 128;
/// Most units of a tier for annealing, which finer units do not slow down.
const ANNEALED_MAX: u64 = 1 << 16;

/// Chooses units of a power-of-two number of blocks: as small as [`exact`](super::exact) can search
/// in half a second, for the problem that `build` makes of them; for annealing, as small as is
/// useful. Units that are `given` (in bytes; 0 means none) stay as they are, however long the
/// search takes.
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
    // Number of units of a tier whose unit may still grow; 0 if its unit is given.
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
