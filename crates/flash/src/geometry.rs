//! The layout of a flash device: superblock copies, then regions of pages, then, in the layout
//! *slots*, cells of one block each.
//!
//! Every number is a parameter, so that tests can use regions of ten pages and wrap within a few
//! appends. The numbers that shape the format are stored in the superblock, and a run must use the
//! stored ones ([`Geometry::as_stored`]). The others are limits of this run only.

use crate::format::batch::entries_max;
use crate::format::superblock::Superblock;
use crate::granules::Granules;
use crate::key::RegionIndex;
use crate::layout::Layout;
use crate::types::LogError;
use core::fmt;

/// Most granules in a block: a set of granules ([`Granules`]) has 16 bits.
pub const GRANULES_MAX: u32 = 16;
/// One more than the largest page number a `Position` may hold.
pub const POSITIONS_MAX: u64 = u32::MAX as u64;
/// Copies of the superblock, at the start of the device.
pub(crate) const SUPERBLOCK_COPIES: u32 = 2;

/// Most bytes of a region by default.
const REGION_BYTES_MAX: u32 = 16 << 20;
/// Fewest cells of a device divided by [`Geometry::in_slots`].
const SLOTS_MIN: u32 = 16;

/// How a flash device is divided and how much of the log may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a cached block: a power of two, 512 B to 1 MiB. Stored.
    pub block_size: u32,
    /// Bytes of a flash page, to which headers and payloads are aligned: a power of two, 512 B
    /// to 64 KiB. Stored.
    pub page_size: u32,
    /// Pages of a region, its header page included. Stored.
    pub region_pages: u32,
    /// Number of regions. Stored.
    pub regions: u32,
    /// Number of cells after the regions, one block each: 0 in the *log* layout, whose payloads are
    /// in the regions. In the *slots* layout the regions are the journal of the mapping. Stored.
    pub slots: u32,
    /// Pages reserved at the end of each region for its directory, in the *log* layout; 0 for none.
    /// Each region's header has its own number.
    pub directory_pages: u32,
    /// Pages of each copy of the superblock. Stored.
    pub superblock_pages: u32,
    /// Bytes of an extent of the activity log: a power of two, at least one block. Stored.
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

/// Why a geometry is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GeometryError {
    /// The device is too small even for the smallest log.
    DeviceTooSmall {
        /// Bytes it has.
        size: u64,
        /// Bytes it would need.
        needed: u64,
    },
    /// A number is outside its range, or two numbers do not match.
    Invalid(&'static str),
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::DeviceTooSmall { size, needed } => write!(
                f,
                "the flash device has {size} bytes, but a log needs at least {needed}; choose a \
                 larger device or a smaller block size"
            ),
            GeometryError::Invalid(what) => write!(f, "invalid flash geometry: {what}"),
        }
    }
}

impl std::error::Error for GeometryError {}

