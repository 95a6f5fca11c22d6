//! Volumes, addresses, sizes and time.

use core::fmt;

/// One exported virtual disk (a VM's disk, a LUN), by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Volume(pub u32);

impl Volume {
    /// The volume's number as an index into a list of all volumes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a block within its volume: byte offset divided by block size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockIndex(pub u64);

/// A block of a volume: the key of a cache lookup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockAddr {
    /// The volume the block belongs to.
    pub volume: Volume,
    /// The block's number within the volume.
    pub block: BlockIndex,
}

/// A point in time or a duration, in nanoseconds. The driver chooses the origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A time of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }
    /// The time in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// This time plus `d`, stopping at the largest value.
    pub const fn saturating_add(self, d: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(d.0))
    }
    /// This time minus `d`, stopping at zero.
    pub const fn saturating_sub(self, d: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(d.0))
    }
}

/// The size of a block in bytes: a power of two from 512 B to 1 MiB.
///
/// The cache itself serves 4 KiB to 64 KiB; other sizes are for measuring and for flash pages.
///
/// ```
/// use forebay_block::BlockSize;
/// let b = BlockSize::new(4096).unwrap();
/// assert_eq!(b.index_of(8191).0, 1);
/// assert_eq!(b.blocks_touched(4095, 2), 2);
/// assert!(BlockSize::new(4097).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockSize {
    shift: u8,
}

/// A size that cannot be a block size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizeError(pub u64);

impl fmt::Display for BlockSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes is not a valid block size: it must be a power of two from 512 to 1048576",
            self.0
        )
    }
}

impl std::error::Error for BlockSizeError {}

impl BlockSize {
    /// 4 KiB, the default everywhere.
    pub const KIB_4: BlockSize = BlockSize { shift: 12 };

    /// A block size of `bytes`.
    ///
    /// # Errors
    /// If `bytes` is not a power of two from 512 to 1 MiB.
    pub const fn new(bytes: u64) -> Result<Self, BlockSizeError> {
        if bytes.is_power_of_two() && bytes >= 512 && bytes <= 1 << 20 {
            Ok(Self { shift: bytes.trailing_zeros() as u8 })
        } else {
            Err(BlockSizeError(bytes))
        }
    }
    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }
    /// log2 of the size in bytes.
    pub const fn shift(self) -> u32 {
        self.shift as u32
    }
    /// The block that holds byte `offset`.
    pub const fn index_of(self, offset: u64) -> BlockIndex {
        BlockIndex(offset >> self.shift)
    }
    /// The first byte of `block`.
    pub const fn offset_of(self, block: BlockIndex) -> u64 {
        block.0 << self.shift
    }
    /// How far `offset` lies into its block, in bytes.
    pub const fn within(self, offset: u64) -> u64 {
        offset & (self.bytes() - 1)
    }
    /// Number of blocks that a range of `length` bytes at `offset` touches; 0 for an empty range.
    pub const fn blocks_touched(self, offset: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        ((offset + (length - 1)) >> self.shift) - (offset >> self.shift) + 1
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        Self::KIB_4
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            b if b >= 1 << 20 => write!(f, "{} MiB", b >> 20),
            b if b >= 1 << 10 => write!(f, "{} KiB", b >> 10),
            b => write!(f, "{b} B"),
        }
    }
}
