//! Lines: neighbouring blocks that enter flash together.

use forebay_flash::BlockKey;
use forebay_flash::sabotage::Bug;

use super::entrance::Entrance;
use crate::byte_range::ByteRange;
use crate::config::CacheConfig;
use crate::shard::ShardContext;
use crate::shard::frames::Frame;

/// Most lines that wait until the current pieces have been handed out. Further lines
/// are not fetched.
const WANTED_MAX: usize = 64;

/// The lines to be fetched.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Blocks of a line; a power of two.
    blocks: u64,
    /// The first blocks of lines whose rest is to be fetched at the end of the call.
    wanted: Vec<BlockKey>,
    /// Frames that lines leave free for requests.
    spare: usize,
    /// Reads of lines in progress.
    under_way: u32,
}

impl Lines {
    /// For a checked configuration.
    pub fn new(config: &CacheConfig) -> Lines {
        let blocks = config.flash.as_ref().map_or(1, |flash| flash.line_blocks);
        let has = config.relation.has_lines() && blocks > 1;
        let spare = (config.spare_frames / u32::from(config.shards) / 2).max(1) as usize;
        let wanted = Vec::with_capacity(if has { WANTED_MAX } else { 0 });
        Lines { blocks: if has { blocks.into() } else { 1 }, wanted, spare, under_way: 0 }
    }

    /// Frames that are left free for requests.
    pub fn spare(&self) -> usize {
        self.spare
    }

    /// Fetches a block ahead. Returns its frame; `None` if the index is full.
    pub(super) fn fetch(
        &mut self,
        entrance: &mut Entrance<'_>,
        context: &mut ShardContext<'_>,
        key: BlockKey,
        range: ByteRange,
    ) -> Option<Frame> {
        let (frame, alone) = entrance.fetch(context, key, range)?;
        self.under_way += u32::from(alone);
        Some(frame)
    }

    /// Whether reads of lines are in progress.
    pub fn is_fetching(&self) -> bool {
        self.under_way > 0
    }

    /// No more lines are fetched.
    pub fn stop(&mut self) {
        self.wanted.clear();
        self.blocks = 1;
    }

    /// The rest of the block's line is to be fetched.
    pub fn want(&mut self, key: BlockKey) {
        let first = BlockKey(key.0 & !(self.blocks - 1));
        if self.blocks > 1
            && self.wanted.last() != Some(&first)
            && self.wanted.len() < self.wanted.capacity()
        {
            self.wanted.push(first);
        }
    }

    /// A read has ended.
    pub fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// Fetches the unknown blocks of wanted lines, as far as there are frames.
    pub(super) fn fetch_wanted(
        &mut self,
        entrance: &mut Entrance<'_>,
        context: &mut ShardContext<'_>,
    ) {
        while let Some(first) = self.wanted.pop() {
            self.fetch_line(entrance, context, first);
            entrance.transfers.close_runs(context);
        }
    }

    fn fetch_line(
        &mut self,
        entrance: &mut Entrance<'_>,
        context: &mut ShardContext<'_>,
        first: BlockKey,
    ) {
        if !context.volumes.conditions[first.volume()].gives_reads()
            || !context.flash.takes_records()
            || context.flash.is_without(first)
        {
            return;
        }
        for key in (first.0..first.0 + self.blocks).map(BlockKey) {
            let range = entrance.blocks.granularity().range_within(context, key);
            if range.is_empty() {
                return;
            }
            let careless = context.mode.sabotage.is(Bug::LineOverWrites);
            let written = entrance.transfers.waiting_range(key).is_some() && !careless;
            if entrance.blocks.find(key).is_some() || written {
                continue;
            }
            let room = entrance.blocks.frames_free() > self.spare;
            if !room || self.fetch(entrance, context, key, range).is_none() {
                context.stats.lines_short += 1;
                return;
            }
            context.stats.line_blocks += 1;
        }
    }
}
