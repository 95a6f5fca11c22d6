//! The configuration file, and the notation for sizes and times that it shares with the command
//! line.
//!
//! [`Config`] is the whole file as plain structs. Loading it rejects errors *before* anything is
//! opened or written: an unknown key (the message names the closest one), an invalid value, keys
//! that contradict each other, or a policy that this version does not support. Every [`Problem`]
//! names its key and its line.
//!
//! ```
//! use forebay_config::{Config, WritePolicy};
//! let config = Config::from_toml(r#"
//!     [cache]
//!     dram = "1GiB"
//!     write_policy = "write-back"
//!     [[volume]]
//!     name = "vm1"
//!     backing = "/dev/sdb"
//! "#).unwrap();
//! assert_eq!(config.cache.write_policy, WritePolicy::WriteBack);
//! assert_eq!(config.cache.dram_blocks(), 1 << 18);
//!
//! let error = Config::from_toml("[cache]\ndarm = '1GiB'").unwrap_err();
//! assert_eq!(error.problems[0].line, Some(2));
//! assert!(error.to_string().contains("the closest name is `dram`"));
//! ```

mod address;
mod check;
mod config;
mod document;
mod error;
mod load;
mod mode;
mod schema;
mod sections;
mod units;

pub use address::{Address, AddressError};
pub use config::Config;
pub use document::{reference, sections};
pub use error::{ConfigError, Problem};
pub use mode::{FileMode, FileModeError};
pub use schema::{Choice, Key, Nested, Table};
pub use sections::*;
pub use units::{Size, TimeSpan, UnitError, distinct_sizes};
