//! The sans-IO NBD protocol, server and client halves.
