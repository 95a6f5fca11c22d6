//! The connections to each volume: how many there are, and which of them are ending.
//!
//! A client whose connection fails may connect again before the server has noticed. Its new connection waits
//! until the old one has ended: else it would be refused because of the old one, or its requests might be
//! answered before the server has read, and executed, those that wait in the old one's socket.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_block::Volume;
use socket2::Socket;

/// How long a new connection waits at most for those that end. A client that has closed only its sending side
/// can keep its connection for longer.
const ENDING_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether the server stops meanwhile.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Visitors {
    list: Mutex<List>,
    /// One has left, or needs not be waited for.
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
    /// The server has read all that the client has sent.
    is_read: bool,
}

/// A connection to a volume, counted until this is dropped.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    visitors: &'a Visitors,
    number: u64,
}

impl Visitors {
    /// Counts a connection to a volume, if there may be one more. Waits before for connections to the volume
    /// that end.
    pub fn enter(
        &self,
        volume: Volume,
        socket: &Arc<Socket>,
        count_max: u32,
        stopping: &AtomicBool,
    ) -> Option<Visit<'_>> {
        let until = Instant::now() + ENDING_WAIT_MAX;
        let mut list = self.lock();
        while list.is_one_ending(volume)
            && Instant::now() < until
            && !stopping.load(Ordering::Acquire)
        {
            let waited = self.left.wait_timeout(list, LOOK_PERIOD);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = list.visitors.iter().filter(|visitor| visitor.volume == volume).count();
        if count >= count_max as usize {
            return None;
        }
        let number = list.next;
        list.next += 1;
        list.visitors.push(Visitor { number, volume, socket: socket.clone(), is_read: false });
        Some(Visit { visitors: self, number })
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    /// Whether a client of the volume has closed its connection, and the server has not read all of it.
    fn is_one_ending(&self, volume: Volume) -> bool {
        let unread = self.visitors.iter().filter(|v| v.volume == volume && !v.is_read);
        let poll = |v: &Visitor| libc::pollfd {
            fd: v.socket.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        let mut polled: Vec<libc::pollfd> = unread.map(poll).collect();
        // SAFETY: the array outlives the call, which does not wait.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
        ready > 0
    }
}

impl Visit<'_> {
    /// The server has read all that the client has sent: no other connection waits for this one.
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

    #[test]
    fn each_volume_has_its_own_limit() {
        let visitors = Visitors::default();
        let ((_a, first), (_b, second)) = (connection(), connection());
        let enter = |volume, socket| visitors.enter(Volume(volume), socket, 1, &SERVING);
        let visit = enter(0, &first).unwrap();
        assert!(enter(0, &second).is_none() && enter(1, &second).is_some());
        drop(visit);
        assert!(enter(0, &second).is_some());
    }

    #[test]
    fn a_client_that_comes_again_waits_until_its_lost_connection_has_ended() {
        let visitors = Visitors::default();
        let ((client, lost), (_other, new)) = (connection(), connection());
        let visit = visitors.enter(Volume(0), &lost, 1, &SERVING).unwrap();
        drop(client);
        std::thread::scope(|scope| {
            let (enters, entered) = channel();
            let visitors = &visitors;
            scope.spawn(move || {
                enters.send(visitors.enter(Volume(0), &new, 1, &SERVING).is_some()).unwrap();
            });
            assert!(entered.recv_timeout(3 * LOOK_PERIOD).is_err(), "it does not wait");
            drop(visit);
            assert_eq!(entered.recv(), Ok(true), "it is refused because of itself");
        });
    }

    #[test]
    fn nobody_waits_for_a_client_that_has_said_goodbye_or_when_the_server_stops() {
        let visitors = Visitors::default();
        let ((client, leaving), (_other, new)) = (connection(), connection());
        let visit = visitors.enter(Volume(0), &leaving, 1, &SERVING).unwrap();
        drop(client);
        let began = Instant::now();
        assert!(visitors.enter(Volume(0), &new, 2, &AtomicBool::new(true)).is_some());
        visit.is_read();
        assert!(visitors.enter(Volume(0), &new, 2, &SERVING).is_some());
        assert!(visitors.enter(Volume(0), &new, 1, &SERVING).is_none(), "it still has its place");
        assert!(began.elapsed() < ENDING_WAIT_MAX);
    }
}
