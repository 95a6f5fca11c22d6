//! The cases: parameters, earlier actions, and two operations.

use forebay_block::{BlockSize, Flags, Op};
use std::sync::OnceLock;

use forebay_cache::{
    Acknowledge, AdmissionKind, AdmissionParameters, CacheConfig, Combination, FlashCombination,
    FlashConfig, FlashLayout, LogReplacement, Partial, QueueParameters, Relation, ReplacementKind,
    ReplacementParameters, SlotsConfig, VolumeConfig, WritePolicy, Written,
};
use forebay_flash::Geometry;

use crate::run::Runner;
use crate::scenario::Scenario;

const BLOCK_BYTES: u32 = 4096;
const BLOCK: u64 = 8;
const BLOCKS: u64 = 3;

/// An operation of a sequence. All operations except `Evict` access the first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Write the whole block.
    Write,
    /// Write the whole block with FUA.
    WriteFua,
    /// Write three sectors in the middle of the block.
    WritePart,
    /// Flush.
    Flush,
    /// Trim the block.
    Trim,
    /// Zero a part of the block, without a hole.
    Zero,
    /// Read the block.
    Read,
    /// Read the other blocks, so that the first block leaves DRAM.
    Evict,
    /// Stop cleanly and start again.
    Stop,
    /// Kill the process and start again.
    Kill,
    /// Change the policy from write-back to write-through, or the reverse.
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

    /// The requests of the action: operation, flags, and the first sector with the number of
    /// sectors.
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

/// What happened before the two operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    Nothing,
    /// The block was written and flushed.
    Written,
    /// The block was written and flushed, and has left DRAM.
    Evicted,
}

/// The kind of cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheKind {
    relation: Relation,
    policy: WritePolicy,
    acknowledge: Acknowledge,
    flash: Layout,
    admission: AdmissionKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    None,
    Log,
    /// Flash has room for two of the three blocks.
    Slots,
}

impl CacheKind {
    pub const DRAM_ONLY: CacheKind =
        CacheKind::usual(WritePolicy::WRITE_BACK, Acknowledge::Dram, Layout::None);
    pub const BACK_TO_FLASH: CacheKind =
        CacheKind::usual(WritePolicy::WRITE_BACK, Acknowledge::Flash, Layout::Log);
    pub const BACK_TO_DRAM: CacheKind =
        CacheKind::usual(WritePolicy::WRITE_BACK, Acknowledge::Dram, Layout::Log);
    pub const THROUGH: CacheKind =
        CacheKind::usual(WritePolicy::WRITE_THROUGH, Acknowledge::Dram, Layout::Log);
    pub const SLOTS_BACK_TO_FLASH: CacheKind =
        CacheKind { flash: Layout::Slots, ..CacheKind::BACK_TO_FLASH };
    pub const SLOTS_THROUGH: CacheKind = CacheKind { flash: Layout::Slots, ..CacheKind::THROUGH };
    /// The kinds of which every `ci` plays all cases.
    pub const USUAL: [CacheKind; 7] = [
        CacheKind::DRAM_ONLY,
        CacheKind::BACK_TO_FLASH,
        CacheKind::BACK_TO_DRAM,
        CacheKind::THROUGH,
        CacheKind::SLOTS_BACK_TO_FLASH,
        CacheKind { flash: Layout::Slots, ..CacheKind::BACK_TO_DRAM },
        CacheKind::SLOTS_THROUGH,
    ];

    const fn usual(policy: WritePolicy, acknowledge: Acknowledge, flash: Layout) -> CacheKind {
        let (relation, admission) = (Relation::Exclusive, AdmissionKind::Always);
        CacheKind { relation, policy, acknowledge, flash, admission }
    }

    /// All kinds: the usual ones, then every other valid combination of relation, write policy,
    /// acknowledgement and layout, then each admission policy in both layouts.
    fn all() -> Vec<CacheKind> {
        let mut all = CacheKind::USUAL.to_vec();
        let mut add = |kind: CacheKind| {
            if kind.is_legal() && !all.contains(&kind) {
                all.push(kind);
            }
        };
        let policies = [
            WritePolicy::WRITE_BACK,
            WritePolicy::WRITE_THROUGH,
            WritePolicy::READ_ONLY,
            WritePolicy::WRITE_ONLY,
        ];
        for relation in Relation::ALL {
            for policy in policies {
                for acknowledge in [Acknowledge::Dram, Acknowledge::Flash] {
                    for flash in [Layout::None, Layout::Log, Layout::Slots] {
                        let usual = CacheKind::usual(policy, acknowledge, flash);
                        // Without dirty data, it makes no difference when a write is acknowledged.
                        if policy.write_back || acknowledge == Acknowledge::Dram {
                            add(CacheKind { relation, ..usual });
                        }
                    }
                }
            }
        }
        for &admission in AdmissionKind::ALL {
            add(CacheKind { admission, ..CacheKind::BACK_TO_FLASH });
            add(CacheKind { admission, ..CacheKind::SLOTS_BACK_TO_FLASH });
        }
        all
    }

