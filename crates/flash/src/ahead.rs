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
use crate::format::batch::{BatchHeader, Entry};
use crate::format::directory::{Contents, DirectoryHeader};
use crate::geometry::Geometry;
use crate::log::Log;
use crate::recovery::{Recovery, Step};
use crate::sequence::{BatchSequence, RegionSequence, SuperblockGeneration};

/// Directories read at once.
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
    /// The region whose batches are known, if its directory was accepted and the device is being
    /// checked.
    known: Option<BatchSequence>,
    pages: Vec<(u32, u32, usize, usize)>,
    contents: Contents,
}

impl Recovery {
    /// The last batch of a region whose directory would be accepted if it is correct.
    fn last_of_full(&self, region_sequence: RegionSequence) -> Option<BatchSequence> {
        let scan = self.live(region_sequence)?;
        let last = self.live(region_sequence.next())?.first_batch.checked_previous()?;
        let owned = self.any_epoch || epochs::accepts(&self.superblock.epochs, last, scan.epoch);
        let whole = scan.first_batch <= last && last <= self.known && owned;
        (scan.directory_pages > 0 && whole).then_some(last)
    }

    fn lane_of(&self, region_sequence: RegionSequence) -> Option<usize> {
        let of = |lane: &Lane| matches!(*lane, Lane::Reading(r) | Lane::Read(r, _) if r == region_sequence);
        self.ahead.lanes.iter().position(of)
    }
}

impl Log {
    /// Requests the next directories, as many as there are lanes.
    fn read_ahead(&mut self, r: &mut Recovery) {
        let end = r.superblock.tail_region + r.regions();
        r.ahead.next = r.ahead.next.max(r.region_sequence);
        for lane in &mut r.ahead.lanes {
            // (Of a region that the walk has jumped over.)
            if matches!(*lane, Lane::Read(sequence, _) if sequence < r.region_sequence) {
                *lane = Lane::Idle;
            }
        }
        while r.ahead.next < end {
            let Some(lane) = r.ahead.lanes.iter().position(|l| *l == Lane::Idle) else { break };
            let region_sequence = r.ahead.next;
            r.ahead.next = region_sequence.next();
            if r.last_of_full(region_sequence).is_none() {
                continue;
            }
            let pages = r.live(region_sequence).map_or(0, |scan| scan.directory_pages);
            let buffer = r.directory_buffer(lane);
            if self.io.buffers[buffer].len() < (pages * self.io.geometry.page_size) as usize {
                continue;
            }
            r.ahead.lanes[lane] = Lane::Reading(region_sequence);
            let page = self.page_of(region_sequence, self.io.geometry.region_pages - pages);
            self.io.read(buffer, page, pages);
        }
    }

    /// A read of a directory has ended.
    pub(crate) fn directory_read(&mut self, r: &mut Recovery, lane: usize, read: bool) {
        let Lane::Reading(region_sequence) = r.ahead.lanes[lane] else { return };
        r.ahead.lanes[lane] = Lane::Read(region_sequence, read);
        if matches!(r.step, Step::Directory) && r.region_sequence == region_sequence {
            self.walk(r);
        }
    }

    /// The walk is at the first batch of a region. Returns whether it must wait for the region's
    /// directory; if not, it may now be past the region.
    pub(crate) fn enter_by_directory(&mut self, r: &mut Recovery) -> bool {
        if r.ahead.asked == Some(r.region_sequence) {
            return false;
        }
        self.read_ahead(r);
        let lane = match r.lane_of(r.region_sequence) {
            None => return false,
            Some(lane) => lane,
        };
        let Lane::Read(_, read) = r.ahead.lanes[lane] else {
            r.step = Step::Directory;
            return true;
        };
        r.ahead.asked = Some(r.region_sequence);
        r.ahead.known = None;
        r.ahead.lanes[lane] = Lane::Idle;
        let mut contents = core::mem::take(&mut r.ahead.contents);
        match self.believe(r, lane, read, &mut contents) {
            Ok(header) if r.check => r.ahead.note(header, &contents, &self.io.geometry),
            Ok(header) => self.take_region(r, &header, &contents),
            Err(Unfit::Missing) => r.report.directories.missing += 1,
            Err(Unfit::Torn) => r.report.directories.torn += 1,
            Err(Unfit::Stale) => r.report.directories.stale += 1,
            Err(Unfit::Dropped) => r.report.directories.dropped += 1,
        }
        r.ahead.contents = contents;
        self.read_ahead(r);
        false
    }

