//! Accepting clients, and letting them go.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_device::Doorbell;
use forebay_engine::Engine;
use forebay_nbd::ExportInfo;

use super::connection;
use super::exports::exports;
use crate::error::ServeError;
use crate::listener::{Listener, Socket};
use crate::record::{Recorded, Recording};
use crate::wait;

/// How long a client may take to read its last answers when the server stops.
const PATIENCE: Duration = Duration::from_secs(5);

/// An NBD server on one address.
#[derive(Debug)]
pub struct NbdServer {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    address: String,
}

/// What stopping a server found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stopped {
    /// Connections that were there.
    pub connections: usize,
    /// Of those, how many did not take their last answers and were cut off.
    pub cut_off: usize,
    /// Dirty blocks left on flash.
    pub dirty_blocks: u64,
    /// What was recorded.
    pub recorded: Recorded,
}

/// A view of a server's connections.
#[derive(Clone, Debug)]
pub(crate) struct NbdCounters {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    open: AtomicU64,
}

impl NbdCounters {
    /// Connections there are.
    pub fn connections(&self) -> u64 {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Connections there have been.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    recording: Option<Recording>,
    exports: Vec<ExportInfo>,
    connections: Mutex<Vec<Connection>>,
    counts: Arc<Counts>,
    stopping: AtomicBool,
    bell: Doorbell,
}

#[derive(Debug)]
struct Connection {
    socket: Arc<Socket>,
    thread: JoinHandle<()>,
}

impl NbdServer {
    /// Listens and serves the engine's volumes.
    ///
    /// # Errors
    /// If the address is taken or cannot be had.
    pub(crate) fn start(
        engine: Arc<Engine>,
        listener: Listener,
        recording: Option<Recording>,
    ) -> Result<NbdServer, ServeError> {
        let exports = exports(engine.volumes(), engine.block_bytes());
        let bell = Doorbell::new().map_err(|e| ServeError::System("make a doorbell", e))?;
        let shared = Arc::new(Shared {
            engine,
            recording,
            exports,
            connections: Mutex::new(Vec::new()),
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

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What others may know of it.
    pub fn counters(&self) -> NbdCounters {
        NbdCounters { counts: self.shared.counts.clone() }
    }

    /// Accepts no more clients, finishes what is in flight, sends the answers and ends all
    /// connections.
    ///
    /// # Errors
    /// If the recording could not be written; the rest is done all the same.
    pub fn stop(mut self) -> Result<Stopped, ServeError> {
        let mut stopped = self.end();
        if let Some(recording) = self.shared.recording.as_ref() {
            stopped.recorded = recording.finish()?;
        }
        Ok(stopped)
    }

    fn end(&mut self) -> Stopped {
        let Some(acceptor) = self.acceptor.take() else { return Stopped::default() };
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.bell.ring();
        // A thread that panicked has said so; its connection is over in any case.
        let _ = acceptor.join();
        let connections = std::mem::take(&mut *self.shared.connections());
        for connection in &connections {
            connection.socket.shutdown(Shutdown::Read);
        }
        let patient_until = Instant::now() + PATIENCE;
        let mut stopped = Stopped { connections: connections.len(), ..Stopped::default() };
        for connection in connections {
            while !connection.thread.is_finished() && Instant::now() < patient_until {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !connection.thread.is_finished() {
                stopped.cut_off += 1;
                connection.socket.shutdown(Shutdown::Both);
            }
            let _ = connection.thread.join();
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
        let Ok(ready) = wait::either(Some(listener.as_raw_fd()), shared.bell.as_raw_fd()) else {
            return;
        };
        if ready.bell || !ready.socket {
            continue;
        }
        let admitted = listener.accept().and_then(|socket| admit(shared, socket));
        if admitted.is_err() {
            // Out of file descriptors or threads: it passes when a client leaves.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn admit(shared: &Arc<Shared>, socket: Socket) -> io::Result<()> {
    let number = shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
    let session = shared.engine.session().map_err(|e| io::Error::other(e.to_string()))?;
    let socket = Arc::new(socket);
    let (of_thread, own) = (shared.clone(), socket.clone());
    let notes = shared.recording.as_ref().map(Recording::notes);
    let thread = std::thread::Builder::new().name(format!("forebay-nbd-{number}"));
    shared.counts.open.fetch_add(1, Ordering::Relaxed);
    let spawned = thread.spawn(move || {
        // Why it ended is the client's business; what it did is in the engine's counters.
        let _ = connection::serve(&*own, &of_thread.exports, session, notes, &of_thread.stopping);
        own.shutdown(Shutdown::Both);
        of_thread.counts.open.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        shared.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
    let thread = spawned?;
    let mut connections = shared.connections();
    connections.retain(|c| !c.thread.is_finished());
    connections.push(Connection { socket, thread });
    Ok(())
}