    /// The kind with this number, from a list that is computed once.
    fn number(n: u64) -> CacheKind {
        static ALL: OnceLock<Vec<CacheKind>> = OnceLock::new();
        ALL.get_or_init(CacheKind::all)[n as usize]
    }

    fn is_legal(&self) -> bool {
        let CacheKind { relation, policy, acknowledge, admission, .. } = *self;
        let slots = self.flash == Layout::Slots;
        let flash = FlashCombination { slots, admission, written: Written::Ask };
        let flash = (self.flash != Layout::None).then_some(flash);
        let asked = flash.is_some() || acknowledge == Acknowledge::Dram;
        asked && Combination { relation, policy, acknowledge, flash }.check().is_ok()
    }
}

/// Parameters, earlier actions, two operations, and whether the second is issued before the first
/// has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    pub(crate) kind: CacheKind,
    pub(crate) before: Before,
    /// The operations.
    pub actions: [Action; 2],
    /// Whether the operations overlap.
    pub overlap: bool,
}

/// Number of kinds of caches.
const KINDS: u64 = 71;
/// Number of cases.
pub const CASES: u64 = KINDS * OF_KIND;
/// Number of cases of the usual kinds, which come first.
pub const CASES_USUAL: u64 = CacheKind::USUAL.len() as u64 * OF_KIND;
const OF_KIND: u64 = 3 * 2 * ACTIONS * ACTIONS;
const ACTIONS: u64 = Action::ALL.len() as u64;

impl Case {
    /// The case with this number, which must be less than [`CASES`].
    pub fn number(n: u64) -> Case {
        let (second, n) = (n % ACTIONS, n / ACTIONS);
        let (first, n) = (n % ACTIONS, n / ACTIONS);
        let (overlap, n) = (n % 2 == 1, n / 2);
        let (before, kind) = (n % 3, n / 3 % KINDS);
        Case {
            kind: CacheKind::number(kind),
            before: [Before::Nothing, Before::Written, Before::Evicted][before as usize],
            actions: [Action::ALL[first as usize], Action::ALL[second as usize]],
            overlap,
        }
    }

    /// A case of this kind of cache in which the only operations are two flushes.
    pub(crate) fn flushes_only(kind: CacheKind) -> Case {
        Case {
            kind,
            before: Before::Nothing,
            actions: [Action::Flush, Action::Flush],
            overlap: false,
        }
    }

    /// The parameters of the run.
    pub fn scenario(&self) -> Scenario {
        let CacheKind { relation, policy, acknowledge, admission, .. } = self.kind;
        let (flash, slots) = (self.kind.flash != Layout::None, self.kind.flash == Layout::Slots);
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
            write_policy: policy,
            acknowledge,
            partial: Partial::Granule,
            relation,
            bypass: forebay_cache::Bypass::default(),
            replacement: ReplacementParameters::new(ReplacementKind::Lru),
            flash: flash.then_some(FlashConfig {
                geometry,
                layout: match slots {
                    true => FlashLayout::Slots(SlotsConfig {
                        blocks: 2,
                        cells: Default::default(),
                        promote_dirty_after: 2,
                        give_up_copies: acknowledge == forebay_cache::Acknowledge::Flash,
                    }),
                    false => FlashLayout::Log { replacement: LogReplacement::Frequency },
                },
                entries_max: if slots { 4 } else { geometry.regions * geometry.region_pages },
                regions_reserved: 1,
                recovery_chunk_pages: 1,
                admission: AdmissionParameters::new(admission),
                promote_after: match acknowledge {
                    Acknowledge::Dram if slots => 2,
                    _ => 1,
                },
                line_blocks: if relation.has_lines() { 2 } else { 1 },
                queues: QueueParameters { interval: 1, share: 50, history: 200, half_life: 1 },
                written: Default::default(),
            }),
            shards: 1,
            stripe_shift: CacheConfig::STRIPE_SHIFT,
            requests_max: 8,
            waiters_max: 16,
            step_blocks: CacheConfig::STEP_BLOCKS,
            request_blocks_max: CacheConfig::REQUEST_BLOCKS_MAX,
            call_steps: 1,
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
            kill_is_lossless: flash && (!policy.write_back || acknowledge == Acknowledge::Flash),
            policies: Vec::new(),
            hot: vec![(0..BLOCKS).collect()],
            request_blocks: 3,
            bindings: 0,
            logical: [512, 512],
        }
    }

    /// Performs the earlier actions completely.
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
        let kinds = CacheKind::all();
        assert_eq!(kinds.len() as u64, KINDS);
        for relation in Relation::ALL {
            assert!(kinds.iter().any(|kind| kind.relation == relation), "{relation}");
        }
        let all: Vec<Case> = (0..CASES).map(Case::number).collect();
        let of = OF_KIND as usize;
        for (i, a) in all.iter().enumerate() {
            // Cases of different kinds differ by their kind.
            assert!(all[i / of * of..i].iter().all(|b| a != b), "{a:?} twice");
            assert_eq!(a.kind, kinds[i / of]);
            if let Some(flash) = a.scenario().config.flash {
                assert!(flash.geometry.validate().is_ok());
            }
        }
    }
}
