//! The error values a reply may carry.

/// An error value of the protocol. The numbers resemble Linux's `errno` but are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
#[repr(u32)]
pub enum ErrorCode {
    /// `NBD_EPERM`: not permitted, such as a write to a read-only export.
    #[error("operation not permitted")]
    NotPermitted = 1,
    /// `NBD_EIO`: the device failed.
    #[error("input/output error")]
    Io = 5,
    /// `NBD_ENOMEM`: out of memory.
    #[error("out of memory")]
    OutOfMemory = 12,
    /// `NBD_EINVAL`: the request is invalid here.
    #[error("invalid request")]
    Invalid = 22,
    /// `NBD_ENOSPC`: no space left, or a write beyond the end.
    #[error("no space left")]
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: the length is too large.
    #[error("length too large")]
    Overflow = 75,
    /// `NBD_ENOTSUP`: a fast zero that would be slow.
    #[error("operation not supported")]
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is shutting down.
    #[error("server is shutting down")]
    Shutdown = 108,
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The code with number `n`, as a client interprets it. Unknown numbers become
    /// [`ErrorCode::Invalid`]; zero means success and becomes `None`.
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
}

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
}
