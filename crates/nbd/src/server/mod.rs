//! The server half: a handshake, then a transmission.
//!
//! Both are state machines that take bytes and return events. A driver keeps a receive buffer,
//! passes its unread part to `receive`, which takes whole messages off the front, and acts on the
//! event it returns. On `NeedInput` the driver keeps what is left, appends more from the socket,
//! and tries again. The driver sends whatever `receive` appends to `out`, in order with its own
//! replies. Each call appends at most one message (in the handshake, one option's answer), so
//! memory is bounded by how fast the driver drains `out`.
//!
//! ```
//! use forebay_block::Volume;
//! use forebay_nbd::server::{Event, Handshake, HandshakeEvent, ServerConfig};
//! use forebay_nbd::{Command, ExportInfo};
//!
//! let exports = [ExportInfo::new(Volume(0), "disk", 1 << 20)];
//! let mut out = Vec::new();
//! let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
//! // ... send `out`; the client answers with its flags and NBD_OPT_EXPORT_NAME "disk" ...
//! let mut input: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04disk";
//! let HandshakeEvent::Ready(mut session) =
//!     handshake.receive(&mut input, &exports[..], &mut out)
//! else { panic!() };
//! // ... then a read of 512 bytes at 4096 arrives ...
//! let mut input: &[u8] =
//!     b"\x25\x60\x95\x13\0\0\0\0cookie!!\0\0\0\0\0\0\x10\0\0\0\x02\0";
//! let Event::Request(request) = session.receive(&mut input, &mut out) else { panic!() };
//! assert_eq!((request.command, request.offset, request.length), (Command::Read, 4096, 512));
//! // ... and is answered on the spot.
//! out.extend_from_slice(&session.reply_style().data(&request));
//! out.extend_from_slice(&[0; 512]);
//! ```

mod close;
mod handshake;
mod options;
mod reply;
mod transmission;

pub use close::CloseReason;
pub use handshake::{Handshake, HandshakeEvent, ListPolicy, ServerConfig, TlsPolicy};
pub use reply::{ChunkStyle, ReplyHeader};
pub use transmission::{Event, Transmission};
