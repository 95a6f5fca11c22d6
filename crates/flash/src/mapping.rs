//! Recovery in the slots layout: from the journal's entries to the mapping.
//!
//! The walk (`walk.rs`) reads only headers. The entries of a batch are applied to the mapping when
//! the batch is known to have been durable. The remaining ones, the *tail*, are kept until the end
//! of the journal is found, because the tail may contain an entry whose payload did not survive.
//!
//! A payload that fails its checksum does not prove that the journal ended before its entry: the
//! cell may have been reused, legitimately, after a newer entry of the block became durable. So the
//! journal ends at the **last batch up to which every payload that counts is intact**. A failing
//! payload must be voided by a newer entry of its block, else the journal ends before it. The
//! durable end is such a batch, so nothing durable is lost; and every accepted state is one that
//! the journal went through. Clean records are no exception: if one were dropped here because of
//! its payload, the next recovery, which knows that its batch is durable, would return it.
//!
//! A *move* repeats an earlier entry, for a payload that already existed. Intact or not, this
//! payload proves nothing about the move, and the move voids nothing: only the entry that wrote the
//! payload matters. If that entry was durable, a failing payload has been damaged since. The record
//! is returned nevertheless, so that a read notices its loss.

use crate::events::{Event, StartEvent};
use crate::format::batch::{BatchEntry, BatchHeader, EntryKind, MOVED};
use crate::granules::Granules;
use crate::key::BlockKey;
use crate::live_records::{LiveRecord, LiveRecords};
use crate::recovery::{Recovery, RecoveryStep, Restored};
use crate::sabotage::Bug;
use crate::sequence::{BatchSequence, RegionSequence};
use crate::types::Record;
use std::collections::VecDeque;

/// A batch of the tail.
struct Walked {
    sequence: BatchSequence,
    region_sequence: RegionSequence,
    entries: Vec<(BatchEntry, Payload)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    Unknown,
    Whole,
    Fails,
}

/// The mapping so far.
#[derive(Default)]
pub(crate) struct Mapped {
    tail: VecDeque<Walked>,
    live: Option<LiveRecords>,
    /// Newest region with an applied batch.
    last_region: Option<RegionSequence>,
    /// Payloads still to be verified: those of the tail, by batch and entry, then (when checking)
    /// those of the mapping.
    tail_todo: VecDeque<(usize, usize)>,
    live_todo: VecDeque<BlockKey>,
    /// Whether the tail has been cut.
    settled: bool,
}

impl Mapped {
    /// Applies a batch: older entries of its blocks no longer count.
    fn apply(&mut self, batch: &Walked) -> u64 {
        let mut tombstones = 0;
        let live = self.live.as_mut().expect("the table was created for the first batch");
        for (entry, payload) in &batch.entries {
            if entry.kind == EntryKind::Tombstone {
                tombstones += 1;
                live.remove(entry.key);
                continue;
            }
            let verified = *payload == Payload::Whole;
            live.put(entry, batch.region_sequence, batch.sequence, verified);
        }
        self.last_region = Some(batch.region_sequence);
        tombstones
    }

    /// The entry of a block that has a record.
    fn record(&self, key: BlockKey) -> BatchEntry {
        let live = self.live.as_ref().and_then(|live| live.get(key));
        live.expect("the block has a live record").entry
    }

    /// The number of batches of the tail that count.
    fn whole_batches(&self) -> usize {
        // Ranges in which the journal must not end: from each failing record to the entry that
        // voids it.
        let mut forbidden: Vec<(usize, usize)> = Vec::new();
        for (b, batch) in self.tail.iter().enumerate() {
            for (e, (entry, payload)) in batch.entries.iter().enumerate() {
                if *payload == Payload::Fails && !is_move(entry) {
                    let void = self.voided_by(entry.key, b, e).unwrap_or(usize::MAX);
                    forbidden.push((b, void));
                }
            }
        }
        let mut end = self.tail.len();
        // An end of `n` includes the batches up to number n - 1.
        while let Some(&(from, _)) =
            forbidden.iter().find(|&&(from, until)| (from + 1..=until).contains(&end))
        {
            end = from;
        }
        end
    }

    /// The batch of the block's next entry after entry `e` of batch `b` that is not just a move.
    fn voided_by(&self, key: BlockKey, b: usize, e: usize) -> Option<usize> {
        let from = |batch| if batch == b { e + 1 } else { 0 };
        (b..self.tail.len()).find(|&n| {
            let mut entries = self.tail[n].entries.iter().skip(from(n));
            entries.any(|(entry, _)| entry.key == key && !is_move(entry))
        })
    }
}

