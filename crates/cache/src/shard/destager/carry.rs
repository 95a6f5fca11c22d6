//! Carrying on: how records survive that cannot be destaged from a region that is to be reused.
//!
//! Records of volumes whose backing store accepts no writes are read and written again at the head
//! of the log, so that the volumes of other stores get room.
//!
//! A dirty record that cannot be read was the only copy of its block's newest data. The knowledge of this loss
//! must outlive its region: else reads would return the backing store's older version. So the log keeps an entry
//! without a payload at its head. This entry is carried on in the same way whenever the log wraps around, until
//! the block is written.
//!
//! Clean records that were read from flash often are *reinserted*: by the same steps, but under other rules.
//! No request waits for them, and the log takes them only where there is room to spare. At most half a region
//! is reinserted, so that each reclaimed region makes room.

use forebay_effect::IoError;
use forebay_flash::sabotage::{Bug, Sabotage};
use forebay_flash::{Append, BlockKey, Geometry, Granules, Log, Position, RegionIndex};

use super::sorting::Sorting;
use super::state::{DestagerState, PickPhase, Picking};
use super::{Destager, owed};
use crate::byte_range::ByteRange;
use crate::shard::ShardContext;
use crate::shard::blocks::{FlashRecord, RegionMove};
use crate::shard::entry::{Entry, EntryId};
use crate::shard::frames::Frame;
use crate::shard::tiers::Tiers;
use crate::shard::transfer::TransferKind;
use crate::slab::TransferIndex;
use crate::volume_set::VolumeSet;

/// Number of records that one step looks at, counting only those that are being carried or can be.
const CARRY_WINDOW: usize = 64;

/// The state of carrying on a region's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum CarryState {
    /// Waiting for the log, or for transfers.
    Busy,
    /// The region holds nothing dirty any more.
    Done,
    /// A record could not be read.
    Unreadable,
    /// The log has failed.
    Failed,
}

/// Why records of a region are appended again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// They are still needed: the region can be released only without them.
    CarryOn,
    /// They are clean, and worth keeping.
    Reinsert,
}

/// A record that may be reinserted. The order is that in which records are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Hot {
    /// The lower, the more the record is worth; 0 if worth does not decide.
    rank: u8,
    position: Position,
    key: BlockKey,
    /// Pages of its payload.
    pages: u16,
}

/// The records being carried on or reinserted. If the log fails, the records that it has not taken
/// yet end after the cleaning.
#[derive(Debug)]
pub(super) struct Carrying {
    /// Records to be reinserted; the first to be taken is last.
    hot: Vec<Hot>,
    sorting: Sorting<Hot>,
    /// Why the blocks of the batch are appended again.
    purpose: Purpose,
    /// Blocks of the batch with a transfer in progress.
    blocks: Vec<BlockKey>,
    /// Records that are being read.
    reads: u32,
    /// Whether the log takes no more records: it has failed, or a stop has closed it.
    refused: bool,
}

impl Carrying {
    /// For regions of `region_pages` pages.
    pub fn new(region_pages: u32) -> Carrying {
        let most = region_pages as usize;
        Carrying {
            hot: Vec::with_capacity(most),
            sorting: Sorting::new(most),
            purpose: Purpose::CarryOn,
            blocks: Vec::new(),
            reads: 0,
            refused: false,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.hot.capacity() * size_of::<Hot>()) as u64 + self.sorting.memory_bytes()
    }
}

impl Destager {
    /// Begins to carry on the remaining records of a region: those of volumes with failing stores,
    /// or unreadable ones.
    pub fn carry_begin(&mut self, tiers: &Tiers, region: RegionIndex, failing: VolumeSet) {
        self.state.enter(DestagerState::CarryingOn { unread: false });
        (self.carrying.purpose, self.carrying.refused) = (Purpose::CarryOn, false);
        self.chosen.clear();
        for id in tiers.blocks.blocks_of(region) {
            let e = &tiers.blocks[id];
            if let (true, Some(position)) = (!e.flash_dirty().is_empty(), e.position()) {
                let hopeless = e.owed().is_empty() || e.is_unreadable();
                let fails = failing.has(e.key());
                assert!(hopeless || fails, "readable data would be given up as lost");
                self.chosen.push((e.key(), position));
            }
        }
        // Records are taken from the end of the list, so the first comes last.
        self.chosen.reverse();
    }

