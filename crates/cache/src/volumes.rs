//! The volumes, and the syncs of their stores.
//!
//! A sync covers only writes that had completed when it was issued; all waiters that arrive
//! meanwhile share the next one.

use core::ops::{Index, IndexMut};

use forebay_block::{PerVolume, Volume};
use forebay_effect::{Device, Effect, EffectQueue, Outcome, Owner, Token};
use forebay_flash::Binding;

use crate::byte_range::ByteRange;
use crate::config::VolumeConfig;
use crate::shares::Shares;
use crate::store_condition::StoreConditions;
use crate::volume::{SyncWaiter, VolumeState};
use crate::volume_set::VolumeSet;

/// How many blocks are kept out of flash before a sync is worth its time. A sync takes about as
/// long as a few reads of the store, and each block that was kept out may cost one read.
const WORTH_A_SYNC: u32 = 256;
/// The smallest number, for caches whose memory holds fewer blocks than [`WORTH_A_SYNC`].
const WORTH_A_SYNC_MIN: u32 = 4;

/// All attached volumes, by number.
#[derive(Debug)]
pub(crate) struct Volumes {
    list: PerVolume<VolumeState>,
    pub shares: Shares,
    /// Whether their stores work.
    pub conditions: StoreConditions,
    /// Volumes with a flush in progress.
    pub flushing: VolumeSet,
    /// Number of blocks, of all volumes, that are newer than the backing store.
    pub dirty_blocks: u64,
    /// Waiters other than requests whose sync has ended.
    pub synced: Vec<(Volume, SyncWaiter, Outcome)>,
    /// Volumes for which [`Volumes::issue_syncs`] will request a sync.
    due: VolumeSet,
    /// log2 of the bytes of a stripe.
    stripe_shift: u32,
}

impl Index<Volume> for Volumes {
    type Output = VolumeState;
    #[inline]
    fn index(&self, volume: Volume) -> &VolumeState {
        &self.list[volume]
    }
}

impl IndexMut<Volume> for Volumes {
    #[inline]
    fn index_mut(&mut self, volume: Volume) -> &mut VolumeState {
        &mut self.list[volume]
    }
}

impl Volumes {
    /// No volumes yet; stripes have `1 << stripe_shift` bytes.
    pub fn new(stripe_shift: u32) -> Volumes {
        Volumes {
            list: PerVolume::EMPTY,
            shares: Shares::new(),
            conditions: StoreConditions::default(),
            flushing: VolumeSet::EMPTY,
            dirty_blocks: 0,
            synced: Vec::new(),
            due: VolumeSet::EMPTY,
            stripe_shift,
        }
    }

