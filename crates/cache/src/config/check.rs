//! Which parameters a cache can have. One check covers them all, so that nothing that it accepts
//! fails later.

use core::fmt;

use forebay_block::BlockSize;
use forebay_flash::GeometryError;
use forebay_replacement::Tier;

use super::{CacheConfig, FlashConfig};
use crate::cache::VOLUMES_MAX;
use crate::combination::Combination;
use crate::place::Relation;

impl CacheConfig {
    /// Checks whether a cache can have these parameters. [`Cache::new`](crate::Cache::new) panics
    /// if not, and only then, provided that there is memory for a cache of this size.
    ///
    /// # Errors
    /// The first parameter that is impossible, or does not fit the others.
    pub fn check(&self) -> Result<(), ConfigError> {
        refuse_unless((1..=64).contains(&self.shards), ConfigError::Shards)?;
        let steps = 1..=self.request_blocks_max;
        refuse_unless(steps.contains(&self.step_blocks), ConfigError::StepBlocks)?;
        refuse_unless(self.call_steps >= 1, ConfigError::CallSteps)?;
        let requests_most = u32::MAX - VOLUMES_MAX as u32;
        refuse_unless(self.requests_max <= requests_most, ConfigError::RequestsMax)?;
        let stripes = self.block_size.shift()..=63;
        refuse_unless(stripes.contains(&self.stripe_shift), ConfigError::StripeShift)?;
        let slots = self.flash.as_ref().is_some_and(|f| f.slots().is_some());
        refuse_unless(!slots || self.shards == 1, ConfigError::SlotsShards)?;
        let (relation, combination) = (self.relation, Combination::from_config(self));
        combination.check().map_err(|why| ConfigError::Combination { relation, why })?;

        refuse_unless(self.transfers_spare > 0, ConfigError::TransfersSpare)?;
        let transfers = self.transfers();
        let numbered = transfers <= u64::from(Self::TRANSFERS_MAX);
        refuse_unless(numbered, ConfigError::Transfers { transfers })?;
        // The sums below do not overflow: there are at most 64 times as many frames as transfers.
        for shard in 0..self.shards {
            let dram = self.share(shard, self.dram_blocks);
            let frames = self.share(shard, self.dram_blocks + self.spare_frames);
            refuse_unless(dram > 0, ConfigError::DramBlocks)?;
            refuse_unless(frames > dram, ConfigError::SpareFrames)?;
            refuse_unless(self.share(shard, self.bounce_frames) > 0, ConfigError::BounceFrames)?;
        }
        self.flash.as_ref().map_or(Ok(()), |flash| self.check_flash(flash))
    }

    fn check_flash(&self, flash: &FlashConfig) -> Result<(), ConfigError> {
        let geometry = &flash.geometry;
        geometry.validate().map_err(ConfigError::Geometry)?;
        let slots = flash.slots();
        refuse_unless(geometry.has_slots() == slots.is_some(), ConfigError::Layout)?;
        let same = u64::from(geometry.block_size) == self.block_size.bytes();
        refuse_unless(same, ConfigError::FlashBlockSize { block_size: self.block_size })?;

        // A shard may have none: its blocks then do not enter flash.
        refuse_unless(flash.entries_max > 0, ConfigError::EntriesMin)?;
        // The first shard has the largest share.
        let frames = self.share(0, self.dram_blocks + self.spare_frames);
        let entries = u64::from(self.share(0, flash.entries_max)) + u64::from(frames) + 1;
        let fit = entries <= u64::from(Self::ENTRIES_MAX);
        refuse_unless(fit, ConfigError::EntriesMax { entries })?;
        let blocks = 1..=flash.entries_max;
        let accounted = slots.is_none_or(|slots| blocks.contains(&slots.blocks));
        refuse_unless(accounted, ConfigError::FlashBlocks)?;

        let stripe = 1 << (self.stripe_shift - self.block_size.shift());
        let line = flash.line_blocks.is_power_of_two() && u64::from(flash.line_blocks) <= stripe;
        refuse_unless(line, ConfigError::LineBlocks { blocks: flash.line_blocks })?;
        let reads_most = slots.map_or(u8::MAX, |_| FlashConfig::SLOTS_READINGS_MAX);
        let reads = 1..=reads_most;
        refuse_unless(reads.contains(&flash.promote_after), ConfigError::PromoteAfter)?;
        slots.map_or(Ok(()), |slots| {
            let kind = slots.cells.kind();
            refuse_unless(kind.orders(Tier::Slots), ConfigError::Cells { policy: kind.name() })
        })
    }
}

fn refuse_unless(fits: bool, error: ConfigError) -> Result<(), ConfigError> {
    if fits { Ok(()) } else { Err(error) }
}

