//! The NBD protocol without the network: bytes in, events and bytes out.
//!
//! Both halves are here, [`server`] and [`client`], each a handshake followed by a transmission.
//! They know no socket, thread, clock or file, allocate nothing per request, and hold a bounded
//! amount of memory whatever the peer sends. Payloads are never copied here: the parser stops in
//! front of them, and the driver takes them to where they belong.
//!
//! Spoken are the fixed newstyle handshake, simple, structured and extended replies, and
//! `base:allocation` block status. `docs/nbd.md` lists what the protocol asks of a server and
//! which test shows that this one does it.

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
