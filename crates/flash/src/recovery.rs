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
use crate::io::Io;
use crate::key::RegionIndex;
use crate::layout::Layout;
use crate::mapping::Mapped;
use crate::probe::Probe;
use crate::regions::Regions;
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence, StampNumber, SuperblockGeneration};
use crate::stamp::StoreStamp;
use crate::superblock_copies::SuperblockCopies;
use crate::trust::Trust;
use crate::types::{LogError, OnDamage, Options, RecoveryProgress, RecoveryReport};
use crate::walk::CurrentBatch;
use forebay_block::Volume;
use forebay_effect::Outcome;

/// Number of region headers read at once.
const SCANS: u32 = 16;

/// What recovery is reading.
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

/// The contents of a region's first two pages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scan {
    present: bool,
    /// Whether the region's own header is intact, and not only its first batch's.
    header: bool,
    sequence: RegionSequence,
    pub epoch: u64,
    pub first_batch: BatchSequence,
    synced: BatchSequence,
    /// Pages kept for its directory, by its own header.
    pub directory_pages: u32,
}

/// The parameters of a recovery.
pub(crate) struct HowToRecover {
    /// Whether to write nothing and verify everything.
    pub check: bool,
    /// Volumes whose backing stores were changed without the log.
    pub changed: Vec<Volume>,
    /// Whether the caller drops all clean records itself, so that seals stay and older stores are
    /// accepted.
    pub drop_clean: bool,
    /// The stamps of the backing stores that keep one.
    pub stores: Vec<StoreStamp>,
    /// Bytes of each volume.
    pub sizes: Vec<u64>,
}

impl HowToRecover {
    /// Only verifies what is on the device.
    pub const CHECK: HowToRecover = HowToRecover {
        check: true,
        changed: Vec::new(),
        drop_clean: true,
        stores: Vec::new(),
        sizes: Vec::new(),
    };
}

/// A place in the log, and the batch that is expected there or was found there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkPosition {
    pub region_sequence: RegionSequence,
    /// The page within the region.
    pub page: u32,
    pub batch: BatchSequence,
}

impl WalkPosition {
    /// Moves past a batch of this many pages.
    pub fn pass(&mut self, pages: u32) {
        self.page += pages;
        self.batch = self.batch.next();
    }
}

/// The highest numbers that something on the device knows to have been durable.
pub(crate) struct KnownDurable {
    pub batch: BatchSequence,
    pub generation: SuperblockGeneration,
}

/// The headers of all regions.
struct RegionScan {
    regions: Vec<Scan>,
    /// The region that each buffer is for.
    lanes: [RegionIndex; SCANS as usize],
    /// Regions from the tail to the newest that counts.
    live: u64,
}

/// The metadata buffers of a recovery.
#[derive(Clone, Copy)]
pub(crate) struct RecoveryBuffers {
    /// Buffer of the scan's first lane. After the lanes' buffers come those of the walk, the chunk and
    /// the directories.
    first: usize,
    chunk_pages: u32,
}

impl RecoveryBuffers {
    pub fn header(self) -> usize {
        self.first + SCANS as usize
    }

    pub fn chunk(self) -> usize {
        self.first + SCANS as usize + 1
    }

    pub fn directory(self, lane: usize) -> usize {
        self.first + SCANS as usize + 2 + lane
    }

    /// Number of pages of the next chunk, when `left` remain to be read.
    pub fn pages(self, left: u32) -> u32 {
        left.min(self.chunk_pages)
    }
}

