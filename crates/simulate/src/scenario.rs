//! What is simulated: the cache's parameters, its volumes, and the devices below.

use forebay_block::{BlockSize, Nanos, SECTOR_BYTES};
use forebay_cache::{CacheConfig, VOLUMES_MAX};
use forebay_config::{Config, Volume as ConfiguredVolume};
use forebay_flash::BlockKey;
use forebay_model::Profile;
use forebay_setup::{WorkloadVolume, volume_targets};

use crate::error::SimulateError;

/// What is simulated. A sweep changes the fields that it varies and simulates again.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The parameters of the cache.
    pub cache: CacheConfig,
    /// The volumes, indexed by the volume number of requests.
    pub volumes: Vec<SimulatedVolume>,
    /// The memory of tier 1.
    pub memory: Memory,
    /// The device of the flash tier; not used if the cache has no flash tier.
    pub flash: Profile,
    /// Assumptions about what the configuration does not specify, one sentence each.
    pub assumptions: Vec<String>,
    /// The assumed page size of the flash tier in bytes, if the configuration does not set it and
    /// on a real machine the device would decide.
    pub assumed_page_bytes: Option<u32>,
}

/// A volume and the store behind it.
#[derive(Clone, Debug)]
pub struct SimulatedVolume {
    /// Its name.
    pub name: String,
    /// Its size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Whether the volume rejects writes.
    pub read_only: bool,
    /// Its priority, for replacement policies that use priorities; 1 is the highest.
    pub priority: u8,
    /// Whether its requests may bypass the cache.
    pub bypass: bool,
    /// The store behind it.
    pub backing: Profile,
}

/// How long copies from and to the frames of tier 1 take. The single processor of the simulated
/// machine makes them one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Time to read 4 KiB; other lengths take proportional time.
    pub read: Nanos,
    /// Time to write 4 KiB; other lengths take proportional time.
    pub write: Nanos,
}

/// A volume as it appears in the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedVolume {
    /// Its name.
    pub name: String,
    /// Its size in bytes, or the largest end offset of any request if the trace does not give a
    /// size.
    pub bytes: u64,
}

/// Names of the devices to use where the configuration names none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// The memory of tier 1; `none` is memory that takes no time.
    pub memory: String,
    /// The flash tier.
    pub flash: String,
    /// The backing stores.
    pub backing: String,
}

impl Default for Defaults {
    fn default() -> Self {
        let text = |name: &str| name.to_owned();
        Defaults { memory: text("FastDRAM"), flash: text("nvme"), backing: text("hdd-7200") }
    }
}

