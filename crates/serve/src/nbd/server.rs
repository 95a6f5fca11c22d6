//! Accepts clients, and disconnects them.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_config::Serve;
use forebay_device::Doorbell;
use forebay_engine::{Engine, OrderNews, Session};
use forebay_nbd::ExportInfo;
use socket2::Socket;

use super::budget::Budget;
use super::connection::{self, End, Surroundings};
use super::counts::{Counts, NbdReported, NbdStatus};
use super::exports::{Offer, exports};
use super::handshake::shake_hands;
use super::input::Input;
use super::limits::Limits;
use super::visitors::Visitors;
use crate::error::ServeError;
use crate::listener::Listener;
use crate::record::{Recorded, Recording};
use crate::wait::{self, Interest};

/// How long a client may take to read its last answers when the server stops, from when the last of
/// them is ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// An NBD server on one address.
#[derive(Debug)]
pub struct NbdServer {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    address: String,
}

/// The outcome of stopping a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stopped {
    /// Connections that were open.
    pub connections: usize,
    /// Connections that were cut off because their clients did not read the last answers.
    pub cut_off: usize,
    /// Outcomes of orders that an operator should learn of at the end.
    pub news: Vec<OrderNews>,
    /// What was recorded.
    pub recorded: Recorded,
    /// How the recording failed and what is left of it, if it failed.
    pub recording_failure: Option<String>,
}

/// A view of a server, for operators.
#[derive(Clone, Debug)]
pub(crate) struct NbdView {
    counts: Arc<Counts>,
    budget: Arc<Budget>,
    connections_max: u32,
}

impl NbdView {
    /// The status, for `GET /status`.
    pub fn status(&self) -> NbdStatus {
        let connections_max = u64::from(self.connections_max);
        self.counts.status(connections_max, self.budget.status(self.connections_max))
    }
}

#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    recording: Option<Arc<Recording>>,
    exports: Vec<ExportInfo>,
    connections: Mutex<Vec<Connection>>,
    connections_max: u32,
    visitors: Visitors,
    budget: Arc<Budget>,
    limits: Mutex<Limits>,
    counts: Arc<Counts>,
    stopping: AtomicBool,
    bell: Doorbell,
}

#[derive(Debug)]
struct Connection {
    socket: Arc<Socket>,
    thread: JoinHandle<()>,
    /// See [`Surroundings::busy`].
    busy: Arc<AtomicBool>,
}

impl NbdServer {
    /// Serves the engine's volumes to at most `connections_max` connections at a time.
    ///
    /// # Errors
    /// If the system refuses threads or file descriptors.
    pub(crate) fn start(
        engine: Arc<Engine>,
        listener: Listener,
        recording: Option<Arc<Recording>>,
        serve: &Serve,
        connections_max: u32,
    ) -> Result<NbdServer, ServeError> {
        let exports = exports(&engine);
        let bell = Doorbell::new().map_err(|e| ServeError::System("create an eventfd", e))?;
        let shared = Arc::new(Shared {
            engine,
            recording,
            visitors: Visitors::default(),
            exports,
            connections: Mutex::new(Vec::new()),
            connections_max,
            budget: Arc::new(Budget::new(serve.request_memory.bytes(), connections_max)),
            limits: Mutex::new(Limits::from(serve)),
            counts: Arc::default(),
            stopping: AtomicBool::new(false),
            bell,
        });
        let address = listener.address();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("forebay-accept".into());
        let acceptor = thread.spawn(move || accept(&of_thread, &listener));
        let acceptor = acceptor.map_err(|e| ServeError::System("start a thread", e))?;
        Ok(NbdServer { shared, acceptor: Some(acceptor), address })
    }

    /// The address that it listens on.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Maximum number of simultaneous connections.
    pub fn connections_max(&self) -> u32 {
        self.shared.connections_max
    }

    /// A view for operators.
    pub fn view(&self) -> NbdView {
        let Shared { counts, budget, connections_max, .. } = &*self.shared;
        let (counts, budget) = (counts.clone(), budget.clone());
        NbdView { counts, budget, connections_max: *connections_max }
    }

