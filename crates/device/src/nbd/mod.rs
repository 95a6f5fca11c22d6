//! Exports of NBD servers.
//!
//! A [`Connection`] is one session with many requests in flight, driven without waiting by
//! its owner. An [`Export`] gives it a thread of its own, so that several can use it;
//! [`NbdDevices`] makes exports devices like any other.
//!
//! A session that has failed is not replaced by another: what was written in it and not yet
//! flushed may be lost with the server, and a flush in a new session would say that it is
//! durable. All that is asked afterwards fails, until the export is opened again by an owner that
//! knows (from the flash tier) what may be missing.

mod connection;
mod devices;
mod error;
mod export;
mod stream;

pub use connection::{Connection, Ended, Job};
pub use devices::NbdDevices;
pub use error::NbdError;
pub use export::Export;
