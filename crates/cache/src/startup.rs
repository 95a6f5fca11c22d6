//! The start: the cache takes over what recovery found, then accepts requests.

use forebay_block::Volume;
use forebay_effect::Outcome;
use forebay_flash::{BlockKey, Log, LogError, Older, Record, RecoveryReport, Start};

use crate::notice::{Notice, Open};
use crate::shard::{EntryId, FlashRecord};
use crate::stamp::Stamps;
use crate::ticket::Ticket;
use crate::volume_set::VolumeSet;
use crate::volumes::Volumes;
use crate::world::{World, shard_context};

/// The progress of a start; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Startup {
    /// Volumes whose backing stores others have written.
    changed: Vec<Volume>,
    /// Volumes whose stores lack data that no valid record holds.
    incomplete: VolumeSet,
    /// Whether every record has a place in the index, or must be disowned.
    settled: bool,
    /// Blocks whose clean records have no place in the index; and, while they are being disowned,
    /// the report of recovery.
    disowned: Vec<BlockKey>,
    report: Option<Box<RecoveryReport>>,
}

impl Startup {
    /// Begins the start; returns how the log must start.
    pub fn begin(&mut self, open: Open, volumes: &Volumes) -> Start {
        match open {
            Open::Format { uuid, mut bindings } => {
                volumes.note_sizes(&mut bindings);
                Start::Format { uuid, bindings }
            }
            Open::Recover { changed, drop_clean, stores } => {
                self.changed.clone_from(&changed);
                Start::Recover { changed, drop_clean, stores, sizes: volumes.sizes() }
            }
        }
    }

    /// Volumes whose stores lack data that no valid record holds.
    #[cfg(test)]
    pub fn incomplete(&self) -> VolumeSet {
        self.incomplete
    }

    /// Takes over a record that recovery has found.
    pub fn recovered(&mut self, world: &mut World, r: &Record) {
        let known = world.volumes.get(r.key.volume()).is_some();
        let offset = world.config.block_size.offset_of(r.key.block());
        let n = world.shard_of_key(r.key);
        if known && !r.dirty.is_empty() && !world.lifecycle.has_failed() {
            let volume = r.key.volume();
            let size = world.volumes[volume].size;
            let granularity = world.shards[n].tiers.blocks.granularity();
            if let Some(within) = granularity.beyond(&shard_context!(world), r.key, r.dirty) {
                let offset = offset + within;
                return refuse(world, LogError::BeyondVolume { volume, offset, size });
            }
        }
        if known {
            let shard = &mut world.shards[n];
            let mut dirty = r.dirty;
            if r.adds {
                // An older record may have been destaged, but this older copy of the store lacks
                // it.
                let owed = shard.recovery.dirty(&shard.tiers.blocks, r.key);
                let missing = !(owed & !(r.valid | r.dirty)).is_empty();
                self.incomplete.insert_if(r.key.volume(), missing);
                dirty |= owed & r.valid;
            }
            let record =
                FlashRecord { position: r.position, checksum: r.checksum, valid: r.valid, dirty };
            shard.recovery.record(&mut shard.tiers, &mut shard_context!(world), r.key, record);
        } else {
            // A record of an unknown volume must not stay on flash.
            let (stored, expected) = (u64::from(r.key.volume().0) + 1, world.volumes.len() as u64);
            refuse(world, LogError::Geometry { what: "volumes", stored, expected });
        }
    }

    /// Takes over a tombstone: every older record of the block is void. If an older store that is
    /// to be completed lacks the data of one, these data exist nowhere.
    pub fn recovered_tombstone(&mut self, world: &mut World, key: BlockKey) {
        let n = world.shard_of_key(key);
        let shard = &mut world.shards[n];
        let missing = !shard.recovery.dirty(&shard.tiers.blocks, key).is_empty();
        self.incomplete.insert_if(key.volume(), missing);
        shard.recovery.tombstone(&mut shard.tiers, &mut shard_context!(world), key);
    }

    /// Fails the start because the log could not start. If the cache has refused to start before,
    /// it has reported why.
    pub fn log_failed(world: &mut World, error: LogError) {
        refuse(world, error);
    }

    /// Whether recovery has returned all records and they have not been settled.
    #[inline]
    pub fn must_place_records(&self, world: &World) -> bool {
        let starting = world.lifecycle.is_starting() && !self.settled;
        starting && world.log.as_ref().is_some_and(Log::is_opening)
    }

