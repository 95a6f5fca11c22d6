//! How an engine is opened and stopped, and what it serves.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_block::Volume;
use forebay_device::file::DirectIo;
use forebay_device::{Backend, HugePages};

use crate::backing_header::HeaderError;
use crate::watch::Watch;

/// How an engine is opened, apart from the properties of the cache.
#[derive(Debug, Default)]
pub struct EngineOptions {
    /// Format the flash tier, and write headers over other data. Refused if that would lose dirty
    /// data.
    pub format: bool,
    /// Give up dirty data that would prevent the start.
    pub discard_dirty_data: bool,
    /// Drop the clean data on the flash tier, whether or not others have used the stores; dirty
    /// data is first written over the stores' contents.
    pub drop_clean: bool,
    /// The I/O backend.
    pub backend: Backend,
    /// Whether to bypass the page cache.
    pub direct: DirectIo,
    /// How memory for blocks is allocated.
    pub huge_pages: HugePages,
    /// Each request is given to the cache when all work for the previous ones has ended, and
    /// operations of devices end in the order in which they began. Slow, but decides exactly as
    /// `forebay_simulate::Pacing::Quiesced`, whatever the devices do.
    pub one_at_a_time: bool,
    /// Where to write a tape.
    pub tape: Option<PathBuf>,
    /// An observer of the devices, for tests.
    pub watch: Option<Arc<dyn Watch>>,
}

impl EngineOptions {
    /// What the user allows to be lost.
    pub(crate) fn give_up(&self) -> GiveUp {
        GiveUp { headers: self.format, dirty: self.format && self.discard_dirty_data }
    }
}

/// What an opening may overwrite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GiveUp {
    /// Headers that are void or of another layout.
    pub headers: bool,
    /// Also such headers of stores whose newest data are elsewhere.
    pub dirty: bool,
}

impl GiveUp {
    /// Whether a header with this error may be overwritten. What an intact one says is not known: the
    /// store may not be whole, and a newer version can read it.
    pub fn covers(self, error: HeaderError) -> bool {
        match error {
            HeaderError::Newer(_) => false,
            HeaderError::Impossible(_) => self.dirty,
            _ => self.headers,
        }
    }
}

/// How a stop treats dirty data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StopMode {
    /// It is destaged; the backing stores are then complete.
    #[default]
    Destage,
    /// It stays on flash, durable, and the next start takes it over. Without a flash tier this is
    /// the same as [`StopMode::Destage`].
    Keep,
    /// Like [`StopMode::Destage`], and no cached data of the stores counts any more: others may use
    /// them.
    Release,
}

/// A volume of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeDescription {
    /// Its name.
    pub name: String,
    /// Its number in requests.
    pub volume: Volume,
    /// Exported bytes.
    pub size_bytes: u64,
    /// Whether the volume rejects writes.
    pub read_only: bool,
}
