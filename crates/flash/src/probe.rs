//! Step 4 of recovery: was the missing batch durable?
//!
//! Everything ahead is searched: the rest of the region page by page, then every later region. A
//! batch found there that counts names the highest batch known to be durable when it was written.
//! If that includes the missing batch, the missing batch is damage; else the log ended before it.

use crate::format::batch::BatchHeader;
use crate::log::Log;
use crate::recovery::{Recovery, Step};
use crate::sequence::{BatchSequence, RegionSequence};

/// A search ahead in progress.
#[derive(Default)]
pub(crate) struct Probe {
    /// Next page to look at.
    region_sequence: RegionSequence,
    page: u32,
    /// Pages requested.
    pages: u32,
    /// The nearest batch found: region sequence, page, batch sequence.
    found: Option<(RegionSequence, u32, BatchSequence)>,
    /// Batches found.
    count: u64,
    /// The batch in question is there, only its payloads fail.
    held: bool,
}

impl Log {
    /// Searches ahead from the walk's position; `held` is the batch there, if only its payloads
    /// fail.
    pub(crate) fn begin_probe(&mut self, r: &mut Recovery, held: Option<BatchHeader>) {
        r.probe = Probe {
            region_sequence: r.region_sequence,
            page: r.page + held.map_or(0, |h| h.pages),
            held: held.is_some(),
            ..Probe::default()
        };
        self.probe_on(r);
    }

    /// Requests the next pages, or decides.
    fn probe_on(&mut self, r: &mut Recovery) {
        let end = r.superblock.tail_region + r.regions();
        while !r.probe_decided() && r.probe.region_sequence < end {
            let limit = self.batches_end(r, r.probe.region_sequence);
            let left = limit.saturating_sub(r.probe.page);
            if left > 0 && r.live(r.probe.region_sequence).is_some() {
                r.probe.pages = r.chunk(left);
                r.step = Step::Probe;
                let page = self.page_of(r.probe.region_sequence, r.probe.page);
                return self.io.read(r.chunk_buffer(), page, r.probe.pages);
            }
            r.probe.region_sequence = r.probe.region_sequence.next();
            r.probe.page = 1;
        }
        self.decide(r);
    }

    /// Searches the pages that were read.
    pub(crate) fn probe_read(&mut self, r: &mut Recovery) {
        let page_size = self.io.geometry.page_size as usize;
        let first = self.page_of(r.probe.region_sequence, r.probe.page);
        let mut at = 0;
        while at < r.probe.pages {
            let bytes = &self.io.buffers[r.chunk_buffer()][at as usize * page_size..][..page_size];
            let mut entries = core::mem::take(&mut r.spare);
            let header = BatchHeader::decode(
                bytes,
                &self.io.uuid,
                first + at,
                &self.io.geometry,
                &mut entries,
            );
            r.spare = entries;
            let page = r.probe.page + at;
            let pages = self.io.geometry.region_pages;
            let ahead = header.ok().filter(|h| {
                h.sequence > r.expected && r.counts(h, r.probe.region_sequence, page, pages)
            });
            at += match ahead {
                Some(header) => {
                    r.learn(&header);
                    r.probe.count += 1;
                    r.probe.found.get_or_insert((r.probe.region_sequence, page, header.sequence));
                    header.pages
                }
                None => 1,
            };
        }
        r.probe.page += at;
        self.probe_on(r);
    }

    /// Damage, or the end of the log?
    fn decide(&mut self, r: &mut Recovery) {
        let missing = r.expected;
        if r.known < missing {
            r.report.batches_dropped = r.probe.count;
            return self.log_ended(r);
        }
        if r.probe.held {
            return self.accept_damaged(r);
        }
        match r.probe.found {
            Some((region_sequence, page, sequence)) if r.known >= sequence.previous() => {
                r.report.damage.batches.push((missing, sequence.previous()));
                (r.region_sequence, r.page, r.expected) = (region_sequence, page, sequence);
                self.walk(r);
            }
            _ => {
                r.report.damage.batches.push((missing, r.known));
                r.report.batches_dropped = r.probe.count;
                r.expected = r.known.next();
                self.log_ended(r);
            }
        }
    }
}

impl Log {
    /// There is nothing of the log after the walk's position.
    fn log_ended(&mut self, r: &mut Recovery) {
        if self.io.geometry.has_slots() { self.end_of_journal(r) } else { self.finish_recovery(r) }
    }
}

impl Recovery {
    /// Whether the findings suffice to decide.
    fn probe_decided(&self) -> bool {
        if self.probe.held {
            return self.known >= self.expected;
        }
        self.probe.found.is_some_and(|(_, _, sequence)| self.known >= sequence.previous())
    }
}
