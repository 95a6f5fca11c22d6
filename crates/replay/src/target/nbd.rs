//! Exports of NBD servers as targets, with any number of connections to each export.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use forebay_block::{Nanos, Op};
use forebay_device::nbd::{Connection, Ended, Job};
use forebay_nbd::{NbdUri, TransmissionFlags};

use super::{Abilities, Done, Io, Limits, Target, TargetInfo, TargetVolume};
use crate::clock::SystemClock;
use crate::error::ReplayError;

/// How long before its deadline a wait stops sleeping and polls: about how late a timer fires.
const SPIN: Duration = Duration::from_micros(15);
/// The longest trim or zeroing in bytes: fits into the 32-bit length of a compact header.
const ZERO_BYTES_MAX: u64 = 1 << 30;

/// How to open exports.
#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// The exports; each is one volume.
    pub uris: Vec<NbdUri>,
    /// Connections to each export. There is only one if the server does not promise that a flush on
    /// one connection covers all of them.
    pub connections: u32,
    /// Maximum number of requests in flight per connection.
    pub depth: u32,
}

/// Exports of NBD servers as a target.
pub struct NbdTarget {
    volumes: Vec<TargetVolume>,
    exports: Vec<Export>,
    limits: Limits,
    clock: SystemClock,
    polled: Vec<libc::pollfd>,
    ended: Vec<Ended>,
}

struct Export {
    connections: Vec<Connection>,
    /// The connection to try first for the next request.
    next: usize,
    /// Whether there are fewer connections than requested, because the server does not promise that
    /// a flush covers all of them.
    held_back: bool,
}

impl NbdTarget {
    /// Connects to all exports.
    ///
    /// # Errors
    /// If a server cannot be reached, does not have the export, or requires TLS.
    pub fn open(options: &NbdOptions, clock: SystemClock) -> Result<NbdTarget, ReplayError> {
        let mut limits = Limits {
            alignment_bytes: 1,
            transfer_bytes_max: u64::MAX,
            zero_bytes_max: ZERO_BYTES_MAX,
            depth_max: 0,
        };
        let (mut volumes, mut exports) = (Vec::new(), Vec::new());
        let depth = options.depth.max(1);
        for uri in &options.uris {
            let first = Connection::open(uri, depth, false)?;
            let found = first.export();
            let offers = |feature| found.features.contains(feature);
            volumes.push(TargetVolume {
                name: uri.to_string(),
                size_bytes: found.size_bytes,
                read_only: offers(TransmissionFlags::READ_ONLY),
                able: Abilities {
                    trim: offers(TransmissionFlags::SEND_TRIM),
                    zero: offers(TransmissionFlags::SEND_WRITE_ZEROES),
                    flush: offers(TransmissionFlags::SEND_FLUSH),
                },
            });
            let sizes = found.block_sizes;
            // Where a server does not specify block sizes, these are the ones that every server
            // supports.
            let minimum = u64::from(sizes.minimum_bytes());
            limits.alignment_bytes = limits.alignment_bytes.max(minimum);
            let longest = u64::from(sizes.payload_bytes_max());
            limits.transfer_bytes_max = limits.transfer_bytes_max.min(longest);
            let together = offers(TransmissionFlags::CAN_MULTI_CONN);
            let wanted = options.connections.max(1);
            let count = if together { wanted } else { 1 };
            let mut connections = vec![first];
            for _ in 1..count {
                connections.push(Connection::open(uri, depth, false)?);
            }
            exports.push(Export { connections, next: 0, held_back: count < wanted });
            let depth_max = u64::from(depth) * u64::from(count);
            limits.depth_max = limits.depth_max.max(u32::try_from(depth_max).unwrap_or(u32::MAX));
        }
        let alignment = limits.alignment_bytes;
        limits.transfer_bytes_max = limits.transfer_bytes_max.min(32 << 20) & !(alignment - 1);
        forebay_device::precise_timers();
        Ok(NbdTarget { volumes, exports, limits, clock, polled: Vec::new(), ended: Vec::new() })
    }

