//! How a flash device is divided: superblock copies, then regions of pages.
//!
//! Every number is a parameter, so that tests can use regions of ten pages and wrap within a
//! few appends. The numbers that shape the format are stored in the superblock, and the stored
//! ones win at recovery; the others are limits of this run only.

use core::fmt;

/// The largest number of granules in a block: masks are 16 bits wide.
pub const GRANULES_MAX: u32 = 16;
/// One more than the largest page number a `Position` may hold.
pub const POSITIONS_MAX: u64 = u32::MAX as u64;
/// Copies of the superblock, at the start of the device.
pub(crate) const SUPERBLOCK_COPIES: u32 = 2;

/// How a flash device is divided and how much of the log may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a cached block: a power of two, 512 B to 1 MiB. Stored.
    pub block_size: u32,
    /// Bytes of a flash page, to which headers and payloads are aligned: a power of two, 4 KiB
    /// to 64 KiB. Stored.
    pub page_size: u32,
    /// Pages of a region, its header page included. Stored.
    pub region_pages: u32,
    /// Number of regions. Stored.
    pub regions: u32,
    /// Pages of each copy of the superblock. Stored.
    pub superblock_pages: u32,
    /// Bytes of an extent of the activity log: a power of two, at least a block. Stored.
    pub extent_bytes: u64,
    /// Largest batch in pages, its header page included.
    pub batch_pages_max: u32,
    /// Largest number of entries in a batch.
    pub batch_entries_max: u32,
    /// Largest number of batches being written at once.
    pub inflight_batches_max: u32,
    /// Largest number of extents marked active at once.
    pub active_extents_max: u32,
}

/// Why a geometry cannot work.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GeometryError {
    /// The device has too few bytes for even the smallest log.
    DeviceTooSmall {
        /// Bytes it has.
        size: u64,
        /// Bytes it would need.
        needed: u64,
    },
    /// A number is outside its range, or two numbers do not go together.
    Invalid(&'static str),
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::DeviceTooSmall { size, needed } => write!(
                f,
                "the flash device has {size} bytes, a log needs at least {needed}; \
                 choose a larger device or a smaller block size"
            ),
            GeometryError::Invalid(what) => write!(f, "impossible flash geometry: {what}"),
        }
    }
}

impl std::error::Error for GeometryError {}

impl Geometry {
    /// The default division of a device of `size` bytes for blocks of `block_size` bytes:
    /// regions of 16 MiB (smaller on small devices, so that there are at least 16 of them where
    /// possible), batches of up to 128 blocks or 1 MiB, 64 active extents of 8 MiB.
    ///
    /// # Errors
    /// If the block size is impossible or the device too small.
    pub fn for_device(size: u64, block_size: u32) -> Result<Geometry, GeometryError> {
        let mut g = Geometry {
            block_size,
            page_size: 4096,
            region_pages: 4096,
            regions: 0,
            superblock_pages: 16,
            extent_bytes: 8 << 20,
            batch_pages_max: 257,
            batch_entries_max: 128,
            inflight_batches_max: 4,
            active_extents_max: 64,
        };
        if !block_size.is_power_of_two() || !(512..=1 << 20).contains(&block_size) {
            return Err(GeometryError::Invalid("block_size is no power of two from 512 to 1 MiB"));
        }
        let floor = 2 + 2 * g.block_pages();
        let pages = size / u64::from(g.page_size);
        let room = pages.min(POSITIONS_MAX).saturating_sub(u64::from(g.first_region_page()));
        while room / u64::from(g.region_pages) < 16 && g.region_pages / 2 >= floor.max(16) {
            g.region_pages /= 2;
        }
        g.regions = (room / u64::from(g.region_pages)) as u32;
        if g.regions < 4 {
            let needed = u64::from(g.first_region_page()) + 4 * u64::from(g.region_pages);
            return Err(GeometryError::DeviceTooSmall {
                size,
                needed: needed * u64::from(g.page_size),
            });
        }
        g.batch_pages_max = g.batch_pages_max.max(1 + g.block_pages()).min(g.region_pages - 1);
        g.validate()?;
        Ok(g)
    }

