//! The activity log: the table of extents that are open for writes that bypass the log.
//!
//! A direct write makes the block's record on flash stale. Voiding the record with a tombstone
//! would cost one sync of flash for each write. Instead, the block's extent is marked once,
//! durably, before its first direct write, and after an unclean stop no clean record in a marked
//! extent is trusted. While the extent is marked, a bitmap remembers which of its blocks have a
//! stale record. From the grant of a mark on, the record of its block is stale.
//!
//! An extent leaves the table in four steps. Each is durable before the next begins:
//!
//! 1. The cache makes the backing store durable, as far as writes to it have ended. (Otherwise, a
//!    record appended after a direct write could survive a power cut that loses the direct write,
//!    and reads would change when the record is dropped.)
//! 2. All records appended up to this point are made durable.
//! 3. Tombstones for the stale blocks are appended and made durable.
//! 4. The superblock is written without the extent.
//!
//! An extent may leave while direct writes to it are in flight. Until such a write has ended, the
//! cache appends no record of the block, and the older ones are stale. So while the extent is
//! marked, a start trusts none of them, and before it leaves, step 3 has made them void. A record
//! of data that may not be durable is appended in the call that handles the event of a grant, and
//! its data are in the store by then. Step 1 comes later: a grant cancels it, and an extent does
//! not begin to leave while the cache has not taken the events of its grants.
//!
//! Several extents leave together, and begin to leave before the table is full, so that a mark
//! seldom waits for a place. A store may hang in step 1. Therefore, while marks wait and no leaving
//! extent is past step 1, extents of other volumes begin to leave, too, if that gives a mark a
//! place (`retirement.rs`).
//!
//! If that store's extents filled the table, a volume without extents would still wait for it. So
//! the last sixteenth of the places is kept back: a volume that has an eighth of their number in
//! use, or more, gets none of them. It waits until others leave, and volumes that may take a place
//! do not wait behind it. (A table of fewer than 16 places keeps none back. Nor does a start if the
//! table that it takes over is full.)
//!
//! # Stores that cannot be synced
//!
//! After a failed sync, no later sync of the store proves that the writes before the failure are
//! durable, so step 1 is impossible for this volume until the next start. The log then *holds* the
//! volume's extents ([`Activity::hold`]): they stay in the table and in every superblock, their
//! stale bits stay, and they are not chosen to leave. A start after a power cut still does not
//! trust their clean records.
//!
//! Held extents occupy places for as long as the log runs, but must not block the marks of other
//! volumes. A held volume therefore gets no more places than it had when its sync failed. If a mark
//! cannot get a place, the log reports [`MarkAnswer::Unmarked`] at once, whatever waits before it.
//! This happens to held volumes, and to all volumes if held extents fill the table. The cache then
//! forgets the record that a direct write would make stale, and voids this record alone
//! ([`Log::void_record`](crate::Log::void_record)). A durable tombstone protects this one block as
//! well as a mark does: a start finds no record of the block. The price is a sync of flash before
//! the write, but only once for each record, because afterwards the block has none.
//!
//! This breaks no promise to clients. A direct write is acknowledged when it is in the store's
//! volatile cache; only a FLUSH or FUA promises durability, and these fail for a held volume.
//! After the next start, the store is the only source of the block's data. Reads therefore do not
//! change, whichever of the writes before the failed sync the store has kept.

mod retirement;

use crate::batches::Queue;
use crate::commit::{Commit, SuperblockWriter};
use crate::events::MarkAnswer;
use crate::geometry::Geometry;
use crate::io::Io;
use crate::key::BlockKey;
use crate::sequence::{AppendSerial, SuperblockVersion};
use crate::stale::StaleBlocks;
use crate::waiting_marks::{Line, WaitingMarks};
use forebay_block::Volume;
use forebay_effect::IoError;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExtentState {
    Free,
    /// In the table from this version of the superblock on.
    Marking(SuperblockVersion),
    /// Durably marked.
    Active,
    /// The cache has been asked to make the backing store durable.
    Retiring,
    /// Tombstones for stale blocks are being appended; once none is left, everything up to this
    /// serial must become durable.
    Flushing(Option<AppendSerial>),
    /// No longer in the table, from this version of the superblock on.
    Removing(SuperblockVersion),
}

