//! Transfers: device operations under way, and runs of blocks that share one.

use forebay_effect::{Effect, Segment};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Position};

use super::{Shard, ShardContext};
use crate::frames::Frame;
use crate::index::EntryId;
use crate::slab::{Fifo, NONE};

/// What a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Backing store to frames, or by way of a bounce frame to merge.
    Fetch,
    /// Flash to a frame, or by way of a bounce frame to merge; then the checksum.
    FlashRead { position: Position },
    /// A frame to the log.
    Append { valid: u16, dirty: u16 },
    /// Flash to a bounce frame, on the way to the head of the log.
    CarryRead { position: Position },
    /// To the head of the log, in the place of a record whose region is to be used again: the same
    /// from a bounce frame or, without valid granules, that the dirty ones are lost.
    Carry { position: Position, valid: u16, dirty: u16 },
    /// A frame to the backing store (no flash tier): blocks whose dirty granules leave.
    Destage { rest: u16 },
    /// A record's dirty granules, already in memory, to the backing store.
    DestageRecord { rest: u16, from: Frame, position: Position },
    /// Flash to a bounce frame, on the way to the backing store.
    DestageRead { position: Position },
    /// A request's bytes to the backing store.
    DirectWrite { request: u32, pieces: u32, keep: bool },
    /// Zeroes to the backing store, over a block with an entry.
    DirectZero { request: u32 },
    /// Zeroes, or a request's bytes, to a range of the backing store without entries.
    Range { request: u32, pieces: u32, zero: bool },
    /// Backing store to a request's buffer; leaves nothing in the cache.
    DirectRead { request: u32, pieces: u32 },
    /// The durable mark without which a record must not be outdated by a direct write
    /// (`poison`), nor a frame be recorded as clean while its backing store owes a sync.
    Activate { poison: bool },
}

/// A transfer under way on `count` consecutive blocks.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub kind: Kind,
    pub key: BlockKey,
    pub count: u32,
    /// Byte range on the volume, for transfers that move one.
    pub start: u64,
    pub end: u64,
    pub waiters: Fifo,
    pub bounce: Option<Frame>,
    /// The stretch it belongs to, and the next transfer of that, of the write that it has become.
    pub stretch: u32,
    pub next: u32,
}

impl Kind {
    /// Whether a transfer of this kind may have neither a frame nor a bounce frame of its own. Of all
    /// others there are never more than there are frames; of these, as many as were allowed for.
    fn is_loose(self) -> bool {
        match self {
            Kind::DirectWrite { keep, .. } => !keep,
            Kind::Activate { poison } => poison,
            Kind::DirectZero { .. }
            | Kind::Range { .. }
            | Kind::DirectRead { .. }
            | Kind::Carry { valid: 0, .. } => true,
            _ => false,
        }
    }

    /// Where it goes, of those that are collected in runs.
    fn way(self) -> Way {
        match self {
            Kind::Fetch | Kind::DirectRead { .. } => Way::In,
            Kind::DirectWrite { .. } | Kind::Range { .. } => Way::Past,
            Kind::Destage { .. } => Way::Out,
            other => unreachable!("no run of {other:?}"),
        }
    }
}

impl Transfer {
    pub fn covers(&self, key: BlockKey) -> bool {
        key.volume() == self.key.volume()
            && key.block() >= self.key.block()
            && key.block().0 - self.key.block().0 < u64::from(self.count)
    }
}

/// Where a run goes. Each way has its own: blocks that are fetched make dirty ones leave, and
/// neither run may be cut short by the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the backing store.
    In,
    /// A request's bytes or zeroes, to the backing store.
    Past,
    /// Dirty frames, to the backing store.
    Out,
}

/// The runs being collected, by [`Way`]: transfers not yet given to the driver, and where their
/// bytes are.
#[derive(Debug)]
pub(crate) struct Runs([(Option<u32>, Vec<Segment>); 3]);

impl Runs {
    pub fn new() -> Self {
        Runs(core::array::from_fn(|_| (None, Vec::with_capacity(2 * RUN_BLOCKS_MAX as usize))))
    }

    /// The transfer of the open run that goes this way.
    pub fn open(&self, way: Way) -> Option<u32> {
        self.0[way as usize].0
    }
}

/// Longest run, in blocks.
const RUN_BLOCKS_MAX: u32 = 256;

impl Shard {
    pub(super) fn start(&mut self, kind: Kind, key: BlockKey, range: (u64, u64)) -> u32 {
        self.loose += u32::from(kind.is_loose());
        self.transfers.insert(Transfer {
            kind,
            key,
            count: 1,
            start: range.0,
            end: range.1,
            waiters: Fifo::EMPTY,
            bounce: None,
            stretch: NONE,
            next: NONE,
        })
    }

    /// Whether another transfer may be started that has no frame.
    pub(super) fn may_be_loose(&self) -> bool {
        self.loose < self.loose_max
    }

    /// Ends a transfer.
    pub(super) fn remove_transfer(&mut self, t: u32) -> Transfer {
        let transfer = self.transfers.remove(t);
        self.loose -= u32::from(transfer.kind.is_loose());
        transfer
    }

