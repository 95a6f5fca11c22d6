//! The whole configuration file.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_model::Profile;

use crate::schema::{Value, section};
use crate::sections::{
    Acknowledge, Admission, Bypass, Cache, Etica, Flash, Flush, Replacement, Serve, Shape, Volume,
    Workers,
};
use crate::{Address, Size, WritePolicy};

section! {
    /// The configuration file.
    pub struct Config {
        /// The cache itself.
        cache: Cache = {};
        /// The flash tier.
        flash: Option<Flash> = unset;
        /// The exported disks.
        volume: Vec<Volume> = [];
        /// Where the server listens.
        serve: Serve = {};
        /// Which block is evicted when space is needed.
        replacement: Replacement = {};
        /// Which blocks may enter flash.
        admission: Admission = {};
        /// The queues of the relation `etica`.
        etica: Etica = {};
        /// Which requests bypass the cache.
        bypass: Bypass = {};
        /// When dirty blocks are written to the backing store.
        flush: Flush = {};
        /// How the work is distributed over processors.
        workers: Workers = {};
        /// Modelled devices.
        shape: BTreeMap<String, Shape> = {};
    }
}

/// Maximum number of shards that a cache supports.
pub(crate) const SHARDS_MAX: u32 = 64;

impl Config {
    /// When a write is acknowledged, including the default, which depends on the flash tier; `None`
    /// for write policies that keep no dirty data.
    pub fn acknowledge(&self) -> Option<Acknowledge> {
        let dirty = self.cache.write_policy.keeps_dirty_data();
        dirty.then(|| self.acknowledge_of_write_back())
    }

    /// When a write would be acknowledged under a write policy that keeps dirty data, even if the
    /// current policy keeps none.
    pub fn acknowledge_of_write_back(&self) -> Acknowledge {
        let default = match self.flash {
            Some(_) => Acknowledge::Flash,
            None => Acknowledge::Dram,
        };
        self.cache.acknowledge.unwrap_or(default)
    }

    /// The keys whose values differ between the two configurations, as paths such as `cache.dram`
    /// or `volume.0.size`.
    pub fn changed_keys(&self, other: &Config) -> Vec<String> {
        let mut keys = Vec::new();
        self.differences(other, "", &mut keys);
        keys
    }

    /// Whether `shape = "NAME"` is valid: there is a `[shape.NAME]`, or `forebay-model` knows a
    /// device of this name.
    pub fn has_shape(&self, name: &str) -> bool {
        self.shape.contains_key(name) || Profile::NAMES.contains(&name)
    }

    /// A configuration that runs on any Linux machine, with all files in `directory`: a small
    /// write-back cache in front of a file that behaves like a slow disk.
    pub fn demo(directory: &Path) -> Config {
        let text = |name: &str| directory.join(name);
        Config {
            cache: Cache {
                dram: Size(32 << 20),
                write_policy: WritePolicy::WriteBack,
                ..Cache::default()
            },
            flash: Some(Flash {
                path: text("flash.img"),
                size: Some(Size(256 << 20)),
                ..Flash::default()
            }),
            volume: vec![Volume {
                name: "demo".to_string(),
                backing: text("disk.img").to_string_lossy().into_owned(),
                size: Some(Size(1 << 30)),
                shape: Some("SlowHDD".to_string()),
                ..Volume::default()
            }],
            serve: Serve {
                nbd: Address::Unix(text("nbd.sock")),
                control: Address::Unix(text("control.sock")),
                control_token_file: text("control.token"),
                ..Serve::default()
            },
            ..Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgement_follows_the_tiers_there_are() {
        let mut config = Config::default();
        assert_eq!(config.acknowledge(), None, "write-through keeps nothing back");
        config.cache.write_policy = WritePolicy::WriteBack;
        assert_eq!(config.acknowledge(), Some(Acknowledge::Dram));
        config.flash = Some(Flash::default());
        assert_eq!(config.acknowledge(), Some(Acknowledge::Flash));
        config.cache.acknowledge = Some(Acknowledge::Dram);
        assert_eq!(config.acknowledge(), Some(Acknowledge::Dram));
    }

    #[test]
    fn what_differs_between_two_files_is_named_by_its_keys() {
        let text = "[flash]\npath = 'f'\nsize = '1GiB'\n[[volume]]\nname = 'v'\nbacking = 'b'\n";
        let old = Config::from_toml(text).unwrap();
        assert_eq!(old.changed_keys(&old), [""; 0]);
        let more = "[[volume]]\nname = 'w'\nbacking = 'c'\n";
        for (new, keys) in [
            (text.replace("'1GiB'", "'2GiB'"), &["flash.size"][..]),
            (
                text.replace("size = '1GiB'", "batch_size = '64KiB'"),
                &["flash.size", "flash.batch_size"],
            ),
            (text.replace("'b'", "'c'"), &["volume.0.backing"]),
            (text.to_owned() + more, &["volume"]),
            (text.to_owned() + "[cache]\ndram = '1GiB'", &["cache.dram"]),
            (text.to_owned() + "[shape.x]\ndevice = 'san'", &["shape"]),
            (more.to_owned(), &["flash", "volume.0.name", "volume.0.backing"]),
        ] {
            assert_eq!(old.changed_keys(&Config::from_toml(&new).unwrap()), keys, "{new}");
        }
    }

    #[test]
    fn the_demo_configuration_is_valid() {
        let config = Config::demo(Path::new("/tmp/forebay-demo"));
        config.check().unwrap();
        config.check_volumes().unwrap();
    }

    #[test]
    fn a_shape_is_a_device_by_name_or_a_section() {
        let config = Config::from_toml("[shape.near]\ndevice = 'san'").unwrap();
        for name in Profile::NAMES.into_iter().chain(["near"]) {
            assert!(config.has_shape(name), "{name}");
        }
        assert!(!config.has_shape("far"));
        for name in Profile::NAMES {
            let text = format!(
                "[flash]\npath = 'f'\nshape = '{name}'\n\
                 [[volume]]\nname = 'v'\nbacking = 'b'\nshape = '{name}'\n\
                 [shape.mine]\ndevice = '{name}'"
            );
            assert_eq!(Config::from_toml(&text).map(|_| ()), Ok(()), "{name}");
        }
    }
}
