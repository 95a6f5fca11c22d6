//! Recovery by directory: full regions are read ahead, several at a time, and the walk takes their
//! batches from their directories.
//!
//! A directory is accepted only if
//!
//! - it is of this life of the region: region sequence and epoch are those of the region's header,
//!   and its first batch is the one that the walk expects;
//! - it ends where the next region begins, whose header was written later, and its epoch owns its
//!   last batch: so no later epoch has dropped a part of it;
//! - another structure says that all its batches were durable. (Its own presence does not: the
//!   device may have kept it and lost a batch.)
//!
//! All other regions are walked batch by batch as if they had no directory. So a directory that is
//! missing, torn or damaged costs only time.
//!
//! When a whole device is checked, its headers and payloads are read too. They are compared with
//! the directory, which replaces a lost header, as in a start.

use crate::epochs;
use crate::format::FormatError;
use crate::format::batch::{BatchEntry, BatchHeader};
use crate::format::directory::{DirectoryHeader, RegionContents};
use crate::geometry::Geometry;
use crate::recovery::{Recovery, RecoveryStep, Restored, WalkPosition};
use crate::sequence::{BatchSequence, RegionSequence, SuperblockGeneration};

/// Number of directories read at once.
pub(crate) const LANES: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Lane {
    #[default]
    Idle,
    /// The region's directory is being read.
    Reading(RegionSequence),
    /// It was read, or cannot be read.
    Read(RegionSequence, bool),
}

/// Why a directory is not accepted; see `DirectoryCounts`.
enum Unfit {
    Missing,
    Torn,
    Stale,
    Dropped,
}

/// The directories that are read ahead of the walk.
#[derive(Default)]
pub(crate) struct Ahead {
    lanes: [Lane; LANES as usize],
    /// Regions before this one have been considered.
    next: RegionSequence,
    /// The walk's current region, if its directory was requested.
    asked: Option<RegionSequence>,
    /// First batch of the region whose directory was accepted, if the device is being checked.
    known: Option<BatchSequence>,
    pages: Vec<(u32, u32, usize, usize)>,
    contents: RegionContents,
}

impl Recovery {
    /// The last batch of a region, if a correct directory of that region would be accepted.
    fn last_of_full(&self, region_sequence: RegionSequence) -> Option<BatchSequence> {
        let scan = self.live(region_sequence)?;
        let last = self.live(region_sequence.next())?.first_batch.checked_previous()?;
        let owned = self.any_epoch || epochs::accepts(&self.superblock().epochs, last, scan.epoch);
        let whole = scan.first_batch <= last && last <= self.known.batch && owned;
        (scan.directory_pages > 0 && whole).then_some(last)
    }

    fn lane_of(&self, region_sequence: RegionSequence) -> Option<usize> {
        let of = |lane: &Lane| matches!(*lane, Lane::Reading(r) | Lane::Read(r, _) if r == region_sequence);
        self.ahead.lanes.iter().position(of)
    }
}

impl Recovery {
    /// Requests the next directories, as many as there are lanes.
    fn read_ahead(&mut self, log: &mut Restored) {
        let end = self.superblock().tail_region + self.regions();
        self.ahead.next = self.ahead.next.max(self.at.region_sequence);
        for lane in &mut self.ahead.lanes {
            // (The walk has skipped this region.)
            if matches!(*lane, Lane::Read(sequence, _) if sequence < self.at.region_sequence) {
                *lane = Lane::Idle;
            }
        }
        while self.ahead.next < end {
            let Some(lane) = self.ahead.lanes.iter().position(|l| *l == Lane::Idle) else { break };
            let region_sequence = self.ahead.next;
            self.ahead.next = region_sequence.next();
            if self.last_of_full(region_sequence).is_none() {
                continue;
            }
            let pages = self.live(region_sequence).map_or(0, |scan| scan.directory_pages);
            let buffer = self.buffers.directory(lane);
            if log.io.buffers[buffer].len() < (pages * log.io.geometry.page_size) as usize {
                continue;
            }
            self.ahead.lanes[lane] = Lane::Reading(region_sequence);
            let page = log.page_of(region_sequence, log.io.geometry.region_pages - pages);
            log.io.read(buffer, page, pages);
        }
    }

    /// Called when a read of a directory has ended.
    pub(crate) fn directory_read(&mut self, log: &mut Restored, lane: usize, read: bool) {
        let Lane::Reading(region_sequence) = self.ahead.lanes[lane] else { return };
        self.ahead.lanes[lane] = Lane::Read(region_sequence, read);
        if matches!(self.step, RecoveryStep::Directory)
            && self.at.region_sequence == region_sequence
        {
            self.walk(log);
        }
    }

