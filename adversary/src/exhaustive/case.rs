//! The cases: parameters, what came before, and two operations.

use forebay_block::{BlockSize, Flags, Op};
use forebay_cache::{
    Acknowledge, CacheConfig, FlashConfig, Partial, ReplacementKind, ReplacementParameters,
    VolumeConfig, WritePolicy,
};
use forebay_flash::Geometry;

use crate::run::Runner;
use crate::scenario::Scenario;

const BLOCK_BYTES: u32 = 4096;
const BLOCK: u64 = 8;
const BLOCKS: u64 = 3;

/// An operation of a sequence. All touch the first block, but for `Evict`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Write the whole block.
    Write,
    /// Write it durably.
    WriteFua,
    /// Write a part that begins and ends within sectors' granules.
    WritePart,
    /// Flush.
    Flush,
    /// Trim the block.
    Trim,
    /// Zero a part of it, without a hole.
    Zero,
    /// Read the block.
    Read,
    /// Read the other blocks, so that this one leaves DRAM.
    Evict,
    /// Stop cleanly and start again.
    Stop,
    /// Kill the process and start again.
    Kill,
    /// Change the policy from write-back to write-through or the other way.
    Switch,
}

impl Action {
    const ALL: [Action; 11] = [
        Action::Write,
        Action::WriteFua,
        Action::WritePart,
        Action::Flush,
        Action::Trim,
        Action::Zero,
        Action::Read,
        Action::Evict,
        Action::Stop,
        Action::Kill,
        Action::Switch,
    ];

    /// The requests that make it up: operation, flags, first sector and count.
    pub fn requests(self) -> Vec<(Op, Flags, (u64, u64))> {
        let whole = (0, BLOCK);
        match self {
            Action::Write => vec![(Op::Write, Flags::NONE, whole)],
            Action::WriteFua => vec![(Op::Write, Flags::FUA, whole)],
            Action::WritePart => vec![(Op::Write, Flags::NONE, (2, 3))],
            Action::Flush => vec![(Op::Flush, Flags::NONE, (0, 0))],
            Action::Trim => vec![(Op::Trim, Flags::NONE, whole)],
            Action::Zero => vec![(Op::WriteZeroes, Flags::NO_HOLE, (1, 4))],
            Action::Read => vec![(Op::Read, Flags::NONE, whole)],
            Action::Evict => {
                (1..BLOCKS).map(|b| (Op::Read, Flags::NONE, (b * BLOCK, BLOCK))).collect()
            }
            Action::Stop | Action::Kill | Action::Switch => Vec::new(),
        }
    }
}

/// What has happened before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    Nothing,
    /// The block was written and flushed.
    Written,
    /// It was written and flushed, and has left DRAM.
    Evicted,
}

/// What the cache is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CacheKind {
    DramOnly,
    BackToFlash,
    BackToDram,
    Through,
    /// The same three with flash in the layout slots, where two of the three blocks fit.
    SlotsBackToFlash,
    SlotsBackToDram,
    SlotsThrough,
}

/// Parameters, what came before, two operations, and whether the second is issued before the
/// first has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    pub(crate) kind: CacheKind,
    pub(crate) before: Before,
    /// The operations.
    pub actions: [Action; 2],
    /// Whether they overlap.
    pub overlap: bool,
}

/// Number of cases.
pub const CASES: u64 = 7 * 3 * 2 * ACTIONS * ACTIONS;
const ACTIONS: u64 = Action::ALL.len() as u64;

impl Case {
    /// The case of this number, below [`CASES`].
    pub fn number(n: u64) -> Case {
        let (second, n) = (n % ACTIONS, n / ACTIONS);
        let (first, n) = (n % ACTIONS, n / ACTIONS);
        let (overlap, n) = (n % 2 == 1, n / 2);
        let (before, kind) = (n % 3, n / 3 % 7);
        let kinds = [
            CacheKind::DramOnly,
            CacheKind::BackToFlash,
            CacheKind::BackToDram,
            CacheKind::Through,
            CacheKind::SlotsBackToFlash,
            CacheKind::SlotsBackToDram,
            CacheKind::SlotsThrough,
        ];
        Case {
            kind: kinds[kind as usize],
            before: [Before::Nothing, Before::Written, Before::Evicted][before as usize],
            actions: [Action::ALL[first as usize], Action::ALL[second as usize]],
            overlap,
        }
    }

