//! Step 3 of recovery: the batches from the tail on, in order.

use crate::events::{Event, StartEvent};
use crate::format::batch::{BatchEntry, BatchHeader, EntryKind};
use crate::granules::Granules;
use crate::key::Position;
use crate::recovery::{Recovery, RecoveryStep, Restored, WalkPosition};
use crate::regions::{Region, region_seed};
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence};
use crate::types::Record;

/// After a batch of at most this many pages, several of the next headers are read at once.
const SMALL_BATCH_PAGES: u32 = 8;

/// The pages in the walk's buffer.
#[derive(Default)]
struct Window {
    region_sequence: RegionSequence,
    page: u32,
    pages: u32,
}

impl Window {
    fn contains(&self, at: WalkPosition) -> bool {
        self.region_sequence == at.region_sequence
            && (self.page..self.page + self.pages).contains(&at.page)
    }
}

/// Progress in verifying the payloads of the current batch.
#[derive(Default)]
struct Verify {
    /// Current entry, its bytes processed so far, and their checksum.
    entry: usize,
    done: u32,
    crc: u32,
    /// First page of the batch not yet read.
    page: u32,
    /// Entries that fail.
    bad: Vec<usize>,
}

/// The batch that the walk is reading.
#[derive(Default)]
pub(crate) struct CurrentBatch {
    window: Window,
    /// The batch before it was small.
    small_batches: bool,
    header: Option<BatchHeader>,
    pub entries: Vec<BatchEntry>,
    verify: Verify,
}

impl CurrentBatch {
    fn header(&self) -> BatchHeader {
        self.header.expect("a batch is being read")
    }
}

impl Recovery {
    /// Checks the header where the next batch is expected; reads it if needed.
    pub(crate) fn walk(&mut self, log: &mut Restored) {
        loop {
            let at = self.at;
            let next = self.at.region_sequence.next();
            if self.live(next).is_some_and(|next| next.first_batch == self.at.batch) {
                (self.at.region_sequence, self.at.page) = (next, 1);
            }
            if self.at.page == 1 && self.enter_by_directory(log) {
                return;
            }
            if self.at == at {
                break;
            }
        }
        let left = self.batches_end(log, self.at.region_sequence).saturating_sub(self.at.page);
        if self.live(self.at.region_sequence).is_none() || left == 0 {
            return self.begin_probe(log, None);
        }
        if !self.current.window.contains(self.at) {
            let pages = if self.current.small_batches { self.buffers.pages(left) } else { 1 };
            self.current.window =
                Window { region_sequence: self.at.region_sequence, page: self.at.page, pages };
            self.step = RecoveryStep::Header;
            let page = log.page_of(self.at.region_sequence, self.at.page);
            return log.io.read(self.buffers.header(), page, pages);
        }
        self.header_read(log);
    }

    /// The page of a region at which its directory begins. No batch lies in a directory, so an
    /// unreadable directory page loses no batch.
    pub(crate) fn batches_end(&self, log: &Restored, region_sequence: RegionSequence) -> u32 {
        let directory_pages = self.live(region_sequence).map_or(0, |scan| scan.directory_pages);
        log.io.geometry.region_pages - directory_pages
    }

    /// Continues with a header that was read. If it is not the expected one, the walk stops here.
    pub(crate) fn header_read(&mut self, log: &mut Restored) {
        let page = log.page_of(self.at.region_sequence, self.at.page);
        let page_size = log.io.geometry.page_size as usize;
        let from = (self.at.page - self.current.window.page) as usize * page_size;
        let bytes = &log.io.buffers[self.buffers.header()][from..from + page_size];
        let found = BatchHeader::decode(
            bytes,
            log.io.tier(),
            page,
            &log.io.geometry,
            &mut self.current.entries,
        );
        let expected = found.ok().filter(|h| {
            h.sequence == self.at.batch
                && self.counts(
                    h,
                    self.at.region_sequence,
                    self.at.page,
                    log.io.geometry.region_pages,
                )
        });
        let header = match expected {
            Some(header) => {
                if self.ahead.contradicts(self.at, &self.current.entries) {
                    self.report.damage.directories.push(self.at.region_sequence);
                }
                header
            }
            None => match self.batch_from_directory(log) {
                Some(header) => {
                    self.report.damage.repaired.push(header.page);
                    header
                }
                None => return self.begin_probe(log, None),
            },
        };
        self.learn(&header);
        self.current.header = Some(header);
        self.current.small_batches = header.pages <= SMALL_BATCH_PAGES;
        self.enter_region(log, &header);
        if log.io.geometry.has_slots() {
            self.note_batch(log, &header);
            return self.walk(log);
        }
        if self.how.check || header.sequence > self.known.batch {
            self.current.verify.bad.clear();
            (self.current.verify.entry, self.current.verify.done, self.current.verify.page) =
                (0, 0, 1);
            self.read_payload(log);
        } else {
            self.accept(log);
        }
    }

    /// Notes the region's seeds and first batch.
    pub(crate) fn enter_region(&self, log: &mut Restored, header: &BatchHeader) {
        let region = log.regions.place_mut(self.at.region_sequence);
        if region.sequence != self.at.region_sequence || region.first_batch == BatchSequence::NONE {
            *region = Region {
                sequence: self.at.region_sequence,
                first_batch: header.sequence,
                seed: region_seed(log.io.tier(), self.at.region_sequence, header.epoch),
                ..Region::default()
            };
        }
    }

