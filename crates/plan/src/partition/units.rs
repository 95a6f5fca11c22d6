//! In which units a cache is divided, where nobody says.

use forebay_block::BlockSize;

use super::exact::DynamicProgram;
use super::problem::{Problem, Sizes};

/// Steps of a dynamic program that need no patience: half a second.
const STEPS: u64 = 1 << 30;
/// Units of one tier at most.
const ONE_TIER_MAX: u64 = 8192;
/// Units of each of two tiers at most.
const TWO_TIERS_MAX: u64 = 128;
/// Units that annealing, which is not slower for it, divides a tier into at most.
const ANNEALED_MAX: u64 = 1 << 16;

/// Units of a power of two blocks, as small as [`exact`](super::exact) can take in half
/// a second, for the problem that `build` makes of them; for annealing as small as is of use.
pub fn choose_units<'a>(
    sizes: Sizes,
    block_size: BlockSize,
    anneals: bool,
    build: impl Fn(Sizes) -> Problem<'a>,
) -> Sizes {
    let most = match sizes {
        _ if anneals => ANNEALED_MAX,
        Sizes { dram_bytes: 0, .. } | Sizes { flash_bytes: 0, .. } => ONE_TIER_MAX,
        _ => TWO_TIERS_MAX,
    };
    let of = |bytes: u64| {
        let mut unit = block_size.bytes();
        while bytes / unit > most {
            unit *= 2;
        }
        unit
    };
    let mut units = Sizes { dram_bytes: of(sizes.dram_bytes), flash_bytes: of(sizes.flash_bytes) };
    while !anneals && DynamicProgram::new(&build(units)).steps() > STEPS {
        let (dram, flash) =
            (sizes.dram_bytes / units.dram_bytes, sizes.flash_bytes / units.flash_bytes);
        match dram > flash {
            true => units.dram_bytes *= 2,
            false => units.flash_bytes *= 2,
        }
        if dram.max(flash) <= 2 {
            break;
        }
    }
    units
}
