//! Non-blocking sockets of both kinds.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use forebay_nbd::NbdAddress;
use socket2::{Socket, TcpKeepalive};

/// How long a server may take to accept a connection, and for one step of the handshake.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this time without data from a TCP server, the kernel probes the connection, and then again after
/// each `PROBE_PERIOD`.
const SILENCE: Duration = Duration::from_secs(10);
const PROBE_PERIOD: Duration = Duration::from_secs(5);
/// The connection is broken after this many probes without an answer.
const PROBES: u32 = 4;
/// The connection is also broken if sent data is not acknowledged within this time.
const CONFIRMATION: Duration = Duration::from_secs(30);

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
                let stream = connect(host, *port)?;
                stream.set_nodelay(true)?;
                let socket = Socket::from(stream);
                let keepalive = TcpKeepalive::new().with_time(SILENCE);
                let keepalive = keepalive.with_interval(PROBE_PERIOD).with_retries(PROBES);
                socket.set_tcp_keepalive(&keepalive)?;
                socket.set_tcp_user_timeout(Some(CONFIRMATION))?;
                socket
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

/// Connects to the first address of a host that answers.
fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tcp_server_whose_machine_falls_silent_is_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (host, port) = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        let Stream(socket) = Stream::connect(&NbdAddress::Tcp { host, port }).unwrap();
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), SILENCE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_PERIOD);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(CONFIRMATION));
    }
}
