//! The position at which a block enters the queue: what HR LRU, Priority LRU and Derivative LRU
//! need to know about accesses, apart from the queue.
//!
//! [`Positions`] measures, from the accesses that the caller reports, the hit ratio of each chunk
//! or the gain of each volume, knows the priority of each volume, and applies the policy's
//! [`PositionRule`]. It is separate from the policies because they know nodes, whereas hit ratios
//! belong to places on volumes, whether their blocks are resident or not.
//!
//! The paper (Hazan et al.) models a cache of reads in one tier. Here every access counts that is
//! reported to the policy, read or write: as a hit if it found its block in the tier that the
//! policy orders, as a miss if the block had to come in, from anywhere else.

use forebay_block::{Nanos, Volume};

use crate::chunks::ChunkHitRatios;
use crate::gains::Gains;
use crate::parameters::Parameters;
use crate::policies::sub_queues::{CHUNK, INTERVAL};
use crate::policy::{Hint, Percent};
use crate::position::{PositionRule, Standing};

/// Blocks in the cache for each chunk that is remembered: 3 bytes a block.
const BLOCKS_PER_CHUNK: u32 = 8;
/// Minimum number of chunks that are remembered, 48 KiB: 40 GiB of volumes in chunks of 20 MiB, or
/// 64 whole volumes.
const CHUNKS_MIN: u32 = 2048;

/// See the module.
///
/// ```
/// use forebay_block::{Nanos, Volume};
/// use forebay_replacement::{Kind, Parameters, Positions};
///
/// let parameters = Parameters::new(Kind::HrLru).with("interval_ms", 1000).unwrap();
/// let mut positions = Positions::new(&parameters, 64).expect("a policy with positions");
/// positions.add_volume(1);
/// positions.start(Nanos(0));
/// for hit in [true, true, true, false] {
///     positions.access(Volume(0), 4096, hit);
/// }
/// assert_eq!(positions.hint(Volume(0), 8192).position.get(), 20);
/// positions.advance(Nanos(1_000_000_000));
/// assert_eq!(positions.hint(Volume(0), 8192).position.get(), 75 + 10);
/// ```
#[derive(Debug)]
pub struct Positions {
    rule: PositionRule,
    measured: Measured,
    /// `None`: a chunk is a whole volume.
    chunk_bytes: Option<u64>,
    interval: Nanos,
    /// When the current interval ends.
    ends: Nanos,
    /// The priority of each volume; 1 is the highest.
    priorities: Vec<u8>,
}

/// The measurements that the rule needs.
#[derive(Debug)]
enum Measured {
    HitRatios(ChunkHitRatios),
    Gains(Gains),
}

impl Positions {
    /// For a cache of `blocks` blocks. `None` for a policy in which all blocks enter at the
    /// protected end.
    pub fn new(parameters: &Parameters, blocks: u32) -> Option<Positions> {
        let rule = PositionRule::from_parameters(parameters)?;
        let chunk_bytes = u64::from(parameters.get(CHUNK.name).unwrap_or(0)) << 10;
        let chunks = if chunk_bytes == 0 { 0 } else { blocks / BLOCKS_PER_CHUNK };
        Some(Positions {
            rule,
            measured: match rule {
                PositionRule::Derivative { .. } => Measured::Gains(Gains::new(blocks)),
                _ => Measured::HitRatios(ChunkHitRatios::new(chunks.max(CHUNKS_MIN))),
            },
            chunk_bytes: (chunk_bytes > 0).then_some(chunk_bytes),
            interval: Nanos(u64::from(parameters.value(&INTERVAL)) * 1_000_000),
            ends: Nanos(u64::MAX),
            priorities: Vec::new(),
        })
    }

    /// Adds the volume with the next number; priority 1 is the highest.
    pub fn add_volume(&mut self, priority: u8) {
        self.priorities.push(priority);
        if let Measured::Gains(gains) = &mut self.measured {
            gains.add_volume();
        }
    }

    /// Begins the first interval.
    pub fn start(&mut self, now: Nanos) {
        self.ends = now.saturating_add(self.interval);
    }

    /// Ends the interval if it is over at `now`, which never goes back. Intervals in which this was
    /// not called are skipped.
    pub fn advance(&mut self, now: Nanos) {
        let Some(late) = now.0.checked_sub(self.ends.0) else { return };
        match &mut self.measured {
            Measured::HitRatios(ratios) => ratios.end_interval(),
            Measured::Gains(gains) => gains.end_interval(),
        }
        let whole = late / self.interval.0 + 1;
        self.ends = Nanos(self.ends.0.saturating_add(self.interval.0.saturating_mul(whole)));
    }

    /// When [`advance`](Positions::advance) next has something to do.
    pub fn ends(&self) -> Nanos {
        self.ends
    }

