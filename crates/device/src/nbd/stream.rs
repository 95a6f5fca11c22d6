//! Non-blocking sockets of both kinds.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use forebay_nbd::NbdAddress;
use socket2::Socket;

/// How long a server may take for one step of the handshake.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Stream(Socket);

impl Stream {
    /// Connects. Reads and writes block, for a bounded time, until
    /// [`do_not_wait`](Stream::do_not_wait).
    pub fn connect(address: &NbdAddress) -> io::Result<Stream> {
        let socket = match address {
            NbdAddress::Unix(path) => Socket::from(UnixStream::connect(path)?),
            NbdAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                stream.into()
            }
        };
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Stream(socket))
    }

    /// From now on reads and writes do not block.
    pub fn do_not_wait(&self) -> io::Result<()> {
        self.0.set_nonblocking(true)
    }

    /// Reads; `None` if there is nothing to read yet, 0 at the end.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        may_block(self.0.read(into))
    }

    /// Writes some of `from`; `None` if the socket accepts nothing now.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        may_block(self.0.write_vectored(from))
    }

    /// Writes all of `from`, blocking.
    pub fn write_all(&mut self, from: &[u8]) -> io::Result<()> {
        self.0.write_all(from)
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
        self.0.as_raw_fd()
    }
}
