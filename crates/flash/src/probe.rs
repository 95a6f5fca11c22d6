//! Step 4 of recovery: was the missing batch durable?
//!
//! Everything ahead is searched: the rest of the region page by page, then every later region. A
//! batch found there that counts names the highest batch known to be durable when it was written.
//! If that includes the missing batch, the missing batch is damage; else the log ended before it.

use crate::format::batch::BatchHeader;
use crate::recovery::{Recovery, RecoveryStep, Restored, WalkPosition};
use crate::sequence::RegionSequence;

/// A search ahead in progress.
#[derive(Default)]
pub(crate) struct Probe {
    /// Next page to look at.
    region_sequence: RegionSequence,
    page: u32,
    /// Pages requested.
    pages: u32,
    /// The nearest batch found.
    found: Option<WalkPosition>,
    /// Batches found.
    count: u64,
    /// Whether the missing batch is present, and only its payloads fail.
    held: bool,
}

impl Recovery {
    /// Searches ahead from the walk's position; `held` is the batch there, if only its payloads
    /// fail.
    pub(crate) fn begin_probe(&mut self, log: &mut Restored, held: Option<BatchHeader>) {
        self.probe = Probe {
            region_sequence: self.at.region_sequence,
            page: self.at.page + held.map_or(0, |h| h.pages),
            held: held.is_some(),
            ..Probe::default()
        };
        self.probe_on(log);
    }

    /// Requests the next pages, or decides.
    fn probe_on(&mut self, log: &mut Restored) {
        let end = self.superblock().tail_region + self.regions();
        while !self.probe_decided() && self.probe.region_sequence < end {
            let limit = self.batches_end(log, self.probe.region_sequence);
            let left = limit.saturating_sub(self.probe.page);
            if left > 0 && self.live(self.probe.region_sequence).is_some() {
                self.probe.pages = self.buffers.pages(left);
                self.step = RecoveryStep::Probe;
                let page = log.page_of(self.probe.region_sequence, self.probe.page);
                return log.io.read(self.buffers.chunk(), page, self.probe.pages);
            }
            self.probe.region_sequence = self.probe.region_sequence.next();
            self.probe.page = 1;
        }
        self.decide(log);
    }

    /// Searches the pages that were read.
    pub(crate) fn probe_read(&mut self, log: &mut Restored) {
        let page_size = log.io.geometry.page_size as usize;
        let first = log.page_of(self.probe.region_sequence, self.probe.page);
        let mut at = 0;
        while at < self.probe.pages {
            let bytes =
                &log.io.buffers[self.buffers.chunk()][at as usize * page_size..][..page_size];
            let mut entries = core::mem::take(&mut self.spare);
            let header = BatchHeader::decode(
                bytes,
                log.io.tier(),
                first + at,
                &log.io.geometry,
                &mut entries,
            );
            self.spare = entries;
            let page = self.probe.page + at;
            let pages = log.io.geometry.region_pages;
            let ahead = header.ok().filter(|h| {
                h.sequence > self.at.batch
                    && self.counts(h, self.probe.region_sequence, page, pages)
            });
            at += match ahead {
                Some(header) => {
                    self.learn(&header);
                    self.probe.count += 1;
                    self.probe.found.get_or_insert(WalkPosition {
                        region_sequence: self.probe.region_sequence,
                        page,
                        batch: header.sequence,
                    });
                    header.pages
                }
                None => 1,
            };
        }
        self.probe.page += at;
        self.probe_on(log);
    }

    /// Damage, or the end of the log?
    fn decide(&mut self, log: &mut Restored) {
        let missing = self.at.batch;
        if self.known.batch < missing {
            self.report.batches_dropped = self.probe.count;
            return self.log_ended(log);
        }
        if self.probe.held {
            return self.accept_damaged(log);
        }
        match self.probe.found {
            Some(found) if self.known.batch >= found.batch.previous() => {
                self.report.damage.batches.push((missing, found.batch.previous()));
                self.at = found;
                self.walk(log);
            }
            _ => {
                self.report.damage.batches.push((missing, self.known.batch));
                self.report.batches_dropped = self.probe.count;
                self.at.batch = self.known.batch.next();
                self.log_ended(log);
            }
        }
    }
}

impl Recovery {
    /// Ends the log at the walk's position.
    fn log_ended(&mut self, log: &mut Restored) {
        if log.io.geometry.has_slots() { self.end_of_journal(log) } else { self.end() }
    }
}

impl Recovery {
    /// Whether the findings suffice to decide.
    fn probe_decided(&self) -> bool {
        if self.probe.held {
            return self.known.batch >= self.at.batch;
        }
        self.probe.found.is_some_and(|found| self.known.batch >= found.batch.previous())
    }
}
