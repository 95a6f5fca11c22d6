//! Recovery: which records does the device hold, and where does the log end?
//!
//! These steps run in order, each driven by the completion of the read before it:
//!
//! 1. Sync, so that everything read from now on is durable; read both superblock copies. One that
//!    cannot be read counts as damaged.
//! 2. Read the first two pages of every region.
//! 3. Walk the batches from the tail on, and return records as they are found. Payloads of batches
//!    that no structure says were durable are verified. Full regions that were durable have a
//!    directory; only that is read of them.
//! 4. At the first missing batch, *probe*: search everything ahead for batches that know it to have
//!    been durable. If one does, the batch is damaged, and the walk continues after it. If none
//!    does, the log ends here, and the batches ahead are dropped permanently.
//! 5. Make the decision durable: a superblock with a new epoch that begins after the end.
//!
//! Nothing is written before step 5, so a crash before it changes nothing. `walk.rs` (with
//! `ahead.rs` for directories) and `probe.rs` implement steps 3 and 4.

use crate::activity::Activity;
use crate::ahead::{Ahead, LANES};
use crate::binding::SEAL_BYTES;
use crate::cells::Cells;
use crate::epochs;
use crate::format::FormatError;
use crate::format::batch::{BatchEntry, BatchHeader};
use crate::format::region::RegionHeader;
use crate::format::superblock::{Superblock, bindings_max};
use crate::geometry::Geometry;
use crate::io::{Io, SUPERBLOCK_BUFFER, SUPERBLOCK_OTHER};
use crate::key::RegionIndex;
use crate::layout::Layout;
use crate::mapping::Mapped;
use crate::probe::Probe;
use crate::regions::Regions;
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence, StampNumber, SuperblockGeneration};
use crate::stamp::StoreStamp;
use crate::types::{LogError, OnDamage, Options, RecoveryProgress, RecoveryReport};
use crate::walk::{Verify, Window};
use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};

/// Region headers read at once.
const SCANS: u32 = 16;

/// The next use of data that was read.
pub(crate) enum RecoveryStep {
    Superblocks {
        left: u32,
    },
    Regions {
        left: u32,
    },
    /// The directory of the walk's region.
    Directory,
    Header,
    Payload,
    Probe,
    /// A payload in a cell.
    Cell,
}

/// What is being read of a superblock copy: all of it or, after an error, the pages in use. The
/// others are never written, so an error there would stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyRead {
    Whole,
    /// The first page, which says how many are in use.
    First,
    Used,
}

/// The contents of a region's first two pages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scan {
    present: bool,
    /// Whether its own header is intact, or only its first batch's.
    header: bool,
    sequence: RegionSequence,
    pub epoch: u64,
    pub first_batch: BatchSequence,
    synced: BatchSequence,
    /// Pages kept for its directory, by its own header.
    pub directory_pages: u32,
}

/// What a recovery is asked to do.
pub(crate) struct HowToRecover {
    /// Write nothing, verify everything.
    pub check: bool,
    /// Volumes whose backing stores were changed without the log.
    pub changed: Vec<Volume>,
    /// The caller drops all clean records itself: seals stay, and older stores are accepted.
    pub drop_clean: bool,
    /// The stamps of stores.
    pub stores: Vec<StoreStamp>,
    /// Bytes of each volume.
    pub sizes: Vec<u64>,
}

impl HowToRecover {
    /// Only to verify what is there.
    pub const CHECK: HowToRecover = HowToRecover {
        check: true,
        changed: Vec::new(),
        drop_clean: true,
        stores: Vec::new(),
        sizes: Vec::new(),
    };
}