impl Scenario {
    /// Builds the scenario that `config` describes, for a trace with the volumes `traced`.
    ///
    /// A volume of the trace gets the configuration of the volume with the same name, if all
    /// volumes of the trace have the names of configured ones. Otherwise they are matched in order.
    /// If the trace has too many volumes for that, those with the names of configured ones get
    /// their configurations; if there are none, any further volumes use the last configuration.
    /// Without configured volumes, the trace's own volumes are simulated on the default backing
    /// store. Sizes come from the configuration or else from the trace.
    ///
    /// # Errors
    /// If the configuration names an unknown device or describes no valid cache, sets no size for
    /// the flash tier, or if the trace has too many volumes.
    pub fn new(
        config: &Config,
        traced: &[TracedVolume],
        defaults: &Defaults,
    ) -> Result<Scenario, SimulateError> {
        if traced.len() > VOLUMES_MAX {
            return Err(SimulateError::TooManyVolumes { found: traced.len(), most: VOLUMES_MAX });
        }
        let mut assumptions = Vec::new();
        let device = |name: &str| {
            let found = forebay_setup::device_profile(config, name);
            found.ok_or_else(|| SimulateError::UnknownDevice(name.to_owned()))
        };
        let flash_bytes = match &config.flash {
            Some(flash) => Some(flash.size.ok_or(SimulateError::FlashSize)?.bytes()),
            None => None,
        };
        let cache = forebay_setup::cache_config(config, flash_bytes)?;
        let flash = match &config.flash {
            None => Profile::INSTANT,
            Some(flash) => match &flash.shape {
                Some(shape) => device(shape)?,
                None => {
                    assumptions.push(format!("the flash tier is modelled as {}", defaults.flash));
                    device(&defaults.flash)?
                }
            },
        };
        let memory = match defaults.memory.as_str() {
            "none" => Memory::default(),
            name => Memory::from(&device(name)?),
        };
        assumptions.push(match memory {
            Memory { read: Nanos(0), write: Nanos(0) } => "memory adds no latency".to_owned(),
            _ => format!("memory is modelled as {}", defaults.memory),
        });
        let mut unshaped = false;
        let mut volumes = Vec::new();
        for (number, volume) in traced.iter().enumerate() {
            let configured = configured(config, traced, number);
            let backing = match configured.and_then(|c| c.shape.as_deref()) {
                Some(shape) => device(shape)?,
                None => {
                    unshaped = true;
                    device(&defaults.backing)?
                }
            };
            let size = configured.and_then(|c| c.size).map(|size| size.bytes());
            volumes.push(SimulatedVolume {
                name: volume.name.clone(),
                size_bytes: size.unwrap_or_else(|| size_for(volume.bytes, &cache)),
                read_only: configured.is_some_and(|c| c.read_only),
                priority: configured.map_or(1, |c| c.priority as u8),
                bypass: configured.is_none_or(|c| c.bypass),
                backing,
            });
        }
        if unshaped {
            let what = if config.volume.is_empty() { "" } else { " without a `shape`" };
            let device = &defaults.backing;
            assumptions.push(format!("every backing store{what} is modelled as {device}"));
        }
        // The log's page size does not depend on the device. Neither does that of the slots layout
        // on a device too large for pages of one sector.
        let geometry = cache.flash.as_ref().map(|flash| &flash.geometry);
        let assumed_page_bytes = geometry
            .filter(|g| g.has_slots() && u64::from(g.page_size) == SECTOR_BYTES)
            .filter(|_| config.flash.as_ref().is_some_and(|flash| flash.page_size.is_none()))
            .map(|g| g.page_size);
        Ok(Scenario { cache, volumes, memory, flash, assumptions, assumed_page_bytes })
    }
}

impl From<&Profile> for Memory {
    /// Uses the mean latencies of the device as the latencies of 4 KiB.
    fn from(device: &Profile) -> Self {
        Memory { read: device.read.mean(), write: device.write.mean() }
    }
}

/// The configuration of volume `number` of the trace, if any: the one that a replay on the
/// configured volumes uses, as far as there are enough of them.
fn configured<'a>(
    config: &'a Config,
    traced: &[TracedVolume],
    number: usize,
) -> Option<&'a ConfiguredVolume> {
    let all: Vec<_> = traced.iter().map(|v| WorkloadVolume { name: &v.name, used: true }).collect();
    let names: Vec<&str> = config.volume.iter().map(|c| c.name.as_str()).collect();
    if let Ok(targets) = volume_targets(&all, &names) {
        return targets[number].map(|target| &config.volume[target]);
    }
    let by_name = |name: &str| config.volume.iter().find(|c| c.name == name);
    if traced.iter().any(|v| by_name(&v.name).is_some()) {
        return by_name(&traced[number].name);
    }
    config.volume.get(number).or(config.volume.last())
}

/// The size of a volume for `bytes` bytes: whole blocks, at least one, and at most the largest
/// possible volume.
fn size_for(bytes: u64, cache: &CacheConfig) -> u64 {
    let block = cache.block_size.bytes();
    bytes.clamp(1, volume_bytes_limit(cache.block_size) - block).next_multiple_of(block)
}

/// Exclusive upper bound in bytes for the size of a volume with this block size.
pub(crate) fn volume_bytes_limit(block_size: BlockSize) -> u64 {
    let block = block_size.bytes();
    // With large blocks, the largest byte offset (`u64::MAX`) limits the number of blocks.
    BlockKey::BLOCKS_MAX.min(u64::MAX / block) * block
}

