//! Step 3 of recovery: the batches from the tail on, in order.

use crate::events::{Event, StartEvent};
use crate::format::batch::{BatchEntry, BatchHeader, EntryKind};
use crate::granules::Granules;
use crate::key::Position;
use crate::recovery::{Recovery, RecoveryStep, Restored};
use crate::regions::{Region, region_seed};
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence};
use crate::types::Record;

/// After a batch of up to this many pages, many of the next headers are read at once.
const SMALL_BATCH_PAGES: u32 = 8;

/// The pages in the walk's buffer.
#[derive(Default)]
pub(crate) struct Window {
    region_sequence: RegionSequence,
    page: u32,
    pages: u32,
}

impl Window {
    fn contains(&self, region_sequence: RegionSequence, page: u32) -> bool {
        self.region_sequence == region_sequence
            && (self.page..self.page + self.pages).contains(&page)
    }
}

/// How many payloads of the current batch are verified.
#[derive(Default)]
pub(crate) struct Verify {
    /// Current entry, bytes of it done, their checksum.
    entry: usize,
    done: u32,
    crc: u32,
    /// First page of the batch not yet read.
    page: u32,
    /// Entries that fail.
    pub bad: Vec<usize>,
}

impl Recovery {
    /// Checks the header where the next batch is expected; reads it if needed.
    pub(crate) fn walk(&mut self, log: &mut Restored) {
        loop {
            let at = (self.region_sequence, self.page);
            let next = self.region_sequence.next();
            if self.live(next).is_some_and(|next| next.first_batch == self.expected) {
                (self.region_sequence, self.page) = (next, 1);
            }
            if self.page == 1 && self.enter_by_directory(log) {
                return;
            }
            if (self.region_sequence, self.page) == at {
                break;
            }
        }
        let left = self.batches_end(log, self.region_sequence).saturating_sub(self.page);
        if self.live(self.region_sequence).is_none() || left == 0 {
            return self.begin_probe(log, None);
        }
        if !self.window.contains(self.region_sequence, self.page) {
            let pages = if self.small_batches { self.chunk(left) } else { 1 };
            self.window = Window { region_sequence: self.region_sequence, page: self.page, pages };
            self.step = RecoveryStep::Header;
            let page = log.page_of(self.region_sequence, self.page);
            return log.io.read(self.header_buffer(), page, pages);
        }
        self.header_read(log);
    }

    /// The page of a region where its directory begins. No batch lies there, so nothing is lost with
    /// a page of the directory that cannot be read.
    pub(crate) fn batches_end(&self, log: &Restored, region_sequence: RegionSequence) -> u32 {
        let directory_pages = self.live(region_sequence).map_or(0, |scan| scan.directory_pages);
        log.io.geometry.region_pages - directory_pages
    }