    /// Starts a transfer of one entry; the entry is busy from now on.
    pub(super) fn start_on(&mut self, id: EntryId, kind: Kind, range: (u64, u64)) -> u32 {
        let key = self.blocks[id].key();
        let t = self.start(kind, key, range);
        debug_assert!(self.blocks[id].transfer().is_none(), "two transfers on one block");
        self.blocks[id].set_transfer(Some(t));
        t
    }

    /// Joins the block to the open run that goes its way if `alike` says its kind fits and the
    /// bytes follow on; otherwise opens a new one.
    pub(super) fn run(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        range: (u64, u64),
        kind: Kind,
        segment: Option<Segment>,
        alike: impl Fn(&mut Kind) -> bool,
    ) -> u32 {
        let way = kind.way();
        if let Some(transfer) = self.runs.open(way) {
            let t = &mut self.transfers[transfer];
            let follows = t.key.volume() == key.volume()
                && t.key.block().0 + u64::from(t.count) == key.block().0
                && t.end == range.0
                && t.count < RUN_BLOCKS_MAX;
            if follows && alike(&mut t.kind) {
                t.count += 1;
                t.end = range.1;
                self.runs.0[way as usize].1.extend(segment);
                return transfer;
            }
        }
        self.close_run(context, way);
        let transfer = self.start(kind, key, range);
        let (open, segments) = &mut self.runs.0[way as usize];
        *open = Some(transfer);
        segments.extend(segment);
        transfer
    }

    /// The transfer of a range that holds a block. Ranges have no block in common: whoever wants
    /// a block of one waits.
    pub(super) fn waiting_range(&self, key: BlockKey) -> Option<u32> {
        let after = self.range_place(key.0 + 1);
        let t = *self.ranges.get(after.wrapping_sub(1))?;
        self.transfers[t].covers(key).then_some(t)
    }

    /// Where the first range stands that begins at a key or behind it.
    pub(super) fn range_place(&self, key: u64) -> usize {
        self.ranges.partition_point(|&t| self.transfers[t].key.0 < key)
    }

    /// Makes the open run, if it zeroes for `request` and ends where `key` begins, longer by as many
    /// of `blocks` whole blocks as are known to have neither an entry nor a range of their own.
    /// They lie in one extent. Says how many: each of them would have joined the run.
    pub fn zero_further(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        request: u32,
        blocks: u32,
    ) -> u32 {
        let Some(open) = self.runs.open(Way::Past) else { return 0 };
        let careless = context.front.sabotage.is(Bug::TrimPassesCachedBlocks);
        if !self.blocks.is_extent_empty(key) && !careless {
            return 0;
        }
        let next = self.ranges.get(self.range_place(key.0));
        let free = next.map_or(u64::MAX, |&t| self.transfers[t].key.0 - key.0);
        let t = &mut self.transfers[open];
        let start = self.blocks.granules().start_of(key);
        let follows = t.key.0 + u64::from(t.count) == key.0 && t.end == start;
        match &mut t.kind {
            Kind::Range { request: r, pieces, zero: true } if *r == request && follows => {
                let more = blocks.min(RUN_BLOCKS_MAX - t.count).min(free.min(1 << 31) as u32);
                *pieces += more;
                t.count += more;
                t.end += u64::from(more) << self.blocks.granules().block_shift();
                let stats = &mut context.front.volumes[usize::from(key.volume())].stats;
                stats.write_hits.miss += u64::from(more);
                more
            }
            _ => 0,
        }
    }

    /// Gives the runs being collected to the driver.
    pub fn close_runs(&mut self, context: &mut ShardContext<'_>) {
        for way in [Way::In, Way::Past, Way::Out] {
            self.close_run(context, way);
        }
    }

    fn close_run(&mut self, context: &mut ShardContext<'_>, way: Way) {
        let Some(run) = self.runs.0[way as usize].0.take() else { return };
        let t = &self.transfers[run];
        let (token, device) = (self.token(run), Self::backing(t.key.volume()));
        let (offset, length) = (t.start, t.end - t.start);
        let stats = &mut context.front.volumes[usize::from(t.key.volume())].stats;
        let effect = match t.kind {
            Kind::Fetch | Kind::DirectRead { .. } => {
                stats.backing_read_bytes += length;
                Effect::Read { token, device, offset, length: length as u32 }
            }
            Kind::DirectWrite { .. } | Kind::Destage { .. } | Kind::Range { zero: false, .. } => {
                stats.backing_write_bytes += length;
                Effect::Write { token, device, offset, length: length as u32 }
            }
            Kind::Range { request, .. } => {
                stats.backing_zero_bytes += length;
                let punch = context.front.may_punch(request);
                context.effects.push(Effect::WriteZeroes { token, device, offset, length, punch });
                return;
            }
            other => unreachable!("no run of {other:?}"),
        };
        let segments = &mut self.runs.0[way as usize].1;
        context.effects.push_slice(effect, segments);
        segments.clear();
    }

    /// Takes a bounce frame, if there is one.
    pub(super) fn take_bounce(&mut self) -> Option<Frame> {
        self.bounce.take(crate::index::NONE)
    }
}
