//! The kinds of reuse distance: which reuses each measures, and which blocks it assumes a cache
//! keeps.
//!
//! A reuse distance is the number of *other* distinct blocks that were kept more recently than the
//! accessed block; an LRU cache of `c` blocks holds that block iff the distance is below `c`. The
//! kinds differ in what they measure (reads only, or writes too) and in which blocks they assume a
//! cache keeps. Each is a [`Rule`], a small table; one loop runs them all.
//!
//! Source: Ahmadian et al., *ETICA*, section 4.3.1 (TRD, URD, POD). Two points the paper leaves
//! open are decided here. A write breaks the chain of its block in a read-only cache: the next
//! read of that block counts as cold. A block that the policy does not hold is not counted in
//! the distance of any other.

use core::fmt;
use core::str::FromStr;

use forebay_block::Op;

/// A kind of reuse distance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Distance {
    /// Traditional: every access is measured and keeps its block. Predicts an LRU cache that
    /// allocates on reads and on writes.
    #[default]
    Trd,
    /// Useful: only read-after-read and read-after-write are measured; every block counts.
    Urd,
    /// Policy-optimised for a read-only cache: only reads allocate, a write invalidates.
    PodReadOnly,
    /// Policy-optimised for a write-back cache of writes only: only writes allocate, and only
    /// reads of blocks that a write brought in are measured.
    PodWriteOnly,
    /// Policy-optimised for write-back, which keeps everything: equal to [`Distance::Urd`].
    PodWriteBack,
    /// Policy-optimised for write-through with allocation on writes, which holds the same
    /// blocks as write-back: equal to [`Distance::Urd`].
    PodWriteThrough,
    /// For an LRU cache in which only reads allocate and writes invalidate: like
    /// [`Distance::PodReadOnly`], but an invalidated block leaves a free place that the next block
    /// takes. The curve equals that of the cache at every size.
    LruReadOnly,
    /// For an LRU cache in which only writes allocate: like [`Distance::PodWriteOnly`], but a read
    /// moves its block up only in caches that still hold it, and writes to held blocks are measured
    /// too. The curve equals that of the cache at every size.
    LruWriteOnly,
}

impl Distance {
    /// All kinds, in the order of the command-line help.
    pub const ALL: [Distance; 8] = [
        Self::Trd,
        Self::Urd,
        Self::PodReadOnly,
        Self::PodWriteOnly,
        Self::PodWriteBack,
        Self::PodWriteThrough,
        Self::LruReadOnly,
        Self::LruWriteOnly,
    ];

    /// The name used on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trd => "trd",
            Self::Urd => "urd",
            Self::PodReadOnly => "pod-ro",
            Self::PodWriteOnly => "pod-wbwo",
            Self::PodWriteBack => "pod-wb",
            Self::PodWriteThrough => "pod-wt",
            Self::LruReadOnly => "lru-ro",
            Self::LruWriteOnly => "lru-wbwo",
        }
    }

    /// Whether reuses by writes are measured; if not, no write ever counts as a hit.
    pub const fn measures_writes(self) -> bool {
        matches!(self, Self::Trd | Self::LruWriteOnly)
    }

    /// Whether a write makes the modelled cache drop the block.
    pub(crate) const fn writes_invalidate(self) -> bool {
        matches!(self, Self::PodReadOnly | Self::LruReadOnly)
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error: the name of no [`Distance`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{}` is not a reuse distance; choose one of {}", .0, Distance::ALL.map(Distance::name).join(", ")
)]
pub struct UnknownDistance(pub String);

impl FromStr for Distance {
    type Err = UnknownDistance;
    fn from_str(s: &str) -> Result<Self, UnknownDistance> {
        Self::ALL.into_iter().find(|d| d.name() == s).ok_or_else(|| UnknownDistance(s.to_owned()))
    }
}

/// What an access does to its block in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Makes it the most recent; allocates it if it was not held.
    Allocate,
    /// Makes it the most recent if it was held; otherwise changes nothing.
    TouchIfHeld,
    /// Drops it.
    Drop,
    /// Changes nothing.
    Nothing,
}

/// The effect of one access: whether its distance is measured, and what it does to its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Effect {
    pub measured: bool,
    pub keep: Keep,
}

const IGNORED: Effect = Effect { measured: false, keep: Keep::Nothing };

/// A kind of distance, as a table from operation to effect.
pub(crate) trait Rule {
    const READ: Effect;
    const WRITE: Effect;
    /// Whether a dropped block leaves a hole in the stack.
    const HOLES: bool = false;

    /// Trims and flushes move no data and do not count as accesses: a trimmed block keeps its
    /// place.
    #[inline(always)]
    fn effect(op: Op) -> Effect {
        match op {
            Op::Read => Self::READ,
            Op::Write | Op::WriteZeroes => Self::WRITE,
            Op::Trim | Op::Flush => IGNORED,
        }
    }
}

/// [`Distance::Trd`].
pub(crate) struct All;
impl Rule for All {
    const READ: Effect = Effect { measured: true, keep: Keep::Allocate };
    const WRITE: Effect = Effect { measured: true, keep: Keep::Allocate };
}

/// [`Distance::Urd`], [`Distance::PodWriteBack`] and [`Distance::PodWriteThrough`].
pub(crate) struct Useful;
impl Rule for Useful {
    const READ: Effect = Effect { measured: true, keep: Keep::Allocate };
    const WRITE: Effect = Effect { measured: false, keep: Keep::Allocate };
}

/// [`Distance::PodReadOnly`].
pub(crate) struct ReadOnly;
impl Rule for ReadOnly {
    const READ: Effect = Effect { measured: true, keep: Keep::Allocate };
    const WRITE: Effect = Effect { measured: false, keep: Keep::Drop };
}

/// [`Distance::LruReadOnly`].
pub(crate) struct LruReadOnly;
impl Rule for LruReadOnly {
    const READ: Effect = ReadOnly::READ;
    const WRITE: Effect = ReadOnly::WRITE;
    const HOLES: bool = true;
}

/// [`Distance::PodWriteOnly`].
pub(crate) struct WriteOnly;
impl Rule for WriteOnly {
    const READ: Effect = Effect { measured: true, keep: Keep::TouchIfHeld };
    const WRITE: Effect = Effect { measured: false, keep: Keep::Allocate };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_as_its_distance() {
        for d in Distance::ALL {
            assert_eq!(d.name().parse(), Ok(d));
        }
        let err = "lru".parse::<Distance>().unwrap_err().to_string();
        assert!(err.contains("`lru`") && err.contains("pod-wbwo"), "{err}");
    }

    #[test]
    fn writes_are_measured_as_said() {
        for d in Distance::ALL {
            let rule = match d {
                Distance::Trd => All::WRITE,
                Distance::LruReadOnly => LruReadOnly::WRITE,
                // `LruWriteOnly` has no rule: its stack is not ordered by recency.
                Distance::LruWriteOnly => continue,
                Distance::PodReadOnly => ReadOnly::WRITE,
                Distance::PodWriteOnly => WriteOnly::WRITE,
                _ => Useful::WRITE,
            };
            assert_eq!(rule.measured, d.measures_writes(), "{d}");
        }
    }
}
