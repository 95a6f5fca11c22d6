//! Non-blocking TCP and Unix sockets.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use forebay_nbd::NbdAddress;
use socket2::{Socket, TcpKeepalive};

/// How long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this time without data from a TCP server, the kernel probes the connection, and then again after
/// each `PROBE_PERIOD`.
const SILENCE: Duration = Duration::from_secs(10);
const PROBE_PERIOD: Duration = Duration::from_secs(5);
/// The connection is broken after this many probes without an answer.
const PROBES: u32 = 4;

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Stream(Socket);

impl Stream {
    /// Connects. Reads and writes block until [`do_not_wait`](Stream::do_not_wait).
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
                socket
            }
        };
        Ok(Stream(socket))
    }

    /// Limits how long reads and writes block; after this time they fail or return nothing.
    pub fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        // (Zero would mean no limit.)
        let time = Some(time.max(Duration::from_millis(1)));
        self.0.set_read_timeout(time)?;
        self.0.set_write_timeout(time)
    }

    /// What the kernel knows about the other host; `None` if the connection is not TCP.
    pub fn peer(&self) -> Option<Peer> {
        // SAFETY: integers, for which all zeroes is a value.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes.
        let failed = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut length,
            )
        };
        (failed == 0).then(|| Peer {
            unacknowledged: info.tcpi_unacked,
            probes: info.tcpi_probes.into(),
            heard: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        })
    }

    /// Makes reads and writes non-blocking.
    pub fn do_not_wait(&self) -> io::Result<()> {
        self.0.set_nonblocking(true)
    }

    /// Reads; `None` if there is nothing to read yet, 0 at the end of the stream.
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

/// The other host of a TCP connection, as the kernel sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Number of segments that the host has not acknowledged.
    unacknowledged: u32,
    /// Number of probes of a closed window that the host has not answered.
    probes: u32,
    /// The time since the host's last acknowledgement.
    heard: Duration,
}

impl Peer {
    /// Whether the host owes an acknowledgement and has sent none for this time. A server that
    /// stops reading closes the window; its host then still acknowledges what was sent, and answers
    /// probes, but the kernel probes less and less often. So a single probe in flight means
    /// nothing.
    fn is_silent_for(&self, time: Duration) -> bool {
        (self.unacknowledged > 0 || self.probes >= 2) && self.heard >= time
    }
}

/// Checks periodically whether the other host has fallen silent. (`TCP_USER_TIMEOUT` is not
/// suitable: it also breaks a connection whose window stays closed for that long, although the
/// other host answers all probes.)
#[derive(Debug)]
pub(super) struct SilenceWatch {
    /// How long the host may be silent.
    limit: Duration,
    looked: Instant,
    /// Whether the last check found the host silent.
    silent: bool,
}

impl SilenceWatch {
    pub fn new(limit: Duration) -> SilenceWatch {
        SilenceWatch { limit, looked: Instant::now(), silent: false }
    }

    /// The time until the next check.
    pub fn left(&self) -> Duration {
        (self.looked + self.limit / 6).saturating_duration_since(Instant::now())
    }

    /// Checks, if a check is due. Returns whether two checks in a row have found the other host
    /// silent: one is not enough, because after a pause of this host, the first check comes before
    /// anything could arrive.
    pub fn is_lost(&mut self, stream: &Stream) -> bool {
        if !self.left().is_zero() {
            return false;
        }
        self.looked = Instant::now();
        self.note(stream.peer())
    }

    fn note(&mut self, peer: Option<Peer>) -> bool {
        let before = self.silent;
        self.silent = peer.is_some_and(|peer| peer.is_silent_for(self.limit));
        before && self.silent
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
    fn an_idle_tcp_server_whose_machine_falls_silent_is_noticed_by_the_kernel() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (host, port) = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        let stream = Stream::connect(&NbdAddress::Tcp { host, port }).unwrap();
        assert!(stream.peer().is_some_and(|peer| !peer.is_silent_for(Duration::from_secs(30))));
        let Stream(socket) = stream;
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), SILENCE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_PERIOD);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            None,
            "it breaks connections that are alive"
        );
    }

    #[test]
    fn a_machine_is_silent_if_it_owes_an_acknowledgement_for_long_enough() {
        let limit = Duration::from_secs(30);
        let silent = |unacknowledged, probes, seconds| {
            Peer { unacknowledged, probes, heard: Duration::from_secs(seconds) }
                .is_silent_for(limit)
        };
        assert!(silent(1, 0, 30));
        assert!(!silent(1, 0, 29), "it may still come");
        assert!(silent(0, 2, 31), "the window is closed, and nobody answers");
        assert!(!silent(0, 0, 119), "the window is closed, and the last probe was answered");
        assert!(!silent(0, 1, 119), "the next one is under way");
        assert!(!silent(0, 0, 3600), "nothing was asked");
    }

    #[test]
    fn only_two_looks_in_a_row_count() {
        let mut watch = SilenceWatch::new(Duration::from_secs(30));
        let peer = |seconds| {
            Some(Peer { unacknowledged: 1, probes: 0, heard: Duration::from_secs(seconds) })
        };
        assert!(!watch.note(peer(40)));
        assert!(!watch.note(peer(1)), "this machine had paused");
        assert!(!watch.note(peer(35)));
        assert!(!watch.note(None));
        assert!(!watch.note(peer(35)));
        assert!(watch.note(peer(40)));
    }

    #[test]
    fn a_connection_within_a_machine_has_no_peer_to_lose() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(Stream(Socket::from(one)).peer().is_none());
    }
}