    /// A header was read: it is the expected one, or the walk stops here.
    pub(crate) fn header_read(&mut self, log: &mut Restored) {
        let page = log.page_of(self.region_sequence, self.page);
        let page_size = log.io.geometry.page_size as usize;
        let from = (self.page - self.window.page) as usize * page_size;
        let bytes = &log.io.buffers[self.header_buffer()][from..from + page_size];
        let found =
            BatchHeader::decode(bytes, log.io.tier(), page, &log.io.geometry, &mut self.entries);
        let expected = found.ok().filter(|h| {
            h.sequence == self.expected
                && self.counts(h, self.region_sequence, self.page, log.io.geometry.region_pages)
        });
        let header = match expected {
            Some(header) => {
                if self.ahead.contradicts(
                    self.region_sequence,
                    self.page,
                    self.expected,
                    &self.entries,
                ) {
                    self.report.damage.directories.push(self.region_sequence);
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
        self.header = Some(header);
        self.small_batches = header.pages <= SMALL_BATCH_PAGES;
        self.enter_region(log, &header);
        if log.io.geometry.has_slots() {
            self.note_batch(log, &header);
            return self.walk(log);
        }
        if self.how.check || header.sequence > self.known {
            self.verify.bad.clear();
            (self.verify.entry, self.verify.done, self.verify.page) = (0, 0, 1);
            self.read_payload(log);
        } else {
            self.accept(log);
        }
    }

    /// Notes the region's seeds and first batch.
    pub(crate) fn enter_region(&self, log: &mut Restored, header: &BatchHeader) {
        let region = log.regions.place_mut(self.region_sequence);
        if region.sequence != self.region_sequence || region.first_batch == BatchSequence::NONE {
            *region = Region {
                sequence: self.region_sequence,
                first_batch: header.sequence,
                seed: region_seed(log.io.tier(), self.region_sequence, header.epoch),
                ..Region::default()
            };
        }
    }

    /// Requests the next pages of the batch's payloads.
    fn read_payload(&mut self, log: &mut Restored) {
        let header = self.header.expect("a batch is being read");
        let pages = self.chunk(header.pages - self.verify.page);
        if pages == 0 {
            return self.payloads_verified(log);
        }
        self.step = RecoveryStep::Payload;
        log.io.read(self.chunk_buffer(), header.page + self.verify.page, pages);
    }

    /// Continues the checksums over the pages read.
    pub(crate) fn payload_read(&mut self, log: &mut Restored) {
        let header = self.header.expect("a batch is being read");
        let page_size = log.io.geometry.page_size;
        let pages = self.chunk(header.pages - self.verify.page);
        let (start, end) = (self.verify.page * page_size, (self.verify.page + pages) * page_size);
        let bytes = &log.io.buffers[self.chunk_buffer()];
        let number = log.regions.number(self.region_sequence);
        let v = &mut self.verify;
        while let Some(entry) = self.entries.get(v.entry) {
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

    /// All payloads of the batch were verified.
    fn payloads_verified(&mut self, log: &mut Restored) {
        let header = self.header.expect("a batch is being read");
        if self.verify.bad.is_empty() {
            self.accept(log);
        } else if header.sequence <= self.known {
            self.accept_damaged(log);
        } else {
            self.begin_probe(log, Some(header));
        }
    }

    /// The batch was durable, but some of its payloads fail. Its records are returned all the same
    /// (a newer record must hide an older one; reading it fails).
    pub(crate) fn accept_damaged(&mut self, log: &mut Restored) {
        let header = self.header.expect("a batch is being read");
        for &n in &self.verify.bad {
            let entry = &self.entries[n];
            self.report.damage.payloads.push((entry.key, position_of(&header, entry)));
        }
        self.accept(log);
    }

    /// Returns the batch's records and continues after it.
    fn accept(&mut self, log: &mut Restored) {
        let header = self.header.take().expect("a batch is being read");
        let entries = core::mem::take(&mut self.entries);
        self.give(log, &header, &entries);
        self.entries = entries;
        self.last_region = Some(self.region_sequence);
        self.page += header.pages;
        self.expected = self.expected.next();
        self.walk(log);
    }

    /// Gives the records of a batch.
    pub(crate) fn give(
        &mut self,
        log: &mut Restored,
        header: &BatchHeader,
        entries: &[BatchEntry],
    ) {
        for entry in entries {
            let key = entry.key;
            let voided = self.voids(key.volume(), header.sequence);
            // What an older copy of a store has of it.
            let lacks = self.lacks(key.volume());
            let has = lacks.is_some_and(|has| header.sequence <= has);
            let clean = header.sequence <= self.superblock().clean_before || voided || has;
            let dirty = if clean { Granules::EMPTY } else { entry.dirty };
            let record = entry.kind == EntryKind::Data || !dirty.is_empty();
            let active = record && log.activity.contains(key);
            let distrusted = active || self.distrusts(key.volume(), header.sequence);
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
                // Of a run that wrote back: newer than any direct write, and than any record
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