    /// Continues carrying on the remaining records of the region.
    pub fn carry_step(&mut self, tiers: &mut Tiers, context: &mut ShardContext<'_>) -> CarryState {
        let unread = *self.state.unread();
        let Some(log) = self.carrying.log_that_takes(context) else { return CarryState::Failed };
        let most = owed::together(self.writes.frames(tiers), log.geometry());
        self.carrying.carry_some(tiers, context, &mut self.chosen, unread);
        let left = &self.chosen;
        let state = match (left.is_empty(), unread) {
            (true, _) => CarryState::Done,
            (_, true) if self.carrying.blocks.is_empty() => CarryState::Unreadable,
            _ => CarryState::Busy,
        };
        let together = most.min(left.len());
        let enough = self.carrying.blocks.len() >= together.max(1) || unread;
        // If fewer blocks are ready, other transfers hold the frames or the blocks. Only notes of
        // losses need places that the carrying itself holds: then it does not wait for more.
        let cramped = !self.carrying.blocks.is_empty() && !tiers.transfers.may_be_loose();
        let closes = self.carrying.reads == 0 && (enough || cramped);
        if let Some(log) = context.log.get_mut().filter(|_| closes) {
            log.close_carried();
        }
        state
    }

    /// A record of another shard could not be read: the region will not be freed. Appends in
    /// progress end, and no more are begun. Returns whether this shard did not know that.
    pub fn carry_no_more(&mut self) -> bool {
        !core::mem::replace(self.state.unread(), true)
    }

    /// Ends appending for this region: all that is possible is done, or the log has failed.
    pub fn append_end(&mut self) {
        self.state.enter(DestagerState::Idle);
    }

    /// Begins to choose which clean records of a region are reinserted: those worth most, in at
    /// most `pages` pages of the log.
    pub fn reinsert_choose(&mut self, tiers: &mut Tiers, region: RegionIndex, pages: u32) {
        self.state.enter(DestagerState::Picking(Picking { phase: PickPhase::Collecting, pages }));
        self.carrying.hot.clear();
        self.carrying.purpose = Purpose::Reinsert;
        tiers.blocks.begin_walk(region);
    }

    /// Continues choosing within the budget of the call; returns the pages that the records take
    /// once all are chosen.
    pub fn reinsert_choose_step(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
    ) -> Option<u32> {
        // Without a log, no record can be reinserted.
        let Some(log) = context.log.get() else { return Some(0) };
        let geometry = log.geometry();
        let Carrying { hot, sorting, .. } = &mut self.carrying;
        let Picking { phase, pages } = self.state.picking();
        if *phase == PickPhase::Collecting {
            while !tiers.blocks.has_walked() {
                if !context.budget.take() {
                    return None;
                }
                let Some(id) = tiers.blocks.walk() else { break };
                let e = &tiers.blocks[id];
                let reinsertable = is_reinsertable(e, context.mode.sabotage);
                if let (true, Some(uses)) = (reinsertable, tiers.flash.worth(id)) {
                    let position = e.position().expect("an entry of a region has a record");
                    let rank = if tiers.flash.takes_hottest() { u8::MAX - uses } else { 0 };
                    let pages = geometry.payload_pages(e.flash_valid()) as u16;
                    hot.push(Hot { rank, position, key: e.key(), pages });
                }
            }
            sorting.begin();
            *phase = PickPhase::Ranking;
        }
        if !sorting.step(hot, context.budget) {
            return None;
        }
        if *phase == PickPhase::Ranking {
            *pages = take_best(hot, *pages, reinsertions(tiers, geometry) as u32);
            // The chosen records are read in the order of the log, neighbours one after the other.
            hot.iter_mut().for_each(|hot| hot.rank = 0);
            sorting.begin();
            *phase = PickPhase::Ordering;
            if !sorting.step(hot, context.budget) {
                return None;
            }
        }
        // The record to be taken first comes last.
        hot.reverse();
        let pages = *pages;
        self.state.enter(DestagerState::Reinserting { closed: false });
        Some(pages)
    }

    /// Continues to reinsert the chosen records.
    pub fn reinsert_step(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
    ) -> CarryState {
        let closed = self.state.closed();
        let Some(log) = self.carrying.log_that_takes(context) else { return CarryState::Failed };
        let together = reinsertions(tiers, log.geometry());
        let carrying = &mut self.carrying;
        *closed &= !carrying.blocks.is_empty();
        while !*closed
            && carrying.blocks.len() < together
            && tiers.transfers.bounces_free() > 0
            && let Some(Hot { position, key, .. }) = carrying.hot.pop()
        {
            let id = tiers.blocks.find_at(key, position);
            let sabotage = context.mode.sabotage;
            if let Some(id) = id.filter(|&id| is_reinsertable(&tiers.blocks[id], sabotage)) {
                carrying.carry(tiers, context, id, position);
            }
        }
        if carrying.blocks.is_empty() {
            if !carrying.hot.is_empty() {
                // Other transfers hold the frames, and will return them.
                return CarryState::Busy;
            }
            return CarryState::Done;
        }
        let closes = carrying.reads == 0 && !*closed;
        if let Some(log) = context.log.get_mut().filter(|_| closes) {
            *closed = true;
            log.close_carried();
        }
        CarryState::Busy
    }

