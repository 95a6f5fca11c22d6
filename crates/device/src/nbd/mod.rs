//! Exports of NBD servers.
//!
//! A [`Connection`] is one session with many requests in flight; its owner drives it without
//! blocking. An [`Export`] runs a connection on its own thread, so that several users can share it;
//! [`NbdDevices`] presents exports as devices like any other.
//!
//! A failed session is not replaced by another. Writes of the session that were not yet flushed may
//! be lost with the server, and a flush in a new session would claim that they are durable. All
//! later operations fail until the export is opened again by an owner that knows (from the flash
//! tier) what may be missing.

mod connection;
mod devices;
mod error;
mod export;
mod stream;
#[cfg(test)]
mod tests;

pub use connection::{Connection, Ended, Job};
pub use devices::NbdDevices;
pub use error::NbdError;
pub use export::Export;
