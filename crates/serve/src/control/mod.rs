//! The control address: HTTP and JSON for operators, text for Prometheus.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /status` | what a simulation reports, live, with the volumes and the server |
//! | `GET /metrics` | the same for Prometheus |
//! | `POST /destage` | when everything that was dirty is on the backing stores |
//! | `POST /quiesce` | holds requests back with nothing dirty |
//! | `POST /resume` | lets them go on; tries backing stores that fail again |
//! | `POST /set?write_policy=NAME[&acknowledge=flash]` | when that policy holds |
//! | `POST /resize?dram=BYTES` | at once; blocks leave as others come |
//! | `POST /invalidate?volume=NAME` | when nothing of the volume is cached any more; the name percent-encoded |
//! | `POST /stop`, `?dirty=keep`, `?dirty=destage`, `?dirty=release` | asks the server to stop; refused once a stop has begun that does less |
//! | the same with `wait=1` | when it has stopped and let go of its devices, with what is left dirty; an error if it did less |
//!
//! Over a unix socket, those who may open it may ask; over TCP, those who have the [`Token`]. Errors are
//! JSON, too: `{"error": "..."}`.

mod access;
mod client;
#[doc(hidden)]
pub mod fuzz;
mod http;
mod metrics;
mod order;
mod server;
mod stop;
mod token;

pub use client::{ClientError, Reply, ask, encoded};
pub use server::status_schemas;
pub(crate) use server::{ControlServer, Views};
pub(crate) use stop::{Ended, StopRequest};
pub use token::{Token, TokenError};
