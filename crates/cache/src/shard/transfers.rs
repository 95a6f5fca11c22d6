//! The transfers in progress, and runs of blocks that share one.
//!
//! A transfer has a place from its start to its end. A block that has to leave memory always finds
//! a place: there are as many as frames and bounce frames, plus a number for transfers that need
//! neither, called *loose* transfers.

use core::ops;

use forebay_block::Volume;
use forebay_effect::{Device, Effect, Owner, Place, Segment, Token};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, GRANULES_MAX, Granules, Position};

use super::ShardContext;
use super::blocks::Blocks;
use super::entry::{EntryId, TRANSFERS_MAX};
use super::frames::{Frame, Frames};
use super::transfer::{Transfer, TransferKind, Way};
use crate::byte_range::ByteRange;
use crate::load::Source;
use crate::slab::{Fifo, Key, RequestIndex, Slab, StretchIndex, TransferIndex};
use crate::ticket::Ticket;
use crate::volumes::Volumes;

/// The runs being collected, by [`Way`]: transfers not yet given to the driver, and the places of
/// their bytes.
#[derive(Debug)]
struct Runs([(Option<TransferIndex>, Vec<Segment>); 3]);

impl Runs {
    pub fn new() -> Self {
        Runs(core::array::from_fn(|_| (None, Vec::with_capacity(2 * RUN_BLOCKS_MAX as usize))))
    }

    pub fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|(_, s)| s.capacity() * size_of::<Segment>()).sum::<usize>() as u64
    }

    /// The transfer of the open run in this direction.
    pub fn open(&self, way: Way) -> Option<TransferIndex> {
        self.0[way as usize].0
    }
}

/// Longest run, in blocks.
const RUN_BLOCKS_MAX: u32 = 256;

/// The transfers in progress; see the module documentation.
#[derive(Debug)]
pub(crate) struct Transfers {
    shard: u8,
    under_way: Slab<TransferIndex, Transfer>,
    /// Number of loose transfers in progress.
    loose: u32,
    /// Largest number of loose transfers.
    loose_max: u32,
    /// Frames for copies in flight.
    bounce: Frames,
    runs: Runs,
    /// Transfers that hold a range of blocks without entries, by block; usually none.
    ranges: Vec<TransferIndex>,
}

impl ops::Index<TransferIndex> for Transfers {
    type Output = Transfer;
    #[inline]
    fn index(&self, t: TransferIndex) -> &Transfer {
        &self.under_way[t]
    }
}

impl ops::IndexMut<TransferIndex> for Transfers {
    #[inline]
    fn index_mut(&mut self, t: TransferIndex) -> &mut Transfer {
        &mut self.under_way[t]
    }
}

/// The backing store of a volume.
pub(super) fn backing(volume: Volume) -> Device {
    Device::Backing(volume)
}