/// Whether the entry only repeats the place of a payload.
fn is_move(entry: &BatchEntry) -> bool {
    entry.kind == EntryKind::Data && entry.offset == MOVED
}

impl Recovery {
    /// Notes a batch that the walk has passed.
    pub(crate) fn note_batch(&mut self, log: &mut Restored, header: &BatchHeader) {
        self.mapped.live.get_or_insert_with(|| LiveRecords::new(log.io.geometry.slots));
        let entries = self.current.entries.iter().map(|e| (*e, Payload::Unknown)).collect();
        let (sequence, region_sequence) = (header.sequence, self.at.region_sequence);
        self.mapped.tail.push_back(Walked { sequence, region_sequence, entries });
        self.apply_known();
        self.at.pass(header.pages);
    }

    fn apply_known(&mut self) {
        while self.mapped.tail.front().is_some_and(|b| b.sequence <= self.known.batch) {
            self.apply_next();
        }
    }

    fn apply_next(&mut self) {
        let batch = self.mapped.tail.pop_front().expect("the list is not empty");
        let tombstones = self.mapped.apply(&batch);
        self.report.batches += 1;
        self.report.tombstones += tombstones;
    }

    /// Called at the end of the journal: verifies the payloads of its tail (when checking, all that
    /// count).
    pub(crate) fn end_of_journal(&mut self, log: &mut Restored) {
        self.apply_known();
        let tail = &self.mapped.tail;
        let skip = log.io.sabotage.is(Bug::TailUnverified);
        self.mapped.tail_todo = (tail.iter().enumerate())
            .flat_map(|(b, batch)| (0..batch.entries.len()).map(move |e| (b, e)))
            .filter(|&(b, e)| !skip && tail[b].entries[e].0.kind == EntryKind::Data)
            .collect();
        self.verify_next(log);
    }

    /// Requests the next payload.
    fn verify_next(&mut self, log: &mut Restored) {
        if self.mapped.tail_todo.is_empty() && !self.mapped.settled {
            self.apply_tail();
        }
        let m = &self.mapped;
        let entry = match (m.tail_todo.front(), m.live_todo.front()) {
            (Some(&(b, e)), _) => m.tail[b].entries[e].0,
            (None, Some(key)) => m.record(*key),
            (None, None) => return self.give_mapping(log),
        };
        self.step = RecoveryStep::Cell;
        let pages = log.io.geometry.payload_pages(entry.valid);
        log.io.read(self.buffers.chunk(), log.cells.position(entry.cell).0, pages);
    }

    /// Called when a payload was read.
    pub(crate) fn cell_read(&mut self, log: &mut Restored) {
        self.report.payloads_verified += 1;
        if let Some((b, e)) = self.mapped.tail_todo.pop_front() {
            let whole = self.is_whole(log, &self.mapped.tail[b].entries[e].0);
            self.mapped.tail[b].entries[e].1 = if whole { Payload::Whole } else { Payload::Fails };
        } else if let Some(key) = self.mapped.live_todo.pop_front() {
            let entry = self.mapped.record(key);
            if !self.is_whole(log, &entry) {
                self.report.damage.payloads.push((key, log.cells.position(entry.cell)));
            }
        }
        self.verify_next(log);
    }

    fn is_whole(&self, log: &Restored, entry: &BatchEntry) -> bool {
        let bytes = &log.io.buffers[self.buffers.chunk()];
        let length = log.io.geometry.payload_bytes(entry.valid) as usize;
        let seed = log.cells.payload_seed(entry.key, log.cells.position(entry.cell));
        crc32c::crc32c_append(seed, &bytes[..length]) == entry.checksum
            || log.io.sabotage.is(Bug::ChecksumIgnoredAtRecovery)
    }

    /// Applies the batches of the tail that count, now that its payloads are verified.
    fn apply_tail(&mut self) {
        let count = self.mapped.whole_batches();
        let dropped = self.mapped.tail.len() - count;
        self.report.batches_dropped += dropped as u64;
        self.at.batch = self.at.batch - dropped as u64;
        self.mapped.tail.truncate(count);
        while !self.mapped.tail.is_empty() {
            self.apply_next();
        }
        self.last_region = self.mapped.last_region;
        self.mapped.settled = true;
        if self.how.check {
            let unverified = self.mapped.live.as_ref().map(LiveRecords::unverified);
            self.mapped.live_todo = unverified.unwrap_or_default().into();
        }
    }