/// A recovery under way.
pub(crate) struct Recovery {
    pub how: HowToRecover,
    /// Volumes whose store is an older copy that may be completed, and the newest batch that each
    /// has.
    incomplete: Vec<(Volume, BatchSequence)>,
    /// By volume: clean records of batches up to and including this one do not count.
    distrusted: Vec<BatchSequence>,
    /// By volume: no records of batches up to and including this one count.
    pub voided: Vec<BatchSequence>,
    pub step: RecoveryStep,
    /// Known once both copies were read.
    pub superblock: Option<Superblock>,
    copies: [Option<Result<Superblock, FormatError>>; 2],
    /// The read of each copy.
    copy_reads: [CopyRead; 2],
    /// A copy could not be read.
    unreadable: Option<IoError>,
    /// Which copy was the newest.
    pub copy: u32,
    scan: Vec<Scan>,
    /// Regions from the tail to the newest that counts.
    live_regions: u64,
    /// Sabotage: batches of every epoch count.
    pub any_epoch: bool,
    /// The region that each scan's buffer is for.
    lanes: [RegionIndex; SCANS as usize],
    /// Buffer of the first scan; the walk's, the chunk's and those of directories are behind the
    /// last.
    buffers: usize,
    chunk_pages: u32,
    /// The place of the next expected batch: region sequence, page within the region, batch
    /// sequence.
    pub region_sequence: RegionSequence,
    pub page: u32,
    pub expected: BatchSequence,
    pub window: Window,
    pub ahead: Ahead,
    pub small_batches: bool,
    /// Highest batch sequence known to have been durable.
    pub known: BatchSequence,
    /// Highest superblock generation known to have been durable.
    pub generation: SuperblockGeneration,
    /// The current batch.
    pub header: Option<BatchHeader>,
    pub entries: Vec<BatchEntry>,
    pub verify: Verify,
    /// Slots layout: the mapping so far.
    pub mapped: Mapped,
    pub probe: Probe,
    pub spare: Vec<BatchEntry>,
    /// Newest region with a batch that counts.
    pub last_region: Option<RegionSequence>,
    pub report: Box<RecoveryReport>,
    pub end: Option<End>,
}

/// How a recovery has ended.
pub(crate) enum End {
    /// The log could not be started; nothing was written.
    Refused(LogError),
    /// Everything was found, up to batch `expected`.
    Found,
}

/// The parts of the log that recovery restores.
pub(crate) struct Restored<'a> {
    pub options: &'a Options,
    pub io: &'a mut Io,
    pub regions: &'a mut Regions,
    pub cells: &'a mut Cells,
    pub activity: &'a mut Activity,
}

impl Restored<'_> {
    /// The device's page number of a page of a region.
    pub fn page_of(&self, region_sequence: RegionSequence, page: u32) -> u32 {
        self.io.geometry.region_start(self.regions.number(region_sequence)) + page
    }
}

/// Pages of the buffer for payloads and probing.
fn chunk_pages(geometry: &Geometry, options: &Options) -> u32 {
    geometry.region_pages.min(options.recovery_chunk_pages.max(1))
}

/// The sizes of the buffers that recovery needs, behind those before.
pub(crate) fn buffer_sizes(geometry: &Geometry, options: &Options, sizes: &mut Vec<usize>) {
    let page = geometry.page_size as usize;
    sizes.extend([2 * page; SCANS as usize]);
    let chunk = chunk_pages(geometry, options).max(geometry.block_pages());
    sizes.extend([page * chunk as usize; 2]);
    sizes.extend([page * geometry.directory_pages as usize; LANES as usize]);
}

impl Recovery {
    /// A recovery that uses the metadata buffers from `buffers` on.
    pub fn new(
        how: HowToRecover,
        buffers: usize,
        geometry: &Geometry,
        options: &Options,
    ) -> Recovery {
        Recovery {
            how,
            incomplete: Vec::new(),
            distrusted: Vec::new(),
            voided: Vec::new(),
            step: RecoveryStep::Superblocks { left: 2 },
            superblock: None,
            copies: [None, None],
            copy_reads: [CopyRead::Whole; 2],
            unreadable: None,
            copy: 0,
            scan: Vec::new(),
            live_regions: 0,
            any_epoch: false,
            lanes: [RegionIndex(0); SCANS as usize],
            buffers,
            chunk_pages: chunk_pages(geometry, options),
            region_sequence: RegionSequence::FIRST,
            page: 1,
            expected: BatchSequence::NONE,
            window: Window::default(),
            ahead: Ahead::default(),
            small_batches: false,
            known: BatchSequence::NONE,
            generation: SuperblockGeneration::NONE,
            header: None,
            entries: Vec::new(),
            verify: Verify::default(),
            mapped: Mapped::default(),
            probe: Probe::default(),
            spare: Vec::new(),
            last_region: None,
            report: Box::default(),
            end: None,
        }
    }