impl Transfers {
    /// Has places for one transfer of each of `frames` and `bounce` frames, and for `loose_max`
    /// more.
    pub fn new(shard: u8, frames: u32, bounce: Frames, loose_max: u32) -> Transfers {
        // Only as many transfers as are ever in progress at once take memory.
        let places = frames + bounce.count() as u32 + loose_max;
        assert!(
            places <= TRANSFERS_MAX,
            "{places} transfers exceed the {TRANSFERS_MAX} that can be numbered"
        );
        Transfers {
            shard,
            under_way: Slab::new(places),
            loose: 0,
            loose_max,
            bounce,
            runs: Runs::new(),
            ranges: Vec::with_capacity(loose_max as usize),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.under_way.memory_bytes() + self.bounce.memory_bytes() + self.runs.memory_bytes()
    }

    // ---- start and end ----

    /// Starts a transfer, and counts the beginning of a direct write. The transfer holds no blocks
    /// until the caller says so with `set_transfer`.
    #[inline]
    pub fn start(
        &mut self,
        volumes: &mut Volumes,
        kind: TransferKind,
        key: BlockKey,
        range: ByteRange,
    ) -> TransferIndex {
        if kind.is_direct() {
            volumes[key.volume()].direct_begins();
        }
        self.loose += u32::from(kind.is_loose());
        self.under_way.insert(Transfer {
            kind,
            key,
            count: 1,
            start: range.start,
            end: range.end,
            waiters: Fifo::EMPTY,
            bounce: None,
            stretch: StretchIndex::NONE,
            next: TransferIndex::NONE,
        })
    }

    /// Starts a transfer that holds one block.
    #[inline]
    pub fn start_on(
        &mut self,
        blocks: &mut Blocks,
        volumes: &mut Volumes,
        id: EntryId,
        kind: TransferKind,
        range: ByteRange,
    ) -> TransferIndex {
        let t = self.start(volumes, kind, blocks[id].key(), range);
        blocks[id].set_transfer(Some(t));
        t
    }

    /// Whether another transfer without a frame may be started.
    #[inline]
    pub fn may_be_loose(&self) -> bool {
        self.loose < self.loose_max
    }

    /// Ends a transfer. Its bounce frame is free.
    #[inline]
    pub fn remove(&mut self, t: TransferIndex) -> Transfer {
        let transfer = self.under_way.remove(t);
        self.loose -= u32::from(transfer.kind.is_loose());
        if let Some(frame) = transfer.bounce {
            self.bounce.release(frame);
        }
        transfer
    }

    /// Number of transfers in progress.
    pub fn in_use(&self) -> usize {
        self.under_way.in_use()
    }

    /// A transfer, if it is in progress.
    pub fn get(&self, t: TransferIndex) -> Option<&Transfer> {
        self.under_way.get(t)
    }

    /// All transfers in progress.
    pub fn iter(&self) -> impl Iterator<Item = &Transfer> {
        self.keys().filter_map(|t| self.under_way.get(t))
    }

    /// The numbers of the transfers in progress.
    pub fn keys(&self) -> impl Iterator<Item = TransferIndex> + use<> {
        self.under_way.keys()
    }

    /// Whether a record that is marked dirty is being appended.
    pub fn appends_dirty(&self) -> bool {
        self.iter()
            .any(|t| matches!(t.kind, TransferKind::Append { dirty, .. } if !dirty.is_empty()))
    }

    /// Whether blocks are being written to the log. They are not in the dirty list meanwhile, so
    /// that a flush does not see them.
    pub fn is_logging(&self) -> bool {
        self.iter().any(|t| {
            matches!(
                t.kind,
                TransferKind::Append { .. }
                    | TransferKind::Carry { .. }
                    | TransferKind::Activate { .. }
            )
        })
    }

    /// Identifies a transfer in the driver's answers.
    #[inline]
    pub fn token(&self, t: TransferIndex) -> Token {
        Token { owner: Owner::Shard(self.shard), index: t.number() }
    }

    /// Identifies a transfer in the log's answers.
    pub fn ticket(&self, t: TransferIndex) -> u64 {
        Ticket::Transfer { shard: self.shard, transfer: t }.encode()
    }

    // ---- bounce frames ----

    /// Takes a bounce frame, if there is one.
    pub fn take_bounce(&mut self) -> Option<Frame> {
        self.bounce.take(EntryId::NONE)
    }

    /// Number of bounce frames without a transfer.
    pub fn bounces_free(&self) -> usize {
        self.bounce.free_count()
    }

    /// Total number of bounce frames.
    pub fn bounces(&self) -> usize {
        self.bounce.count()
    }

    // ---- single transfers ----

    /// Requests a read of the block's record into a frame.
    pub fn read_record(
        &self,
        blocks: &Blocks,
        context: &mut ShardContext<'_>,
        (id, t): (EntryId, TransferIndex),
        into: Frame,
    ) {
        let e = &blocks[id];
        let position = e.position().expect("a record to read");
        let log = context.log.of(position);
        let (page, offset) = (log.geometry().page_size, log.byte_offset(position));
        let granularity = blocks.granularity();
        let length = granularity.bytes(e.flash_valid()).next_multiple_of(page);
        let effect = Effect::Read { token: self.token(t), device: Device::Flash, offset, length };
        let segments = granularity.payload(into, e.flash_valid(), Some(page));
        context.effects.push_with(effect, segments);
        context.read_begins(Source::Flash);
    }

    /// Notes that the record of a transfer's block has moved. A write of the same version to a late
    /// store continues.
    pub fn record_moved(&mut self, t: TransferIndex, from: Position, to: Position) {
        if let TransferKind::DestageRecord { position, .. } = &mut self[t].kind
            && *position == from
        {
            *position = to;
        }
    }

    /// Writes the frame's dirty granules to the backing store: a wholly dirty block in a run, any
    /// other in parts.
    pub fn destage(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
    ) -> TransferIndex {
        let e = &blocks[id];
        let (key, dirty) = (e.key(), e.dirty());
        let frame = e.frame().expect("a frame to destage");
        let range = blocks.granularity().range_within(context, key);
        if dirty == blocks.granularity().all() {
            let kind = TransferKind::Destage { rest: Granules::EMPTY };
            let place = Place::Frame { frame, offset: 0 };
            let segment = Some(Segment { place, length: range.length() });
            let t = self.run(context, key, range, kind, segment, |other| *other == kind);
            blocks[id].set_transfer(Some(t));
            return t;
        }
        let kind = TransferKind::Destage { rest: dirty };
        let t = self.start_on(blocks, context.volumes, id, kind, range);
        self.destage_step(blocks, context, t, frame);
        t
    }

    /// Requests a durable mark of the block's extent. With `poison`, a direct write then makes the
    /// block's record stale.
    pub fn mark(
        &mut self,
        blocks: &mut Blocks,
        context: &mut ShardContext<'_>,
        id: EntryId,
        poison: bool,
    ) -> TransferIndex {
        let e = &blocks[id];
        assert!(e.flash_dirty().is_empty(), "direct write over a dirty record");
        let (key, kind) = (e.key(), TransferKind::Activate { poison });
        let t = self.start_on(blocks, context.volumes, id, kind, ByteRange::EMPTY);
        let ticket = self.ticket(t);
        let log = context.log.get_mut().expect("the block has a record, or the log takes one");
        log.mark_active(key, ticket);
        t
    }

    /// Writes the next run of granules of a destage in parts. Returns false if none is left.
    pub fn destage_step(
        &mut self,
        blocks: &Blocks,
        context: &mut ShardContext<'_>,
        t: TransferIndex,
        frame: Frame,
    ) -> bool {
        let (start, end) = (self[t].start, self[t].end);
        let rest = match &mut self[t].kind {
            TransferKind::Destage { rest } | TransferKind::DestageRecord { rest, .. } => rest,
            other => unreachable!("{other:?} has no steps"),
        };
        // Granules past the end of the volume are not written.
        let granularity = blocks.granularity();
        let within = (end - start).div_ceil(1 << granularity.granule_shift());
        *rest &= Granules::range(0, within.min(GRANULES_MAX.into()) as u32);
        let Some(run) = rest.take_run() else { return false };
        let (offset, length) = granularity.bytes_of(run);
        // The volume may end within the last granule.
        let length = length.min((end - start) as u32 - offset);
        let key = self[t].key;
        let (token, device) = (self.token(t), backing(key.volume()));
        let stats = &mut context.volumes[key.volume()].stats;
        stats.backing_write_bytes += u64::from(length);
        let effect = Effect::Write { token, device, offset: start + u64::from(offset), length };
        let place = Place::Frame { frame, offset };
        context.effects.push_slice(effect, &[Segment { place, length }]);
        true
    }

    // ---- runs ----

    /// The transfer of the open run in this direction.
    #[inline]
    pub fn open_run(&self, way: Way) -> Option<TransferIndex> {
        self.runs.open(way)
    }

    /// Joins the block to the open run in its direction if `alike` says that its kind matches and
    /// the bytes are adjacent; otherwise opens a new run.
    #[inline]
    pub fn run(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        range: ByteRange,
        kind: TransferKind,
        segment: Option<Segment>,
        alike: impl Fn(&mut TransferKind) -> bool,
    ) -> TransferIndex {
        let way = kind.way();
        if let Some(transfer) = self.runs.open(way) {
            let t = &mut self[transfer];
            let follows = t.key.volume() == key.volume()
                && t.key.block().0 + u64::from(t.count) == key.block().0
                && t.end == range.start
                && t.count < RUN_BLOCKS_MAX;
            if follows && alike(&mut t.kind) {
                t.count += 1;
                t.end = range.end;
                self.runs.0[way as usize].1.extend(segment);
                return transfer;
            }
        }
        self.close_run(context, way);
        let transfer = self.start(context.volumes, kind, key, range);
        let (open, segments) = &mut self.runs.0[way as usize];
        *open = Some(transfer);
        segments.extend(segment);
        transfer
    }

    // ---- ranges ----

    /// The transfer of a range that contains a block. Ranges do not overlap: a piece for a block in
    /// one waits.
    #[inline]
    pub fn waiting_range(&self, key: BlockKey) -> Option<TransferIndex> {
        let after = self.range_place(key.0 + 1);
        let t = *self.ranges.get(after.wrapping_sub(1))?;
        self[t].covers(key).then_some(t)
    }

    /// Notes that a transfer holds a range from now on.
    pub fn hold_range(&mut self, t: TransferIndex) {
        let place = self.range_place(self[t].key.0);
        self.ranges.insert(place, t);
    }

    /// Notes that a transfer that holds a range is about to end.
    pub fn release_range(&mut self, t: TransferIndex) {
        let place = self.range_place(self[t].key.0);
        let ended = self.ranges.remove(place);
        assert_eq!(ended, t, "the ranges are in the order of their blocks");
    }

    /// The place of the first range that begins at or after a key.
    fn range_place(&self, key: u64) -> usize {
        self.ranges.partition_point(|&t| self[t].key.0 < key)
    }

    /// Extends the open run, if it zeroes for `request` and ends where `key` begins, by as many of
    /// `count` whole blocks as are known to have neither an entry nor another range. They are in
    /// one stripe. Returns their number: each of them would have joined the run.
    pub fn zero_further(
        &mut self,
        blocks: &Blocks,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        request: RequestIndex,
        count: u32,
    ) -> u32 {
        let Some(open) = self.runs.open(Way::Direct) else { return 0 };
        let careless = context.mode.sabotage.is(Bug::TrimPassesCachedBlocks);
        if !blocks.is_stripe_empty(key) && !careless {
            return 0;
        }
        let next = self.ranges.get(self.range_place(key.0));
        let free = next.map_or(u64::MAX, |&t| self[t].key.0 - key.0);
        let t = &mut self[open];
        let start = blocks.granularity().start_of(key);
        let follows = t.key.0 + u64::from(t.count) == key.0 && t.end == start;
        match &mut t.kind {
            TransferKind::Range { request: r, pieces, zero: true } if *r == request && follows => {
                let more = count.min(RUN_BLOCKS_MAX - t.count).min(free.min(1 << 31) as u32);
                *pieces += more;
                t.count += more;
                t.end += u64::from(more) << blocks.granularity().block_shift();
                let stats = &mut context.volumes[key.volume()].stats;
                stats.write_hits.miss += u64::from(more);
                more
            }
            _ => 0,
        }
    }

    /// Gives the runs being collected to the driver.
    #[inline]
    pub fn close_runs(&mut self, context: &mut ShardContext<'_>) {
        if self.runs.0.iter().all(|run| run.0.is_none()) {
            return;
        }
        for way in [Way::In, Way::Direct, Way::Out] {
            self.close_run(context, way);
        }
    }

    fn close_run(&mut self, context: &mut ShardContext<'_>, way: Way) {
        let Some(run) = self.runs.0[way as usize].0.take() else { return };
        let t = &self[run];
        let (token, device) = (self.token(run), backing(t.key.volume()));
        let (offset, length) = (t.start, t.end - t.start);
        let stats = &mut context.volumes[t.key.volume()].stats;
        let effect = match t.kind {
            TransferKind::Fetch | TransferKind::FetchLine | TransferKind::DirectRead { .. } => {
                stats.backing_read_bytes += length;
                context.read_begins(Source::Store);
                Effect::Read { token, device, offset, length: length as u32 }
            }
            TransferKind::DirectWrite { .. }
            | TransferKind::Destage { .. }
            | TransferKind::Range { zero: false, .. } => {
                stats.backing_write_bytes += length;
                Effect::Write { token, device, offset, length: length as u32 }
            }
            TransferKind::Range { request, .. } => {
                stats.backing_zero_bytes += length;
                let punch = context.front.may_punch(request);
                context.effects.push(Effect::WriteZeroes { token, device, offset, length, punch });
                return;
            }
            other => unreachable!("{other:?} cannot be part of a run"),
        };
        let segments = &mut self.runs.0[way as usize].1;
        context.effects.push_slice(effect, segments);
        segments.clear();
    }
}
