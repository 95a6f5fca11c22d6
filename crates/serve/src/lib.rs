//! The server: NBD for clients, a control address for operators.
//!
//! `forebay-nbd` implements the protocol and `forebay-engine` the cache; this crate connects them
//! with sockets. [`Server::start`] opens everything. [`Server::stop`] ends it in order: no new
//! clients, answers to the requests in flight, then dirty data is destaged or kept.

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
