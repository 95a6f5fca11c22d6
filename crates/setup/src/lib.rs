//! Turns the configuration file into the parameters of the machine and of its devices.
//!
//! The server, the replayer and the simulator read the same file. Only this crate interprets it, so
//! that a simulated cache is built from exactly the same numbers as the real one. Nothing here
//! opens a device.
//!
//! ```
//! use forebay_config::Config;
//! let config = Config::from_toml("[cache]\ndram = '64MiB'\nwrite_policy = 'write-back'").unwrap();
//! let machine = forebay_setup::cache_config(&config, None).unwrap();
//! assert_eq!(machine.dram_blocks, 16 << 10);
//! ```

mod devices;
mod machine;
mod memory;
mod volumes;

pub use devices::{device_profile, profile};
pub use machine::{
    SetupError, cache_config, check_combination, check_machine, count_blocks, geometry, policy,
    policy_words,
};
pub use memory::{available_memory, bookkeeping_bytes, check_bookkeeping, check_dram};
pub use volumes::{TooManyVolumes, WorkloadVolume, volume_targets};
