//! NBD over sockets: a thread for each connection, all of them sessions of one engine.

mod connection;
mod exports;
mod input;
mod output;
mod server;

pub use server::Stopped;
pub(crate) use server::{NbdCounters, NbdServer};
