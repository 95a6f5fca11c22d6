//! Reads: from DRAM, from flash, from the backing store.

use forebay_block::Op;
use forebay_effect::{Effect, IoError, Place, Segment};
use forebay_flash::{BlockKey, Granules};

use super::{PieceStep, Tiers};
use crate::byte_range::ByteRange;
use crate::load::Source;
use crate::place::{InMemory, Moment, Relation};
use crate::shard::Piece;
use crate::shard::ShardContext;
use crate::shard::entry::EntryId;
use crate::shard::frames::Frame;
use crate::shard::transfer::TransferKind;
use crate::shard::transfers::backing;
use crate::slab::TransferIndex;

/// Where an access hit its block, for the counters.
#[derive(Clone, Copy)]
pub(super) enum HitPlace {
    Tier1,
    Tier2,
    /// Nowhere yet: another access is fetching it.
    Delayed,
    Nowhere,
}

impl Tiers {
    /// The frame of a block, for a read that takes its bytes at once; `None` if the read needs more
    /// than that.
    #[inline]
    pub fn read_hit(&mut self, key: BlockKey, start: u32, length: u32) -> Option<Frame> {
        let id = self.blocks.find(key)?;
        let e = &self.blocks[id];
        let frame = e.frame()?;
        let granularity = self.blocks.granularity();
        // The first test decides for most blocks: they are valid as a whole.
        let lacks = e.valid() != granularity.all()
            && !(granularity.concerned(start, length).touched & !e.valid()).is_empty();
        if lacks || e.is_leaving() {
            return None;
        }
        self.dram.hit(self.blocks.local(frame), key);
        Some(frame)
    }

    pub fn read(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
    ) -> PieceStep {
        let wanted = self.blocks.granularity().concerned(piece.start, piece.length).touched;
        let Some(id) = self.blocks.find(key) else {
            self.count(context, piece, HitPlace::Nowhere, false);
            return self.read_absent(context, key, piece);
        };
        let e = &self.blocks[id];
        if let (Some(frame), true) = (e.frame(), (wanted & !e.valid()).is_empty()) {
            let from = Place::Frame { frame, offset: piece.start };
            let to = piece.place(context);
            context.effects.push(Effect::Copy { from, to, length: piece.length });
            self.count(context, piece, HitPlace::Tier1, false);
            if self.comes_in(context, piece, id, frame) {
                self.used(context, id, frame, piece);
            }
            return PieceStep::Done(Ok(()));
        }
        if let Some(t) = e.transfer() {
            let found = self.found_in_flight(id, t, wanted);
            self.count(context, piece, found, false);
            return PieceStep::Wait(t);
        }
        if !(wanted & e.lost()).is_empty() {
            self.count(context, piece, HitPlace::Tier2, false);
            return PieceStep::Done(Err(IoError::Corrupt));
        }
        let on_flash = !(e.flash_valid() & wanted & !e.valid()).is_empty();
        let found = if on_flash { HitPlace::Tier2 } else { HitPlace::Nowhere };
        let late =
            on_flash && !piece.counted && self.flash.is_held_after_eviction(&self.blocks, id);
        context.stats.flash_rescued += u64::from(late);
        self.count(context, piece, found, false);
        match on_flash {
            true if self.is_read_through(context, piece, id, wanted) => {
                self.read_through(context, id, piece)
            }
            true => self.read_flash(context, id, piece, Moment::ReadFlash),
            false => self.fetch(context, id, piece, Moment::ReadMiss),
        }
    }

    fn read_absent(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &mut Piece,
    ) -> PieceStep {
        if let Some(t) = self.transfers.waiting_range(key) {
            context.stats.waits_range += 1;
            return PieceStep::Wait(t);
        }
        if context.place_for(piece, Moment::ReadMiss).memory == InMemory::Bypass {
            let step = self.read_around(context, key, piece);
            let bypassed =
                context.config.write_policy.allocate_on_read && matches!(step, PieceStep::Joined);
            context.stats.bypassed_reads += u64::from(bypassed);
            return step;
        }
        let stuck = self.is_stuck(context) || self.is_jammed(context);
        if stuck && (self.blocks.frames_free() == 0 || self.blocks.is_full()) {
            // Dirty blocks that cannot leave hold everything: reads bypass the cache.
            return self.read_around(context, key, piece);
        }
        let Some(id) = self.blocks.insert(key) else { return PieceStep::NoRoom };
        let step = self.fetch(context, id, piece, Moment::ReadMiss);
        self.forget_if_empty(context, id);
        step
    }

    /// Directly from the backing store to the client. None of the block is cached.
    fn read_around(
        &mut self,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        piece: &Piece,
    ) -> PieceStep {
        if !self.transfers.may_be_loose() {
            return PieceStep::NoRoom;
        }
        let start = self.blocks.granularity().start_of(key) + u64::from(piece.start);
        let place = piece.place(context);
        let segment = Segment { place, length: piece.length };
        let request = piece.request;
        let kind = TransferKind::DirectRead { request, pieces: 1 };
        let range = ByteRange::with_length(start, piece.length);
        self.transfers.run(context, key, range, kind, Some(segment), |k| match k {
            TransferKind::DirectRead { request: r, pieces } if *r == request => {
                *pieces += 1;
                true
            }
            _ => false,
        });
        PieceStep::Joined
    }

