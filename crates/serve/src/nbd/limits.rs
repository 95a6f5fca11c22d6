//! The limits for clients, from the configuration.

use std::time::Duration;

use forebay_config::{Serve, TimeSpan};

/// Limits that may change while the server runs; each connection keeps those that it began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Maximum number of connections to one volume.
    pub volume_connections: u32,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long a client may take to send a payload or to read a reply while others wait for
    /// memory.
    pub stall: Duration,
    /// How long a connection may be idle; `None` for no limit.
    pub idle: Option<Duration>,
}

impl From<&Serve> for Limits {
    fn from(serve: &Serve) -> Limits {
        let duration = |time: TimeSpan| Duration::from_nanos(time.nanos().0);
        Limits {
            volume_connections: serve.volume_connections.unwrap_or(serve.connections),
            handshake: duration(serve.handshake_timeout),
            stall: duration(serve.stall_timeout),
            idle: serve.idle_timeout.map(duration),
        }
    }
}