    pub fn header_buffer(&self) -> usize {
        self.buffers + SCANS as usize
    }

    pub fn chunk_buffer(&self) -> usize {
        self.buffers + SCANS as usize + 1
    }

    pub fn directory_buffer(&self, lane: usize) -> usize {
        self.buffers + SCANS as usize + 2 + lane
    }

    /// Pages of the next chunk when `left` are wanted.
    pub fn chunk(&self, left: u32) -> u32 {
        left.min(self.chunk_pages)
    }

    pub fn regions(&self) -> u64 {
        self.scan.len() as u64
    }

    /// The region with this sequence, if it is there and counts.
    pub fn live(&self, sequence: RegionSequence) -> Option<&Scan> {
        let tail = self.superblock().tail_region;
        let scan = &self.scan[sequence.region(self.scan.len() as u32).index()];
        let counts = scan.present
            && scan.sequence == sequence
            && (tail..tail + self.regions()).contains(&sequence)
            && (self.any_epoch
                || epochs::accepts(&self.superblock().epochs, scan.first_batch, scan.epoch));
        counts.then_some(scan)
    }

    /// Whether a header found in region `region_sequence` at its page `page` belongs to a batch that counts.
    pub fn counts(
        &self,
        header: &BatchHeader,
        region_sequence: RegionSequence,
        page: u32,
        pages: u32,
    ) -> bool {
        header.region_sequence == region_sequence
            && page + header.pages <= pages
            && (self.any_epoch
                || epochs::accepts(&self.superblock().epochs, header.sequence, header.epoch))
    }

    /// The progress.
    pub fn progress(&self) -> RecoveryProgress {
        RecoveryProgress {
            regions_done: match self.live_regions {
                0 => 0,
                _ => self.region_sequence - self.superblock().tail_region,
            },
            regions: self.live_regions,
            records: self.report.records,
        }
    }

    /// Whether only the dirty granules of a record count.
    pub fn distrusts(&self, volume: Volume, sequence: BatchSequence) -> bool {
        self.distrusted.get(volume.index()).is_some_and(|&until| sequence <= until)
    }

    /// If the volume's store may be completed: the batch after which it lacks the dirty records.
    pub fn lacks(&self, volume: Volume) -> Option<BatchSequence> {
        self.incomplete.iter().find(|i| i.0 == volume).map(|i| i.1)
    }

    /// Whether the dirty granules of a record do not count either.
    pub fn voids(&self, volume: Volume, sequence: BatchSequence) -> bool {
        self.voided.get(volume.index()).is_some_and(|&until| sequence <= until)
    }

    /// Takes over what a valid header knows.
    pub fn learn(&mut self, header: &BatchHeader) {
        self.known = self.known.max(header.synced);
        self.generation = self.generation.max(header.generation);
    }

    /// A read has ended.
    pub fn read_done(&mut self, buffer: usize, result: Outcome, log: &mut Restored) {
        if let Some(lane) = buffer.checked_sub(self.directory_buffer(0)) {
            return self.directory_read(log, lane, result.is_ok());
        }
        let is_superblock = matches!(self.step, RecoveryStep::Superblocks { .. });
        if is_superblock && self.reads_again(log, buffer, result) {
            return;
        }
        if let Err(error) = result {
            if is_superblock {
                self.unreadable = Some(error);
            } else if !self.how.check && log.options.on_damage != OnDamage::Report {
                return self.refuse(LogError::Io(error));
            }
            log.io.buffers[buffer].fill(0);
        }
        match self.step {
            RecoveryStep::Superblocks { left } => self.superblock_read(log, buffer, left - 1),
            RecoveryStep::Regions { left } => self.region_read(log, buffer, left - 1),
            RecoveryStep::Directory => {}
            RecoveryStep::Header => self.header_read(log),
            RecoveryStep::Payload => self.payload_read(log),
            RecoveryStep::Probe => self.probe_read(log),
            RecoveryStep::Cell => self.cell_read(log),
        }
    }

