//! `[serve]`.

use std::path::PathBuf;

use crate::schema::section;
use crate::{Address, FileMode, Size, TimeSpan};

section! {
    /// Where the server listens.
    pub struct Serve {
        /// Where NBD clients connect. An address that other hosts reach is refused, since there is no encryption.
        nbd: Address = "unix:/run/forebay/nbd.sock";
        /// Where `forebay ctl` and Prometheus connect: a unix socket or a loopback address.
        control: Address = "unix:/run/forebay/control.sock";
        /// Where the token is that every request on a `control` address over TCP must carry. A file that
        /// does not exist is created, readable by the server's user only, with a random token. A unix
        /// socket needs no token: its permissions say who may open it.
        control_token_file: PathBuf = "/run/forebay/control.token";
        /// Memory for the requests of all NBD clients and for the replies that they have not taken yet, at
        /// least 136MiB and 192KiB for each of `connections`. Half of it is divided among connections, a
        /// share for each; the other half is lent to those that need more than their share. A request that
        /// finds no memory waits.
        request_memory: Size = "256MiB";
        /// Most NBD connections at a time. Further ones are closed at once.
        connections: u32 = 1024;
        /// Most connections to one volume at a time; further ones are refused with a reason. Unset means no
        /// limit but `connections`.
        volume_connections: Option<u32> = unset;
        /// How long a client may take to choose an export.
        handshake_timeout: TimeSpan = "10s";
        /// How long a client may do nothing while the payload of a write or a reply is under way, when its
        /// connection holds more than its share and others wait for memory; then the connection is closed.
        /// One that goes on slowly has one second more for each MiB.
        stall_timeout: TimeSpan = "10s";
        /// Close connections on which nothing happens for so long. Unset means never: a mounted disk may
        /// be idle for days.
        idle_timeout: Option<TimeSpan> = unset;
        /// Who may connect to `nbd` where it is a unix socket, whatever the umask: the mode of its file.
        socket_mode: FileMode = "0600";
        /// The owner of that file, by name or number. Unset means the server's user. Another one needs
        /// a server that runs as root.
        socket_owner: Option<String> = unset;
        /// Its group, by name or number; for a group of clients set `socket_mode = "0660"`, too.
        socket_group: Option<String> = unset;
        /// Who may connect to `control` where it is a unix socket, and so give orders to the server: the
        /// mode of its file.
        control_mode: FileMode = "0600";
        /// The owner of that file, as `socket_owner`.
        control_owner: Option<String> = unset;
        /// Its group, as `socket_group`.
        control_group: Option<String> = unset;
    }
}
