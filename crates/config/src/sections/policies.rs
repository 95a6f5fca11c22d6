//! `[replacement]`, `[admission]`, `[flush]`, `[qos]`, `[dedup]`, `[workers]`.

use crate::TimeSpan;
use crate::schema::{choice, section};

section! {
    /// Which block leaves when room is needed.
    pub struct Replacement {
        /// The policy of the first tier, memory. The flash log reclaims its regions in the
        /// order in which they were written.
        policy: ReplacementPolicy = "lru";
    }
}

choice! {
    /// Which block leaves when room is needed.
    pub enum ReplacementPolicy: "replacement policy" {
        /// Least recently used.
        Lru = "lru",
        /// Adaptive replacement cache: balances recency and frequency by itself.
        Arc = "arc" later,
        /// Least frequently used, with aging.
        Lfu = "lfu" later,
        /// SIEVE: a hand that spares what was visited; simple, and good where popularity is
        /// skewed, bad at scans that repeat.
        Sieve = "sieve" later,
        /// S3-FIFO: a small queue filters what is seen once.
        S3Fifo = "s3-fifo" later,
        /// Enters blocks at a position given by the hit ratio of their surroundings.
        HrLru = "hr-lru" later,
        /// As hr-lru, and by the volume's priority.
        PriorityLru = "priority-lru" later,
    }
}

section! {
    /// Which blocks may enter flash.
    pub struct Admission {
        /// The policy.
        policy: AdmissionPolicy = "always";
        /// How many accesses a block needs, under `nhit`.
        hits: u32 = 2, later;
        /// Share of blocks admitted, under `random`: a fraction from 0 to 1.
        probability: f64 = 0.5, later;
    }
}

choice! {
    /// Which blocks may enter flash.
    pub enum AdmissionPolicy: "admission policy" {
        /// All.
        Always = "always",
        /// Those with a number of accesses behind them.
        Nhit = "nhit" later,
        /// Stochastic multi-queue.
        Smq = "smq" later,
        /// A random share.
        Random = "random" later,
        /// Those that are popular enough.
        Popularity = "popularity" later,
    }
}

section! {
    /// When dirty blocks are written to the backing store.
    pub struct Flush {
        /// The policy.
        policy: FlushPolicy = "on-demand";
        /// Above this share of dirty blocks they are written even while clients are busy: a
        /// fraction of the tier's capacity from 0 to 1.
        dirty_high: f64 = 0.5, later;
        /// Below this share writing stops: a fraction from 0 to 1, below `dirty_high`.
        dirty_low: f64 = 0.1, later;
        /// How long no request must have come for the cache to count as idle.
        idle: TimeSpan = "100ms", later;
        /// What becomes of dirty blocks when the server stops.
        on_stop: OnStop = "destage";
        /// Most writes of a shard on their way from flash to a backing store at once, each of one
        /// block or of several that follow on one another.
        parallel: u32 = 32;
        /// How long writes wait for room on flash that their failing backing store does not let
        /// become free. After that writes to its volume fail until it takes something again; reads
        /// go on, and what is dirty stays on flash. 0 means that they wait for ever.
        give_up_after: TimeSpan = "60s";
        /// How often the headers of backing stores and the flash tier note how far the other is, while
        /// anything changes, so that a start notices an older copy of either. What changed since the last
        /// note goes unnoticed. At least 10ms.
        stamp_every: TimeSpan = "5s";
    }
}

choice! {
    /// When dirty blocks are written to the backing store.
    pub enum FlushPolicy: "flush policy" {
        /// When the room is needed: a region of the log is to be used again, memory has to be
        /// freed, or a client or `forebay ctl` asks for it.
        OnDemand = "on-demand",
        /// When the cache is idle, or too much is dirty.
        Lazy = "lazy" later,
        /// As soon as possible.
        Aggressive = "aggressive" later,
    }
}

choice! {
    /// What becomes of dirty blocks when the server stops.
    pub enum OnStop: "choice for a stop" {
        /// They go to the backing stores, which are then the whole truth.
        Destage = "destage",
        /// They stay on flash, durable, and the next start goes on with them; quick. Needs a
        /// `[flash]` section.
        Keep = "keep",
    }
}

section! {
    /// Quality of service.
    pub struct Qos {
        /// The policy.
        policy: QosPolicy = "none";
    }
}

choice! {
    /// How volumes share the cache.
    pub enum QosPolicy: "QoS policy" {
        /// They compete.
        None = "none",
        /// Positions by hit ratio.
        HitRatio = "hit-ratio" later,
        /// Positions by priority.
        Priority = "priority" later,
    }
}

section! {
    /// Storing equal contents once.
    pub struct Dedup {
        /// Whether to.
        enabled: bool = false, later;
    }
}

section! {
    /// How the work is spread over processors.
    pub struct Workers {
        /// Worker threads; 0 means one per processor.
        threads: u32 = 0, later;
        /// Shards of the cache, 1 to 64; 0 means one, because one lock protects them all.
        shards: u32 = 0;
        /// Who may look blocks up at the same time.
        lookup: Lookup = "one-lock";
        /// Most requests under way at once; further ones wait outside the cache.
        requests_max: u32 = 1024;
    }
}

choice! {
    /// Who may look blocks up at the same time.
    pub enum Lookup: "lookup concurrency" {
        /// One worker does all.
        OneWorker = "one-worker" later,
        /// Whichever thread has a request, under one lock over the whole cache.
        OneLock = "one-lock",
        /// Whichever thread has a request, under a lock per shard.
        ManyLocks = "many-locks" later,
    }
}