/// Why a cache cannot have some parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The number of shards is not from 1 to 64.
    Shards,
    /// A step of a request has no block, or more than may be in flight.
    StepBlocks,
    /// A call may take no step.
    CallSteps,
    /// More requests than can be numbered.
    RequestsMax,
    /// A stripe is shorter than a block, or longer than any volume.
    StripeShift,
    /// The slots layout supports only one shard.
    SlotsShards,
    /// The policies do not work together.
    Combination {
        /// The relation of the tiers.
        relation: Relation,
        /// The reason.
        why: &'static str,
    },
    /// A shard has no block in DRAM.
    DramBlocks,
    /// A shard has no spare frame.
    SpareFrames,
    /// A shard has no bounce frame.
    BounceFrames,
    /// There is no transfer for blocks without a frame.
    TransfersSpare,
    /// A shard may have more transfers than can be numbered.
    Transfers {
        /// Their number.
        transfers: u64,
    },
    /// The geometry of the flash tier is invalid.
    Geometry(GeometryError),
    /// The layout of the flash tier is not that of its geometry.
    Layout,
    /// Blocks on flash have another size than the cache's blocks.
    FlashBlockSize {
        /// The size of the cache's blocks.
        block_size: BlockSize,
    },
    /// The index has no room for a block on flash.
    EntriesMin,
    /// The index of a shard has more blocks than can be numbered.
    EntriesMax {
        /// Their number, in both tiers.
        entries: u64,
    },
    /// Slots layout: replacement has room for no block, or for more blocks than there are cells.
    FlashBlocks,
    /// The number of blocks of a line is not a power of two, or a line is longer than a stripe.
    LineBlocks {
        /// The blocks of the line.
        blocks: u32,
    },
    /// A block moves to DRAM before it is read, or after more reads than the slots layout counts.
    PromoteAfter,
    /// Slots layout: this replacement policy cannot order cells.
    Cells {
        /// The name of the policy.
        policy: &'static str,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Shards => f.write_str("the number of shards must be from 1 to 64"),
            ConfigError::StepBlocks => {
                f.write_str("step_blocks must be from 1 to `request_blocks_max`")
            }
            ConfigError::CallSteps => f.write_str("call_steps must be at least 1"),
            ConfigError::RequestsMax => {
                let most = u32::MAX - VOLUMES_MAX as u32;
                write!(f, "requests_max must be at most {most}")
            }
            ConfigError::StripeShift => f.write_str("a stripe must be at least one block"),
            ConfigError::SlotsShards => f.write_str("the slots layout supports only one shard"),
            ConfigError::Combination { relation, why } => write!(f, "{relation}: {why}"),
            ConfigError::DramBlocks => f.write_str("each shard needs at least one DRAM block"),
            ConfigError::SpareFrames => f.write_str("each shard needs a spare frame"),
            ConfigError::BounceFrames => f.write_str("each shard needs a bounce frame"),
            ConfigError::TransfersSpare => f.write_str("blocks without a frame need a transfer"),
            ConfigError::Transfers { transfers } => {
                let most = CacheConfig::TRANSFERS_MAX;
                write!(f, "{transfers} transfers exceed the {most} that can be numbered")
            }
            ConfigError::Geometry(error) => error.fmt(f),
            ConfigError::Layout => {
                f.write_str("the flash tier must have the layout of its geometry")
            }
            ConfigError::FlashBlockSize { block_size } => {
                let bytes = block_size.bytes();
                write!(f, "a block on flash must have {bytes} bytes, like every block")
            }
            ConfigError::EntriesMin => f.write_str("the index needs at least one block of flash"),
            ConfigError::EntriesMax { entries } => {
                let most = CacheConfig::ENTRIES_MAX;
                write!(f, "a shard of {entries} blocks exceeds the {most} that can be numbered")
            }
            ConfigError::FlashBlocks => {
                f.write_str("the number of blocks on flash must be from 1 to the number of cells")
            }
            ConfigError::LineBlocks { blocks } => write!(
                f,
                "{blocks} blocks is not a valid line size: the number of blocks in a line must be \
                 a power of two, and a line must fit in one stripe"
            ),
            ConfigError::PromoteAfter => write!(
                f,
                "promote_after must be at least 1, and in the slots layout at most {}",
                FlashConfig::SLOTS_READINGS_MAX
            ),
            ConfigError::Cells { policy } => write!(f, "the policy {policy} cannot order cells"),
        }
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FlashLayout, LogReplacement, SlotsConfig, VolumeConfig, Written};
    use crate::policy::Acknowledge;
    use crate::{Cache, Open};
    use forebay_block::Nanos;
    use forebay_flash::{Geometry, TierId};
    use forebay_replacement::{
        AdmissionKind, AdmissionParameters, Kind, Parameters, QueueParameters,
    };

    #[test]
    fn an_impossible_configuration_is_refused_with_the_parameter_that_is_wrong() {
        let good = CacheConfig::dram_only(16);
        assert_eq!(good.check(), Ok(()));
        let refuses = |error, spoil: fn(&mut CacheConfig)| {
            let mut config = good.clone();
            spoil(&mut config);
            assert_eq!(config.check(), Err(error));
        };
        refuses(ConfigError::Shards, |c| c.shards = 0);
        refuses(ConfigError::Shards, |c| c.shards = 65);
        refuses(ConfigError::StepBlocks, |c| c.step_blocks = c.request_blocks_max + 1);
        refuses(ConfigError::CallSteps, |c| c.call_steps = 0);
        refuses(ConfigError::StripeShift, |c| c.stripe_shift = c.block_size.shift() - 1);
        refuses(ConfigError::DramBlocks, |c| c.dram_blocks = 0);
        refuses(ConfigError::SpareFrames, |c| c.spare_frames = 0);
        refuses(ConfigError::BounceFrames, |c| c.bounce_frames = 0);
        refuses(ConfigError::TransfersSpare, |c| c.transfers_spare = 0);
        refuses(ConfigError::DramBlocks, |c| {
            (c.shards, c.spare_frames, c.bounce_frames) = (17, 17, 17);
        });
        refuses(ConfigError::RequestsMax, |c| c.requests_max = u32::MAX - 63);
        let refuses = |layout, error, spoil: fn(&mut FlashConfig)| {
            let mut config = small(layout, 1);
            assert_eq!(config.check(), Ok(()));
            spoil(config.flash.as_mut().expect("it has flash"));
            assert_eq!(config.check(), Err(error));
        };
        let (log, slots) = (0, 1);
        refuses(log, ConfigError::EntriesMin, |f| f.entries_max = 0);
        refuses(log, ConfigError::LineBlocks { blocks: 3 }, |f| f.line_blocks = 3);
        refuses(log, ConfigError::LineBlocks { blocks: 512 }, |f| f.line_blocks = 512);
        refuses(log, ConfigError::PromoteAfter, |f| f.promote_after = 0);
        refuses(slots, ConfigError::PromoteAfter, |f| f.promote_after = 32);
        refuses(slots, ConfigError::FlashBlocks, |f| slots_of(f).blocks = 0);
        refuses(slots, ConfigError::FlashBlocks, |f| slots_of(f).blocks = 41);
        refuses(slots, ConfigError::Layout, |f| f.geometry.slots = 0);
        refuses(log, ConfigError::Layout, |f| f.geometry.slots = 40);
        let block_size = BlockSize::KIB_4;
        refuses(log, ConfigError::FlashBlockSize { block_size }, |f| f.geometry.block_size = 8192);
        let entries = u64::from(u32::MAX) + 25;
        refuses(log, ConfigError::EntriesMax { entries }, |f| f.entries_max = u32::MAX);
        let no_geometry = |f: &mut FlashConfig| f.geometry.regions = 2;
        let geometry = GeometryError::Invalid("the number of regions must be from 3 to 2^24");
        refuses(log, ConfigError::Geometry(geometry), no_geometry);
        let most = CacheConfig::TRANSFERS_MAX;
        let error = CacheConfig { transfers_spare: most, ..good.clone() }.check().unwrap_err();
        assert!(matches!(error, ConfigError::Transfers { .. }), "{error}");
        let relation = Relation::Inclusive;
        let error = CacheConfig { relation, ..good.clone() }.check().unwrap_err();
        assert!(error.to_string().contains("needs flash"), "{error}");
    }

    fn slots_of(flash: &mut FlashConfig) -> &mut SlotsConfig {
        flash.slots_mut().expect("the slots layout")
    }

    /// A small configuration: with the log layout for 0, the slots layout for 1, no flash tier for
    /// 2.
    fn small(layout: usize, shards: u8) -> CacheConfig {
        let geometry = Geometry {
            block_size: 4096,
            page_size: 4096,
            region_pages: 12,
            slots: [0, 40][layout & 1],
            directory_pages: 0,
            regions: 8,
            superblock_pages: 1,
            extent_bytes: 1 << 16,
            batch_pages_max: 5,
            batch_entries_max: 4,
            inflight_batches_max: 1,
            active_extents_max: 2,
        };
        let slots = SlotsConfig {
            blocks: 36,
            cells: Parameters::default(),
            promote_dirty_after: 1,
            give_up_copies: true,
        };
        let flash = FlashConfig {
            geometry,
            layout: match geometry.has_slots() {
                true => FlashLayout::Slots(slots),
                false => FlashLayout::Log { replacement: LogReplacement::Frequency },
            },
            entries_max: 40,
            regions_reserved: 1,
            recovery_chunk_pages: 64,
            admission: AdmissionParameters::default(),
            promote_after: 1,
            line_blocks: 1,
            queues: QueueParameters::default(),
            written: Written::Ask,
        };
        CacheConfig {
            flash: (layout < 2).then_some(flash),
            shards,
            spare_frames: 8,
            bounce_frames: 8,
            ..CacheConfig::dram_only(16)
        }
    }

    #[test]
    fn whatever_the_check_accepts_a_cache_can_be_built_and_started_with() {
        // Method: small configurations that are good, with up to three parameters set to something
        // else, often to what is too small or too large. Values that are both legal and huge are
        // left out, because a cache takes memory for them.
        const FEW: [u32; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64];
        let mut seed = 0_u64;
        let mut draw = |n: usize| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((x ^ (x >> 31)) % n as u64) as usize
        };
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..6000 {
            let shards = [1, 1, 2, 4][draw(4)];
            let mut config = small(draw(3), shards);
            for _ in 0..draw(4) {
                let few = FEW[draw(FEW.len())];
                let any = [few, few, few, u32::MAX, u32::MAX - 1, 1 << 31][draw(6)];
                let few_or_all = [few, few, u32::MAX][draw(3)];
                let c = &mut config;
                match draw(32) {
                    0 => c.dram_blocks = any,
                    1 => c.spare_frames = any,
                    2 => c.bounce_frames = any,
                    3 => c.transfers_spare = any,
                    4 => c.shards = few as u8,
                    5 => c.stripe_shift = few,
                    6 => c.requests_max = few_or_all,
                    7 => c.waiters_max = few,
                    8 => c.step_blocks = any,
                    9 => c.request_blocks_max = any,
                    10 => c.call_steps = any,
                    11 => c.destage_depth = any,
                    12 => c.relation = Relation::ALL[draw(Relation::ALL.len())],
                    13 => c.block_size = [BlockSize::KIB_4, BlockSize::new(512).unwrap()][draw(2)],
                    14 => c.acknowledge = Acknowledge::Flash,
                    15 => c.replacement = Parameters::new(Kind::ALL[draw(Kind::ALL.len())]),
                    n => {
                        let Some(flash) = &mut c.flash else { continue };
                        match n {
                            16 => flash.entries_max = any,
                            17 => _ = flash.slots_mut().map(|slots| slots.blocks = any),
                            18 => flash.regions_reserved = any,
                            19 => flash.recovery_chunk_pages = any,
                            20 => flash.line_blocks = any,
                            21 => flash.promote_after = any as u8,
                            22 => {
                                let after = any as u8;
                                _ = flash
                                    .slots_mut()
                                    .map(|slots| slots.promote_dirty_after = after);
                            }
                            23 => {
                                let cells = Parameters::new(Kind::ALL[draw(Kind::ALL.len())]);
                                _ = flash.slots_mut().map(|slots| slots.cells = cells);
                            }
                            24 => {
                                let replacement = LogReplacement::ALL[draw(4)];
                                flash.layout = FlashLayout::Log { replacement };
                            }
                            25 => {
                                let kind = AdmissionKind::ALL[draw(AdmissionKind::ALL.len())];
                                flash.admission = AdmissionParameters::new(kind);
                            }
                            26 => flash.geometry.slots = any,
                            27 => flash.geometry.regions = any,
                            28 => flash.geometry.region_pages = any,
                            29 => flash.geometry.batch_pages_max = any,
                            30 => flash.geometry.block_size = 1 << (few % 24),
                            _ => flash.geometry.page_size = 1 << (few % 24),
                        }
                    }
                }
            }
            // (Several shards could have that many entries, which would take too much memory.)
            let many = config.shards > 1;
            config.flash.iter_mut().filter(|_| many).for_each(|f| f.entries_max %= 1 << 16);
            if config.check().is_err() {
                refused += 1;
                continue;
            }
            accepted += 1;
            let shown = format!("{config:?}");
            let build = std::panic::AssertUnwindSafe(|| {
                let mut cache = Cache::new(config);
                cache.attach(VolumeConfig::new(1 << 20));
                let uuid = TierId::new([1; 16]);
                cache.start(Nanos(0), Open::Format { uuid, bindings: Vec::new() });
                while cache.poll_effect(&mut Vec::new()).is_some() {}
            });
            assert!(std::panic::catch_unwind(build).is_ok(), "{shown}");
        }
        assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
    }

    #[test]
    #[should_panic(expected = "call_steps must be at least 1")]
    fn a_cache_with_an_impossible_configuration_is_not_built() {
        Cache::new(CacheConfig { call_steps: 0, ..CacheConfig::dram_only(4) });
    }
}
