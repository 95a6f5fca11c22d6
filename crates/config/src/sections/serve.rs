//! `[serve]`.

use std::path::PathBuf;

use crate::Address;
use crate::schema::section;

section! {
    /// Where the server listens.
    pub struct Serve {
        /// Where NBD clients connect. An address that other hosts reach needs `[serve.tls]`.
        nbd: Address = "unix:/run/forebay/nbd.sock";
        /// Where `forebay ctl` and Prometheus connect: a unix socket or a loopback address.
        control: Address = "unix:/run/forebay/control.sock";
        /// Encryption and identity for NBD over TCP.
        tls: Option<Tls> = unset, later;
    }
}

section! {
    /// Encryption and identity for NBD over TCP. Clients that do not start TLS are refused.
    pub struct Tls {
        /// The server's certificate chain, PEM.
        certificate: PathBuf = required;
        /// Its private key, PEM.
        key: PathBuf = required;
        /// Accept only clients with a certificate from these authorities, PEM. Unset means that
        /// clients need none.
        client_ca: Option<PathBuf> = unset;
    }
}
