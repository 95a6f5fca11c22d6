//! Sockets of both kinds, without waiting.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use forebay_nbd::NbdAddress;

/// How long a server may take for one step of the handshake.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects. Reads and writes wait, for a bounded time, until
    /// [`do_not_wait`](Stream::do_not_wait).
    pub fn connect(address: &NbdAddress) -> io::Result<Stream> {
        match address {
            NbdAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Stream::Unix(stream))
            }
            NbdAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// From now on reads and writes do what they can and return.
    pub fn do_not_wait(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_nonblocking(true),
            Stream::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    /// Reads; `None` when nothing is there yet, 0 at the end.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        may_block(match self {
            Stream::Unix(stream) => stream.read(into),
            Stream::Tcp(stream) => stream.read(into),
        })
    }

    /// Writes some of `from`; `None` when the socket takes nothing now.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        may_block(match self {
            Stream::Unix(stream) => stream.write_vectored(from),
            Stream::Tcp(stream) => stream.write_vectored(from),
        })
    }

    /// Writes all of `from`, waiting.
    pub fn write_all(&mut self, from: &[u8]) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.write_all(from),
            Stream::Tcp(stream) => stream.write_all(from),
        }
    }
}

fn may_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}