    /// A transfer that brings in the rest of the block from the backing store. Data that only the
    /// record holds comes first: the backing store may have an older version of it.
    pub fn fetch(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        moment: Moment,
    ) -> PieceStep {
        if !(self.blocks[id].flash_valid() & !self.blocks[id].valid()).is_empty() {
            return self.read_flash(context, id, piece, moment);
        }
        if !self.ensure_frame(context, id, piece, moment) {
            return PieceStep::NoRoom;
        }
        let e = &self.blocks[id];
        let (key, frame) = (e.key(), e.frame().expect("just ensured"));
        if moment == Moment::ReadMiss && context.place_for(piece, moment).line {
            self.lines.want(key);
        }
        let e = &self.blocks[id];
        let range = self.blocks.granularity().range_within(context, key);
        let (start, length) = (range.start, range.length());
        if e.valid().is_empty() && self.is_instant(context, piece) {
            let stats = &mut context.volumes[key.volume()].stats;
            stats.backing_read_bytes += u64::from(length);
            return self.came_at_once(context, id, self.blocks.granularity().all());
        }
        if e.valid().is_empty() {
            let place = Place::Frame { frame, offset: 0 };
            let segment = Some(Segment { place, length });
            let t = self.transfers.run(context, key, range, TransferKind::Fetch, segment, |k| {
                *k == TransferKind::Fetch
            });
            self.blocks[id].set_transfer(Some(t));
            return PieceStep::Wait(t);
        }
        let Some(bounce) = self.transfers.take_bounce() else { return PieceStep::NoRoom };
        self.blocks.zero_beyond(context, id, bounce);
        let t = self.transfers.start_on(
            &mut self.blocks,
            context.volumes,
            id,
            TransferKind::Fetch,
            range,
        );
        self.transfers[t].bounce = Some(bounce);
        let stats = &mut context.volumes[key.volume()].stats;
        stats.backing_read_bytes += u64::from(length);
        let (token, device) = (self.transfers.token(t), backing(key.volume()));
        let place = Place::Frame { frame: bounce, offset: 0 };
        let effect = Effect::Read { token, device, offset: start, length };
        context.effects.push_slice(effect, &[Segment { place, length }]);
        context.read_begins(Source::Store);
        PieceStep::Wait(t)
    }

    /// Whether a block that a read hits in a frame counts as resident from then on, if it does not
    /// yet.
    fn comes_in(
        &self,
        context: &ShardContext<'_>,
        piece: &Piece,
        id: EntryId,
        frame: Frame,
    ) -> bool {
        let at = || context.place_for(piece, Moment::ReadFlash);
        let stays = || at().memory == InMemory::Keep;
        // A block in transit that has a record is read from the record, so that it does not enter memory.
        !self.dram.is_in_transit(self.blocks.local(frame))
            || self.blocks[id].position().is_none() && stays()
    }

    /// Whether the block is to be read from flash without entering DRAM.
    fn is_read_through(
        &self,
        context: &ShardContext<'_>,
        piece: &Piece,
        id: EntryId,
        wanted: Granules,
    ) -> bool {
        let e = &self.blocks[id];
        let at = context.place_for(piece, Moment::ReadFlash);
        e.frame().is_none()
            && (wanted & !e.flash_valid()).is_empty()
            && (!self.flash.promotes(&self.blocks, id) || at.memory == InMemory::Transit)
            && self.blocks.frames_free() > 0
    }

    /// The block's record is read from flash; this counts if such reads make a record worth
    /// keeping.
    fn note_use(&mut self, context: &ShardContext<'_>, id: EntryId, piece: &Piece) {
        if !context.front.requests[piece.request].bypass {
            self.flash.note_use(id);
        }
    }

    /// A transfer that reads the block's record from flash, only for the pieces that wait for it.
    fn read_through(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &Piece,
    ) -> PieceStep {
        self.note_use(context, id, piece);
        self.dram.read_through(self.blocks[id].key());
        if self.is_instant(context, piece) && self.is_log_quiet(context) {
            context.stats.read_through += 1;
            context.stats.waits_block += 1;
            self.room.note();
            return PieceStep::Done(Ok(()));
        }
        let frame = self.blocks.take_frame(id).expect("a free frame is available");
        self.blocks.passes(id, frame);
        self.dram.enter_in_transit(self.blocks.local(frame), self.blocks[id].key(), None, true);
        self.blocks.zero_beyond(context, id, frame);
        self.start_flash_read(context, id, None)
    }