    /// Requests the next pages of the batch's payloads.
    fn read_payload(&mut self, log: &mut Restored) {
        let header = self.current.header();
        let pages = self.buffers.pages(header.pages - self.current.verify.page);
        if pages == 0 {
            return self.payloads_verified(log);
        }
        self.step = RecoveryStep::Payload;
        log.io.read(self.buffers.chunk(), header.page + self.current.verify.page, pages);
    }

    /// Continues the checksums over the pages read.
    pub(crate) fn payload_read(&mut self, log: &mut Restored) {
        let header = self.current.header();
        let page_size = log.io.geometry.page_size;
        let pages = self.buffers.pages(header.pages - self.current.verify.page);
        let (start, end) =
            (self.current.verify.page * page_size, (self.current.verify.page + pages) * page_size);
        let bytes = &log.io.buffers[self.buffers.chunk()];
        let number = log.regions.number(self.at.region_sequence);
        let v = &mut self.current.verify;
        while let Some(entry) = self.current.entries.get(v.entry) {
            if entry.kind == EntryKind::Data {
                let at = u32::from(entry.offset) * page_size + v.done;
                if at >= end {
                    break;
                }
                if v.done == 0 {
                    let position = position_of(&header, entry);
                    v.crc = log.regions.payload_seed(number, entry.key, position);
                }
                let wanted = log.io.geometry.payload_bytes(entry.valid);
                let take = (wanted - v.done).min(end - at);
                let from = (at - start) as usize;
                v.crc = crc32c::crc32c_append(v.crc, &bytes[from..from + take as usize]);
                v.done += take;
                if v.done < wanted {
                    break;
                }
                self.report.payloads_verified += 1;
                if v.crc != entry.checksum && !log.io.sabotage.is(Bug::ChecksumIgnoredAtRecovery) {
                    v.bad.push(v.entry);
                }
            }
            v.entry += 1;
            v.done = 0;
        }
        v.page += pages;
        self.read_payload(log);
    }

    /// Continues when all payloads of the batch were verified.
    fn payloads_verified(&mut self, log: &mut Restored) {
        let header = self.current.header();
        if self.current.verify.bad.is_empty() {
            self.accept(log);
        } else if header.sequence <= self.known.batch {
            self.accept_damaged(log);
        } else {
            self.begin_probe(log, Some(header));
        }
    }

    /// The batch was durable, but some of its payloads fail. Its records are returned nevertheless
    /// (a newer record must hide an older one; reading it fails).
    pub(crate) fn accept_damaged(&mut self, log: &mut Restored) {
        let header = self.current.header();
        for &n in &self.current.verify.bad {
            let entry = &self.current.entries[n];
            self.report.damage.payloads.push((entry.key, position_of(&header, entry)));
        }
        self.accept(log);
    }

    /// Returns the batch's records and continues after it.
    fn accept(&mut self, log: &mut Restored) {
        let header = self.current.header.take().expect("a batch is being read");
        let entries = core::mem::take(&mut self.current.entries);
        self.give(log, &header, &entries);
        self.current.entries = entries;
        self.last_region = Some(self.at.region_sequence);
        self.at.pass(header.pages);
        self.walk(log);
    }

    /// Emits the records of a batch as events.
    pub(crate) fn give(
        &mut self,
        log: &mut Restored,
        header: &BatchHeader,
        entries: &[BatchEntry],
    ) {
        for entry in entries {
            let key = entry.key;
            let voided = self.trust.voids(key.volume(), header.sequence);
            // An older copy of the store has the records up to this batch.
            let lacks = self.trust.lacks(key.volume());
            let has = lacks.is_some_and(|has| header.sequence <= has);
            let clean = header.sequence <= self.superblock().clean_before || voided || has;
            let dirty = if clean { Granules::EMPTY } else { entry.dirty };
            let record = entry.kind == EntryKind::Data || !dirty.is_empty();
            let active = record && log.activity.contains(key);
            let distrusted = active || self.trust.distrusts(key.volume(), header.sequence);
            if !record || distrusted && dirty.is_empty() {
                self.report.distrusted += u64::from(record);
                if active {
                    log.activity.distrust(key);
                }
                self.report.tombstones += 1;
                log.io.tell(Event::Start(StartEvent::RecoveredTombstone { key }));
                continue;
            }
            if active {
                // Appended by a run in write-back: newer than any direct write, and than any record
                // distrusted so far.
                self.report.dirty_in_active += 1;
                log.activity.record_appended(key);
            }
            self.report.records += 1;
            self.report.lost += u64::from(!(dirty & !entry.valid).is_empty());
            log.io.tell(Event::Start(StartEvent::Recovered(Record {
                key,
                position: position_of(header, entry),
                valid: entry.valid,
                dirty,
                checksum: entry.checksum,
                sequence: header.sequence,
                adds: lacks.is_some(),
            })));
        }
        self.report.batches += 1;
    }
}

fn position_of(header: &BatchHeader, entry: &BatchEntry) -> Position {
    Position(header.page + u32::from(entry.offset))
}