impl Geometry {
    /// The default division of a device of `size` bytes for blocks of `block_size` bytes: regions
    /// of 16 MiB, batches of up to 128 blocks or 1 MiB, 1024 active extents of 8 MiB. On smaller
    /// devices a region is a 128th of the device, so that the free and the open regions take little
    /// of it. (Still smaller regions would have too few neighbouring blocks that can be destaged
    /// together.) Regions shrink down to 512 KiB or 64 blocks, and further where needed for 16
    /// regions, where possible.
    ///
    /// # Errors
    /// If the block size is impossible or the device too small.
    pub fn for_device(size: u64, block_size: u32) -> Result<Geometry, GeometryError> {
        let mut g = Geometry {
            block_size,
            page_size: 4096,
            region_pages: 4096,
            regions: 0,
            slots: 0,
            directory_pages: 0,
            superblock_pages: 16,
            extent_bytes: 8 << 20,
            batch_pages_max: 257,
            batch_entries_max: 128,
            inflight_batches_max: 4,
            active_extents_max: 1024,
        };
        if !block_size.is_power_of_two() || !(512..=1 << 20).contains(&block_size) {
            return Err(GeometryError::Invalid(
                "block_size must be a power of two from 512 to 1 MiB",
            ));
        }
        let floor = 2 + 2 * g.block_pages();
        let pages = size / u64::from(g.page_size);
        let room = pages.min(POSITIONS_MAX).saturating_sub(u64::from(g.first_region_page()));
        let small = (64 * g.block_pages()).max(128);
        for (regions, of, least) in [(128, pages, small), (16, room, floor.max(16))] {
            while of / u64::from(g.region_pages) < regions && g.region_pages / 2 >= least {
                g.region_pages /= 2;
            }
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
        let g = g.with_directories();
        g.validate()?;
        Ok(g)
    }

    /// This geometry with pages of `page_size` bytes and regions of `region` bytes, for a device of
    /// `size` bytes. It must be of the *log* layout, like all default geometries of this module.
    #[must_use]
    pub fn with_pages(self, size: u64, page_size: u32, region: u32) -> Geometry {
        let mut g = Geometry { page_size, ..self };
        g.region_pages = (region / page_size).max(4 + 2 * g.block_pages());
        g.superblock_pages *= (self.page_size / page_size).max(1);
        g.batch_entries_max = g.batch_entries_max.min(entries_max(page_size));
        let room = (size / u64::from(page_size)).saturating_sub(u64::from(g.first_region_page()));
        g.regions = u32::try_from(room / u64::from(g.region_pages)).unwrap_or(u32::MAX);
        g
    }

    /// This geometry with directories of the size that its regions need: room for one entry for
    /// each page, or for two for each whole block if that is less. (A region with more entries,
    /// because many are tombstones or parts of blocks, gets no directory.) No directories if one
    /// would take more than a thirty-second of a region, nor in the *slots* layout, whose journal
    /// contains only entries.
    #[must_use]
    pub const fn with_directories(self) -> Geometry {
        let blocks = 2 * (self.region_pages / self.block_pages()) as usize;
        let pages = self.region_pages as usize;
        let entries = if blocks < pages { blocks } else { pages };
        let bytes = crate::format::directory::bytes(entries, entries);
        let directory_pages = bytes.div_ceil(self.page_size as usize) as u32;
        let none = self.has_slots()
            || 32 * directory_pages > self.region_pages
            || 2 + self.block_pages() + directory_pages > self.region_pages
            || directory_pages > u16::MAX as u32;
        Geometry { directory_pages: if none { 0 } else { directory_pages }, ..self }
    }

    /// Divides the device for the *slots* layout on a device of `size` bytes: a journal with room
    /// for more than three mappings of all cells (two mappings, plus free regions), in regions of
    /// `region_pages` or a sixteenth of the journal, and cells in the rest.
    ///
    /// # Errors
    /// If the device is too small.
    pub fn in_slots(self, size: u64, region_pages: Option<u32>) -> Result<Geometry, GeometryError> {
        let pages = (size / u64::from(self.page_size)).min(POSITIONS_MAX);
        let room = pages.saturating_sub(u64::from(self.first_region_page()));
        let cell = u64::from(self.block_pages());
        let most = (room / cell).min(u64::from(u32::MAX >> 1));
        let journal = 3 * most.div_ceil(u64::from(self.batch_entries_max));
        // A multiple of 4 KiB, so that cells are aligned to 4 KiB.
        let whole = (4096 / self.page_size).max(1);
        let most = REGION_BYTES_MAX / self.page_size;
        let region_pages = region_pages
            .unwrap_or(((journal / 16).clamp(16, u64::from(most)) as u32).next_multiple_of(whole));
        let held = u64::from(region_pages.max(2) - 1);
        let regions = journal.div_ceil(held).clamp(6, 1 << 24) as u32;
        let first = u64::from(regions) * u64::from(region_pages);
        let slots = (room.saturating_sub(first) / cell).min(u64::from(u32::MAX >> 1)) as u32;
        if slots < SLOTS_MIN {
            let pages = u64::from(self.first_region_page()) + first + u64::from(SLOTS_MIN) * cell;
            let needed = pages * u64::from(self.page_size);
            return Err(GeometryError::DeviceTooSmall { size, needed });
        }
        let g = Geometry { region_pages, regions, slots, directory_pages: 0, ..self };
        g.validate()?;
        Ok(g)
    }

    /// This geometry with the numbers that a superblock stores: the geometry of a run on the log
    /// that the superblock describes. The limits of this run are kept where they fit the stored
    /// numbers. If regions keep their shape, so do their directories; otherwise directories are as
    /// [large](Geometry::with_directories) as the regions need.
    ///
    /// The log refuses a geometry with other numbers than the stored ones, so a caller that does
    /// not know the stored numbers converts its geometry first, and builds everything else from the
    /// result. The caller checks whether the result has this run's block size and layout, and fits
    /// the device.
    ///
    /// # Errors
    /// [`LogError::Layout`] if this version does not know the layout, and
    /// [`LogError::SuperblockDamaged`] if no log can have such numbers.
    pub fn as_stored(&self, stored: &Superblock) -> Result<Geometry, LogError> {
        let layout = Layout::from_number(stored.layout);
        let layout = layout.ok_or(LogError::Layout(stored.layout))?;
        let Superblock { block_size, page_size, region_pages, .. } = *stored;
        let Superblock { regions, superblock_pages, slots, extent_bytes, .. } = *stored;
        let active_extents_max = self.active_extents_max.max(stored.active.len() as u32);
        let mut g = Geometry { active_extents_max, block_size, page_size, region_pages, ..*self };
        g = Geometry { regions, superblock_pages, slots, extent_bytes, ..g };
        let is_valid = |g: &Geometry| g.validate().is_ok() && g.layout() == layout;
        let shape = |g: &Geometry| (g.block_size, g.page_size, g.region_pages, g.layout());
        if shape(self) != shape(&g) {
            g.batch_entries_max = self.batch_entries_max.min(entries_max(page_size));
            // Nothing is derived from the numbers before they are known to be possible.
            (g.directory_pages, g.batch_pages_max) = (0, 1 + block_size.div_ceil(page_size.max(1)));
            if !is_valid(&g) {
                return Err(LogError::SuperblockDamaged);
            }
            g = g.with_directories();
            // (A batch lies in one region of the log.)
            let most = if g.has_slots() { u32::MAX } else { g.usable_pages() - 1 };
            g.batch_pages_max = self.batch_pages_max.max(g.batch_pages_max).min(most);
        }
        if is_valid(&g) { Ok(g) } else { Err(LogError::SuperblockDamaged) }
    }

    /// The layout of records on flash.
    pub const fn layout(&self) -> Layout {
        if self.slots == 0 { Layout::Log } else { Layout::Slots }
    }

    /// Whether the layout is [`Layout::Slots`].
    pub const fn has_slots(&self) -> bool {
        matches!(self.layout(), Layout::Slots)
    }

    /// Checks that the numbers are valid together.
    ///
    /// # Errors
    /// Names the first invalid number.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let check = |ok: bool, what| if ok { Ok(()) } else { Err(GeometryError::Invalid(what)) };
        check(
            self.block_size.is_power_of_two() && (512..=1 << 20).contains(&self.block_size),
            "block_size must be a power of two from 512 to 1 MiB",
        )?;
        check(
            self.page_size.is_power_of_two() && (512..=65536).contains(&self.page_size),
            "page_size must be a power of two from 512 to 65536",
        )?;
        let slots = self.has_slots();
        check(
            (3..=1 << 24).contains(&self.regions),
            "the number of regions must be from 3 to 2^24",
        )?;
        check(!slots || self.regions >= 4, "the slots layout needs at least 4 regions")?;
        let held = u64::from(self.regions.max(2) - 2)
            * u64::from(self.region_pages.max(1) - 1)
            * u64::from(self.batch_entries_max);
        check(
            held >= 2 * u64::from(self.slots),
            "the journal is too small for two copies of the mapping of all slots",
        )?;
        let inside = if slots { 1 } else { self.block_pages() };
        check(
            !slots || self.directory_pages == 0,
            "directory_pages must be 0 in the slots layout",
        )?;
        check(self.directory_pages <= 1 << 15, "directory_pages is greater than 32768")?;
        check(
            (2 + inside + self.directory_pages..=1 << 20).contains(&self.region_pages),
            "region_pages is greater than 2^20, or too small for two headers, a block and the \
             directory",
        )?;
        let most = if slots { (1 << 15) + 1 } else { self.region_pages.min((1 << 15) + 1) };
        check(
            (1 + self.block_pages()..most).contains(&self.batch_pages_max),
            "batch_pages_max is too small to hold a block, or too large for a region",
        )?;
        check(
            (1..=entries_max(self.page_size)).contains(&self.batch_entries_max),
            "batch_entries_max is 0, or more than a header page can hold",
        )?;
        check(
            (1..=255).contains(&self.inflight_batches_max),
            "inflight_batches_max must be from 1 to 255",
        )?;
        check(
            self.extent_bytes.is_power_of_two()
                && self.extent_bytes >= u64::from(self.block_size)
                && self.extent_bytes <= 1 << 32,
            "extent_bytes must be a power of two from the block size to 4 GiB",
        )?;
        check(
            (1..=1 << 15).contains(&self.active_extents_max),
            "active_extents_max must be from 1 to 32768",
        )?;
        check(
            (1..=1 << 10).contains(&self.superblock_pages)
                && crate::format::superblock::bindings_max(self) >= 1,
            "superblock_pages is greater than 1024, or too small for the tables",
        )?;
        check(
            self.pages() <= POSITIONS_MAX,
            "the device has more pages than a position can address",
        )
    }

