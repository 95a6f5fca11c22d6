//! The connections to each volume: how many there are, and which of them are ending.
//!
//! A client whose connection fails may connect again before the server has noticed. Its new
//! connection waits until the old one has ended: otherwise it could be refused because of the old
//! one, or its requests could be answered before the server has read and executed those that wait
//! in the old socket.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_block::Volume;
use socket2::Socket;

/// How long a new connection waits, at most, for an ending connection, whose requests a quiesce may
/// hold back.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a new connection waits, at most, for an ending connection whose client reads no replies.
/// A client that has closed only its sending side keeps its connection for as long as it likes, and
/// must not delay others by much.
const CHOKED_WAIT_MAX: Duration = Duration::from_millis(200);
/// How often a waiting connection checks whether the server is stopping.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// The connections to all volumes; see the module.
#[derive(Debug, Default)]
pub(super) struct Visitors {
    list: Mutex<List>,
    /// Signalled when a connection has ended, or when others need not wait for it any more.
    left: Condvar,
}

#[derive(Debug, Default)]
struct List {
    visitors: Vec<Visitor>,
    next: u64,
}

#[derive(Debug)]
struct Visitor {
    number: u64,
    volume: Volume,
    socket: Arc<Socket>,
    /// Whether the server reads no requests only because the client reads no replies.
    choked: Arc<AtomicBool>,
    /// Whether the server has read all that the client has sent.
    is_read: bool,
}

/// A connection to a volume, counted until this is dropped.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    visitors: &'a Visitors,
    number: u64,
}

impl Visitors {
    /// Counts a connection to a volume, unless there are `count_max` already. Waits first for
    /// connections to the volume that are ending.
    pub fn enter(
        &self,
        volume: Volume,
        (socket, choked): (&Arc<Socket>, &Arc<AtomicBool>),
        count_max: u32,
        stopping: &AtomicBool,
    ) -> Option<Visit<'_>> {
        let began = Instant::now();
        let mut list = self.lock();
        while began.elapsed() < list.patience(volume) && !stopping.load(Ordering::Acquire) {
            let waited = self.left.wait_timeout(list, LOOK_PERIOD);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = list.visitors.iter().filter(|visitor| visitor.volume == volume).count();
        if count >= count_max as usize {
            return None;
        }
        let number = list.next;
        list.next += 1;
        let (socket, choked) = (socket.clone(), choked.clone());
        list.visitors.push(Visitor { number, volume, socket, choked, is_read: false });
        Some(Visit { visitors: self, number })
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    /// How long a new connection to the volume waits: no time, unless a client has closed its
    /// connection and the server has not read all that the client sent.
    fn patience(&self, volume: Volume) -> Duration {
        let unread: Vec<&Visitor> =
            self.visitors.iter().filter(|v| v.volume == volume && !v.is_read).collect();
        let poll = |v: &&Visitor| libc::pollfd {
            fd: v.socket.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        let mut polled: Vec<libc::pollfd> = unread.iter().map(poll).collect();
        // SAFETY: the array outlives the call, which does not wait.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
        if ready <= 0 {
            return Duration::ZERO;
        }
        let ending = unread.iter().zip(&polled).filter(|(_, polled)| polled.revents != 0);
        let choked = |v: &Visitor| v.choked.load(Ordering::Acquire);
        let waits = ending.map(|(v, _)| if choked(v) { CHOKED_WAIT_MAX } else { WAIT_MAX });
        waits.max().unwrap_or_default()
    }
}

impl Visit<'_> {
    /// Notes that the server has read all that the client has sent, so that no other connection
    /// waits for this one.
    pub fn is_read(&self) {
        let mut list = self.visitors.lock();
        let visitor = list.visitors.iter_mut().find(|visitor| visitor.number == self.number);
        visitor.expect("it is in the list until it is dropped").is_read = true;
        drop(list);
        self.visitors.left.notify_all();
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.visitors.lock().visitors.retain(|visitor| visitor.number != self.number);
        self.visitors.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    static SERVING: AtomicBool = AtomicBool::new(false);

    /// Both ends of a connection.
    fn connection() -> (UnixStream, Arc<Socket>) {
        let (client, server) = UnixStream::pair().unwrap();
        (client, Arc::new(server.into()))
    }

    /// Enters a connection to a volume that allows `count_max` of them.
    fn enter<'a>(
        visitors: &'a Visitors,
        volume: u32,
        socket: &Arc<Socket>,
        is_choked: bool,
        count_max: u32,
    ) -> Option<Visit<'a>> {
        let choked = Arc::new(AtomicBool::new(is_choked));
        visitors.enter(Volume(volume), (socket, &choked), count_max, &SERVING)
    }

    #[test]
    fn each_volume_has_its_own_limit() {
        let visitors = Visitors::default();
        let ((_a, first), (_b, second)) = (connection(), connection());
        let visit = enter(&visitors, 0, &first, false, 1).unwrap();
        assert!(enter(&visitors, 0, &second, false, 1).is_none());
        assert!(enter(&visitors, 1, &second, false, 1).is_some());
        drop(visit);
        assert!(enter(&visitors, 0, &second, false, 1).is_some());
    }

    #[test]
    fn a_client_that_comes_again_waits_until_its_lost_connection_has_ended() {
        let visitors = Visitors::default();
        let ((client, lost), (_other, new)) = (connection(), connection());
        let visit = enter(&visitors, 0, &lost, false, 1).unwrap();
        drop(client);
        std::thread::scope(|scope| {
            let (enters, entered) = channel();
            let visitors = &visitors;
            scope.spawn(move || {
                enters.send(enter(visitors, 0, &new, false, 1).is_some()).unwrap();
            });
            assert!(entered.recv_timeout(2 * CHOKED_WAIT_MAX).is_err(), "it does not wait");
            drop(visit);
            assert_eq!(entered.recv(), Ok(true), "it is refused because of itself");
        });
    }

    #[test]
    fn nobody_waits_for_a_client_that_has_said_goodbye_or_for_long_for_one_that_takes_no_replies() {
        let visitors = Visitors::default();
        let ((client, leaving), (_other, new)) = (connection(), connection());
        let visit = enter(&visitors, 0, &leaving, false, 1).unwrap();
        drop(client);
        let began = Instant::now();
        let stopping = AtomicBool::new(true);
        let choked = Arc::default();
        assert!(visitors.enter(Volume(0), (&new, &choked), 2, &stopping).is_some());
        visit.is_read();
        assert!(enter(&visitors, 0, &new, false, 2).is_some());
        assert!(enter(&visitors, 0, &new, false, 1).is_none(), "it still has its place");
        let (choked, socket) = connection();
        let _choked = enter(&visitors, 0, &socket, true, 9).unwrap();
        drop(choked);
        assert!(enter(&visitors, 0, &new, false, 9).is_some());
        assert!(began.elapsed() < WAIT_MAX);
    }
}
