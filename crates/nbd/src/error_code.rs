//! The error values a reply may carry.

use core::fmt;

/// An error value of the protocol. The numbers resemble Linux's `errno` but are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u32)]
pub enum ErrorCode {
    /// `NBD_EPERM`: not permitted, such as a write to a read-only export.
    NotPermitted = 1,
    /// `NBD_EIO`: the device failed.
    Io = 5,
    /// `NBD_ENOMEM`: out of memory.
    OutOfMemory = 12,
    /// `NBD_EINVAL`: the request makes no sense here.
    Invalid = 22,
    /// `NBD_ENOSPC`: no space left, or a write beyond the end.
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: the length is too large.
    Overflow = 75,
    /// `NBD_ENOTSUP`: a fast zero that would be slow.
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is shutting down.
    Shutdown = 108,
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The code with number `n` as a client understands it: an unknown one counts as
    /// [`ErrorCode::Invalid`]. Zero, which is success, is `None`.
    pub const fn from_number(n: u32) -> Option<ErrorCode> {
        Some(match n {
            0 => return None,
            1 => ErrorCode::NotPermitted,
            5 => ErrorCode::Io,
            12 => ErrorCode::OutOfMemory,
            28 => ErrorCode::NoSpace,
            75 => ErrorCode::Overflow,
            95 => ErrorCode::NotSupported,
            108 => ErrorCode::Shutdown,
            _ => ErrorCode::Invalid,
        })
    }

    /// What a server says when the system call behind a request failed with Linux's `errno`:
    /// quota and file-size limits are "no space", a read-only file system is "not permitted",
    /// anything the protocol has no word for is an I/O error.
    pub const fn from_errno(errno: i32) -> ErrorCode {
        match errno {
            1 | 13 | 30 => ErrorCode::NotPermitted, // EPERM, EACCES, EROFS
            12 => ErrorCode::OutOfMemory,
            22 => ErrorCode::Invalid,
            27 | 28 | 122 => ErrorCode::NoSpace, // EFBIG, ENOSPC, EDQUOT
            75 => ErrorCode::Overflow,
            95 => ErrorCode::NotSupported,
            108 => ErrorCode::Shutdown,
            _ => ErrorCode::Io,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorCode::NotPermitted => "operation not permitted",
            ErrorCode::Io => "input/output error",
            ErrorCode::OutOfMemory => "out of memory",
            ErrorCode::Invalid => "invalid request",
            ErrorCode::NoSpace => "no space left",
            ErrorCode::Overflow => "length too large",
            ErrorCode::NotSupported => "operation not supported",
            ErrorCode::Shutdown => "server is shutting down",
        })
    }
}

impl std::error::Error for ErrorCode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_round_trip_and_unknown_ones_count_as_invalid() {
        for n in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(ErrorCode::from_number(n).unwrap().number(), n);
        }
        assert_eq!(ErrorCode::from_number(0), None);
        assert_eq!(ErrorCode::from_number(4711), Some(ErrorCode::Invalid));
    }

    #[test]
    fn quota_and_file_size_limits_are_reported_as_no_space() {
        for errno in [27, 28, 122] {
            assert_eq!(ErrorCode::from_errno(errno), ErrorCode::NoSpace);
        }
        assert_eq!(ErrorCode::from_errno(5), ErrorCode::Io);
        assert_eq!(ErrorCode::from_errno(110), ErrorCode::Io);
    }
}