    /// Nothing is recovered.
    pub fn refuse(&mut self, error: LogError) {
        self.end = Some(End::Refused(error));
    }

    /// The log ends before batch `expected`.
    pub fn end(&mut self) {
        if self.generation > self.superblock().generation {
            return self.refuse_stale();
        }
        self.end = Some(End::Found);
    }

    pub fn read_superblocks(&mut self, log: &mut Restored) {
        let pages = log.io.geometry.superblock_pages;
        self.step = RecoveryStep::Superblocks { left: 2 };
        log.io.read(SUPERBLOCK_BUFFER, 0, pages);
        log.io.read(SUPERBLOCK_OTHER, pages, pages);
    }

    /// A read of a superblock copy has ended. Returns whether another is needed.
    fn reads_again(&mut self, log: &mut Restored, buffer: usize, result: Outcome) -> bool {
        let reads = &mut self.copy_reads[buffer];
        let (next, pages) = match (*reads, result) {
            (CopyRead::Whole, Err(_)) => (CopyRead::First, 1),
            (CopyRead::First, Ok(())) => {
                let used = Superblock::stated_bytes(&log.io.buffers[buffer]) as u32;
                let used = used.div_ceil(log.io.geometry.page_size);
                (CopyRead::Used, used.clamp(1, log.io.geometry.superblock_pages))
            }
            _ => return false,
        };
        *reads = next;
        log.io.read(buffer, buffer as u32 * log.io.geometry.superblock_pages, pages);
        true
    }

    fn superblock_read(&mut self, log: &mut Restored, buffer: usize, left: u32) {
        self.copies[buffer] = Some(Superblock::decode(&log.io.buffers[buffer]));
        self.step = RecoveryStep::Superblocks { left };
        if left > 0 {
            return;
        }
        match self.choose_superblock(log).and_then(|s| self.adopt(log, s)) {
            Ok(()) => self.read_regions(log),
            Err(error) => self.refuse(error),
        }
    }

    /// The newest copy that verifies. An unreadable copy is lost like a damaged one: if it was the
    /// newer one, headers or stamps that name its generation refuse the start (`refuse_stale`,
    /// `judge`).
    fn choose_superblock(&mut self, log: &Restored) -> Result<Superblock, LogError> {
        let copies = [0, 1].map(|n: usize| self.copies[n].take().expect("both copies were read"));
        for copy in &copies {
            if let &Err(FormatError::Version(found)) = copy {
                let supported = crate::format::VERSION;
                return Err(LogError::NewerFormat { found, supported });
            }
        }
        for (n, copy) in copies.iter().enumerate() {
            if copy.is_err() {
                self.report.damage.repaired.push(n as u32 * log.io.geometry.superblock_pages);
            }
        }
        match copies {
            // (Another log's is what a format that was cut had not written over yet: it writes the first copy first.)
            [Ok(a), Ok(b)] if b.uuid == a.uuid && b.generation > a.generation => {
                self.copy = 1;
                Ok(b)
            }
            [Ok(a), _] => Ok(a),
            [Err(_), Ok(b)] => {
                self.copy = 1;
                Ok(b)
            }
            [Err(one), Err(other)] => Err(match (self.unreadable, one, other) {
                // It may be intact.
                (Some(error), ..) => LogError::Io(error),
                (None, FormatError::Missing, FormatError::Missing) => LogError::NotALog,
                (None, ..) => LogError::SuperblockDamaged,
            }),
        }
    }

