//! The effects that the sans-IO machines request from their driver.
//!
//! The cache and the flash log decide what to do; a driver does it. An [`Effect`] is one request to
//! the driver. It names *places* (a DRAM frame, a client's request buffer, a metadata buffer, a
//! range of a device), never bytes, so the same machine runs over real memory and devices, over
//! faulty in-memory devices, and over no bytes at all in the simulator.
//!
//! **Immediate** effects ([`Effect::Copy`], [`Effect::Zero`], [`Effect::Checksum`],
//! [`Effect::Reply`]) are finished by the driver, in the order in which they are polled, before
//! it makes any other call to the machine. **Device** effects carry a [`Token`]; they complete
//! in any order, may fail, and may never complete before a power cut. An effect's memory
//! operands are passed with it as a list of [`Segment`]s, concatenated in order.
//!
//! A frame named by a device effect that has not completed is pinned: the machine does not
//! write, evict or reuse it (a pinned *source* may still be copied from).

mod machine;

pub use machine::Machine;

use forebay_block::Volume;

/// A block-sized piece of DRAM, by number. The driver owns its memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

impl Frame {
    /// No frame: for an operation that needs no data.
    pub const NONE: Frame = Frame(u32::MAX);
}

/// A client's request, by the number the driver chose; it stays valid until its reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// A metadata buffer of the flash log, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MetaBuffer(pub u32);

/// Where bytes lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// In a DRAM frame, from `offset` bytes on.
    Frame {
        /// The frame.
        frame: Frame,
        /// First byte within it.
        offset: u32,
    },
    /// In the data buffer of a client's request, from `offset` bytes on.
    Request {
        /// The request.
        request: RequestId,
        /// First byte within its data.
        offset: u32,
    },
    /// In a metadata buffer, from `offset` bytes on. The machine owns its bytes: a driver
    /// copies them out when it starts a write and in when a read completes.
    Meta {
        /// The buffer.
        buffer: MetaBuffer,
        /// First byte within it.
        offset: u32,
    },
    /// As a source, an endless run of zeroes; as a destination, a place that discards the bytes.
    Void,
}

/// A run of bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment {
    /// Where it starts.
    pub place: Place,
    /// Number of bytes.
    pub length: u32,
}

/// A device, as the machines name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Device {
    /// The flash tier.
    Flash,
    /// The backing store of a volume. Offsets are relative to the *exported* volume; the driver
    /// adds the size of whatever its layout places before the data.
    Backing(Volume),
}

/// The machine that an answer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// The front.
    Front,
    /// The flash log.
    Log,
    /// A shard, by number.
    Shard(u8),
}

/// Identifies an effect in flight, so that its answer reaches the machine that requested it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    /// The machine that requested the effect.
    pub owner: Owner,
    /// The machine's own number for the effect.
    pub index: u32,
}

/// Why a device operation, or a request, failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum IoError {
    /// The device reported an error, after the executor's bounded retries.
    Device,
    /// What was read is not what was written (a checksum failed).
    Corrupt,
    /// No space is left.
    NoSpace,
    /// The volume is read-only.
    ReadOnly,
    /// The request makes no sense (out of range, misaligned, unknown volume).
    Invalid,
    /// The operation is not supported (a fast zero on a device that has none).
    Unsupported,
    /// The server is stopping.
    Shutdown,
}

impl core::fmt::Display for IoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            IoError::Device => "the device reported an error",
            IoError::Corrupt => "a checksum failed",
            IoError::NoSpace => "no space is left",
            IoError::ReadOnly => "the volume is read-only",
            IoError::Invalid => "the request is invalid",
            IoError::Unsupported => "the operation is not supported",
            IoError::Shutdown => "the server is stopping",
        })
    }
}

impl std::error::Error for IoError {}

/// The result of a device effect.
pub type Outcome = Result<(), IoError>;