    /// Called when recovery has returned all records, and before the log has written anything: each
    /// record must have a place in the index or be disowned.
    pub fn place_records(&mut self, world: &mut World, stamps: &mut Stamps) {
        if !self.must_place_records(world) {
            return;
        }
        self.settled = true;
        let mut left = core::mem::take(&mut self.disowned);
        let mut blocks = 0;
        for shard in &mut world.shards {
            let context = &mut shard_context!(world);
            blocks += shard.recovery.place_spilled(&mut shard.tiers, context, &mut left);
        }
        self.disowned = left;
        if blocks > 0 {
            refuse(world, LogError::NoPlace { blocks });
        }
        drop_outdated(world);
        check_enlarged(world);
        self.check_completing(world, stamps);
        for volume in core::mem::take(&mut self.changed) {
            let of = world.volumes.get(volume);
            let blocks = of.map_or(0, |v| v.stats.dirty_blocks);
            if blocks > 0 {
                refuse(world, LogError::Changed { volume, blocks });
            }
        }
    }

    /// Refuses to start if an older store cannot be completed: the newest records must hold all the
    /// data that it lacks. Nor can it be completed if records have to be disowned: that takes room
    /// in the log, and no room is made before the store is complete.
    fn check_completing(&mut self, world: &mut World, stamps: &mut Stamps) {
        for volume in world.log.as_ref().map_or(&[][..], Log::completing).to_vec() {
            if self.incomplete.contains(volume) || !self.disowned.is_empty() {
                refuse(world, LogError::Older { volume, which: Older::Store });
            }
            stamps.begin_completing(volume);
        }
    }

    /// The log accepts appends. Records without a place in the index must not come back: they are
    /// durably disowned before any write can bypass them. Returns the report if there are no such
    /// records: the cache then accepts requests.
    pub fn opened(
        &mut self,
        world: &mut World,
        report: Box<RecoveryReport>,
    ) -> Option<Box<RecoveryReport>> {
        assert!(self.settled, "the log began its epoch before its records were settled");
        if self.disowned.is_empty() {
            return Some(report);
        }
        world.lifecycle.disown();
        let log = world.log.as_mut().expect("the log has just been opened");
        for key in self.disowned.drain(..) {
            world.stats.recovered_disowned += 1;
            log.poison(key);
        }
        log.sync(Ticket::Start.encode());
        self.report = Some(report);
        None
    }

    /// The disowning of records has ended. Returns the report if the cache now accepts requests.
    pub fn disowned(&mut self, world: &mut World, result: Outcome) -> Option<Box<RecoveryReport>> {
        let report = self.report.take()?;
        if let Err(error) = result {
            refuse(world, LogError::Io(error));
            return None;
        }
        Some(report)
    }
}

/// Drops the records of volumes whose clean records do not count, because the store or the log is
/// an older copy of itself. Refuses to start if any of them is dirty. Recovery returns records
/// before it knows this.
fn drop_outdated(world: &mut World) {
    let outdated = world.log.as_ref().map_or(&[][..], Log::outdated).to_vec();
    let mut dropped = VolumeSet::EMPTY;
    for (volume, which) in outdated {
        match world.volumes.get(volume) {
            Some(v) if v.stats.dirty_blocks > 0 => refuse(world, LogError::Older { volume, which }),
            Some(_) => dropped.insert(volume),
            None => {}
        }
    }
    if dropped.is_empty() || world.lifecycle.has_failed() {
        return;
    }
    for n in 0..world.shards.len() {
        world.shards[n].drop_clean(&mut shard_context!(world), dropped, EntryId::FIRST, u32::MAX);
    }
}

/// If a volume was enlarged, the cache has zeroes for the part of its former last block that was
/// past the end. None of this block may be dirty: a destage would write these zeroes.
fn check_enlarged(world: &mut World) {
    for (volume, former) in world.log.as_ref().map_or(&[][..], Log::resized).to_vec() {
        if world.volumes.get(volume).is_none_or(|v| v.size < former) {
            continue;
        }
        let key = BlockKey::new(volume, world.config.block_size.index_of(former).0);
        let blocks = &world.shards[world.shard_of_key(key)].tiers.blocks;
        if blocks.find(key).is_some_and(|id| blocks[id].is_dirty()) {
            refuse(world, LogError::Enlarged { volume, former });
        }
    }
}

/// Refuses to start, unless the start has failed already.
fn refuse(world: &mut World, why: LogError) {
    if !world.lifecycle.has_failed() {
        world.lifecycle.fail();
        world.notices.push(Notice::Failed(why));
    }
}
