//! From the words of the configuration file to the parameters of the machine: as the simulator
//! understands them, too.

use forebay_block::BlockSize;
use forebay_cache::CacheConfig;
use forebay_config::{Config, Flash};
use forebay_flash::Geometry;
use forebay_setup::SetupError;

use crate::error::EngineError;

/// The parameters of the machine for `config`, with a flash tier of `flash_bytes` if there is
/// one.
///
/// # Errors
/// If the file asks for something that this version does not have, or the flash tier is too
/// small.
pub fn cache_config(config: &Config, flash_bytes: Option<u64>) -> Result<CacheConfig, EngineError> {
    Ok(forebay_setup::cache_config(config, flash_bytes)?)
}

/// How a flash device of `bytes` bytes is divided.
///
/// # Errors
/// If it is too small, or the numbers do not go together.
pub fn geometry(flash: &Flash, bytes: u64, block_size: BlockSize) -> Result<Geometry, EngineError> {
    Ok(forebay_setup::geometry(flash, bytes, block_size)?)
}

impl From<SetupError> for EngineError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Geometry { path, error } => EngineError::Geometry { path, error },
            other => EngineError::Unsupported(other.to_string()),
        }
    }
}
