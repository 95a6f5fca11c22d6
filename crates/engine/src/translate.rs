//! Translates the keys of the configuration file to the parameters of the machine, as the simulator
//! does.

use forebay_cache::CacheConfig;
use forebay_config::Config;
use forebay_setup::SetupError;

use crate::error::EngineError;

/// The parameters of the machine for `config`, with a flash tier of `flash_bytes` if there is one.
///
/// # Errors
/// If the file needs a feature that this version does not have, or the flash tier is too small.
pub fn cache_config(config: &Config, flash_bytes: Option<u64>) -> Result<CacheConfig, EngineError> {
    Ok(forebay_setup::cache_config(config, flash_bytes)?)
}

impl From<SetupError> for EngineError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Geometry { path, error } => EngineError::Geometry { path, error },
            other => EngineError::Setup(other),
        }
    }
}
