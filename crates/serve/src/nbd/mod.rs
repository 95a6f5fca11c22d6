//! NBD over sockets. Each connection has its own thread, and is a session of the one engine.

mod budget;
mod connection;
mod counts;
mod exports;
mod files;
mod handshake;
mod input;
mod limits;
mod memory;
mod output;
mod server;
mod visitors;

pub(crate) use counts::{NbdReported, NbdStatus};
pub(crate) use files::allow_connections;
pub(crate) use limits::Limits;
pub use server::Stopped;
pub(crate) use server::{NbdServer, NbdView};
