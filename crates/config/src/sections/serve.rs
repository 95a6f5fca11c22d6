//! `[serve]`.

use std::path::PathBuf;

use crate::schema::section;
use crate::{Address, FileMode, Size, TimeSpan};

section! {
    /// Where the server listens.
    pub struct Serve {
        /// Where NBD clients connect. An address that other hosts can reach is rejected, because connections
        /// are not encrypted.
        nbd: Address = "unix:/run/forebay/nbd.sock";
        /// Where `forebay ctl` and Prometheus connect: a Unix socket or a loopback address.
        control: Address = "unix:/run/forebay/control.sock";
        /// File with the token that every request to a `control` address over TCP must carry. If the file
        /// does not exist, the server creates it with a random token, readable only by the server's user. A
        /// Unix socket needs no token: its permissions control who may open it.
        control_token_file: PathBuf = "/run/forebay/control.token";
        /// Memory for the requests of all NBD clients and for the replies that the clients have not received
        /// yet: at least 136MiB, and at least 192KiB for each of the `connections`. Half of this memory is
        /// divided among the connections in equal shares; the other half is lent to connections that need
        /// more than their share. If no memory is free, a request waits.
        request_memory: Size = "256MiB";
        /// Maximum number of NBD connections. Further connections are closed immediately.
        connections: u32 = 1024;
        /// Maximum number of connections to one volume. Further clients get an error that gives the reason.
        /// Unset means no limit other than `connections`.
        volume_connections: Option<u32> = unset;
        /// How long a client may take to choose an export.
        handshake_timeout: TimeSpan = "10s";
        /// How long a client may stall during the payload of a write or a reply, while its connection holds
        /// more than its share of memory and others are waiting for memory. After this time, the server closes
        /// the connection. A client that makes progress gets one more second for each MiB.
        stall_timeout: TimeSpan = "10s";
        /// How long a connection may be idle before the server closes it. Unset means no limit, because a
        /// mounted disk may be idle for days.
        idle_timeout: Option<TimeSpan> = unset;
        /// Mode of the socket file of `nbd` if the address is a Unix socket, regardless of the umask. The
        /// mode controls who may connect.
        socket_mode: FileMode = "0600";
        /// Owner of the socket file of `nbd`, by name or number. Unset means the server's user. Any other
        /// owner requires the server to run as root.
        socket_owner: Option<String> = unset;
        /// Group of the socket file of `nbd`, by name or number. For a group of clients, also set
        /// `socket_mode = "0660"`.
        socket_group: Option<String> = unset;
        /// Mode of the socket file of `control` if the address is a Unix socket, regardless of the umask. The
        /// mode controls who may connect and control the server.
        control_mode: FileMode = "0600";
        /// Owner of the socket file of `control`, like `socket_owner`.
        control_owner: Option<String> = unset;
        /// Group of the socket file of `control`, like `socket_group`.
        control_group: Option<String> = unset;
    }
}
