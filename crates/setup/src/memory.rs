//! Checks whether this computer has enough memory for a cache and its bookkeeping.

use std::path::{Path, PathBuf};

use forebay_cache::CacheConfig;
use forebay_config::Config;
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
    meminfo("MemAvailable:")
}

/// Refuses a cache whose blocks in memory need more than all memory of this computer, or than the
/// limit of the process's control group. A cache that needs more than is available at the moment is
/// not refused: other programs may end before the cache is full.
///
/// # Errors
/// If `cache.dram` is larger than that.
pub fn check_dram(config: &Config) -> Result<(), SetupError> {
    match memory_limit() {
        Some(total) => check_dram_within(config, total),
        None => Ok(()),
    }
}

fn check_dram_within(config: &Config, total: u64) -> Result<(), SetupError> {
    let dram = config.cache.dram;
    match dram.bytes() > total {
        true => Err(SetupError::DramOverMemory { dram, total }),
        false => Ok(()),
    }
}

/// All memory that this process can ever have, in bytes; `None` if the system does not report it.
fn memory_limit() -> Option<u64> {
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&group).into_iter().filter_map(|file| {
        // Without a limit, the file says `max`.
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    });
    meminfo("MemTotal:").into_iter().chain(limits).min()
}

/// The files with the memory limits of the control groups in `/proc/self/cgroup`, of which those of
/// the outer groups count, too.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let below = path.trim_start_matches('/');
        files.extend(Path::new(below).ancestors().map(|at| Path::new(mount).join(at).join(file)));
    }
    files
}

fn meminfo(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_config;

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

    #[test]
    fn more_blocks_in_memory_than_the_machine_has_memory_are_refused_with_the_way_out() {
        let config = |dram: &str| Config::from_toml(&format!("[cache]\ndram = '{dram}'")).unwrap();
        assert_eq!(check_dram_within(&config("24GiB"), 24 << 30), Ok(()));
        let error = check_dram_within(&config("40GiB"), 24 << 30).unwrap_err().to_string();
        for part in ["cache.dram", "40 GiB", "24 GiB", "reduce"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        // No computer has as much, so this is checked before anything that depends on it.
        assert!(memory_limit().is_none() || check_dram(&config("15TiB")).is_err());
    }

    #[test]
    fn the_limits_of_all_control_groups_around_the_process_count() {
        let files = limit_files("12:memory:/a\n3:cpu,cpuacct:/a\n0::/b/c\n");
        let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/b/c/memory.max",
                "/sys/fs/cgroup/b/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
    }
}