impl ExtentState {
    fn is_leaving(self) -> bool {
        matches!(self, ExtentState::Retiring | ExtentState::Flushing(_) | ExtentState::Removing(_))
    }
}

struct Extent {
    first: BlockKey,
    state: ExtentState,
    /// Marks that wait until the extent is durably marked, or has left the table.
    marks: Line,
    /// Number of grants whose events the cache has not taken.
    untaken: u32,
    /// When it was last marked.
    used: u64,
    /// Number of its retirements, which identifies a late answer.
    retirement: u64,
    /// Whether the cache owes the answer to the last retirement (even if the extent stays after
    /// all).
    unanswered: bool,
}

/// The table of active extents.
pub(crate) struct Activity {
    extents: Vec<Extent>,
    stale: StaleBlocks,
    /// Blocks of an extent, a power of two.
    blocks: u64,
    /// Extents in use by first block, sorted.
    index: Vec<(BlockKey, u32)>,
    free: Vec<u32>,
    /// Leaving extents whose tombstones are being appended.
    flushing: VecDeque<u32>,
    /// Leaving extents whose tombstones must become durable, and the serial of the last of these;
    /// ascending.
    settling: VecDeque<(AppendSerial, u32)>,
    /// Extents that will be marked, or out of the table, once a superblock with this change is
    /// durable.
    moving: Vec<u32>,
    /// Extents that are leaving the table.
    leaving: u32,
    /// Extents with an unanswered retirement.
    unanswered: u32,
    /// Volumes whose backing stores can no longer make data durable.
    held: Vec<Volume>,
    /// Number of places that extents of held volumes use.
    held_places: usize,
    /// Serials of tombstones that void a record alone, ascending, and the tickets of the callers.
    voiding: VecDeque<(AppendSerial, u64)>,
    /// Waiting marks, for a place in the table or for an extent that has one.
    waiting: WaitingMarks,
    /// The extents of grants whose events the cache has not taken, in the order of the events.
    untaken: VecDeque<u32>,
    /// Set by a change that may give a waiting extent a place, or let another one retire.
    changed: bool,
    /// Whether marks of held volumes may be waiting for a place.
    held_wait: bool,
    clock: u64,
    candidates: Vec<(u64, u32)>,
    batch_entries: u32,
}

impl Activity {
    pub fn new(geometry: &Geometry, pending: usize) -> Activity {
        let count = geometry.active_extents_max as usize;
        let blocks = geometry.extent_blocks();
        let extent = || Extent {
            first: BlockKey(0),
            state: ExtentState::Free,
            marks: Line::EMPTY,
            untaken: 0,
            used: 0,
            retirement: 0,
            unanswered: false,
        };
        Activity {
            extents: (0..count).map(|_| extent()).collect(),
            stale: StaleBlocks::new(count, blocks),
            blocks,
            index: Vec::with_capacity(count),
            free: (0..count as u32).rev().collect(),
            flushing: VecDeque::with_capacity(count),
            settling: VecDeque::with_capacity(count),
            moving: Vec::with_capacity(count),
            leaving: 0,
            unanswered: 0,
            held: Vec::new(),
            held_places: 0,
            voiding: VecDeque::new(),
            waiting: WaitingMarks::new(pending),
            untaken: VecDeque::with_capacity(pending),
            changed: false,
            held_wait: false,
            clock: 0,
            candidates: Vec::with_capacity(count),
            batch_entries: geometry.batch_entries_max,
        }
    }

    /// Takes over the table of the last run.
    pub fn load(&mut self, table: &[BlockKey]) {
        for &first in table {
            let first = self.first_of(first);
            if let Err(at) = self.index.binary_search_by_key(&first, |e| e.0) {
                let n = self.free.pop().expect("the table has room for the stored extents");
                self.extents[n as usize].first = first;
                self.extents[n as usize].state = ExtentState::Active;
                self.index.insert(at, (first, n));
            }
        }
    }

    /// The extents that the superblock must name.
    pub fn list(&self, out: &mut Vec<BlockKey>) {
        out.clear();
        out.extend(self.index.iter().filter(|e| !self.is_removing(e.1)).map(|e| e.0));
        assert_eq!(out.len(), self.listed(), "extents that are being removed are in flight");
    }

