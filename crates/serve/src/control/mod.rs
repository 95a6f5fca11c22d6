//! The control address: HTTP and JSON for operators, text for Prometheus.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /status` | what a simulation reports, live, with the volumes and the server |
//! | `GET /metrics` | the same for Prometheus |
//! | `POST /destage` | when everything that was dirty is on the backing stores |
//! | `POST /quiesce`, `POST /resume` | holds requests back with nothing dirty; lets them go on |
//! | `POST /set?write_policy=NAME&acknowledge=flash` | when that policy holds |
//! | `POST /resize?dram=BYTES` | at once; blocks leave as others come |
//! | `POST /stop`, `?dirty=keep`, `?dirty=destage` | asks the server to stop |
//!
//! Who may connect is who may open the socket: there are no passwords. Errors are JSON, too:
//! `{"error": "..."}`.

mod client;
mod metrics;
mod server;

pub use client::{ClientError, Reply, ask};
pub(crate) use server::{ControlServer, StopRequest};