/// A recovery in progress.
pub(crate) struct Recovery {
    pub how: HowToRecover,
    pub step: RecoveryStep,
    pub copies: SuperblockCopies,
    /// The copy that was chosen, once both were read.
    pub superblock: Option<Superblock>,
    /// Sabotage: whether batches of every epoch count.
    pub any_epoch: bool,
    pub trust: Trust,
    scan: RegionScan,
    pub buffers: RecoveryBuffers,
    /// Where the walk expects the next batch.
    pub at: WalkPosition,
    pub known: KnownDurable,
    pub current: CurrentBatch,
    pub ahead: Ahead,
    pub probe: Probe,
    /// Slots layout: the mapping so far.
    pub mapped: Mapped,
    /// Memory for the entries of headers that are only searched for.
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
    /// Everything before the expected batch was found.
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

/// Appends the sizes of the buffers that recovery needs.
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
            step: RecoveryStep::Superblocks { left: 2 },
            copies: SuperblockCopies::new(),
            superblock: None,
            any_epoch: false,
            trust: Trust::default(),
            scan: RegionScan {
                regions: Vec::new(),
                lanes: [RegionIndex(0); SCANS as usize],
                live: 0,
            },
            buffers: RecoveryBuffers {
                first: buffers,
                chunk_pages: chunk_pages(geometry, options),
            },
            at: WalkPosition {
                region_sequence: RegionSequence::FIRST,
                page: 1,
                batch: BatchSequence::NONE,
            },
            known: KnownDurable {
                batch: BatchSequence::NONE,
                generation: SuperblockGeneration::NONE,
            },
            current: CurrentBatch::default(),
            ahead: Ahead::default(),
            probe: Probe::default(),
            mapped: Mapped::default(),
            spare: Vec::new(),
            last_region: None,
            report: Box::default(),
            end: None,
        }
    }

    pub fn regions(&self) -> u64 {
        self.scan.regions.len() as u64
    }

    /// The region with this sequence, if it is on the device and counts.
    pub fn live(&self, sequence: RegionSequence) -> Option<&Scan> {
        let tail = self.superblock().tail_region;
        let scan = &self.scan.regions[sequence.region(self.scan.regions.len() as u32).index()];
        let counts = scan.present
            && scan.sequence == sequence
            && (tail..tail + self.regions()).contains(&sequence)
            && (self.any_epoch
                || epochs::accepts(&self.superblock().epochs, scan.first_batch, scan.epoch));
        counts.then_some(scan)
    }

    /// Whether a header found in region `region_sequence` at its page `page` belongs to a batch
    /// that counts.
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
            regions_done: match self.scan.live {
                0 => 0,
                _ => self.at.region_sequence - self.superblock().tail_region,
            },
            regions: self.scan.live,
            records: self.report.records,
        }
    }

    /// Takes over what a valid header says about durable batches and superblocks.
    pub fn learn(&mut self, header: &BatchHeader) {
        self.known.batch = self.known.batch.max(header.synced);
        self.known.generation = self.known.generation.max(header.generation);
    }

    /// Called when a read has ended.
    pub fn read_done(&mut self, buffer: usize, result: Outcome, log: &mut Restored) {
        if let Some(lane) = buffer.checked_sub(self.buffers.directory(0)) {
            return self.directory_read(log, lane, result.is_ok());
        }
        let is_superblock = matches!(self.step, RecoveryStep::Superblocks { .. });
        if is_superblock && self.copies.reads_again(log, buffer, result) {
            return;
        }
        if let Err(error) = result {
            if is_superblock {
                self.copies.note_unreadable(error);
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

    /// Ends the recovery with an error: nothing is recovered.
    pub fn refuse(&mut self, error: LogError) {
        self.end = Some(End::Refused(error));
    }

    /// Ends the recovery: the log ends before the expected batch.
    pub fn end(&mut self) {
        if self.known.generation > self.superblock().generation {
            return self.refuse_stale();
        }
        self.end = Some(End::Found);
    }

    pub fn read_superblocks(&mut self, log: &mut Restored) {
        self.step = RecoveryStep::Superblocks { left: 2 };
        SuperblockCopies::read(log);
    }

    fn superblock_read(&mut self, log: &mut Restored, buffer: usize, left: u32) {
        self.copies.take_in(log, buffer);
        self.step = RecoveryStep::Superblocks { left };
        if left > 0 {
            return;
        }
        let chosen = self.copies.choose(log, &mut self.report.damage);
        match chosen.and_then(|s| self.adopt(log, s)) {
            Ok(()) => self.read_regions(log),
            Err(error) => self.refuse(error),
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
        self.scan.regions = vec![Scan::default(); g.regions as usize];
        self.any_epoch = log.io.sabotage.is(Bug::EpochsForgotten);
        (self.at.region_sequence, self.at.batch) = (s.tail_region, s.tail_batch);
        self.known.batch = s.synced;
        self.trust.learn(&s, &mut self.how, &mut self.report);
        self.superblock = Some(s);
        Ok(())
    }

    /// The superblock that was chosen.
    ///
    /// # Panics
    /// Before both copies were read.
    pub fn superblock(&self) -> &Superblock {
        self.superblock.as_ref().expect("a recovery begins with the superblock")
    }

    fn read_regions(&mut self, log: &mut Restored) {
        self.step = RecoveryStep::Regions { left: log.io.geometry.regions };
        for lane in 0..SCANS.min(log.io.geometry.regions) {
            self.scan.lanes[lane as usize] = RegionIndex(lane);
            self.read_region(log, lane);
        }
    }

    fn read_region(&self, log: &mut Restored, lane: u32) {
        let page = log.io.geometry.region_start(self.scan.lanes[lane as usize]);
        log.io.read(self.buffers.first + lane as usize, page, 2);
    }

    /// Called when a region's first two pages were read.
    fn region_read(&mut self, log: &mut Restored, buffer: usize, left: u32) {
        let lane = buffer - self.buffers.first;
        self.scan_region(log, buffer, self.scan.lanes[lane]);
        self.scan.lanes[lane].0 += SCANS;
        self.step = RecoveryStep::Regions { left };
        if self.scan.lanes[lane].0 < log.io.geometry.regions {
            self.read_region(log, lane as u32);
        }
        if left > 0 {
            return;
        }
        for sequence in self.at.region_sequence.until(self.at.region_sequence + self.regions()) {
            let Some(&scan) = self.live(sequence) else { continue };
            self.scan.live = sequence.next() - self.at.region_sequence;
            self.known.batch = self.known.batch.max(scan.synced);
            if !scan.header {
                let region = log.regions.number(sequence);
                self.report.damage.repaired.push(log.io.geometry.region_start(region));
            }
        }
        if self.known.generation > self.superblock().generation {
            return self.refuse_stale();
        }
        self.walk(log);
    }

    /// Ends the recovery, because the newest superblock is lost: the start of the log is unknown.
    fn refuse_stale(&mut self) {
        let (found, known) = (self.superblock().generation, self.known.generation);
        self.refuse(LogError::SuperblockStale { found, known });
    }

    /// Takes the region's header, or its first batch's header if that is newer or the only one.
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
            self.known.generation = self.known.generation.max(h.generation);
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
            self.known.generation = self.known.generation.max(h.generation);
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
        self.scan.regions[region.index()] = scan;
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
            binding.voided = self.trust.voided(binding.volume).min(end);
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