    /// Log layout: regions kept free for records carried from a region being reclaimed. They hold a
    /// whole region even in the smallest batches, unless there are few regions.
    pub const fn regions_kept(&self) -> u32 {
        match (self.slots, self.regions) {
            (0, 0..8) => 1,
            (0, _) => 2,
            _ => 0,
        }
    }

    /// Log layout: whole blocks that a region holds in batches of at most `batch_entries` blocks.
    pub fn region_blocks(&self, batch_entries: u32) -> u64 {
        let (block, room) = (self.block_pages(), self.usable_pages() - 1);
        let most = self.batch_entries_max.min((self.batch_pages_max - 1) / block);
        let most = most.min(batch_entries).max(1);
        let batch = 1 + most * block;
        let rest = (room % batch).saturating_sub(1) / block;
        u64::from(room / batch * most + rest)
    }

    /// Bytes of a granule, the unit of validity and dirtiness: the larger of 512 B and a
    /// sixteenth of a block.
    pub const fn granule_bytes(&self) -> u32 {
        let sixteenth = self.block_size / GRANULES_MAX;
        if sixteenth > 512 { sixteenth } else { 512 }
    }
    /// All granules of a block.
    pub const fn all_granules(&self) -> Granules {
        Granules::range(0, self.block_size >> self.granule_bytes().trailing_zeros())
    }
    /// Bytes of a payload with these valid granules.
    pub const fn payload_bytes(&self, valid: Granules) -> u32 {
        valid.count() * self.granule_bytes()
    }
    /// Pages of a payload with these valid granules.
    pub const fn payload_pages(&self, valid: Granules) -> u32 {
        // A shift, because the compiler does not know that the page size is a power of two.
        (self.payload_bytes(valid) + self.page_size - 1) >> self.page_size.trailing_zeros()
    }
    /// Pages of a whole block.
    pub const fn block_pages(&self) -> u32 {
        self.block_size.div_ceil(self.page_size)
    }
    /// Blocks of an extent of the activity log.
    pub const fn extent_blocks(&self) -> u64 {
        self.extent_bytes / self.block_size as u64
    }
    /// First page after the superblock copies.
    pub const fn first_region_page(&self) -> u32 {
        self.superblock_pages * SUPERBLOCK_COPIES
    }
    /// Pages in use, superblock included.
    pub const fn pages(&self) -> u64 {
        self.first_cell_page() + self.slots as u64 * self.block_pages() as u64
    }
    /// First page after the regions.
    pub const fn first_cell_page(&self) -> u64 {
        self.first_region_page() as u64 + self.regions as u64 * self.region_pages as u64
    }
    /// Bytes of the device in use; the device must be at least this large.
    pub const fn device_bytes(&self) -> u64 {
        self.pages() * self.page_size as u64
    }
    /// Pages of a region for its header and its batches.
    pub const fn usable_pages(&self) -> u32 {
        self.region_pages - self.directory_pages
    }
    /// First page of the directory of the region.
    pub const fn directory_start(&self, region: RegionIndex) -> u32 {
        self.region_start(region) + self.usable_pages()
    }
    /// First page of the region.
    pub const fn region_start(&self, region: RegionIndex) -> u32 {
        self.first_region_page() + region.0 * self.region_pages
    }
}