    /// Adds a volume that has at most `requests_max` requests at a time.
    pub fn attach(&mut self, config: VolumeConfig, requests_max: usize) -> Volume {
        self.conditions.attach();
        self.list.push(VolumeState::new(config, requests_max))
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The size of each volume in bytes, by its number.
    pub fn sizes(&self) -> Vec<u64> {
        self.iter().map(|(_, volume)| volume.size).collect()
    }

    /// Notes the size of each volume in its binding.
    pub fn note_sizes(&self, bindings: &mut [Binding]) {
        for binding in bindings {
            binding.size = self.get(binding.volume).map_or(0, |volume| volume.size);
        }
    }

    /// The numbers of the volumes.
    pub fn numbers(&self) -> impl Iterator<Item = Volume> + use<> {
        self.list.volumes()
    }

    /// Each volume with its number.
    pub fn iter(&self) -> impl Iterator<Item = (Volume, &VolumeState)> {
        self.list.iter()
    }

    #[inline]
    pub fn get(&self, volume: Volume) -> Option<&VolumeState> {
        self.list.get(volume)
    }

    #[inline]
    pub fn get_mut(&mut self, volume: Volume) -> Option<&mut VolumeState> {
        self.list.get_mut(volume)
    }

    /// Notes that pieces of a modifying request are in progress.
    #[inline]
    pub fn pieces_begun(&mut self, volume: Volume, count: u32) {
        let before = self[volume].on_flash_or_coming();
        self[volume].pieces += count;
        self.shares.note(before, before + u64::from(count));
    }

    /// Notes that pieces of a modifying request have ended.
    #[inline]
    pub fn pieces_ended(&mut self, volume: Volume, count: u32) {
        let before = self[volume].on_flash_or_coming();
        self[volume].pieces -= count;
        self.shares.note(before, before - u64::from(count));
    }

    /// Notes whether flash had a dirty record of one of the volume's blocks, and whether it has one.
    pub fn note_owed(&mut self, volume: Volume, had: bool, has: bool) {
        let v = &mut self.list[volume];
        let before = v.on_flash_or_coming();
        v.owed = v.owed + u64::from(has) - u64::from(had);
        let (after, owed) = (v.on_flash_or_coming(), v.owed);
        self.shares.note(before, after);
        self.shares.note_dirty(volume, owed);
    }

    /// Notes that a write or zeroing of bytes of the backing store that bypassed the log has
    /// completed.
    pub fn direct_written(&mut self, volume: Volume, range: ByteRange) {
        let shift = self.stripe_shift;
        self[volume].direct_written(range, shift);
    }

    /// Whether completed direct writes to the stripe of a byte are not yet durable. It may also
    /// return true when there are none.
    pub fn owes_sync_at(&self, volume: Volume, offset: u64) -> bool {
        self[volume].owes_sync_at(offset >> self.stripe_shift)
    }

    /// Like [`Volumes::sync`], but [`Volumes::issue_syncs`] requests the sync together with others.
    pub fn sync_together(&mut self, volume: Volume, waiter: SyncWaiter) {
        self[volume].wait_for_sync(waiter);
        self.due.insert(volume);
    }

    pub fn issue_syncs(&mut self, effects: &mut EffectQueue) {
        while let Some(volume) = self.due.first() {
            self.due.remove(volume);
            self.issue_sync(volume, effects);
        }
    }

    /// Syncs a store that has unsynced writes, unless it has failed. A power cut could undo
    /// unsynced writes, and a clean record on flash would then disagree with the store: such blocks
    /// stay out of flash until the sync.
    pub fn sync_for_flash(&mut self, volume: Volume, effects: &mut EffectQueue) {
        if self[volume].owes_sync() && self.conditions[volume].takes_writes() {
            self.sync(volume, SyncWaiter::Flash, effects);
        }
    }

    /// Notes that a clean block has stayed out of flash because its store has unsynced writes,
    /// which otherwise only a client's flush would sync. The store is synced when as many blocks
    /// have stayed out as memory holds (`dram_blocks`), or enough of them, so that blocks that
    /// leave later can enter.
    pub fn note_kept_out(&mut self, volume: Volume, dram_blocks: u32, effects: &mut EffectQueue) {
        let enough = dram_blocks.clamp(WORTH_A_SYNC_MIN, WORTH_A_SYNC);
        let v = &mut self[volume];
        v.kept_out = v.kept_out.saturating_add(1);
        if v.kept_out >= enough && !v.is_syncing() {
            self.sync_for_flash(volume, effects);
        }
    }

    /// Notifies `waiter` when everything that has completed on the volume's backing store until now
    /// is durable.
    pub fn sync(&mut self, volume: Volume, waiter: SyncWaiter, effects: &mut EffectQueue) {
        self[volume].wait_for_sync(waiter);
        self.issue_sync(volume, effects);
    }

    /// Begins the next sync of the volume, if one is wanted and none is in progress.
    pub fn issue_sync(&mut self, volume: Volume, effects: &mut EffectQueue) {
        if self[volume].begin_sync() {
            let token = Token { owner: Owner::Front, index: volume.0 };
            effects.push(Effect::Sync { token, device: Device::Backing(volume) });
        }
    }

    /// Ends the volume's sync; returns its waiters, in a list to be returned with
    /// [`VolumeState::keep_waiters`].
    pub fn end_sync(&mut self, volume: Volume, result: Outcome) -> Vec<SyncWaiter> {
        let durable = self.conditions.sync_ended(volume, result);
        let state = &mut self.list[volume];
        state.stats.backing_errors += u64::from(result.is_err());
        state.end_sync(durable)
    }

    /// Whether the log may be declared clean once nothing is dirty. A stop, a seal and a change of
    /// policy ask this.
    ///
    /// A record whose sync failed stays dirty until it was written again and synced, so a failed
    /// sync leaves no clean record that the store may have lost. Direct writes are on the store
    /// only: no sync after a failed one makes them durable, and what was read back since must not
    /// be trusted at the next start.
    pub fn may_be_declared_clean(&self) -> bool {
        self.iter().all(|(n, volume)| self.conditions[n].makes_durable() || !volume.owes_sync())
    }
}