    /// Returns the records that count, in the journal's order, and proceeds to the end.
    fn give_mapping(&mut self, log: &mut Restored) {
        let live = core::mem::take(&mut self.mapped).live;
        let mut live = live.unwrap_or_else(|| LiveRecords::new(log.io.geometry.slots));
        for cell in live.in_order() {
            let Some(&found) = live.in_cell(cell) else { continue };
            let LiveRecord { entry, sequence, region_sequence, .. } = found;
            let (key, position) = (entry.key, log.cells.position(entry.cell));
            let clean = sequence <= self.superblock().clean_before
                || self.trust.voids(key.volume(), sequence);
            let dirty = if clean { Granules::EMPTY } else { entry.dirty };
            let active = log.activity.contains(key);
            if dirty.is_empty() && (active || self.trust.distrusts(key.volume(), sequence)) {
                self.report.distrusted += 1;
                self.report.tombstones += 1;
                if active {
                    log.activity.distrust(key);
                }
                live.remove(key);
                continue;
            }
            self.report.dirty_in_active += u64::from(active);
            self.report.records += 1;
            log.cells.set_home(entry.cell, log.regions.number(region_sequence));
            let (valid, checksum) = (entry.valid, entry.checksum);
            let record = Record { key, position, valid, dirty, checksum, sequence, adds: false };
            log.io.tell(Event::Start(StartEvent::Recovered(record)));
        }
        let uuid = self.superblock().uuid;
        log.cells.begin(uuid, live.free());
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Volume;

    fn entry(block: u64, valid: u16, dirty: u16) -> BatchEntry {
        let (valid, dirty) = (Granules(valid), Granules(dirty));
        let kind = if valid.is_empty() { EntryKind::Tombstone } else { EntryKind::Data };
        let key = BlockKey::new(Volume(0), block);
        BatchEntry { key, kind, valid, dirty, offset: 0, cell: 0, checksum: 0 }
    }

    /// A tail of batches: each a list of (block, valid, dirty, whether its payload is whole).
    fn tail(batches: &[&[(u64, u16, u16, bool)]]) -> Mapped {
        let mut mapped = Mapped::default();
        for (n, batch) in batches.iter().enumerate() {
            let entries = batch.iter().map(|&(block, valid, dirty, whole)| {
                (entry(block, valid, dirty), if whole { Payload::Whole } else { Payload::Fails })
            });
            let (sequence, entries) = (BatchSequence::FIRST + n as u64, entries.collect());
            let region_sequence = RegionSequence::FIRST;
            mapped.tail.push_back(Walked { sequence, region_sequence, entries });
        }
        mapped
    }

    #[test]
    fn the_journal_ends_before_a_torn_dirty_payload_that_nothing_voids() {
        let m = tail(&[&[(1, 1, 1, true)], &[(2, 1, 1, false)], &[(3, 1, 1, true)]]);
        assert_eq!(m.whole_batches(), 1);
        assert_eq!(tail(&[&[(1, 1, 1, true)]]).whole_batches(), 1);
        assert_eq!(tail(&[]).whole_batches(), 0);
    }

    #[test]
    fn a_payload_overwritten_after_a_newer_entry_voided_it_does_not_end_the_journal() {
        let m = tail(&[&[(1, 1, 1, false)], &[(2, 1, 1, true)], &[(1, 1, 1, true)]]);
        assert_eq!(m.whole_batches(), 3);
        let m = tail(&[&[(1, 1, 1, false)], &[(1, 0, 0, true)]]);
        assert_eq!(m.whole_batches(), 2);
        let m = tail(&[&[(1, 1, 1, false), (1, 0, 0, true)]]);
        assert_eq!(m.whole_batches(), 1);
    }

    #[test]
    fn a_move_whose_payload_was_damaged_does_not_end_the_journal_and_voids_nothing() {
        let moved = |mut mapped: Mapped, b: usize| {
            mapped.tail[b].entries[0].0.offset = MOVED;
            mapped.whole_batches()
        };
        assert_eq!(moved(tail(&[&[(1, 1, 1, false)], &[(2, 1, 1, true)]]), 0), 2);
        // The entry that wrote the payload is in the tail as well: it may never have been whole,
        // and the move does not change that.
        let both = || tail(&[&[(1, 1, 1, false)], &[(1, 1, 1, false)], &[(2, 1, 1, true)]]);
        assert_eq!(moved(both(), 1), 0);
        // The same entry twice, written both times: the second voids the first, and fails itself.
        assert_eq!(both().whole_batches(), 0);
        assert_eq!(tail(&[&[(1, 1, 1, false)], &[(1, 1, 1, true)]]).whole_batches(), 2);
    }

    #[test]
    fn what_voids_a_payload_counts_only_if_the_journal_reaches_it() {
        // The newer record of block 1 would void the older, but is cut off by block 2's.
        let m = tail(&[&[(1, 1, 1, false)], &[(2, 1, 1, false)], &[(1, 1, 1, true)]]);
        assert_eq!(m.whole_batches(), 0);
    }
}