    /// Describes the target for reports.
    pub fn info(&self) -> TargetInfo {
        let connections: usize = self.exports.iter().map(|e| e.connections.len()).sum();
        let style = self.exports.first().map(|e| e.connections[0].reply_style());
        let style = style.map_or(String::new(), |s| format!("{s:?}").to_lowercase());
        let s = if connections == 1 { "" } else { "s" };
        let via = format!("{connections} connection{s}, {style} replies");
        TargetInfo { kind: "nbd", via, volumes: self.volumes.clone() }
    }

    /// Names of the exports with fewer connections than requested, because their servers do not
    /// promise that a flush covers several connections.
    pub fn held_back(&self) -> impl Iterator<Item = &str> {
        let exports = self.exports.iter().zip(&self.volumes);
        exports.filter(|(e, _)| e.held_back).map(|(_, v)| v.name.as_str())
    }

    /// Sends and receives as much as possible without waiting.
    fn pass(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        for (volume, export) in self.exports.iter_mut().enumerate() {
            let mut passed = Ok(());
            for connection in &mut export.connections {
                passed = passed.and_then(|()| {
                    connection.check()?;
                    connection.send()?;
                    if connection.in_flight() > 0 {
                        while connection.receive(&mut self.ended)? {}
                        connection.send()?;
                    }
                    Ok(())
                });
            }
            // Report requests that completed before a connection failed.
            done.extend(self.ended.drain(..).map(|ended| ended_io(ended, volume as u32)));
            passed.map_err(ReplayError::Nbd)?;
        }
        Ok(())
    }

    /// Sleeps until a socket is ready or `until`, whichever is first.
    fn sleep(&mut self, until: Instant) -> Result<(), ReplayError> {
        self.polled.clear();
        let connections = self.exports.iter().flat_map(|export| &export.connections);
        self.polled.extend(connections.map(|connection| libc::pollfd {
            fd: connection.as_raw_fd(),
            events: libc::POLLIN | if connection.wants_to_write() { libc::POLLOUT } else { 0 },
            revents: 0,
        }));
        let left = until.saturating_duration_since(Instant::now());
        let asleep = left.saturating_sub(SPIN);
        if poll(&mut self.polled, asleep)? {
            return Ok(());
        }
        while Instant::now() < until {
            if poll(&mut self.polled, Duration::ZERO)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn ended_io(ended: Ended, volume: u32) -> Done {
    let Ended { job: Job { tag, op, flags, offset, length, buffer, .. }, result } = ended;
    Done { io: Io { tag, volume, op, flags, offset, length, buffer }, result }
}

/// Waits until one of `polled` is ready, or for `timeout`. Returns whether one is ready; a signal
/// also counts.
fn poll(polled: &mut [libc::pollfd], timeout: Duration) -> Result<bool, ReplayError> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = polled.len() as libc::nfds_t;
    // SAFETY: the list and the timeout outlive the call.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count, &timeout, std::ptr::null()) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    match std::io::Error::last_os_error() {
        error if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
        error => Err(ReplayError::System("wait for the server", error)),
    }
}

impl Target for NbdTarget {
    fn volumes(&self) -> &[TargetVolume] {
        &self.volumes
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn submit(&mut self, io: Io, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        let volume = io.volume as usize;
        if io.op != Op::Flush && io.length == 0 {
            done.push(Done { io, result: Ok(()) });
            return Ok(());
        }
        loop {
            let export = &mut self.exports[volume];
            let count = export.connections.len();
            let room = (0..count).map(|n| (export.next + n) % count);
            let room = room.into_iter().find(|&n| !export.connections[n].is_full());
            if let Some(chosen) = room {
                export.next = (chosen + 1) % count;
                let Io { tag, op, flags, offset, length, buffer, .. } = io;
                let job = Job { tag, op, flags, offset, length, buffer, status: None };
                let submitted = export.connections[chosen].submit(job, &mut self.ended);
                done.extend(self.ended.drain(..).map(|ended| ended_io(ended, volume as u32)));
                return Ok(submitted?);
            }
            // A split request may have more parts than there is room for.
            self.pass(done)?;
            let export = &self.exports[volume];
            if export.connections.iter().all(Connection::is_full) {
                self.sleep(Instant::now() + Duration::from_millis(50))?;
            }
        }
    }

    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.pass(done)
    }

    fn wait(&mut self, until: Nanos, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        let before = done.len();
        self.pass(done)?;
        if done.len() > before {
            return Ok(());
        }
        self.sleep(self.clock.instant(until))?;
        self.pass(done)
    }
}
