//! What the procedures of a cache share: its parts, and what concerns all of them.
//!
//! A procedure (a cleaning, a destage, a change of policy, ...) has a type with private state. It is
//! given the world for the length of a call.

use forebay_block::Nanos;
use forebay_effect::EffectQueue;
use forebay_flash::Log;

use crate::config::CacheConfig;
use crate::front::Front;
use crate::notice::Notice;
use crate::shard::Shard;
use crate::stats::CacheStats;

/// How far the cache is between its start and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    New,
    Starting,
    Ready,
    /// Waiting for requests in flight.
    Draining,
    /// Flushing what is dirty in DRAM.
    Flushing,
    /// Destaging, if so wished.
    Destaging,
    /// The log writes its clean mark.
    Closing,
    /// Nothing is cleaned any more; what was begun ends.
    Ending,
    Stopped,
    Failed,
}

/// See the module.
pub(crate) struct World {
    pub config: CacheConfig,
    pub front: Front,
    pub shards: Vec<Shard>,
    pub log: Option<Log>,
    /// The shards know that nothing goes to the log any more.
    pub log_lost: bool,
    pub effects: EffectQueue,
    pub stats: CacheStats,
    pub notices: Vec<Notice>,
    pub now: Nanos,
    pub state: State,
    /// A stop is near: what cannot be destaged is not waited for.
    pub hurry: bool,
}

/// Splits a world into what shards see of it and the shards.
macro_rules! around {
    ($world:expr) => {
        ShardContext {
            front: &mut $world.front,
            log: $world.log.as_mut(),
            effects: &mut $world.effects,
            stats: &mut $world.stats,
            now: $world.now,
        }
    };
}
pub(crate) use around;
