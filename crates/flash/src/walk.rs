//! Step 3 of recovery: the batches from the tail on, in order.

use crate::format::batch::{BatchHeader, Entry, Kind as EntryKind};
use crate::key::Position;
use crate::log::Log;
use crate::recovery::{Recovery, Step};
use crate::regions::{Region, region_seed};
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence};
use crate::types::{Event, Record};

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

impl Log {
    /// Checks the header where the next batch is expected; reads it if needed.
    pub(crate) fn walk(&mut self, r: &mut Recovery) {
        loop {
            let at = (r.region_sequence, r.page);
            let next = r.region_sequence.next();
            if r.live(next).is_some_and(|next| next.first_batch == r.expected) {
                (r.region_sequence, r.page) = (next, 1);
            }
            if r.page == 1 && self.enter_by_directory(r) {
                return;
            }
            if (r.region_sequence, r.page) == at {
                break;
            }
        }
        let left = self.batches_end(r, r.region_sequence).saturating_sub(r.page);
        if r.live(r.region_sequence).is_none() || left == 0 {
            return self.begin_probe(r, None);
        }
        if !r.window.contains(r.region_sequence, r.page) {
            let pages = if r.small_batches { r.chunk(left) } else { 1 };
            r.window = Window { region_sequence: r.region_sequence, page: r.page, pages };
            r.step = Step::Header;
            let page = self.page_of(r.region_sequence, r.page);
            return self.io.read(r.header_buffer(), page, pages);
        }
        self.header_read(r);
    }

    /// The page of a region where its directory begins. No batch lies there, so nothing is lost with
    /// a page of the directory that cannot be read.
    pub(crate) fn batches_end(&self, r: &Recovery, region_sequence: RegionSequence) -> u32 {
        let directory_pages = r.live(region_sequence).map_or(0, |scan| scan.directory_pages);
        self.io.geometry.region_pages - directory_pages
    }

    /// The device's page number of a page of a region.
    pub(crate) fn page_of(&self, region_sequence: RegionSequence, page: u32) -> u32 {
        self.io.geometry.region_start(self.regions.number(region_sequence)) + page
    }

    /// A header was read: it is the expected one, or the walk stops here.
    pub(crate) fn header_read(&mut self, r: &mut Recovery) {
        let page = self.page_of(r.region_sequence, r.page);
        let page_size = self.io.geometry.page_size as usize;
        let from = (r.page - r.window.page) as usize * page_size;
        let bytes = &self.io.buffers[r.header_buffer()][from..from + page_size];
        let found =
            BatchHeader::decode(bytes, &self.io.uuid, page, &self.io.geometry, &mut r.entries);
        let expected = found.ok().filter(|h| {
            h.sequence == r.expected
                && r.counts(h, r.region_sequence, r.page, self.io.geometry.region_pages)
        });
        let header = match expected {
            Some(header) => {
                if r.ahead.contradicts(r.region_sequence, r.page, r.expected, &r.entries) {
                    r.report.damage.directories.push(r.region_sequence);
                }
                header
            }
            None => match self.batch_from_directory(r) {
                Some(header) => {
                    r.report.damage.repaired.push(header.page);
                    header
                }
                None => return self.begin_probe(r, None),
            },
        };
        r.learn(&header);
        r.header = Some(header);
        r.small_batches = header.pages <= SMALL_BATCH_PAGES;
        self.enter_region(r, &header);
        if self.io.geometry.has_slots() {
            self.note_batch(r, &header);
            return self.walk(r);
        }
        if r.check || header.sequence > r.known {
            r.verify.bad.clear();
            (r.verify.entry, r.verify.done, r.verify.page) = (0, 0, 1);
            self.read_payload(r);
        } else {
            self.accept(r);
        }
    }

    /// Notes the region's seeds and first batch.
    pub(crate) fn enter_region(&mut self, r: &Recovery, header: &BatchHeader) {
        let region = self.regions.place_mut(r.region_sequence);
        if region.sequence != r.region_sequence || region.first_batch == BatchSequence::NONE {
            *region = Region {
                sequence: r.region_sequence,
                first_batch: header.sequence,
                seed: region_seed(&self.io.uuid, r.region_sequence, header.epoch),
                ..Region::default()
            };
        }
    }

    /// Requests the next pages of the batch's payloads.
    fn read_payload(&mut self, r: &mut Recovery) {
        let header = r.header.expect("a batch is being read");
        let pages = r.chunk(header.pages - r.verify.page);
        if pages == 0 {
            return self.payloads_verified(r);
        }
        r.step = Step::Payload;
        self.io.read(r.chunk_buffer(), header.page + r.verify.page, pages);
    }