    /// The directory in a lane, if it is accepted.
    fn believe(
        &self,
        r: &Recovery,
        lane: usize,
        read: bool,
        contents: &mut Contents,
    ) -> Result<DirectoryHeader, Unfit> {
        let (Some(last), Some(scan), true) =
            (r.last_of_full(r.region_sequence), r.live(r.region_sequence), read)
        else {
            return Err(Unfit::Torn);
        };
        let length = (scan.directory_pages * self.io.geometry.page_size) as usize;
        let bytes = &self.io.buffers[r.directory_buffer(lane)][..length];
        let page =
            self.page_of(r.region_sequence, self.io.geometry.region_pages - scan.directory_pages);
        let decoded =
            DirectoryHeader::decode(bytes, &self.io.uuid, page, &self.io.geometry, contents);
        let header = decoded.map_err(|error| match error {
            FormatError::Missing => Unfit::Missing,
            _ => Unfit::Torn,
        })?;
        let own = (header.region_sequence, header.first_batch) == (r.region_sequence, r.expected)
            && header.epoch == scan.epoch;
        match header.first_batch + contents.batches.len() as u64 == last.next() {
            _ if !own => Err(Unfit::Stale),
            false => Err(Unfit::Dropped),
            true => Ok(header),
        }
    }

    /// Returns all records of a region as events.
    fn take_region(&mut self, r: &mut Recovery, d: &DirectoryHeader, contents: &Contents) {
        let geometry = self.io.geometry;
        for (page, pages, entries) in contents.each(&geometry) {
            let header = BatchHeader {
                uuid: self.io.uuid,
                page: self.page_of(r.region_sequence, page),
                epoch: d.epoch,
                sequence: r.expected,
                region_sequence: r.region_sequence,
                synced: BatchSequence::NONE,
                generation: SuperblockGeneration::NONE,
                pages,
            };
            self.enter_region(r, &header);
            self.give(r, &header, entries);
            r.page += pages;
            r.expected = r.expected.next();
        }
        r.last_region = Some(r.region_sequence);
        r.report.directories.believed += 1;
    }

    /// When checking: the directory's version of a batch whose header is missing.
    pub(crate) fn batch_from_directory(&self, r: &mut Recovery) -> Option<BatchHeader> {
        let (pages, from, to) = r.ahead.batch(r.region_sequence, r.page, r.expected)?;
        let scan = r.live(r.region_sequence)?;
        let header = BatchHeader {
            uuid: self.io.uuid,
            page: self.page_of(r.region_sequence, r.page),
            epoch: scan.epoch,
            sequence: r.expected,
            region_sequence: r.region_sequence,
            synced: BatchSequence::NONE,
            generation: SuperblockGeneration::NONE,
            pages,
        };
        r.entries.clear();
        r.entries.extend_from_slice(&r.ahead.contents.entries[from..to]);
        Some(header)
    }
}

impl Ahead {
    /// Notes the places of the region's batches.
    fn note(&mut self, header: DirectoryHeader, contents: &Contents, geometry: &Geometry) {
        self.known = Some(header.first_batch);
        self.pages.clear();
        let mut from = 0;
        for (page, pages, entries) in contents.each(geometry) {
            self.pages.push((page, pages, from, from + entries.len()));
            from += entries.len();
        }
    }

    /// Pages of the batch, and the place of its entries.
    fn batch(
        &self,
        region_sequence: RegionSequence,
        page: u32,
        sequence: BatchSequence,
    ) -> Option<(u32, usize, usize)> {
        let asked = self.asked == Some(region_sequence);
        let first = self.known.filter(|&first| asked && first <= sequence)?;
        let n = usize::try_from(sequence - first).ok()?;
        let &(at, pages, from, to) = self.pages.get(n)?;
        (at == page).then_some((pages, from, to))
    }

    /// Whether the directory has other entries than this batch's header.
    pub fn contradicts(
        &self,
        region_sequence: RegionSequence,
        page: u32,
        sequence: BatchSequence,
        entries: &[Entry],
    ) -> bool {
        if self.known.is_none() || self.asked != Some(region_sequence) {
            return false;
        }
        match self.batch(region_sequence, page, sequence) {
            Some((_, from, to)) => self.contents.entries[from..to] != *entries,
            None => true,
        }
    }
}
