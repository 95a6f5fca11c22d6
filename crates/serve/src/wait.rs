//! Waits for a socket, a doorbell or a timeout.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Events of a socket to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Interest {
    /// The socket can be read.
    pub readable: bool,
    /// The socket can be written.
    pub writable: bool,
    /// The socket has failed, or is closed in both directions.
    pub closed: bool,
}

/// What [`either`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// The socket can be read or has failed, and [`Interest::readable`] is set.
    pub readable: bool,
    /// The socket can be written or has failed, and [`Interest::writable`] is set.
    pub writable: bool,
    /// The socket has failed or is closed in both directions, and only [`Interest::closed`] is set:
    /// otherwise a read or a write reports the reason.
    pub closed: bool,
    /// The doorbell rang.
    pub bell: bool,
}

/// Waits until the socket has an event in `interest`, the doorbell rings, or `time` has passed
/// (`None`: no limit). Without any interest, the socket is ignored.
pub(crate) fn either(
    socket: RawFd,
    interest: Interest,
    bell: Option<RawFd>,
    time: Option<Duration>,
) -> io::Result<Ready> {
    let Interest { readable, writable, closed } = interest;
    let events = if readable { libc::POLLIN } else { 0 } | if writable { libc::POLLOUT } else { 0 };
    // The kernel ignores a negative descriptor. For any other, it always reports failures, and that
    // both directions are closed.
    let socket = if events == 0 && !closed { -1 } else { socket };
    let mut watched = [
        libc::pollfd { fd: socket, events, revents: 0 },
        libc::pollfd { fd: bell.unwrap_or(-1), events: libc::POLLIN, revents: 0 },
    ];
    // Rounded up, so that the wait does not end before `time` has passed.
    let millis = time
        .map_or(-1, |time| libc::c_int::try_from(time.as_millis() + 1).unwrap_or(libc::c_int::MAX));
    loop {
        // SAFETY: the array outlives the call.
        let ready = unsafe { libc::poll(watched.as_mut_ptr(), 2, millis) };
        if ready >= 0 {
            let of_socket = watched[0].revents;
            let failed = of_socket & !(libc::POLLIN | libc::POLLOUT) != 0;
            return Ok(Ready {
                readable: readable && (failed || of_socket & libc::POLLIN != 0),
                writable: writable && (failed || of_socket & libc::POLLOUT != 0),
                closed: closed && events == 0 && failed,
                bell: watched[1].revents != 0,
            });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
