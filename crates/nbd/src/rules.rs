//! Decides which requests are valid on a connection. Clients check a request before they send it,
//! servers before they execute it.

use crate::error_code::ErrorCode;
use crate::export::BlockSizes;
use crate::style::ReplyStyle;
use crate::wire::{Command, CommandFlags, TransmissionFlags};

/// Why a request is invalid on this connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such command.
    UnknownCommand,
    /// The export does not offer the command.
    NotOffered,
    /// The command does not accept one of the flags, or the server did not offer the flag.
    BadFlag,
    /// The request would change a read-only export.
    ReadOnly,
    /// A flush with an offset or a length.
    FlushRange,
    /// A length of zero.
    Empty,
    /// The range ends beyond the export.
    BeyondEnd,
    /// The offset or the length is not a multiple of the minimum block size.
    Unaligned,
    /// The length exceeds the maximum payload, or does not fit in the header.
    TooLong,
    /// Block status without a metadata context.
    NoContext,
    /// An extended write without the payload flag.
    NoPayload,
    /// The server is shutting down.
    ShuttingDown,
}

impl Refusal {
    /// The error a server replies with.
    pub(crate) const fn code(self, command: Option<Command>, style: ReplyStyle) -> ErrorCode {
        match (self, command, style) {
            (Refusal::ReadOnly, ..) => ErrorCode::NotPermitted,
            (Refusal::ShuttingDown, ..) => ErrorCode::Shutdown,
            (Refusal::BeyondEnd, Some(Command::Write | Command::WriteZeroes), _) => {
                ErrorCode::NoSpace
            }
            (
                Refusal::TooLong,
                Some(Command::Read),
                ReplyStyle::Structured | ReplyStyle::Extended,
            ) => ErrorCode::Overflow,
            _ => ErrorCode::Invalid,
        }
    }

    /// A message for people.
    pub const fn message(self) -> &'static str {
        match self {
            Refusal::UnknownCommand => "unknown command",
            Refusal::NotOffered => "the export does not offer this command",
            Refusal::BadFlag => "a flag that this command does not accept here",
            Refusal::ReadOnly => "the export is read-only",
            Refusal::FlushRange => "a flush must not have an offset or a length",
            Refusal::Empty => "the length is zero",
            Refusal::BeyondEnd => "the range ends past the end of the export",
            Refusal::Unaligned => "not aligned to the minimum block size",
            Refusal::TooLong => "longer than the maximum payload",
            Refusal::NoContext => "no metadata context was selected",
            Refusal::NoPayload => "a write without the payload flag",
            Refusal::ShuttingDown => "the server is shutting down",
        }
    }
}

/// The negotiated properties of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub style: ReplyStyle,
    pub features: TransmissionFlags,
    /// Whether `base:allocation` was selected.
    pub allocation: bool,
    pub size_bytes: u64,
    pub payload_bytes_max: u64,
    alignment_mask: u64,
}

impl Rules {
    pub fn new(
        style: ReplyStyle,
        features: TransmissionFlags,
        allocation: bool,
        size_bytes: u64,
        sizes: BlockSizes,
    ) -> Rules {
        Rules {
            style,
            features,
            allocation,
            size_bytes,
            payload_bytes_max: u64::from(sizes.payload_bytes_max()),
            alignment_mask: u64::from(sizes.minimum_bytes()) - 1,
        }
    }

    #[inline]
    pub fn check(
        &self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u64,
    ) -> Result<(), Refusal> {
        if command.modifies() && self.features.contains(TransmissionFlags::READ_ONLY) {
            return Err(Refusal::ReadOnly);
        }
        let (needed, allowed) = self.offered(command);
        if !self.features.contains(needed) {
            return Err(Refusal::NotOffered);
        }
        if command == Command::BlockStatus && !self.allocation {
            return Err(Refusal::NoContext);
        }
        let fua = self.features.contains(TransmissionFlags::SEND_FUA);
        if flags.without(allowed.with_if(fua, CommandFlags::FUA)) != CommandFlags::NONE {
            return Err(Refusal::BadFlag);
        }
        if command == Command::Flush {
            let clean = offset == 0 && length == 0;
            return if clean { Ok(()) } else { Err(Refusal::FlushRange) };
        }
        self.check_range(command, offset, length)
    }

    /// The transmission flag that a command requires, and the command flags that it accepts besides
    /// FUA.
    #[inline]
    fn offered(&self, command: Command) -> (TransmissionFlags, CommandFlags) {
        use CommandFlags as C;
        use TransmissionFlags as T;
        match command {
            Command::Read => {
                let df = self.features.contains(T::SEND_DF);
                (T::NONE, C::NONE.with_if(df, C::DF))
            }
            Command::Write => (T::NONE, C::NONE),
            Command::Flush => (T::SEND_FLUSH, C::NONE),
            Command::Trim => (T::SEND_TRIM, C::NONE),
            Command::Cache => (T::SEND_CACHE, C::NONE),
            Command::WriteZeroes => {
                let fast = self.features.contains(T::SEND_FAST_ZERO);
                (T::SEND_WRITE_ZEROES, C::NO_HOLE.with_if(fast, C::FAST_ZERO))
            }
            Command::BlockStatus => (T::NONE, C::REQ_ONE),
            Command::Disconnect => (T::NONE, C::NONE),
        }
    }

    #[inline]
    fn check_range(&self, command: Command, offset: u64, length: u64) -> Result<(), Refusal> {
        if length == 0 {
            return Err(Refusal::Empty);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            return Err(Refusal::BeyondEnd);
        }
        if (offset | length) & self.alignment_mask != 0 {
            return Err(Refusal::Unaligned);
        }
        let limit = match command {
            Command::Read | Command::Write => self.payload_bytes_max,
            _ => u64::MAX,
        };
        if length > limit { Err(Refusal::TooLong) } else { Ok(()) }
    }
}
