//! The client half: a handshake, then a transmission.
//!
//! It is driven like the server half: `receive` takes whole messages off the front of the unread
//! input, and the driver sends the contents of `out`. Requests are pipelined: the driver gives each
//! one a `tag`, which the events with its data and its result carry; these may come in any order.
//! The maximum number of requests in flight is fixed at the start, and nothing is allocated per
//! request.
//!
//! ```
//! use forebay_nbd::client::{ClientConfig, ClientEvent, Handshake, HandshakeEvent};
//!
//! let mut out = Vec::new();
//! let mut handshake = Handshake::start(ClientConfig::connect("disk"));
//! // The server greets: it speaks newstyle, but not the fixed kind.
//! let mut input: &[u8] = b"NBDMAGICIHAVEOPT\0\0";
//! assert!(matches!(handshake.receive(&mut input, &mut out), HandshakeEvent::NeedInput));
//! assert_eq!(out, b"\0\0\0\0IHAVEOPT\0\0\0\x01\0\0\0\x04disk");
//! ```

mod coverage;
mod error;
mod handshake;
mod transmission;

pub use error::ClientError;
pub use handshake::{
    ClientConfig, Goal, Handshake, HandshakeEvent, ListedExport, RemoteExport, TlsWish,
};
pub use transmission::{ClientEvent, Transmission};