    /// Takes over the stored tables, if the stored geometry is that of this run.
    fn adopt(&mut self, log: &mut Restored, s: Superblock) -> Result<(), LogError> {
        let run = &log.io.geometry;
        let layout = Layout::from_number(s.layout).ok_or(LogError::Layout(s.layout))?;
        if layout != run.layout() {
            let (stored, expected) = (s.layout, run.layout().number());
            return Err(LogError::OtherLayout { stored, expected });
        }
        for (what, stored, expected) in [
            ("block size", s.block_size.into(), run.block_size.into()),
            ("page size", s.page_size.into(), run.page_size.into()),
            ("superblock pages", s.superblock_pages.into(), run.superblock_pages.into()),
            ("region pages", s.region_pages.into(), run.region_pages.into()),
            ("regions", s.regions.into(), run.regions.into()),
            ("cells", s.slots.into(), run.slots.into()),
            ("extent bytes", s.extent_bytes, run.extent_bytes),
        ] {
            if stored != expected {
                return Err(LogError::Geometry { what, stored, expected });
            }
        }
        // (It differs if more extents are active than this run would have at once.)
        let g = run.as_stored(&s)?;
        let (stored, expected) = (s.bindings.len() as u64, u64::from(bindings_max(&g)));
        if stored > expected {
            return Err(LogError::Geometry { what: "bound volumes", stored, expected });
        }
        log.io.geometry = g;
        log.io.uuid = Some(s.uuid);
        log.cells.begin(s.uuid, core::iter::empty());
        *log.activity = Activity::new(&g, log.options.frames as usize);
        log.activity.load(&s.active);
        self.report.uuid = Some(s.uuid);
        self.report.clean = s.clean;
        self.scan = vec![Scan::default(); g.regions as usize];
        self.any_epoch = log.io.sabotage.is(Bug::EpochsForgotten);
        (self.region_sequence, self.expected, self.known) = (s.tail_region, s.tail_batch, s.synced);
        for binding in &s.bindings {
            let volume = binding.volume.index();
            if self.distrusted.len() <= volume {
                self.distrusted.resize(volume + 1, BatchSequence::NONE);
                self.voided.resize(volume + 1, BatchSequence::NONE);
            }
            let store = self.how.stores.iter().find(|store| store.volume == binding.volume);
            let released = store.is_some_and(|store| store.is_released(&s));
            let size = self.how.sizes.get(volume);
            let resized =
                size.is_some_and(|&size| binding.is_outdated_by(size, u64::from(s.block_size)));
            if resized {
                self.report.resized.push((binding.volume, binding.size));
            }
            if (released || resized) && !self.how.changed.contains(&binding.volume) {
                self.how.changed.push(binding.volume);
            }
            self.voided[volume] = if released { BatchSequence::MAX } else { binding.voided };
            let changed = self.how.changed.contains(&binding.volume);
            self.distrusted[volume] = if changed { BatchSequence::MAX } else { binding.distrusted };
        }
        // (If older stores are accepted, none is completed.)
        let stores = self.how.stores.iter().filter(|_| !self.how.drop_clean);
        let incomplete = stores.filter(|store| store.lacks_records_only(&s));
        self.incomplete = incomplete.map(|store| (store.volume, store.stamp.complete)).collect();
        self.superblock = Some(s);
        Ok(())
    }

    /// What the start of the log is known from.
    pub fn superblock(&self) -> &Superblock {
        self.superblock.as_ref().expect("a recovery begins with the superblock")
    }

    fn read_regions(&mut self, log: &mut Restored) {
        self.step = RecoveryStep::Regions { left: log.io.geometry.regions };
        for lane in 0..SCANS.min(log.io.geometry.regions) {
            self.lanes[lane as usize] = RegionIndex(lane);
            self.read_region(log, lane);
        }
    }

    fn read_region(&self, log: &mut Restored, lane: u32) {
        let page = log.io.geometry.region_start(self.lanes[lane as usize]);
        log.io.read(self.buffers + lane as usize, page, 2);
    }

