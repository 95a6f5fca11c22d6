//! Counts of accepted, refused and closed connections.

use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Serialize;

use super::budget::MemoryStatus;
use super::connection::End;

/// Counts of an NBD server.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Connections accepted since the start.
    pub accepted: AtomicU64,
    /// Open connections.
    pub open: AtomicU64,
    /// Connections refused because the maximum number of connections was reached.
    refused: AtomicU64,
    /// Clients refused because their volume had the maximum number of connections.
    refused_by_volume: AtomicU64,
    handshake_timeouts: AtomicU64,
    idle_timeouts: AtomicU64,
    stalled: AtomicU64,
}

/// What `GET /status` says about NBD.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct NbdStatus {
    /// Open connections.
    pub connections: u64,
    /// Maximum number of connections.
    pub connections_max: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// Connections that the server closed, by reason.
    pub closed: ClosedStatus,
    /// Memory for requests.
    pub request_memory: MemoryStatus,
}

/// Connections that the server closed, by reason.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct ClosedStatus {
    /// Connections whose handshake took too long.
    pub handshake_timeout: u64,
    /// Connections that were idle for too long.
    pub idle_timeout: u64,
    /// Connections that held memory for too long while others waited for it.
    pub stall_timeout: u64,
}

/// The counts of refused and closed connections that have been reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NbdReported([u64; 5]);

impl Counts {
    /// Counts a connection that was refused before its handshake.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client that was refused because its volume had the maximum number of connections.
    pub fn refuse_by_volume(&self) {
        self.refused_by_volume.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection, if the server closed it for a timeout.
    pub fn ended(&self, end: &End) {
        let count = match end {
            End::HandshakeTimeout => &self.handshake_timeouts,
            End::Idle => &self.idle_timeouts,
            End::Stalled => &self.stalled,
            // Other ends are not counted.
            End::Closed(_) | End::Socket => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The status, for operators.
    pub fn status(&self, connections_max: u64, request_memory: MemoryStatus) -> NbdStatus {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        NbdStatus {
            connections: of(&self.open),
            connections_max,
            accepted: of(&self.accepted),
            refused: of(&self.refused) + of(&self.refused_by_volume),
            closed: ClosedStatus {
                handshake_timeout: of(&self.handshake_timeouts),
                idle_timeout: of(&self.idle_timeouts),
                stall_timeout: of(&self.stalled),
            },
            request_memory,
        }
    }

    /// Messages for an operator about connections refused or closed since `reported`, which is
    /// updated.
    pub fn faults(&self, reported: &mut NbdReported) -> Vec<String> {
        let counts = [
            (&self.refused, "refused", "the limit serve.connections was reached"),
            (
                &self.refused_by_volume,
                "refused",
                "their volume's limit serve.volume_connections was reached",
            ),
            (
                &self.handshake_timeouts,
                "closed",
                "their handshake took longer than serve.handshake_timeout",
            ),
            (&self.idle_timeouts, "closed", "they were idle for serve.idle_timeout"),
            (
                &self.stalled,
                "closed",
                "they stalled for longer than serve.stall_timeout while other connections waited \
                 for memory",
            ),
        ];
        let mut faults = Vec::new();
        for ((count, what, why), reported) in counts.into_iter().zip(&mut reported.0) {
            let now = count.load(Ordering::Relaxed);
            if now > *reported {
                faults.push(format!("{what} {} NBD connections: {why}", now - *reported));
                *reported = now;
            }
        }
        faults
    }
}