/// Something that a machine asks its driver to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Immediate: copy `length` bytes.
    Copy {
        /// Source.
        from: Place,
        /// Destination; never overlaps the source.
        to: Place,
        /// Number of bytes.
        length: u32,
    },
    /// Immediate: fill `length` bytes with zeroes.
    Zero {
        /// Destination.
        to: Place,
        /// Number of bytes.
        length: u32,
    },
    /// Immediate: CRC-32C of the segments' bytes, continued from `seed`; the driver answers
    /// with `handle_checksum(token, value)` at once. (A driver without bytes answers 0.)
    Checksum {
        /// Identifies the answer.
        token: Token,
        /// The CRC to continue from.
        seed: u32,
    },
    /// Immediate: the request is done; its buffer belongs to the driver again.
    Reply {
        /// The request.
        request: RequestId,
        /// The result of the request.
        result: Outcome,
    },
    /// Device: read `length` bytes at `offset` into the segments.
    Read {
        /// Identifies the answer.
        token: Token,
        /// The device.
        device: Device,
        /// Offset of the first byte on the device.
        offset: u64,
        /// Number of bytes: the sum of the segments' lengths.
        length: u32,
    },
    /// Device: write the segments, `length` bytes in all, at `offset`.
    Write {
        /// Identifies the answer.
        token: Token,
        /// The device.
        device: Device,
        /// Offset of the first byte on the device.
        offset: u64,
        /// Number of bytes: the sum of the segments' lengths.
        length: u32,
    },
    /// Device: make the range read as zeroes. If the device cannot guarantee that cheaply, the
    /// executor writes zeroes.
    WriteZeroes {
        /// Identifies the answer.
        token: Token,
        /// The device.
        device: Device,
        /// Offset of the first byte on the device.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Whether the device may free the space (punch a hole).
        punch: bool,
    },
    /// Device: make durable every write and zeroing of this device that completed before this
    /// effect was polled.
    Sync {
        /// Identifies the answer.
        token: Token,
        /// The device.
        device: Device,
    },
}

impl Effect {
    /// Returns the token of an effect that gets an answer.
    pub const fn token(&self) -> Option<Token> {
        match *self {
            Effect::Checksum { token, .. }
            | Effect::Read { token, .. }
            | Effect::Write { token, .. }
            | Effect::WriteZeroes { token, .. }
            | Effect::Sync { token, .. } => Some(token),
            Effect::Copy { .. } | Effect::Zero { .. } | Effect::Reply { .. } => None,
        }
    }

    /// Whether this is a device effect: asynchronous, with a completion.
    pub const fn is_device(&self) -> bool {
        matches!(
            self,
            Effect::Read { .. }
                | Effect::Write { .. }
                | Effect::WriteZeroes { .. }
                | Effect::Sync { .. }
        )
    }
}

/// Effects waiting to be polled, with their segments. Allocates memory only when more of them
/// wait than ever before.
#[derive(Debug, Default)]
pub struct EffectQueue {
    effects: std::collections::VecDeque<(Effect, u32)>,
    segments: std::collections::VecDeque<Segment>,
    without_segments: bool,
    without_copies: bool,
}

impl EffectQueue {
    /// Drops the memory operands of effects queued from now on, for a driver without bytes.
    pub fn leave_out_segments(&mut self) {
        self.without_segments = true;
    }

    /// Drops copies and zeroings of memory from now on, for a driver that has no bytes and in whose
    /// model copying takes no time.
    pub fn leave_out_copies(&mut self) {
        self.without_copies = true;
    }

    /// Queues an effect without memory operands.
    #[inline]
    pub fn push(&mut self, effect: Effect) {
        if self.without_copies && matches!(effect, Effect::Copy { .. } | Effect::Zero { .. }) {
            return;
        }
        self.effects.push_back((effect, 0));
    }

    /// Queues an effect with its memory operands.
    pub fn push_with(&mut self, effect: Effect, segments: impl IntoIterator<Item = Segment>) {
        if self.without_segments {
            return self.effects.push_back((effect, 0));
        }
        let before = self.segments.len();
        self.segments.extend(segments);
        self.effects.push_back((effect, (self.segments.len() - before) as u32));
    }

    /// Queues an effect with its memory operands, as [`EffectQueue::push_with`] does.
    #[inline]
    pub fn push_slice(&mut self, effect: Effect, segments: &[Segment]) {
        if self.without_segments {
            return self.effects.push_back((effect, 0));
        }
        match segments {
            [one] => self.segments.push_back(*one),
            _ => self.segments.extend(segments),
        }
        self.effects.push_back((effect, segments.len() as u32));
    }

    /// Takes the next effect; its segments replace what `segments` holds.
    #[inline]
    pub fn pop(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        segments.clear();
        let (effect, count) = self.effects.pop_front()?;
        match count {
            0 => {}
            // Most effects have one segment, for which a drain would be expensive.
            1 => segments.extend(self.segments.pop_front()),
            _ => segments.extend(self.segments.drain(..count as usize)),
        }
        if self.effects.is_empty() {
            // The next effects reuse the front of the buffers, which is likely still cached.
            self.effects.clear();
            self.segments.clear();
        }
        Some(effect)
    }

    /// Whether no effect is waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}
