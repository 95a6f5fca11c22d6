//! Write policies: which path a request takes.

/// Where reads and writes go, and which blocks they leave in the cache.
///
/// The named policies combine three decisions, so a new policy is a new constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePolicy {
    /// Whether a write ends in the cache and reaches the backing store later; otherwise it ends
    /// when the backing store has it.
    pub write_back: bool,
    /// Whether a written block that is not cached becomes cached.
    pub allocate_on_write: bool,
    /// Whether a read block that is not cached becomes cached.
    pub allocate_on_read: bool,
}

impl WritePolicy {
    /// Writes and reads allocate; writes are destaged later.
    pub const WRITE_BACK: WritePolicy =
        WritePolicy { write_back: true, allocate_on_write: true, allocate_on_read: true };
    /// Writes go to the backing store and stay in the cache.
    pub const WRITE_THROUGH: WritePolicy =
        WritePolicy { write_back: false, allocate_on_write: true, allocate_on_read: true };
    /// ETICA's RO level, and write-around: writes go to the backing store and invalidate; only
    /// reads allocate.
    pub const READ_ONLY: WritePolicy =
        WritePolicy { write_back: false, allocate_on_write: false, allocate_on_read: true };
    /// ETICA's WBWO: only writes allocate, and are destaged later.
    pub const WRITE_ONLY: WritePolicy =
        WritePolicy { write_back: true, allocate_on_write: true, allocate_on_read: false };
}

/// When a write under write-back is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Acknowledge {
    /// When it is in the log: it survives a kill of the process.
    #[default]
    Flash,
    /// When it is in DRAM: the export is like a disk with a volatile write cache, durable at FLUSH
    /// and FUA.
    Dram,
}

/// What a write of part of a block does to the rest of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Partial {
    /// Validity is kept for each granule: whole granules need no read.
    #[default]
    Granule,
    /// The rest of the block is fetched first, as the papers' caches do.
    Fill,
}
