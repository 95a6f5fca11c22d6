//! The NBD protocol without the network: bytes in, events and bytes out.
//!
//! The crate has both halves, [`server`] and [`client`]; each is a handshake followed by a
//! transmission. They use no sockets, threads, clocks or files, allocate nothing per request, and
//! hold a bounded amount of memory whatever the peer sends. They never copy payloads: the parser
//! stops before a payload, and the driver moves it to its destination.
//!
//! Both halves support the fixed newstyle handshake, simple, structured and extended replies, and
//! `base:allocation` block status. `docs/nbd.md` lists the protocol's requirements on a server and
//! the test that checks each one.

pub mod client;
mod error_code;
mod export;
#[doc(hidden)]
pub mod fuzz;
mod request;
mod rules;
pub mod server;
mod style;
mod uri;
pub mod wire;

pub use error_code::ErrorCode;
pub use export::{BlockSizes, BlockSizesError, ExportInfo, Exports};
pub use request::{Request, RequestHeader};
pub use rules::Refusal;
pub use style::{ReplyStyle, StatusExtent, StatusFlags};
pub use uri::{NbdAddress, NbdUri, PORT_DEFAULT, UriError};
pub use wire::{Command, CommandFlags, Cookie, TransmissionFlags};