/// Rounds a request out to whole sectors, as a block device requires. Returns offset and length.
pub(crate) fn whole_sectors(offset: u64, length: u64) -> (u64, u64) {
    let start = offset - offset % SECTOR_BYTES;
    if length == 0 {
        return (start, 0);
    }
    let end = offset.saturating_add(length);
    let end = end.checked_next_multiple_of(SECTOR_BYTES).unwrap_or(end - end % SECTOR_BYTES);
    (start, end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(names: &[&str]) -> Vec<TracedVolume> {
        names.iter().map(|&n| TracedVolume { name: n.into(), bytes: 10_000 }).collect()
    }

    fn scenario(text: &str, names: &[&str]) -> Result<Scenario, SimulateError> {
        let config = Config::from_toml(text).unwrap();
        Scenario::new(&config, &traced(names), &Defaults::default())
    }

    const TWO: &str = "[[volume]]\nname = 'a'\nbacking = '/a'\nsize = '1MiB'\nshape = 'FastHDD'\n\
                       [[volume]]\nname = 'b'\nbacking = '/b'\nread_only = true\n";

    #[test]
    fn volumes_are_matched_by_name_and_sized_by_the_file_or_the_trace() {
        let s = scenario(TWO, &["b", "a", "c"]).unwrap();
        let sizes: Vec<u64> = s.volumes.iter().map(|v| v.size_bytes).collect();
        assert_eq!(sizes, [12_288, 1 << 20, 12_288]);
        assert_eq!(Some(&s.volumes[1].backing), Profile::named("FastHDD").as_ref());
        assert!(s.volumes[0].read_only && !s.volumes[2].read_only);
        assert!(s.assumptions.iter().any(|a| a.contains("hdd-7200")), "{:?}", s.assumptions);
    }

    #[test]
    fn a_volume_without_a_size_has_the_traces_in_blocks_of_every_size() {
        for block_kib in [4, 8, 16, 32, 64_u64] {
            let config = format!("[cache]\nblock_size = '{block_kib}KiB'\ndram = '16MiB'");
            let config = Config::from_toml(&config).unwrap();
            for bytes in [0, 1, 10_000, 1 << 47, u64::MAX] {
                let traced = [TracedVolume { name: "a".into(), bytes }];
                let s = Scenario::new(&config, &traced, &Defaults::default()).unwrap();
                let (size, block) = (s.volumes[0].size_bytes, block_kib << 10);
                assert!(size >= block && size % block == 0, "{block_kib} KiB: {size}");
                assert!(size >= bytes || bytes == u64::MAX, "{block_kib} KiB: {size}");
                assert!(size / block <= BlockKey::BLOCKS_MAX);
            }
        }
    }

    #[test]
    fn volumes_of_unknown_names_are_matched_by_their_order() {
        let s = scenario(TWO, &["x", "y", "z"]).unwrap();
        let read_only: Vec<bool> = s.volumes.iter().map(|v| v.read_only).collect();
        assert_eq!(read_only, [false, true, true]);
    }

    #[test]
    fn a_page_is_assumed_where_the_device_would_decide() {
        let assumed = |more: &str| {
            let text = format!("[flash]\npath = 'f'\nsize = '64MiB'\n{more}");
            scenario(&text, &["a"]).unwrap().assumed_page_bytes
        };
        assert_eq!(assumed(""), Some(512));
        assert_eq!([assumed("page_size = '512B'"), assumed("layout = 'log'")], [None, None]);
        assert_eq!(scenario("", &["a"]).unwrap().assumed_page_bytes, None, "there is no flash");
    }

    #[test]
    fn what_cannot_be_simulated_is_said() {
        let unsized_flash = scenario("[flash]\npath = '/dev/x'", &["a"]);
        assert!(matches!(unsized_flash, Err(SimulateError::FlashSize)));
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(matches!(scenario("", &many), Err(SimulateError::TooManyVolumes { .. })));
        let defaults = Defaults { backing: "floppy".into(), ..Defaults::default() };
        let error = Scenario::new(&Config::default(), &traced(&["a"]), &defaults).unwrap_err();
        assert!(error.to_string().contains("FastHDD"), "{error}");
    }

    #[test]
    fn requests_are_rounded_out_to_sectors_and_never_overflow() {
        assert_eq!(whole_sectors(0, 512), (0, 512));
        assert_eq!(whole_sectors(511, 2), (0, 1024));
        assert_eq!(whole_sectors(513, 0), (512, 0));
        let (start, length) = whole_sectors(u64::MAX - 5, 100);
        assert!(start.checked_add(length).is_some());
    }
}