    /// Continues the checksums over the pages read.
    pub(crate) fn payload_read(&mut self, r: &mut Recovery) {
        let header = r.header.expect("a batch is being read");
        let page_size = self.io.geometry.page_size;
        let pages = r.chunk(header.pages - r.verify.page);
        let (start, end) = (r.verify.page * page_size, (r.verify.page + pages) * page_size);
        let bytes = &self.io.buffers[r.chunk_buffer()];
        let number = self.regions.number(r.region_sequence);
        let v = &mut r.verify;
        while let Some(entry) = r.entries.get(v.entry) {
            if entry.kind == EntryKind::Data {
                let at = u32::from(entry.offset) * page_size + v.done;
                if at >= end {
                    break;
                }
                if v.done == 0 {
                    let position = position_of(&header, entry);
                    v.crc = self.regions.payload_seed(number, entry.key, position);
                }
                let wanted = self.io.geometry.payload_bytes(entry.valid);
                let take = (wanted - v.done).min(end - at);
                let from = (at - start) as usize;
                v.crc = crc32c::crc32c_append(v.crc, &bytes[from..from + take as usize]);
                v.done += take;
                if v.done < wanted {
                    break;
                }
                r.report.payloads_verified += 1;
                if v.crc != entry.checksum && !self.io.sabotage.is(Bug::ChecksumIgnoredAtRecovery) {
                    v.bad.push(v.entry);
                }
            }
            v.entry += 1;
            v.done = 0;
        }
        v.page += pages;
        self.read_payload(r);
    }

    /// All payloads of the batch were verified.
    fn payloads_verified(&mut self, r: &mut Recovery) {
        let header = r.header.expect("a batch is being read");
        if r.verify.bad.is_empty() {
            self.accept(r);
        } else if header.sequence <= r.known {
            self.accept_damaged(r);
        } else {
            self.begin_probe(r, Some(header));
        }
    }

    /// The batch was durable, but some of its payloads fail. Its records are returned all the same
    /// (a newer record must hide an older one; reading it fails).
    pub(crate) fn accept_damaged(&mut self, r: &mut Recovery) {
        let header = r.header.expect("a batch is being read");
        for &n in &r.verify.bad {
            let entry = &r.entries[n];
            r.report.damage.payloads.push((entry.key, position_of(&header, entry)));
        }
        self.accept(r);
    }

    /// Returns the batch's records and continues after it.
    fn accept(&mut self, r: &mut Recovery) {
        let header = r.header.take().expect("a batch is being read");
        let entries = core::mem::take(&mut r.entries);
        self.give(r, &header, &entries);
        r.entries = entries;
        r.last_region = Some(r.region_sequence);
        r.page += header.pages;
        r.expected = r.expected.next();
        self.walk(r);
    }

    /// Gives the records of a batch.
    pub(crate) fn give(&mut self, r: &mut Recovery, header: &BatchHeader, entries: &[Entry]) {
        for entry in entries {
            let key = entry.key;
            let voided = r.voids(key.volume(), header.sequence);
            // What an older copy of a store has of it.
            let lacks = r.lacks(key.volume());
            let has = lacks.is_some_and(|has| header.sequence <= has);
            let clean = header.sequence <= r.superblock.clean_before || voided || has;
            let dirty = if clean { 0 } else { entry.dirty };
            let record = entry.kind == EntryKind::Data || dirty != 0;
            let active = record && self.activity.contains(key);
            let distrusted = active || r.distrusts(key.volume(), header.sequence);
            if !record || distrusted && dirty == 0 {
                r.report.distrusted += u64::from(record);
                if active {
                    self.activity.distrust(key);
                }
                r.report.tombstones += 1;
                self.io.tell(Event::RecoveredTombstone { key });
                continue;
            }
            if active {
                // Of a run that wrote back: newer than any direct write, and than any record
                // distrusted so far.
                r.report.dirty_in_active += 1;
                self.activity.record_appended(key);
            }
            r.report.records += 1;
            r.report.lost += u64::from(dirty & !entry.valid != 0);
            self.io.tell(Event::Recovered(Record {
                key,
                position: position_of(header, entry),
                valid: entry.valid,
                dirty,
                checksum: entry.checksum,
                sequence: header.sequence,
                adds: lacks.is_some(),
            }));
        }
        r.report.batches += 1;
    }
}

fn position_of(header: &BatchHeader, entry: &Entry) -> Position {
    Position(header.page + u32::from(entry.offset))
}
