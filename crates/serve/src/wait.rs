//! Waiting for one of two file descriptors.

use std::io;
use std::os::fd::RawFd;

/// What [`either`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// The socket can be read, or has failed.
    pub socket: bool,
    /// The bell rang.
    pub bell: bool,
}

/// Waits until the socket (if it is to be looked at) can be read or the bell has rung.
pub(crate) fn either(socket: Option<RawFd>, bell: RawFd) -> io::Result<Ready> {
    let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // A negative descriptor is passed over.
    let mut watched = [watch(socket.unwrap_or(-1)), watch(bell)];
    loop {
        // SAFETY: the array outlives the call.
        let ready = unsafe { libc::poll(watched.as_mut_ptr(), 2, -1) };
        if ready >= 0 {
            return Ok(Ready { socket: watched[0].revents != 0, bell: watched[1].revents != 0 });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
