//! Checks whether this computer has enough memory for the bookkeeping of a cache.

use forebay_cache::CacheConfig;
use forebay_replacement::{Admission, AdmissionParameters, Parameters, Policy, Replacement};

use crate::machine::SetupError;

/// Bytes of bookkeeping for a block in memory, without those of the replacement policy;
/// `docs/performance.md` has the measurements.
const BYTES_IN_MEMORY: u64 = 48;
/// Additional bytes for a block in memory, to find it without the engine's lock.
const BYTES_OF_PUBLISHED: u64 = 31;
/// Additional bytes for a block in memory if flash has the log layout: what may be known about its
/// record there.
const BYTES_OF_RECORD: u64 = 13;
/// Additional bytes for a block in memory if flash has the slots layout, without those of the
/// replacement policy of flash: its record, its place in that policy, and a note that it came back.
const BYTES_OF_CELL: u64 = 30;
/// Bytes of bookkeeping for a block in the flash log.
const BYTES_IN_LOG: u64 = 49;
/// Bytes of bookkeeping for a block in the flash slots layout, without those of the replacement
/// policy.
const BYTES_IN_SLOTS: u64 = 58;

/// Approximate size of the bookkeeping that a cache keeps in memory, in bytes, without the data.
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

/// Bytes that the replacement policy keeps for each block, including ghosts and sketches.
fn bytes_of_policy(parameters: &Parameters) -> u64 {
    const BLOCKS: u32 = 1 << 14;
    let policy = Replacement::new(BLOCKS, BLOCKS, parameters);
    policy.metadata_bytes().div_ceil(u64::from(BLOCKS))
}

/// Maximum number of bytes that the admission policy keeps for each block on flash.
fn bytes_of_admission(parameters: &AdmissionParameters) -> u64 {
    // Slightly more than a power of two, where tables are largest in proportion.
    const BLOCKS: u32 = (1 << 14) + 4;
    let bytes = Admission::new(1, BLOCKS, parameters).map_or(0, |a| a.metadata_bytes());
    bytes.div_ceil(u64::from(BLOCKS))
}

/// Refuses a cache whose bookkeeping does not fit into the memory of this computer: allocating it
/// would end the process.
///
/// # Errors
/// If the bookkeeping takes more memory than the system reports as available.
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

/// Memory that the system reports as available without swapping, in bytes; `None` if the system
/// does not report it.
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