    /// The log has refused a record, and takes no more.
    pub fn carry_refused(&mut self, tiers: &Tiers, t: TransferIndex) {
        let key = tiers.transfers[t].key;
        self.carrying.blocks.retain(|&carried| carried != key);
        self.carrying.refused = true;
    }

    /// The log has no room to spare for a record, nor for any other that was to be reinserted.
    pub fn reinsertion_refused(
        &mut self,
        tiers: &Tiers,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
    ) {
        let key = tiers.transfers[t].key;
        self.carrying.blocks.retain(|&carried| carried != key);
        context.stats.reinsertions_refused += 1 + self.carrying.hot.len() as u64;
        self.carrying.hot.clear();
    }

    /// A record to be carried on was read: `Ok(true)` good, `Ok(false)` a newer record has replaced
    /// it. Returns whether its transfer has ended; otherwise it continues to the log.
    pub fn carry_read(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        position: Position,
        end: Result<bool, IoError>,
    ) -> bool {
        self.carrying.reads -= 1;
        let key = tiers.transfers[t].key;
        // A newer record may have entered a batch while this one was read.
        let careless = context.mode.sabotage.is(Bug::ReinsertedOverNewer);
        let comes_before = |&id: &EntryId| careless || comes_before(tiers, context, id, Some(t));
        let id = tiers.blocks.find(key).filter(comes_before);
        if let (Ok(true), Some(id)) = (end, id) {
            let e = &tiers.blocks[id];
            let (valid, dirty) = (e.flash_valid(), e.flash_dirty());
            tiers.transfers[t].kind = TransferKind::Carry { position, valid, dirty };
            let frame = tiers.transfers[t].bounce.expect("a record was read");
            hand_on(tiers, context, t, frame, self.carrying.purpose);
            return false;
        }
        if end.is_err()
            && self.carrying.purpose == Purpose::CarryOn
            && tiers.flash.note_unreadable(&mut tiers.blocks, key, position)
        {
            self.state.note_unread();
        }
        self.carrying.blocks.retain(|&carried| carried != key);
        true
    }

    /// The log has written the record at another position. Returns the regions of both positions,
    /// unless a newer record has replaced it or it was reinserted.
    pub fn carried(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        from: Position,
        to: FlashRecord,
    ) -> Option<RegionMove> {
        let key = tiers.transfers[t].key;
        self.carrying.blocks.retain(|&carried| carried != key);
        let id = tiers.blocks.find_at(key, from);
        let log = context.log.of(to.position);
        let region = |position| log.region_of(position);
        let moved = id.map(|_| RegionMove { from: region(from), to: region(to.position) });
        if self.carrying.purpose == Purpose::Reinsert {
            if let Some(id) = id {
                context.stats.reinserted += 1;
                tiers.flash.reinserted(&mut tiers.blocks, context, id, to);
            }
            return None;
        }
        if let Some(id) = id {
            if let (true, Some(t)) = (!to.valid.is_empty(), tiers.blocks[id].transfer()) {
                tiers.transfers.record_moved(t, from, to.position);
            }
            context.stats.carried_lost += u64::from(to.valid.is_empty());
            context.stats.carried += u64::from(!to.valid.is_empty());
            tiers.flash.set_record(&mut tiers.blocks, context, id, Some(to));
        }
        moved
    }
}

impl Carrying {
    /// The log, if there is one that takes records.
    fn log_that_takes<'c>(&self, context: &'c ShardContext<'_>) -> Option<&'c Log> {
        context.log.get().filter(|_| !context.flash.is_lost() && !self.refused)
    }

    /// Carries on as many of the remaining records as possible now, up to a window of a few
    /// batches, and drops records that no longer need it. If a record was `unread`, begins none.
    fn carry_some(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        left: &mut Vec<(BlockKey, Position)>,
        unread: bool,
    ) {
        let (mut seen, mut at) = (0, left.len());
        while at > 0 && seen < CARRY_WINDOW {
            at -= 1;
            let (key, position) = left[at];
            // Records that were destaged apart may have become clean.
            let carries = self.blocks.contains(&key);
            let owed = |&id: &EntryId| carries || !tiers.blocks[id].flash_dirty().is_empty();
            let Some(id) = tiers.blocks.find_at(key, position).filter(owed) else {
                left.remove(at);
                continue;
            };
            if !unread && self.may_carry(tiers, context, id) {
                self.carry(tiers, context, id, position);
                seen += 1;
            } else {
                seen += usize::from(carries);
            }
        }
    }

