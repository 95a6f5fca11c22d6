//! How an engine is opened and stopped, and what it serves.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_block::Volume;
use forebay_device::file::DirectIo;
use forebay_device::{Backend, HugePages};

use crate::watch::Watch;

/// How an engine is opened; what is not a property of the cache itself.
#[derive(Debug, Default)]
pub struct EngineOptions {
    /// Write an empty flash tier, and headers where there is something else. Refused when that
    /// would lose dirty data.
    pub format: bool,
    /// Give up dirty data that stands in the way.
    pub discard_dirty_data: bool,
    /// Drop what is clean on the flash tier, whether or not others have used the stores; dirty data
    /// go to the stores first, over what is there.
    pub drop_clean: bool,
    /// Which way to the devices.
    pub backend: Backend,
    /// Whether to pass the page cache by.
    pub direct: DirectIo,
    /// How memory for blocks is had.
    pub huge_pages: HugePages,
    /// Each request is handed to the cache when nothing is left to do for those before it, and
    /// operations of devices end in the order in which they were begun. Slow, and decides exactly
    /// as `forebay_simulate::Pacing::Quiesced`, whatever the devices do.
    pub one_at_a_time: bool,
    /// Where to write a tape.
    pub tape: Option<PathBuf>,
    /// Who watches the devices: for tests.
    pub watch: Option<Arc<dyn Watch>>,
}

impl EngineOptions {
    /// What the user says may be lost.
    pub(crate) fn give_up(&self) -> GiveUp {
        GiveUp { headers: self.format, dirty: self.format && self.discard_dirty_data }
    }
}

/// What may be overwritten at an opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GiveUp {
    /// Headers that are void or of another layout.
    pub headers: bool,
    /// Such headers of stores whose newest data are elsewhere, too.
    pub dirty: bool,
}

/// What becomes of dirty data at a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StopMode {
    /// It goes to the backing stores, which are then the whole truth.
    #[default]
    Destage,
    /// It stays on flash, durable; the next start takes it over. Without a flash tier this is
    /// the same as [`StopMode::Destage`].
    Keep,
    /// As [`StopMode::Destage`], and nothing cached of the stores counts any more: others may use
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
    /// Whether writes are refused.
    pub read_only: bool,
}