    /// Sets the limits for connections that begin from now on.
    pub fn set_limits(&self, limits: Limits) {
        *self.shared.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Messages for an operator about connections refused or closed since `reported`, which is
    /// updated.
    pub fn faults(&self, reported: &mut NbdReported) -> Vec<String> {
        self.shared.counts.faults(reported)
    }

    /// Stops accepting clients, finishes the requests in flight, sends the answers and ends all
    /// connections.
    pub fn stop(mut self) -> Stopped {
        self.end()
    }

    fn end(&mut self) -> Stopped {
        let Some(acceptor) = self.acceptor.take() else { return Stopped::default() };
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.bell.ring();
        // A thread that panicked has already reported it; its connection has ended in any case.
        let _ = acceptor.join();
        let connections = std::mem::take(&mut *self.shared.connections());
        for connection in &connections {
            // If this fails, the socket is closed already.
            let _ = connection.socket.shutdown(Shutdown::Read);
        }
        let mut stopped = Stopped { connections: connections.len(), ..Stopped::default() };
        let begun = Instant::now();
        let mut left: Vec<(Connection, Instant)> =
            connections.into_iter().map(|connection| (connection, begun)).collect();
        while !left.is_empty() {
            let now = Instant::now();
            for (connection, served) in &mut left {
                if connection.busy.load(Ordering::Acquire) {
                    *served = now;
                }
            }
            let ends = |(connection, served): &mut (Connection, Instant)| {
                connection.thread.is_finished() || now - *served >= PATIENCE
            };
            for (connection, _) in left.extract_if(.., ends) {
                if !connection.thread.is_finished() {
                    stopped.cut_off += 1;
                    let _ = connection.socket.shutdown(Shutdown::Both);
                }
                let _ = connection.thread.join();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        stopped
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(shared: &Arc<Shared>, listener: &Listener) {
    while !shared.stopping.load(Ordering::Acquire) {
        let interest = Interest { readable: true, ..Interest::default() };
        let bell = Some(shared.bell.as_raw_fd());
        let ready = wait::either(listener.as_raw_fd(), interest, bell, None);
        let admitted = ready.and_then(|ready| {
            if ready.bell || !ready.readable {
                return Ok(());
            }
            listener.accept().and_then(|socket| admit(shared, socket))
        });
        if admitted.is_err() {
            // The process is out of file descriptors, threads or memory. This passes, at the latest
            // when a client leaves.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn admit(shared: &Arc<Shared>, socket: Socket) -> io::Result<()> {
    if shared.counts.open.load(Ordering::Relaxed) >= u64::from(shared.connections_max) {
        shared.counts.refuse();
        return Ok(());
    }
    let number = shared.counts.accepted.load(Ordering::Relaxed);
    let session = shared.engine.session().map_err(|e| io::Error::other(e.to_string()))?;
    let socket = Arc::new(socket);
    let busy = Arc::new(AtomicBool::new(false));
    let (of_thread, own, of_connection) = (shared.clone(), socket.clone(), busy.clone());
    let thread = std::thread::Builder::new().name(format!("forebay-nbd-{number}"));
    shared.counts.open.fetch_add(1, Ordering::Relaxed);
    let spawned = thread.spawn(move || {
        let end = converse(&of_thread, &own, session, &of_connection);
        of_thread.counts.ended(&end);
        let _ = own.shutdown(Shutdown::Both);
        of_thread.counts.open.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        shared.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
    let thread = spawned?;
    shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
    let mut connections = shared.connections();
    connections.retain(|c| !c.thread.is_finished());
    connections.push(Connection { socket, thread, busy });
    Ok(())
}

/// Serves one client, from the handshake to the end of the connection.
fn converse(shared: &Shared, socket: &Arc<Socket>, session: Session, busy: &AtomicBool) -> End {
    let Shared { budget, stopping, exports, visitors, counts, .. } = shared;
    let limits = *shared.limits.lock().unwrap_or_else(PoisonError::into_inner);
    let volume_max = limits.volume_connections;
    let choked = Arc::default();
    let offer = Offer::new(exports, visitors, counts, volume_max, (socket, &choked), stopping);
    let mut input = Input::new();
    let transmission = match shake_hands(socket, &mut input, &offer, limits.handshake, stopping) {
        Ok(transmission) => transmission,
        Err(end) => return end,
    };
    let visit = offer.into_visit().expect("the handshake of a client that is not admitted goes on");
    let notes = shared.recording.as_deref().map(Recording::notes);
    let around = Surroundings { budget, limits, stopping, busy, choked: &choked };
    match connection::Connection::new(socket, transmission, input, session, notes, around) {
        Ok(connection) => connection.serve(visit),
        Err(_) => End::Socket,
    }
}