    fn may_carry(&self, tiers: &Tiers, context: &ShardContext<'_>, id: EntryId) -> bool {
        let e = &tiers.blocks[id];
        let place = if is_lost(e) {
            tiers.transfers.may_be_loose()
        } else {
            tiers.transfers.bounces_free() > 0
        };
        place && !self.blocks.contains(&e.key()) && comes_before(tiers, context, id, None)
    }

    fn carry(
        &mut self,
        tiers: &mut Tiers,
        context: &mut ShardContext<'_>,
        id: EntryId,
        position: Position,
    ) {
        let e = &tiers.blocks[id];
        let (key, dirty) = (e.key(), e.flash_dirty());
        let lost = self.purpose == Purpose::CarryOn && is_lost(e);
        let kind = match lost {
            true => TransferKind::Carry { position, valid: Granules::EMPTY, dirty },
            false => TransferKind::CarryRead { position },
        };
        let bytes = ByteRange::EMPTY;
        let t = match e.transfer() {
            None => tiers.transfers.start_on(&mut tiers.blocks, context.volumes, id, kind, bytes),
            Some(_) => tiers.transfers.start(context.volumes, kind, key, bytes),
        };
        self.blocks.push(key);
        if lost {
            return hand_on(tiers, context, t, Frame::NONE, Purpose::CarryOn);
        }
        let bounce = tiers.transfers.take_bounce().expect("a bounce frame is available");
        tiers.transfers[t].bounce = Some(bounce);
        self.reads += 1;
        tiers.transfers.read_record(&tiers.blocks, context, (id, t), bounce);
    }
}

/// Number of records that are reinserted together: at most half the bounce frames, so that other
/// transfers find some.
fn reinsertions(tiers: &Tiers, geometry: &Geometry) -> usize {
    let most =
        geometry.batch_entries_max.min((geometry.batch_pages_max - 1) / geometry.block_pages());
    (most.max(1) as usize).min((tiers.transfers.bounces() / 2).max(1))
}

/// Keeps the first of `hot`, which is ordered by worth, as far as they fit into `pages` pages with
/// one header for every `together` records. Returns the pages that they take.
fn take_best(hot: &mut Vec<Hot>, pages: u32, together: u32) -> u32 {
    let (mut taken, mut count) = (0, 0);
    for record in hot.iter() {
        let more = u32::from(record.pages) + u32::from((count as u32).is_multiple_of(together));
        if taken + more > pages {
            break;
        }
        (taken, count) = (taken + more, count + 1);
    }
    hot.truncate(count);
    taken
}

/// Whether the block's record may be reinserted: it is clean, is all the cached data of the block,
/// and no transfer is in progress. A block in memory is appended when it leaves, if it is still
/// worth keeping.
fn is_reinsertable(e: &Entry, sabotage: Sabotage) -> bool {
    let idle = e.transfer().is_none() && e.frame().is_none();
    (idle || sabotage.is(Bug::ReinsertedOverNewer))
        && e.flash_dirty().is_empty()
        && !e.flash_valid().is_empty()
        && !e.is_doubtful()
}

/// Whether the block's record can be carried on now, by a transfer of its `own`. It can while a
/// newer record of the block waits for a batch, because carried records precede it in the log. It
/// must not once the newer record is in a batch: the carried entry would come later and void the
/// newer record. It then need not be carried either, since the newer record replaces it when the
/// batch is written.
fn comes_before(
    tiers: &Tiers,
    context: &ShardContext<'_>,
    id: EntryId,
    own: Option<TransferIndex>,
) -> bool {
    let e = &tiers.blocks[id];
    e.transfer() == own
        || e.transfer().is_none_or(|t| match tiers.transfers[t].kind {
            TransferKind::Append { .. } => {
                context.log.get().is_some_and(|log| log.is_waiting(e.key()))
            }
            // The record is being written to a late store.
            TransferKind::DestageRecord { .. } => true,
            _ => false,
        })
}

/// Gives the log a record that is appended again.
fn hand_on(
    tiers: &Tiers,
    context: &mut ShardContext<'_>,
    t: TransferIndex,
    frame: Frame,
    purpose: Purpose,
) {
    let TransferKind::Carry { position, valid, dirty } = tiers.transfers[t].kind else {
        unreachable!("the transfer carries a record")
    };
    let (ticket, key) = (tiers.transfers.ticket(t), tiers.transfers[t].key);
    let log = context.log.of_mut(position);
    let append = Append { ticket, key, valid, dirty, frame, urgent: true };
    match purpose {
        Purpose::CarryOn => log.carry(append),
        Purpose::Reinsert => log.reinsert(append),
    }
}

/// Whether the carried entry only notes that the record is lost.
pub(super) fn is_lost(e: &Entry) -> bool {
    e.owed().is_empty() || e.is_unreadable()
}
