//! The server: NBD for clients, a control address for operators.
//!
//! `forebay-nbd` implements the protocol and `forebay-engine` the cache; this crate connects them
//! with sockets. [`Server::start`] opens everything. [`Server::stop`] stops in this order: it
//! accepts no more clients, answers the requests in flight, then destages or keeps dirty data.

pub mod control;
mod error;
mod listener;
mod nbd;
mod ownership;
mod record;
mod reload;
mod server;
mod signals;
mod wait;

pub use error::ServeError;
pub use nbd::Stopped;
pub use record::{RecordOptions, Recorded};
pub use reload::Reload;
pub use server::{Explain, Ready, Reported, Server, usual_stop};
pub use signals::{IgnoredSignals, StopSignals};