    /// Number of extents that the superblock must name.
    pub fn listed(&self) -> usize {
        self.index.len() - self.moving.iter().filter(|&&n| self.is_removing(n)).count()
    }

    fn is_removing(&self, n: u32) -> bool {
        matches!(self.extents[n as usize].state, ExtentState::Removing(_))
    }

    fn first_of(&self, key: BlockKey) -> BlockKey {
        BlockKey::new(key.volume(), key.block().0 & !(self.blocks - 1))
    }

    fn find(&self, key: BlockKey) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let first = self.first_of(key);
        let at = self.index.binary_search_by_key(&first, |e| e.0).ok()?;
        Some(self.index[at].1 as usize)
    }

    /// Whether the block's extent is in the table.
    pub fn contains(&self, key: BlockKey) -> bool {
        self.find(key).is_some()
    }

    /// Notes that the block's record is stale, in extent `n`.
    fn set_stale(&mut self, n: usize, key: BlockKey) {
        self.stale.set(n, key);
        if let ExtentState::Flushing(serial @ Some(_)) = &mut self.extents[n].state {
            *serial = None;
            self.settling.retain(|s| s.1 as usize != n);
            self.flushing.push_back(n as u32);
        }
    }

    /// Notes that the block's record is stale, if its extent is in the table. For recovery.
    pub fn distrust(&mut self, key: BlockKey) {
        if let Some(n) = self.find(key) {
            self.set_stale(n, key);
        }
    }

    /// Whether the block's record on flash is known to be stale.
    pub fn is_stale(&self, key: BlockKey) -> bool {
        self.find(key).is_some_and(|n| self.stale.is_set(n, key))
    }

    /// Notes that a newer record of the block was appended, after all appends so far. Returns
    /// whether the former record of the block was stale.
    pub fn record_appended(&mut self, key: BlockKey) -> bool {
        self.find(key).is_some_and(|n| self.stale.clear(n, key))
    }

    /// Appends were withdrawn, and the newest that is left has the serial `last`: no leaving extent
    /// need wait for a later one. (A later append may get the serial of a withdrawn one.)
    pub fn limit_settling(&mut self, last: AppendSerial) {
        for (serial, n) in &mut self.settling {
            *serial = last.min(*serial);
            self.extents[*n as usize].state = ExtentState::Flushing(Some(*serial));
        }
    }

    /// Clears the next stale block of extent `n` and returns it.
    fn take_stale(&mut self, n: usize) -> Option<BlockKey> {
        let block = self.extents[n].first.block().0 + self.stale.take(n)?;
        Some(BlockKey::new(self.extents[n].first.volume(), block))
    }

    /// Keeps the volume's extents in the table: its backing store can no longer make data durable.
    pub fn hold(&mut self, volume: Volume) {
        if self.is_held(volume) {
            return;
        }
        self.held.push(volume);
        for at in 0..self.index.len() {
            let (first, n) = self.index[at];
            if first.volume() == volume {
                self.held_places += 1;
                self.note_answer(n as usize);
                // Its answer would come from a sync that failed, or from a later one.
                if self.extents[n as usize].state == ExtentState::Retiring {
                    self.keep(n as usize);
                }
            }
        }
        (self.changed, self.held_wait) = (true, true);
    }

    /// Whether the volume's extents stay in the table.
    fn is_held(&self, volume: Volume) -> bool {
        self.held.contains(&volume)
    }

    /// Places of extents that can leave, and free ones.
    fn places(&self) -> usize {
        self.extents.len() - self.held_places
    }

    /// Whether an extent of the volume gets no place, however long it waits.
    fn has_no_hope(&self, volume: Volume) -> bool {
        self.is_held(volume) || self.places() == 0 && self.leaving == 0
    }

    /// The number of free places that are kept for volumes that use few.
    fn kept_back(&self) -> usize {
        self.places() / 16
    }

    /// Whether an extent of the volume may take a place that is free now.
    fn may_take(&self, volume: Volume) -> bool {
        self.could_take(self.free.len(), self.extents_of(volume).len())
    }

    /// Whether a volume that uses this number of places may take one of `free` places.
    fn could_take(&self, free: usize, in_use: usize) -> bool {
        let kept = self.kept_back();
        free > kept || free > 0 && in_use < (kept / 8).max(1)
    }

    /// The extents of the volume.
    fn extents_of(&self, volume: Volume) -> &[(BlockKey, u32)] {
        let end = self.index.partition_point(|e| e.0.volume() <= volume);
        let begin = self.index[..end].partition_point(|e| e.0.volume() < volume);
        &self.index[begin..end]
    }

    /// Whether a sync would let an extent, or the voiding of a record, continue.
    pub fn wants_sync(&self, commit: &Commit) -> bool {
        let next = [self.settling.front().map(|s| s.0), self.voiding.front().map(|v| v.0)];
        next.into_iter().flatten().any(|serial| commit.would_cover(serial))
    }

    /// Whether places in the table are scarce.
    fn is_short(&self) -> bool {
        !self.waiting.is_empty() || self.free.len() < self.kept_back() + self.places() / 16
    }

    /// Whether the extent of a block is in the table, or has a place there.
    pub fn has_place(&self, key: BlockKey) -> bool {
        let volume = key.volume();
        // While nothing has changed, the extents that wait can take none of the free places.
        let first = self.waiting.is_empty() || !self.changed;
        self.contains(key) || first && self.may_take(volume) && !self.is_held(volume)
    }

    /// Notes that the tombstone with this serial voids a single record, and that a caller waits for
    /// it.
    pub fn await_void(&mut self, serial: AppendSerial, ticket: u64) {
        self.voiding.push_back((serial, ticket));
    }

    /// Queues a mark that cannot be granted yet, or refuses it if its extent will get no place.
    fn wait(&mut self, key: BlockKey, ticket: u64, io: &mut Io) {
        match self.find(key) {
            Some(n) => {
                let line = self.waiting.push(self.extents[n].marks, key, ticket);
                self.extents[n].marks = line;
            }
            None if self.has_no_hope(key.volume()) => io.tell(MarkAnswer::Unmarked.to(ticket)),
            None => {
                self.waiting.enqueue(self.first_of(key), key, ticket);
                self.changed = true;
            }
        }
    }

    /// Grants a mark in extent `n`, which is durably marked.
    fn grant(&mut self, n: usize, (key, ticket): (BlockKey, u64), io: &mut Io) {
        self.clock += 1;
        self.extents[n].used = self.clock;
        self.set_stale(n, key);
        self.extents[n].untaken += 1;
        self.untaken.push_back(n as u32);
        io.tell(MarkAnswer::Active(Ok(())).to(ticket));
    }

    /// Notes that the cache has taken the event of the oldest grant.
    pub fn grant_taken(&mut self) {
        let n = self.untaken.pop_front().expect("a mark was granted");
        let extent = &mut self.extents[n as usize];
        extent.untaken -= 1;
        self.changed |= extent.untaken == 0 && self.is_short();
    }

    /// Whether the cache has taken all grants of this extent of the index, and the extent is not
    /// held.
    fn is_idle(&self, (first, n): (BlockKey, u32)) -> bool {
        self.extents[n as usize].untaken == 0 && !self.is_held(first.volume())
    }

    /// Keeps the extent in the table, even if it was leaving.
    fn keep(&mut self, n: usize) {
        let state = core::mem::replace(&mut self.extents[n].state, ExtentState::Active);
        match state {
            ExtentState::Flushing(None) => self.flushing.retain(|&f| f as usize != n),
            ExtentState::Flushing(Some(_)) => self.settling.retain(|s| s.1 as usize != n),
            ExtentState::Removing(_) => self.moving.retain(|&m| m as usize != n),
            _ => {}
        }
        if state.is_leaving() {
            self.leaving -= 1;
            self.changed |= self.is_short();
        }
    }

    /// Takes the extent at `at` of the index out of the table.
    fn remove(&mut self, at: usize) {
        let (first, n) = self.index.remove(at);
        self.held_places -= usize::from(self.is_held(first.volume()));
        self.held_wait |= self.is_held(first.volume());
        let extent = &mut self.extents[n as usize];
        self.leaving -= u32::from(extent.state.is_leaving());
        extent.state = ExtentState::Free;
        let marks = core::mem::replace(&mut extent.marks, Line::EMPTY);
        self.note_answer(n as usize);
        self.waiting.enqueue_line(first, marks);
        self.stale.clear_all(n as usize);
        self.free.push(n);
    }

    /// Takes every extent out of the table that can leave at a clean stop.
    pub fn remove_idle(&mut self) {
        for at in (0..self.index.len()).rev() {
            if self.is_idle(self.index[at]) {
                self.remove(at);
            }
        }
    }

    /// Returns the block's extent if it is durably marked, and keeps it in the table.
    fn stay(&mut self, key: BlockKey, superblock: &SuperblockWriter) -> Option<usize> {
        let n = self.find(key)?;
        match self.extents[n].state {
            ExtentState::Active => {}
            ExtentState::Retiring | ExtentState::Flushing(_) => self.keep(n),
            ExtentState::Removing(version) if !superblock.is_encoded(version) => {
                self.keep(n);
            }
            ExtentState::Free | ExtentState::Marking(_) | ExtentState::Removing(_) => return None,
        }
        Some(n)
    }

    /// Grants a mark for a step of block `key` at once, or queues it.
    pub fn mark(&mut self, key: BlockKey, ticket: u64, superblock: &SuperblockWriter, io: &mut Io) {
        match self.stay(key, superblock) {
            Some(n) => self.grant(n, (key, ticket), io),
            None => self.wait(key, ticket, io),
        }
    }

    /// Called when a version of the superblock is durable: the extents in it are marked, and the
    /// removed ones are out of the table.
    pub fn superblock_durable(&mut self, version: SuperblockVersion, io: &mut Io) {
        let mut moving = core::mem::take(&mut self.moving);
        moving.retain(|&n| {
            let n = n as usize;
            match self.extents[n].state {
                ExtentState::Marking(v) | ExtentState::Removing(v) if v > version => return true,
                ExtentState::Marking(_) => {
                    self.extents[n].state = ExtentState::Active;
                    let mut marks = core::mem::replace(&mut self.extents[n].marks, Line::EMPTY);
                    while let Some(mark) = self.waiting.pop(&mut marks) {
                        self.grant(n, mark, io);
                    }
                }
                ExtentState::Removing(_) => {
                    let first = self.extents[n].first;
                    let at = self.index.binary_search_by_key(&first, |e| e.0);
                    self.remove(at.expect("an extent in the table"));
                }
                // A clean stop has taken it out already.
                _ => {}
            }
            self.changed = true;
            false
        });
        self.moving = moving;
    }

    /// Notes a stale record. Returns false if the block's extent is not in the table, or can no
    /// longer stay there.
    pub fn poison(&mut self, key: BlockKey, superblock: &SuperblockWriter) -> bool {
        let Some(n) = self.find(key) else { return false };
        if let ExtentState::Removing(version) = self.extents[n].state {
            if superblock.is_encoded(version) {
                return false;
            }
            self.moving.retain(|&m| m as usize != n);
            self.extents[n].state = ExtentState::Flushing(None);
            self.flushing.push_back(n as u32);
        }
        self.set_stale(n, key);
        true
    }

    /// Continues with leaving extents and waiting marks.
    pub fn pump(
        &mut self,
        commit: &Commit,
        queue: &mut Queue,
        superblock: &mut SuperblockWriter,
        io: &mut Io,
    ) -> bool {
        let mut progress = false;
        while queue.internal < self.batch_entries
            && let Some(&n) = self.flushing.front()
        {
            self.flush_extent(n, queue, io);
            progress = true;
        }
        while let Some(&(serial, n)) = self.settling.front()
            && serial <= commit.durable_serial()
        {
            self.settling.pop_front();
            self.extents[n as usize].state = ExtentState::Removing(superblock.touch());
            self.moving.push(n);
            progress = true;
        }
        while let Some(&(serial, ticket)) = self.voiding.front()
            && serial <= commit.durable_serial()
        {
            self.voiding.pop_front();
            io.tell(MarkAnswer::RecordVoid(Ok(())).to(ticket));
            progress = true;
        }
        if core::mem::take(&mut self.changed) {
            self.give_places(superblock, io);
            progress = true;
        }
        progress
    }

    /// Appends tombstones for the stale blocks of a leaving extent, as many as may wait. Once no
    /// stale block is left, the tombstones must become durable.
    fn flush_extent(&mut self, n: u32, queue: &mut Queue, io: &Io) {
        while queue.internal < self.batch_entries {
            let Some(key) = self.take_stale(n as usize) else {
                let serial = queue.last_serial;
                self.extents[n as usize].state = ExtentState::Flushing(Some(serial));
                self.flushing.pop_front();
                self.settling.push_back((serial, n));
                queue.close_through = serial;
                return;
            };
            queue.append_tombstone(key, io);
            queue.close_through = queue.last_serial;
        }
    }

    /// Gives free places to waiting extents that may take them, and answers those that get none;
    /// requests retirements when few places are left.
    fn give_places(&mut self, superblock: &mut SuperblockWriter, io: &mut Io) {
        if core::mem::take(&mut self.held_wait) {
            self.refuse_held(io);
        }
        let may_go = |a: &Activity, volume| a.has_no_hope(volume) || a.may_take(volume);
        while let Some(first) = self.waiting.front(|volume| may_go(self, volume)) {
            let (_, marks) = self.waiting.next(first.volume()).expect("an extent waits");
            if self.has_no_hope(first.volume()) {
                self.refuse(marks, io);
                continue;
            }
            let n = self.free.pop().expect("an entry is free");
            let at = self.index.partition_point(|e| e.0 < first);
            self.index.insert(at, (first, n));
            let extent = &mut self.extents[n as usize];
            (extent.first, extent.marks) = (first, marks);
            extent.state = ExtentState::Marking(superblock.touch());
            self.moving.push(n);
        }
        self.make_room(io);
    }

    /// Answers the marks of held volumes that wait for a place, whatever waits before them.
    fn refuse_held(&mut self, io: &mut Io) {
        while let Some(first) = self.waiting.front(|volume| self.is_held(volume)) {
            let (_, marks) = self.waiting.next(first.volume()).expect("an extent waits");
            self.refuse(marks, io);
        }
    }

    /// Refuses marks that get no place.
    fn refuse(&mut self, mut marks: Line, io: &mut Io) {
        while let Some((_, ticket)) = self.waiting.pop(&mut marks) {
            io.tell(MarkAnswer::Unmarked.to(ticket));
        }
    }

    /// Called when a clean stop begins: no more marks are granted, and leaving extents stay.
    pub fn stop(&mut self, io: &mut Io) {
        self.fail(IoError::Shutdown, io);
        while let Some(n) = self.flushing.front().copied().or(self.settling.front().map(|s| s.1)) {
            self.keep(n as usize);
        }
    }

    /// Fails all marks and voidings that wait: nothing is marked or voided any more.
    pub fn fail(&mut self, error: IoError, io: &mut Io) {
        for at in 0..self.index.len() {
            let n = self.index[at].1 as usize;
            let marks = core::mem::replace(&mut self.extents[n].marks, Line::EMPTY);
            self.waiting.enqueue_line(self.extents[n].first, marks);
        }
        while let Some(first) = self.waiting.front(|_| true) {
            let (_, mut marks) = self.waiting.next(first.volume()).expect("an extent waits");
            while let Some((_, ticket)) = self.waiting.pop(&mut marks) {
                io.tell(MarkAnswer::Active(Err(error)).to(ticket));
            }
        }
        for (_, ticket) in self.voiding.drain(..) {
            io.tell(MarkAnswer::RecordVoid(Err(error)).to(ticket));
        }
    }

    /// Appends tombstones for the stale blocks of every extent that can leave the table at a clean
    /// stop. False if `pages`, one for each batch, are no room for them; then all extents stay
    /// marked.
    pub fn append_last_tombstones(&mut self, pages: u64, queue: &mut Queue, io: &Io) -> bool {
        let last = self.index.iter().filter(|&&e| self.is_idle(e));
        let count: u64 = last.map(|e| self.stale.count(e.1 as usize)).sum();
        let batches = count.div_ceil(u64::from(self.batch_entries));
        if batches > pages {
            return false;
        }
        for at in 0..self.index.len() {
            let extent = self.index[at];
            while self.is_idle(extent)
                && let Some(key) = self.take_stale(extent.1 as usize)
            {
                queue.append_tombstone(key, io);
            }
        }
        true
    }
}