    /// Called when the walk is at the first batch of a region. Returns whether it must wait for the
    /// region's directory; if not, it may now be past the region.
    pub(crate) fn enter_by_directory(&mut self, log: &mut Restored) -> bool {
        if self.ahead.asked == Some(self.at.region_sequence) {
            return false;
        }
        self.read_ahead(log);
        let lane = match self.lane_of(self.at.region_sequence) {
            None => return false,
            Some(lane) => lane,
        };
        let Lane::Read(_, read) = self.ahead.lanes[lane] else {
            self.step = RecoveryStep::Directory;
            return true;
        };
        self.ahead.asked = Some(self.at.region_sequence);
        self.ahead.known = None;
        self.ahead.lanes[lane] = Lane::Idle;
        let mut contents = core::mem::take(&mut self.ahead.contents);
        match self.believe(log, lane, read, &mut contents) {
            Ok(header) if self.how.check => self.ahead.note(header, &contents, &log.io.geometry),
            Ok(header) => self.take_region(log, &header, &contents),
            Err(Unfit::Missing) => self.report.directories.missing += 1,
            Err(Unfit::Torn) => self.report.directories.torn += 1,
            Err(Unfit::Stale) => self.report.directories.stale += 1,
            Err(Unfit::Dropped) => self.report.directories.dropped += 1,
        }
        self.ahead.contents = contents;
        self.read_ahead(log);
        false
    }

    /// Decodes the directory in a lane and decides whether to accept it.
    fn believe(
        &self,
        log: &Restored,
        lane: usize,
        read: bool,
        contents: &mut RegionContents,
    ) -> Result<DirectoryHeader, Unfit> {
        let (Some(last), Some(scan), true) =
            (self.last_of_full(self.at.region_sequence), self.live(self.at.region_sequence), read)
        else {
            return Err(Unfit::Torn);
        };
        let length = (scan.directory_pages * log.io.geometry.page_size) as usize;
        let bytes = &log.io.buffers[self.buffers.directory(lane)][..length];
        let page = log
            .page_of(self.at.region_sequence, log.io.geometry.region_pages - scan.directory_pages);
        let decoded =
            DirectoryHeader::decode(bytes, log.io.tier(), page, &log.io.geometry, contents);
        let header = decoded.map_err(|error| match error {
            FormatError::Missing => Unfit::Missing,
            _ => Unfit::Torn,
        })?;
        let own = (header.region_sequence, header.first_batch)
            == (self.at.region_sequence, self.at.batch)
            && header.epoch == scan.epoch;
        match header.first_batch + contents.batches.len() as u64 == last.next() {
            _ if !own => Err(Unfit::Stale),
            false => Err(Unfit::Dropped),
            true => Ok(header),
        }
    }

    /// Returns all records of a region as events.
    fn take_region(&mut self, log: &mut Restored, d: &DirectoryHeader, contents: &RegionContents) {
        let geometry = log.io.geometry;
        for (page, pages, entries) in contents.each(&geometry) {
            let header = BatchHeader {
                uuid: log.io.tier(),
                page: log.page_of(self.at.region_sequence, page),
                epoch: d.epoch,
                sequence: self.at.batch,
                region_sequence: self.at.region_sequence,
                synced: BatchSequence::NONE,
                generation: SuperblockGeneration::NONE,
                pages,
            };
            self.enter_region(log, &header);
            self.give(log, &header, entries);
            self.at.pass(pages);
        }
        self.last_region = Some(self.at.region_sequence);
        self.report.directories.believed += 1;
    }

    /// When checking: the directory's version of a batch whose header is missing.
    pub(crate) fn batch_from_directory(&mut self, log: &Restored) -> Option<BatchHeader> {
        let (pages, from, to) = self.ahead.batch(self.at)?;
        let scan = self.live(self.at.region_sequence)?;
        let header = BatchHeader {
            uuid: log.io.tier(),
            page: log.page_of(self.at.region_sequence, self.at.page),
            epoch: scan.epoch,
            sequence: self.at.batch,
            region_sequence: self.at.region_sequence,
            synced: BatchSequence::NONE,
            generation: SuperblockGeneration::NONE,
            pages,
        };
        self.current.entries.clear();
        self.current.entries.extend_from_slice(&self.ahead.contents.entries[from..to]);
        Some(header)
    }
}

impl Ahead {
    /// Notes the places of the region's batches.
    fn note(&mut self, header: DirectoryHeader, contents: &RegionContents, geometry: &Geometry) {
        self.known = Some(header.first_batch);
        self.pages.clear();
        let mut from = 0;
        for (page, pages, entries) in contents.each(geometry) {
            self.pages.push((page, pages, from, from + entries.len()));
            from += entries.len();
        }
    }

    /// Pages of the batch, and the place of its entries.
    fn batch(&self, at: WalkPosition) -> Option<(u32, usize, usize)> {
        let asked = self.asked == Some(at.region_sequence);
        let first = self.known.filter(|&first| asked && first <= at.batch)?;
        let n = usize::try_from(at.batch - first).ok()?;
        let &(page, pages, from, to) = self.pages.get(n)?;
        (page == at.page).then_some((pages, from, to))
    }

    /// Whether the directory has other entries than this batch's header.
    pub fn contradicts(&self, at: WalkPosition, entries: &[BatchEntry]) -> bool {
        if self.known.is_none() || self.asked != Some(at.region_sequence) {
            return false;
        }
        match self.batch(at) {
            Some((_, from, to)) => self.contents.entries[from..to] != *entries,
            None => true,
        }
    }
}
