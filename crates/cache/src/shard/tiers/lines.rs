//! Lines: neighbouring blocks that enter flash together. Also blocks that enter flash as soon as
//! they have been read.

use forebay_effect::{Place, Segment};
use forebay_flash::BlockKey;
use forebay_flash::sabotage::Bug;

use super::Tiers;
use crate::config::CacheConfig;
use crate::place::{InMemory, Moment, OnFlash};
use crate::shard::ShardContext;
use crate::shard::entry::{EntryId, WANTS_APPEND};
use crate::shard::transfer::{TransferKind, Way};

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

    /// A block is to be fetched ahead; `alone`: by a separate read.
    pub fn began(&mut self, alone: bool) {
        self.under_way += u32::from(alone);
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
}

/// A read of a line has ended.
pub(in crate::shard) fn ended(tiers: &mut Tiers) {
    tiers.lines.under_way -= 1;
}

/// Fetches the unknown blocks of wanted lines, as far as there are frames.
pub(in crate::shard) fn fetch_lines(tiers: &mut Tiers, context: &mut ShardContext<'_>) {
    while let Some(first) = tiers.lines.wanted.pop() {
        fetch_line(tiers, context, first);
        tiers.transfers.close_runs(context);
    }
}

fn fetch_line(tiers: &mut Tiers, context: &mut ShardContext<'_>, first: BlockKey) {
    if !context.volumes.conditions[first.volume()].gives_reads()
        || !context.flash.takes_records()
        || context.flash.is_without(first)
    {
        return;
    }
    for key in (first.0..first.0 + tiers.lines.blocks).map(BlockKey) {
        let (start, end) = tiers.blocks.granules().range_within(context, key);
        if end <= start {
            return;
        }
        let careless = context.mode.sabotage.is(Bug::LineOverWrites);
        let written = tiers.transfers.waiting_range(key).is_some() && !careless;
        if tiers.blocks.find(key).is_some() || written {
            continue;
        }
        let room = tiers.blocks.frames_free() > tiers.lines.spare;
        let Some(id) = room.then(|| tiers.blocks.insert(key)).flatten() else {
            context.stats.lines_short += 1;
            return;
        };
        let frame = tiers.blocks.take_frame(id).expect("a free frame is available");
        tiers.enter_in_transit(context, id, frame, None);
        context.stats.line_blocks += 1;
        let place = Place::Frame { frame, offset: 0 };
        let segment = Segment { place, length: (end - start) as u32 };
        let alike = |kind: &mut TransferKind| *kind == TransferKind::FetchLine;
        let before = tiers.transfers.open_run(Way::In);
        let run = tiers.transfers.run(
            context,
            key,
            (start, end),
            TransferKind::FetchLine,
            Some(segment),
            alike,
        );
        tiers.lines.under_way += u32::from(before != Some(run));
        tiers.blocks[id].set_transfer(Some(run));
    }
}

/// Blocks have arrived from the backing store: they enter flash if they do so at once.
pub(in crate::shard) fn came_in(
    tiers: &mut Tiers,
    context: &mut ShardContext<'_>,
    first: BlockKey,
    count: u32,
) {
    let at = context.place(Moment::ReadMiss);
    if at.flash != OnFlash::Now || at.memory == InMemory::Transit {
        // Blocks in transit enter flash when they leave memory, which they do at once.
        return;
    }
    for key in (first.0..first.0 + u64::from(count)).map(BlockKey) {
        if let Some(id) = tiers.blocks.find(key) {
            enter_flash(tiers, context, id);
        }
    }
}

/// A clean block that stays in memory enters flash. If it cannot now, or is not admitted, it is
/// tried again when it leaves memory.
fn enter_flash(tiers: &mut Tiers, context: &mut ShardContext<'_>, id: EntryId) {
    let e = &tiers.blocks[id];
    let rests = e.frame().is_some()
        && e.transfer().is_none()
        && e.position().is_none()
        && e.valid() != 0
        && e.dirty() == 0
        && !e.is_leaving()
        && !e.has(WANTS_APPEND);
    if rests
        && context.flash.takes_records()
        && context.flash.logs(e.key())
        && !tiers.is_jammed(context)
        && !tiers.blocks.owes_sync(context, tiers.blocks[id].key())
        && tiers.admitter().admits(context, id)
    {
        context.stats.entered_when_read += u64::from(tiers.append(context, id, false).is_some());
    }
}
