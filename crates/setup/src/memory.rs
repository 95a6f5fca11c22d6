//! Whether this machine has the memory that a cache keeps its books in.

use forebay_cache::CacheConfig;
use forebay_replacement::{Admission, AdmissionParameters, Parameters, Policy, Replacement};

use crate::machine::SetupError;

/// Bookkeeping of a block in memory, without what the replacement policy keeps of it;
/// `docs/performance.md` has the measurements.
const BYTES_IN_MEMORY: u64 = 48;
/// Where it is found without the engine's lock.
const BYTES_OF_PUBLISHED: u64 = 31;
/// More of it in front of a flash log: what may be known of its record there.
const BYTES_OF_RECORD: u64 = 13;
/// More of it in front of the slots layout, without what the replacement policy of flash keeps of it: its record, its
/// place in that policy, and what says that it came back.
const BYTES_OF_CELL: u64 = 30;
/// Bookkeeping of a block in the flash log.
const BYTES_IN_LOG: u64 = 49;
/// Bookkeeping of a block in the flash slots layout, without what its replacement policy keeps of it.
const BYTES_IN_SLOTS: u64 = 58;

/// About how many bytes of bookkeeping a cache has in memory, the data themselves not counted.
pub fn bookkeeping_bytes(cache: &CacheConfig) -> u64 {
    let memory = u64::from(cache.dram_blocks) + u64::from(cache.spare_frames);
    let flash = cache.flash.as_ref().map_or(0, |flash| {
        let each = match flash.slots() {
            None => BYTES_IN_LOG,
            Some(slots) => BYTES_IN_SLOTS + bytes_of_policy(&slots.cells),
        };
        u64::from(flash.entries_max) * (each + bytes_of_admission(&flash.admission))
    });
    let record = cache.flash.as_ref().map_or(0, |flash| match flash.slots() {
        None => BYTES_OF_RECORD,
        Some(slots) => BYTES_OF_CELL + bytes_of_policy(&slots.cells),
    });
    let published = BYTES_OF_PUBLISHED;
    memory * (BYTES_IN_MEMORY + published + record + bytes_of_policy(&cache.replacement)) + flash
}

/// What the replacement policy keeps of a block, ghosts and sketches included.
fn bytes_of_policy(parameters: &Parameters) -> u64 {
    const BLOCKS: u32 = 1 << 14;
    let policy = Replacement::new(BLOCKS, BLOCKS, parameters);
    policy.metadata_bytes().div_ceil(u64::from(BLOCKS))
}

/// What the admission policy keeps of a block on flash, at most.
fn bytes_of_admission(parameters: &AdmissionParameters) -> u64 {
    // (One spot more than a power of two: tables are largest there.)
    const BLOCKS: u32 = (1 << 14) + 4;
    let bytes = Admission::new(1, BLOCKS, parameters).map_or(0, |a| a.metadata_bytes());
    bytes.div_ceil(u64::from(BLOCKS))
}

/// Refuses a cache whose bookkeeping this machine has no memory for: allocating it would end the
/// process.
///
/// # Errors
/// If the bookkeeping takes more than the system says is available.
pub fn check_bookkeeping(cache: &CacheConfig) -> Result<(), SetupError> {
    match available_memory() {
        Some(available) => check(bookkeeping_bytes(cache), available),
        None => Ok(()),
    }
}

fn check(wanted: u64, available: u64) -> Result<(), SetupError> {
    if wanted <= available {
        return Ok(());
    }
    Err(SetupError::Memory { needed: wanted, available })
}

/// Bytes that the system says it could give without swapping; nothing where it does not say.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_config;
    use forebay_config::Config;

    fn bookkeeping(layout: &str) -> u64 {
        let text = format!(
            "[cache]\ndram = '64MiB'\n[flash]\npath = 'x'\nsize = '4GiB'\nlayout = '{layout}'"
        );
        let config = Config::from_toml(&text).unwrap();
        bookkeeping_bytes(&cache_config(&config, Some(4 << 30)).unwrap())
    }

    #[test]
    fn bookkeeping_is_counted_by_tier_and_layout() {
        let (log, slots) = (bookkeeping("log"), bookkeeping("slots"));
        assert!((48 << 20..55 << 20).contains(&log), "{log}");
        assert!((63 << 20..72 << 20).contains(&slots), "{slots}");
    }

    #[test]
    fn bookkeeping_is_counted_by_policy_on_flash() {
        let of = |policy: &str| bookkeeping(&format!("slots'\nreplacement = '{policy}"));
        assert_eq!(of("lru"), bookkeeping("slots"));
        assert!(of("arc") > of("lru") + (16 << 20), "{} {}", of("arc"), of("lru"));
    }

    #[test]
    fn bookkeeping_is_counted_by_policy() {
        let of = |policy: &str| {
            let text = format!("[cache]\ndram = '1GiB'\n[replacement]\npolicy = '{policy}'");
            let config = Config::from_toml(&text).unwrap();
            bookkeeping_bytes(&cache_config(&config, None).unwrap()) >> 18
        };
        assert!((86..90).contains(&of("lru")), "{}", of("lru"));
        for ghosts in ["s3-fifo", "2q", "arc"] {
            assert!((106..127).contains(&of(ghosts)), "{ghosts}: {}", of(ghosts));
        }
    }

    #[test]
    fn bookkeeping_is_counted_by_admission() {
        let of = |lines: &str| {
            let text = format!(
                "[cache]\ndram = '64MiB'\n[flash]\npath = 'x'\nsize = '4GiB'\n[admission]\n{lines}"
            );
            let config = Config::from_toml(&text).unwrap();
            bookkeeping_bytes(&cache_config(&config, Some(4 << 30)).unwrap()) >> 20
        };
        let always = of("");
        assert!((24..32).contains(&(of("policy = 'nhit'") - always)), "{}", of("policy = 'nhit'"));
        assert!((6..10).contains(&(of("policy = 'smq'") - always)), "{}", of("policy = 'smq'"));
        let long = of("policy = 'nhit'\nhistory = 10.0") - always;
        assert!((240..320).contains(&long), "{long}");
        assert_eq!(of("policy = 'random'"), always);
    }

    #[test]
    fn the_system_says_how_much_memory_it_has() {
        if std::path::Path::new("/proc/meminfo").exists() {
            assert!(available_memory().unwrap() > 1 << 20);
        }
    }

    #[test]
    fn more_bookkeeping_than_there_is_memory_is_refused() {
        assert_eq!(check(5 << 20, 5 << 20), Ok(()));
        let error = check(6 << 20, 5 << 20).unwrap_err().to_string();
        assert!(error.contains("6 MiB") && error.contains("flash.size"), "{error}");
    }
}