    /// A region's first two pages are there.
    fn region_read(&mut self, log: &mut Restored, buffer: usize, left: u32) {
        let lane = buffer - self.buffers;
        self.scan_region(log, buffer, self.lanes[lane]);
        self.lanes[lane].0 += SCANS;
        self.step = RecoveryStep::Regions { left };
        if self.lanes[lane].0 < log.io.geometry.regions {
            self.read_region(log, lane as u32);
        }
        if left > 0 {
            return;
        }
        for sequence in self.region_sequence.until(self.region_sequence + self.regions()) {
            let Some(&scan) = self.live(sequence) else { continue };
            self.live_regions = sequence.next() - self.region_sequence;
            self.known = self.known.max(scan.synced);
            if !scan.header {
                let region = log.regions.number(sequence);
                self.report.damage.repaired.push(log.io.geometry.region_start(region));
            }
        }
        if self.generation > self.superblock().generation {
            return self.refuse_stale();
        }
        self.walk(log);
    }

    /// The newest superblock is lost: the start of the log is unknown.
    fn refuse_stale(&mut self) {
        let (found, known) = (self.superblock().generation, self.generation);
        self.refuse(LogError::SuperblockStale { found, known });
    }

    /// Takes the region's header, or its first batch's header if that is newer or alone.
    fn scan_region(&mut self, log: &mut Restored, buffer: usize, region: RegionIndex) {
        let page = log.io.geometry.region_start(region);
        let (first, second) = log.io.buffers[buffer].split_at(log.io.geometry.page_size as usize);
        let mut scan = Scan::default();
        let header = RegionHeader::decode(first, log.io.tier(), page);
        let batch =
            BatchHeader::decode(second, log.io.tier(), page + 1, &log.io.geometry, &mut self.spare);
        if header == Err(FormatError::Misplaced) || batch == Err(FormatError::Misplaced) {
            self.report.damage.misplaced.push(page);
        }
        if let Ok(h) = header {
            self.generation = self.generation.max(h.generation);
            scan = Scan {
                present: log.regions.number(h.sequence) == region,
                header: true,
                sequence: h.sequence,
                epoch: h.epoch,
                first_batch: h.first_batch,
                synced: h.synced,
                directory_pages: u32::from(h.directory_pages),
            };
            if scan.directory_pages >= log.io.geometry.region_pages {
                scan.directory_pages = 0;
            }
        }
        if let Ok(h) = batch {
            self.generation = self.generation.max(h.generation);
            let newer = (h.region_sequence, h.epoch) > (scan.sequence, scan.epoch);
            if log.regions.number(h.region_sequence) == region && (newer || !scan.present) {
                scan = Scan {
                    present: true,
                    header: false,
                    sequence: h.region_sequence,
                    epoch: h.epoch,
                    first_batch: h.sequence,
                    synced: h.synced,
                    directory_pages: 0,
                };
            }
        }
        self.scan[region.index()] = scan;
    }

    /// Begins the next epoch in the contents of the superblock: the log that was found ends with
    /// batch `end`.
    pub fn begin_epoch(
        &self,
        c: &mut Superblock,
        report: &RecoveryReport,
        end: BatchSequence,
        geometry: &Geometry,
    ) {
        c.epoch = c.next_epoch();
        c.clean = false;
        c.clean_before = c.clean_before.min(end);
        for binding in &mut c.bindings {
            let changed = self.how.changed.contains(&binding.volume);
            binding.distrusted = if changed { end } else { binding.distrusted.min(end) };
            if changed && !report.completing.contains(&binding.volume) {
                binding.logged = StampNumber::NONE;
            }
            binding.voided = self.voided[binding.volume.index()].min(end);
            if let Some(&size) = self.how.sizes.get(binding.volume.index()) {
                binding.size = size;
            }
            if !self.how.drop_clean {
                binding.seal = [0; SEAL_BYTES];
            }
        }
        epochs::begin(&mut c.epochs, c.tail_batch, end.next(), c.epoch);
        c.active.reserve(geometry.active_extents_max as usize);
    }
}
