//! The server: NBD for clients, a control address for operators.
//!
//! The protocol is `forebay-nbd`'s and the cache `forebay-engine`'s; here are the sockets
//! between them. [`Server::start`] opens everything, [`Server::stop`] ends it in order: no new
//! clients, answers to what is in flight, then dirty data where it belongs.

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
pub use server::{Ready, Reported, Server, usual_stop};
pub use signals::StopSignals;
