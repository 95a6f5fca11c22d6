//! The procedures, in the order of their turns.

use crate::cache::Cache;
use crate::cleaner::Cleaner;
use crate::shard::Shard;

/// A part of the work between calls.
///
/// The turn decides what there is to do; a turn without anything to do changes nothing. `is_due` is only a cheaper
/// question with nearly the same answer. It may say yes in vain, but if it says no although a turn would do
/// something, the cache hangs. [`Cache::check_turns`] looks for that.
pub(super) struct Procedure {
    /// For messages.
    pub name: &'static str,
    /// Whether a turn might find anything to do.
    pub is_due: fn(&Cache) -> bool,
    /// One bounded turn, which may leave work for another; true if it did anything.
    pub take_turn: fn(&mut Cache) -> bool,
}

/// All procedures, in the order of their turns. What one gives to another is taken up in the same round where
/// possible: what devices and the log have reported comes first, then the requests that it lets go on, then the
/// work that makes room or changes a policy, and last what waits until all the others are quiet.
pub(super) const PROCEDURES: [Procedure; 13] = [
    // Before the events of failed appends: the pieces concerned may wait now instead of failing.
    Procedure {
        name: "the failure of the log",
        is_due: Cache::has_lost_log,
        take_turn: |cache| cache.has_lost_log() && cache.lose_log(),
    },
    // Records enter, leave and move before anything decides by where they are.
    Procedure {
        name: "events of the log",
        is_due: Cache::has_events,
        take_turn: Cache::handle_events,
    },
    // Ended requests give back their places, and starved pieces take freed frames, before more pieces need any.
    Procedure {
        name: "ended requests",
        is_due: |cache| !cache.world.front.finished.is_empty(),
        take_turn: Cache::finish_requests,
    },
    Procedure {
        name: "starved pieces",
        is_due: |cache| cache.world.shards.iter().any(Shard::may_serve),
        take_turn: Cache::serve_starved,
    },
    Procedure {
        name: "stopped requests",
        is_due: |cache| cache.world.may_resume(),
        take_turn: |cache| cache.world.resume(&mut cache.stores, &cache.cleaner),
    },
    // A flush covers what the requests before it have written by now.
    Procedure {
        name: "flushes",
        is_due: |cache| !cache.world.volumes.flushing.is_empty(),
        take_turn: |cache| cache.world.step_flushes(),
    },
    // A cleaning may continue after a sync, and stores that it found to fail or to be late count from then on.
    Procedure {
        name: "ended syncs",
        is_due: |cache| !cache.world.volumes.synced.is_empty(),
        take_turn: Cache::handle_syncs,
    },
    Procedure {
        name: "cleanings",
        is_due: Cache::has_cleaning,
        take_turn: |cache| cache.clean(Cleaner::take_turn),
    },
    Procedure {
        name: "stores",
        is_due: |cache| cache.stores.has_work(&cache.world),
        take_turn: Cache::tend_stores,
    },
    // These three wait until others are quiet.
    Procedure {
        name: "a policy change",
        is_due: |cache| cache.switch.is_under_way(),
        take_turn: Cache::step_switch,
    },
    Procedure {
        name: "pass-through",
        is_due: |cache| cache.pass_through.has_work(),
        take_turn: Cache::step_pass_through,
    },
    Procedure {
        name: "a seal",
        is_due: |cache| cache.sealer.is_under_way(),
        take_turn: |cache| cache.sealer.take_turn(&mut cache.world, &cache.cleaner),
    },
    // A destage ends, and a stop goes on, only after the others have seen this round's events.
    Procedure {
        name: "a destage or stop",
        is_due: Cache::is_ending_or_destaging,
        take_turn: Cache::step_end,
    },
];
