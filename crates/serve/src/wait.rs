//! Waiting for a socket, a bell, or a time.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// What is wanted of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Interest {
    /// To read from it.
    pub readable: bool,
    /// To write to it.
    pub writable: bool,
    /// To learn that it has failed, or is closed in both directions.
    pub closed: bool,
}

/// What [`either`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// The socket can be read, or has failed, and that is of interest.
    pub readable: bool,
    /// The socket can be written, or has failed, and that is of interest.
    pub writable: bool,
    /// The socket has failed or is closed in both directions, and that is of interest, but neither
    /// reading nor writing is: these would say why.
    pub closed: bool,
    /// The bell rang.
    pub bell: bool,
}

/// Waits until the socket is ready for what is of interest, the bell has rung, or `time` is up (without
/// one: for ever). A socket that is of no interest is not looked at.
pub(crate) fn either(
    socket: RawFd,
    interest: Interest,
    bell: Option<RawFd>,
    time: Option<Duration>,
) -> io::Result<Ready> {
    let Interest { readable, writable, closed } = interest;
    let events = if readable { libc::POLLIN } else { 0 } | if writable { libc::POLLOUT } else { 0 };
    // A negative descriptor is passed over. For any other, the kernel always reports a failure, and that
    // both directions are closed.
    let socket = if events == 0 && !closed { -1 } else { socket };
    let mut watched = [
        libc::pollfd { fd: socket, events, revents: 0 },
        libc::pollfd { fd: bell.unwrap_or(-1), events: libc::POLLIN, revents: 0 },
    ];
    // Rounded up, so that the time is up when the wait is over.
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