    /// Whether the numbers go together.
    ///
    /// # Errors
    /// Names the first that does not.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let check = |ok: bool, what| if ok { Ok(()) } else { Err(GeometryError::Invalid(what)) };
        check(
            self.block_size.is_power_of_two() && (512..=1 << 20).contains(&self.block_size),
            "block_size is no power of two from 512 to 1 MiB",
        )?;
        check(
            self.page_size.is_power_of_two() && (4096..=65536).contains(&self.page_size),
            "page_size is no power of two from 4096 to 65536",
        )?;
        check((3..=1 << 24).contains(&self.regions), "regions is outside 3 to 2^24")?;
        check(
            (2 + self.block_pages()..=1 << 20).contains(&self.region_pages),
            "region_pages is over 2^20 or has no room for two headers and a block",
        )?;
        check(
            (1 + self.block_pages()..self.region_pages).contains(&self.batch_pages_max)
                && self.batch_pages_max <= 1 << 15,
            "batch_pages_max has no room for a block, or does not fit a region",
        )?;
        check(
            (1..=crate::format::batch::entries_max(self.page_size))
                .contains(&self.batch_entries_max),
            "batch_entries_max is 0 or more than a header page holds",
        )?;
        check(
            (1..=255).contains(&self.inflight_batches_max),
            "inflight_batches_max is outside 1 to 255",
        )?;
        check(
            self.extent_bytes.is_power_of_two()
                && self.extent_bytes >= u64::from(self.block_size)
                && self.extent_bytes <= 1 << 32,
            "extent_bytes is no power of two from a block to 4 GiB",
        )?;
        check(
            (1..=1 << 15).contains(&self.active_extents_max),
            "active_extents_max is outside 1 to 32768",
        )?;
        check(
            (1..=1 << 10).contains(&self.superblock_pages)
                && crate::format::superblock::bindings_max(self) >= 1,
            "superblock_pages is over 1024 or has no room for the tables",
        )?;
        check(self.pages() <= POSITIONS_MAX, "more pages than a position can name")
    }

    /// Bytes of a granule, the unit of validity and dirtiness: the larger of 512 B and a
    /// sixteenth of a block.
    pub const fn granule_bytes(&self) -> u32 {
        let sixteenth = self.block_size / GRANULES_MAX;
        if sixteenth > 512 { sixteenth } else { 512 }
    }
    /// The mask with every granule of a block set.
    pub const fn full_mask(&self) -> u16 {
        let granules = self.block_size / self.granule_bytes();
        ((1u32 << granules) - 1) as u16
    }
    /// Bytes of a payload with these valid granules.
    pub const fn payload_bytes(&self, valid: u16) -> u32 {
        valid.count_ones() * self.granule_bytes()
    }
    /// Pages of a payload with these valid granules.
    pub const fn payload_pages(&self, valid: u16) -> u32 {
        self.payload_bytes(valid).div_ceil(self.page_size)
    }
    /// Pages of a whole block.
    pub const fn block_pages(&self) -> u32 {
        self.block_size.div_ceil(self.page_size)
    }
    /// Blocks of an extent of the activity log.
    pub const fn extent_blocks(&self) -> u64 {
        self.extent_bytes / self.block_size as u64
    }
    /// First page behind the superblock copies.
    pub const fn first_region_page(&self) -> u32 {
        self.superblock_pages * SUPERBLOCK_COPIES
    }
    /// Pages in use, superblock included.
    pub const fn pages(&self) -> u64 {
        self.first_region_page() as u64 + self.regions as u64 * self.region_pages as u64
    }
    /// Bytes of the device in use; it must have at least these.
    pub const fn device_bytes(&self) -> u64 {
        self.pages() * self.page_size as u64
    }
    /// First page of region number `region`.
    pub const fn region_start(&self, region: u32) -> u32 {
        self.first_region_page() + region * self.region_pages
    }
}