    /// A transfer that brings the block's record in from flash.
    pub fn read_flash(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        piece: &mut Piece,
        moment: Moment,
    ) -> PieceStep {
        if !self.ensure_frame(context, id, piece, moment) {
            return PieceStep::NoRoom;
        }
        let e = &self.blocks[id];
        // A record that is evicted while it is read is forgotten when the read has ended.
        let stays = !self.flash.is_next_copy(id);
        if e.valid().is_empty()
            && stays
            && self.is_instant(context, piece)
            && self.is_log_quiet(context)
        {
            context.stats.promotions += 1;
            self.note_use(context, id, piece);
            return self.came_at_once(context, id, self.blocks[id].flash_valid());
        }
        let bounce = if e.valid().is_empty() {
            None
        } else {
            let Some(frame) = self.transfers.take_bounce() else { return PieceStep::NoRoom };
            Some(frame)
        };
        self.note_use(context, id, piece);
        self.start_flash_read(context, id, bounce)
    }

    /// Reads the block's record into its frame, or into a bounce frame.
    fn start_flash_read(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        bounce: Option<Frame>,
    ) -> PieceStep {
        let e = &self.blocks[id];
        let position = e.position().expect("a record to read");
        let target = bounce.or(e.frame()).expect("just ensured");
        let kind = TransferKind::FlashRead { position };
        let t =
            self.transfers.start_on(&mut self.blocks, context.volumes, id, kind, ByteRange::EMPTY);
        self.transfers[t].bounce = bounce;
        self.transfers.read_record(&self.blocks, context, (id, t), target);
        PieceStep::Wait(t)
    }

    /// Whether a transfer that a piece starts may end at once, because nothing takes time and
    /// nothing relevant can happen before it would have ended: the piece is a whole read request,
    /// and the only request.
    fn is_instant(&self, context: &ShardContext<'_>, piece: &Piece) -> bool {
        let r = &context.front.requests[piece.request];
        let whole = r.op == Op::Read && r.end - r.offset == u64::from(piece.length);
        context.mode.instant
            && context.config.relation == Relation::Exclusive
            // A dirty copy may be evicted and destaged during the transfer.
            && !self.flash.gives_copies_up()
            && context.front.requests.in_use() == 1
            && whole
    }

    /// Whether neither the log nor a region being forgotten will remove records soon.
    fn is_log_quiet(&self, context: &ShardContext<'_>) -> bool {
        context.log.get().is_none_or(|log| !log.has_effects() && !log.has_events())
            && self.blocks.has_walked()
            && !self.flash.wants_destage()
    }

    /// The data of a transfer is here, as at the end of one.
    fn came_at_once(
        &mut self,
        context: &mut ShardContext<'_>,
        id: EntryId,
        came: Granules,
    ) -> PieceStep {
        context.stats.waits_block += 1;
        self.blocks.arrived(id, came);
        let key = self.blocks[id].key();
        self.room.note();
        self.flash.transfer_ended(&self.blocks, &self.transfers, context, key);
        PieceStep::Again
    }

    /// Where a read of these granules, of which the frame lacks some, finds a block in transfer.
    fn found_in_flight(&self, id: EntryId, t: TransferIndex, wanted: Granules) -> HitPlace {
        let (e, transfer) = (&self.blocks[id], &self.transfers[t]);
        let brought = match transfer.kind {
            TransferKind::Fetch | TransferKind::FetchLine => return HitPlace::Delayed,
            // The frame takes what is written when the backing store has it.
            TransferKind::DirectWrite { keep: true, .. } => self
                .blocks
                .granularity()
                .covered(e.key(), ByteRange { start: transfer.start, end: transfer.end }),
            _ => Granules::EMPTY,
        };
        match wanted & !(e.valid() | brought) {
            Granules::EMPTY => HitPlace::Tier1,
            lacks if !(lacks & (e.flash_valid() | e.lost())).is_empty() => HitPlace::Tier2,
            _ => HitPlace::Nowhere,
        }
    }

    /// Counts an access once, however often its piece is evaluated.
    pub(super) fn count(
        &mut self,
        context: &mut ShardContext<'_>,
        piece: &mut Piece,
        found: HitPlace,
        write: bool,
    ) {
        if core::mem::replace(&mut piece.counted, true) {
            return;
        }
        let request = &context.front.requests[piece.request];
        let (volume, op) = (request.volume, request.op);
        if let Some(queues) = self.flash.queues()
            && !request.bypass
            && reaches_flash(op, found)
        {
            queues.access(BlockKey::new(volume, piece.block).0);
        }
        let stats = &mut context.volumes[volume].stats;
        let hits = if write { &mut stats.write_hits } else { &mut stats.read_hits };
        match found {
            HitPlace::Tier1 => hits.tier1 += 1,
            HitPlace::Tier2 => hits.tier2 += 1,
            HitPlace::Delayed => hits.delayed += 1,
            HitPlace::Nowhere => hits.miss += 1,
        }
    }
}

/// Whether flash would answer a client's access, so that the block is worth a place there.
fn reaches_flash(op: Op, found: HitPlace) -> bool {
    match op {
        Op::Read => !matches!(found, HitPlace::Tier1),
        Op::Write => true,
        Op::Trim | Op::WriteZeroes | Op::Flush => false,
    }
}
