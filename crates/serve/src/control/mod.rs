//! The control address: HTTP and JSON for operators, text for Prometheus.
//!
//! | request | effect and answer |
//! | --- | --- |
//! | `GET /status` | the fields that a simulation reports, live, with the volumes and the server |
//! | `GET /metrics` | the status as Prometheus metrics |
//! | `POST /destage` | destages; answers when everything that was dirty is on the backing stores |
//! | `POST /quiesce` | destages everything and holds requests back; answers when nothing is dirty |
//! | `POST /resume` | lets requests continue; retries failing backing stores; answers whether there was a quiesce to end (`ended`) |
//! | `POST /set?write_policy=NAME[&acknowledge=flash]` | changes the write policy; answers when it is in force |
//! | `POST /resize?dram=BYTES` | resizes the memory for blocks; answers with its size at once, and blocks leave as others enter |
//! | `POST /invalidate?volume=NAME` | answers when no block of the volume is cached; the name is percent-encoded |
//! | `POST /stop`, `?dirty=keep`, `?dirty=destage`, `?dirty=release` | asks the server to stop; refused if a stop that does less has begun |
//! | `POST /stop?wait=1`, also with `dirty` | answers when the server has stopped and released its devices, with the number of blocks left dirty; an error if the stop did less |
//!
//! Over a unix socket, anyone who can open it can send requests; over TCP, anyone who has the
//! [`Token`]. Errors are JSON, too: `{"error": "..."}`.

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
