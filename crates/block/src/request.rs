//! Requests as clients send them, and the blocks that they touch.

use crate::{BlockIndex, BlockSize, Nanos, Volume};

/// What a request does. The numbers are those of the trace format and never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// Read bytes.
    Read = 0,
    /// Write bytes.
    Write = 1,
    /// Discard a range: its contents are no longer needed, and it reads as zeroes afterwards.
    Trim = 2,
    /// Make every completed write durable.
    Flush = 3,
    /// Write zeroes.
    WriteZeroes = 4,
}

impl Op {
    /// The operation with trace-format number `n`, if there is one.
    pub const fn from_u8(n: u8) -> Option<Op> {
        Some(match n {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Trim,
            3 => Op::Flush,
            4 => Op::WriteZeroes,
            _ => return None,
        })
    }
    /// Whether the operation changes what its range reads as.
    pub const fn modifies(self) -> bool {
        matches!(self, Op::Write | Op::Trim | Op::WriteZeroes)
    }
}

/// Request flags, a bit set. Bit 0 is FUA; the numbers are those of the trace format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No flags.
    pub const NONE: Flags = Flags(0);
    /// Force unit access: the data is durable before the reply is sent.
    pub const FUA: Flags = Flags(1);
    /// Write zeroes without leaving a hole.
    pub const NO_HOLE: Flags = Flags(2);
    /// Fail rather than zero slowly.
    pub const FAST_ZERO: Flags = Flags(4);

    /// A read only brings data into the cache, because the client may soon read them. The counters
    /// of reads leave it out.
    pub const PREFETCH: Flags = Flags(8);

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// The union of the two sets.
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// One request of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Arrival time since the trace's epoch.
    pub time: Nanos,
    /// The volume addressed.
    pub volume: Volume,
    /// The operation.
    pub op: Op,
    /// Flags such as [`Flags::FUA`].
    pub flags: Flags,
    /// First byte addressed.
    pub offset: u64,
    /// Number of bytes; 0 for [`Op::Flush`].
    pub length: u64,
}

impl Request {
    /// A request without flags.
    pub const fn new(time: Nanos, volume: Volume, op: Op, offset: u64, length: u64) -> Request {
        Request { time, volume, op, flags: Flags::NONE, offset, length }
    }

    /// Whether the request only brings data into the cache.
    pub fn is_prefetch(&self) -> bool {
        self.op == Op::Read && self.flags.contains(Flags::PREFETCH)
    }

    /// First block touched and number of blocks; zero blocks for an empty request.
    pub const fn blocks(&self, size: BlockSize) -> (BlockIndex, u64) {
        (size.index_of(self.offset), size.blocks_touched(self.offset, self.length))
    }
}

/// A batch of requests in columns of equal length, for code that processes many at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestColumns<'a> {
    /// Arrival times in nanoseconds.
    pub time_ns: &'a [u64],
    /// Volume numbers.
    pub volume: &'a [u32],
    /// Operations.
    pub op: &'a [Op],
    /// Flags.
    pub flags: &'a [Flags],
    /// First bytes addressed.
    pub offset: &'a [u64],
    /// Numbers of bytes.
    pub length: &'a [u64],
}

impl RequestColumns<'_> {
    /// Request `i`.
    ///
    /// # Panics
    /// If `i` is not less than the number of requests.
    #[inline]
    pub fn request(&self, i: usize) -> Request {
        Request {
            time: Nanos(self.time_ns[i]),
            volume: Volume(self.volume[i]),
            op: self.op[i],
            flags: self.flags[i],
            offset: self.offset[i],
            length: self.length[i],
        }
    }
}

impl<'a> RequestColumns<'a> {
    /// All requests, in order.
    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = Request> + 'a {
        let what = self.op.iter().zip(self.flags).zip(self.volume);
        let place = self.offset.iter().zip(self.length).zip(self.time_ns);
        what.zip(place).map(|(((&op, &flags), &volume), ((&offset, &length), &time))| Request {
            time: Nanos(time),
            volume: Volume(volume),
            op,
            flags,
            offset,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_numbers_are_those_of_the_trace_format() {
        for n in 0..=4 {
            assert_eq!(Op::from_u8(n).unwrap() as u8, n);
        }
        assert_eq!(Op::from_u8(5), None);
    }
}
