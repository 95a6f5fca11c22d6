//! NBD server, control socket and recorder.