    /// A case of this kind of cache in which nothing happens but two flushes.
    pub(crate) fn of(kind: CacheKind) -> Case {
        Case {
            kind,
            before: Before::Nothing,
            actions: [Action::Flush, Action::Flush],
            overlap: false,
        }
    }

    /// The parameters.
    pub fn scenario(&self) -> Scenario {
        use CacheKind::{DramOnly, SlotsBackToDram, SlotsBackToFlash, SlotsThrough, Through};
        let write_back = !matches!(self.kind, Through | SlotsThrough);
        let flash = self.kind != DramOnly;
        let to_flash = matches!(self.kind, CacheKind::BackToFlash | SlotsBackToFlash);
        let slots = matches!(self.kind, SlotsBackToFlash | SlotsBackToDram | SlotsThrough);
        let geometry = Geometry {
            block_size: BLOCK_BYTES,
            page_size: 4096,
            region_pages: if slots { 5 } else { 7 },
            regions: 4,
            slots: if slots { 4 } else { 0 },
            directory_pages: u32::from(!slots),
            superblock_pages: 1,
            extent_bytes: u64::from(BLOCK_BYTES),
            batch_pages_max: 3,
            batch_entries_max: 2,
            inflight_batches_max: 2,
            active_extents_max: 1,
        };
        let config = CacheConfig {
            block_size: BlockSize::KIB_4,
            dram_blocks: 1,
            spare_frames: 1,
            bounce_frames: 1,
            write_policy: if write_back {
                WritePolicy::WRITE_BACK
            } else {
                WritePolicy::WRITE_THROUGH
            },
            acknowledge: if to_flash { Acknowledge::Flash } else { Acknowledge::Dram },
            partial: Partial::Granule,
            relation: forebay_cache::Relation::Exclusive,
            bypass: forebay_cache::Bypass::default(),
            replacement: ReplacementParameters::new(ReplacementKind::Lru),
            flash: flash.then_some(FlashConfig {
                geometry,
                entries_max: if slots { 4 } else { geometry.regions * geometry.region_pages },
                blocks: 2,
                regions_reserved: 1,
                recovery_chunk_pages: 1,
                replacement: forebay_cache::LogReplacement::Frequency,
                cells: Default::default(),
                admission: forebay_cache::AdmissionParameters::default(),
                promote_after: 1,
                line_blocks: 1,
                written: Default::default(),
            }),
            shards: 1,
            extent_shift: CacheConfig::EXTENT_SHIFT,
            requests_max: 8,
            waiters_max: 16,
            step_blocks: CacheConfig::STEP_BLOCKS,
            request_blocks_max: CacheConfig::REQUEST_BLOCKS_MAX,
            destage_depth: 1,
            transfers_spare: CacheConfig::TRANSFERS_SPARE,
            give_up_after: forebay_block::Nanos(0),
        };
        Scenario {
            config,
            volumes: vec![VolumeConfig::new(BLOCKS * u64::from(BLOCK_BYTES))],
            flash_bytes: flash.then(|| geometry.device_bytes()),
            tear_bytes: 512,
            depth: 8,
            kill_is_lossless: (!write_back || to_flash) && self.kind != CacheKind::DramOnly,
            policies: Vec::new(),
            hot: vec![(0..BLOCKS).collect()],
            request_blocks: 3,
            bindings: 0,
            logical: [512, 512],
        }
    }

    /// Does what came before, to the end.
    pub(crate) fn prelude(&self, run: &mut Runner<'_>) -> Result<(), String> {
        let actions: &[Action] = match self.before {
            Before::Nothing => &[],
            Before::Written => &[Action::Write, Action::Flush],
            Before::Evicted => &[Action::Write, Action::Flush, Action::Evict],
        };
        for &action in actions {
            perform_whole(run, action)?;
        }
        Ok(())
    }
}

/// Issues the requests of an action and completes everything.
pub(crate) fn perform_whole(run: &mut Runner<'_>, action: Action) -> Result<(), String> {
    for (op, flags, range) in action.requests() {
        run.issue(0, op, flags, range);
        run.hear()?;
    }
    while !run.open.is_empty() || run.world.executor.devices().pending() > 0 {
        if !run.world.complete_one(&mut run.choices) {
            return Err(format!("{action:?} hangs: {}", run.world.cache.describe()));
        }
        run.hear()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_another_case() {
        let all: Vec<Case> = (0..CASES).map(Case::number).collect();
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b), "{a:?} twice");
            if let Some(flash) = a.scenario().config.flash {
                assert!(flash.geometry.validate().is_ok());
            }
        }
    }
}