    /// Records an access to the block with byte `offset` of a volume. `hit`: whether it found the
    /// block.
    #[inline]
    pub fn access(&mut self, volume: Volume, offset: u64, hit: bool) {
        let chunk = self.chunk(volume, offset);
        match &mut self.measured {
            Measured::HitRatios(ratios) => ratios.access(chunk, hit),
            Measured::Gains(gains) => gains.access(volume, offset),
        }
    }

    /// The hint for a block that comes in, with byte `offset` of a volume.
    pub fn hint(&self, volume: Volume, offset: u64) -> Hint {
        let chunk = self.chunk(volume, offset);
        let priority = self.priorities.get(volume.0 as usize).copied().unwrap_or(1);
        let (hit_ratio_percent, (derivative, derivative_max)) = match &self.measured {
            Measured::HitRatios(ratios) => (ratios.percent(chunk), (0, 0)),
            Measured::Gains(gains) => (0.0, gains.last_interval(volume)),
        };
        let standing = Standing {
            hit_ratio_percent,
            priority: priority.into(),
            derivative: derivative.into(),
            derivative_max: derivative_max.into(),
        };
        Hint { position: self.rule.position(&standing), volume, chunk }
    }

    /// The hint for a block that could not leave and should stay longer than others: the protected
    /// end.
    pub fn hint_to_stay(&self, volume: Volume, offset: u64) -> Hint {
        Hint { position: Percent::ALL, volume, chunk: self.chunk(volume, offset) }
    }

    /// All memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let measured = match &self.measured {
            Measured::HitRatios(ratios) => ratios.memory_bytes(),
            Measured::Gains(gains) => gains.memory_bytes(),
        };
        (size_of::<Self>() + self.priorities.capacity()) as u64 + measured
    }

    fn chunk(&self, volume: Volume, offset: u64) -> u64 {
        let number = self.chunk_bytes.map_or(0, |bytes| offset / bytes);
        // A chunk of 1 KiB or more has a number of 54 bits, which leaves ten for the volume. (A
        // larger volume number may collide with a chunk far away in another volume.)
        let all = number ^ u64::from(volume.0).rotate_right(10);
        all.min(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Kind;

    const MS: u64 = 1_000_000;

    fn positions(kind: Kind, chunk_kib: u32) -> Positions {
        let parameters = Parameters::new(kind).with("chunk_kib", chunk_kib).unwrap();
        let parameters = parameters.with("interval_ms", 10).unwrap();
        let mut positions = Positions::new(&parameters, 1000).unwrap();
        (0..64).for_each(|volume| positions.add_volume(1 + volume % 3));
        positions.start(Nanos(5 * MS));
        positions
    }

    fn at(positions: &Positions, volume: u32, offset: u64) -> u8 {
        positions.hint(Volume(volume), offset).position.get()
    }

    #[test]
    fn a_chunk_has_a_hit_ratio_of_its_own_and_a_volume_a_priority() {
        let mut p = positions(Kind::PriorityLru, 4);
        for offset in [0, 4095, 4096, 8192] {
            p.access(Volume(0), offset, true);
            p.access(Volume(1), offset, offset == 0);
        }
        p.advance(Nanos(15 * MS));
        // 15 (3 - 1) + 100, and 15 (3 - 2) + 50 (1 - 1/5).
        assert_eq!([at(&p, 0, 100), at(&p, 0, 4096), at(&p, 0, 12288)], [100, 100, 30]);
        assert_eq!([at(&p, 1, 0), at(&p, 1, 4096), at(&p, 2, 0)], [55, 20, 20]);
    }

    #[test]
    fn whole_volumes_are_never_in_each_others_place() {
        let mut p = positions(Kind::HrLru, 0);
        for _ in 0..3 {
            (0..64).for_each(|volume| p.access(Volume(volume), 1 << 50, true));
            p.advance(p.ends());
        }
        assert!((0..64).all(|volume| at(&p, volume, 0) == 100));
    }

    #[test]
    fn intervals_end_at_their_times_however_late_that_is_noticed() {
        let mut p = positions(Kind::HrLru, 0);
        p.access(Volume(0), 0, true);
        p.advance(Nanos(15 * MS - 1));
        assert_eq!((at(&p, 0, 0), p.ends()), (20, Nanos(15 * MS)));
        p.advance(Nanos(15 * MS));
        assert_eq!((at(&p, 0, 0), p.ends()), (100, Nanos(25 * MS)));
        p.access(Volume(0), 0, false);
        p.advance(Nanos(47 * MS));
        assert_eq!((at(&p, 0, 0), p.ends()), (20, Nanos(55 * MS)));
        p.advance(Nanos(u64::MAX));
        assert_eq!(p.ends(), Nanos(u64::MAX));
    }

    #[test]
    fn other_policies_need_no_positions() {
        let with = |kind: &&Kind| Positions::new(&Parameters::new(**kind), 64).is_some();
        let all: Vec<_> = Kind::ALL.iter().filter(with).collect();
        assert_eq!(all, [&Kind::HrLru, &Kind::PriorityLru, &Kind::DerivativeLru]);
    }
}
