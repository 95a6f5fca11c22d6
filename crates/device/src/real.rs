//! Real devices through the best backend that this machine allows.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use forebay_effect::Device;

use crate::devices::Devices;
use crate::doorbell::Doorbell;
use crate::file::{Notice, Target};
use crate::layer::Layer;
use crate::threads::{THREADS_DEFAULT, ThreadDevices};
use crate::uring::{self, UringDevices};

/// Which backend to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// io_uring, or threads with a [`Notice`] if it is not available.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A pool of threads.
    Threads,
}

impl Backend {
    /// The names of the backends.
    pub const NAMES: [&str; 3] = ["auto", "io_uring", "threads"];

    /// The environment variable that [`from_environment`](Backend::from_environment) reads.
    pub const VARIABLE: &str = "FOREBAY_IO";

    /// The value of `FOREBAY_IO`; [`Backend::Auto`] if it is not set.
    ///
    /// # Errors
    /// If it is set to a value that is not one of the names.
    pub fn from_environment() -> Result<Backend, UnknownBackend> {
        match std::env::var(Self::VARIABLE) {
            Ok(name) => name.parse(),
            Err(_) => Ok(Backend::Auto),
        }
    }
}

/// A name that is not the name of a backend.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no I/O backend `{0}`; use `auto`, `io_uring` or `threads`")]
pub struct UnknownBackend(pub String);

impl FromStr for Backend {
    type Err = UnknownBackend;
    fn from_str(name: &str) -> Result<Backend, UnknownBackend> {
        match name {
            "auto" => Ok(Backend::Auto),
            "io_uring" => Ok(Backend::Uring),
            "threads" => Ok(Backend::Threads),
            _ => Err(UnknownBackend(name.to_owned())),
        }
    }
}

/// Files and block devices, served by io_uring or by threads.
#[derive(Debug)]
pub struct RealDevices {
    inner: Inner,
}

enum Inner {
    Uring(Box<UringDevices>),
    Threads(ThreadDevices),
}

impl RealDevices {
    /// A backend without devices that rings `bell` for completions.
    ///
    /// # Errors
    /// If the backend is not available; with [`Backend::Auto`], if not even a thread can be
    /// started.
    pub fn new(
        backend: Backend,
        options: uring::Options,
        bell: Arc<Doorbell>,
    ) -> io::Result<(RealDevices, Option<Notice>)> {
        let threads = |bell| {
            ThreadDevices::new(THREADS_DEFAULT, bell)
                .map(|threads| RealDevices { inner: Inner::Threads(threads) })
        };
        match backend {
            Backend::Threads => Ok((threads(bell)?, None)),
            Backend::Uring | Backend::Auto => match UringDevices::new(options, bell.clone()) {
                Ok(ring) => Ok((RealDevices { inner: Inner::Uring(Box::new(ring)) }, None)),
                Err(error) if backend == Backend::Uring => {
                    let what = format!("io_uring is not available: {error}");
                    Err(io::Error::new(error.kind(), what))
                }
                Err(error) => {
                    let notice = Notice::Threads { reason: error.to_string() };
                    Ok((threads(bell)?, Some(notice)))
                }
            },
        }
    }

    /// Adds a device; volumes may be added at any time.
    ///
    /// # Panics
    /// If a device with that name exists.
    pub fn add(&mut self, device: Device, target: Target) {
        match &mut self.inner {
            Inner::Uring(ring) => ring.add(device, target),
            Inner::Threads(threads) => threads.add(device, target),
        }
    }

    /// The name of the backend in use, one of [`Backend::NAMES`].
    pub fn backend(&self) -> &'static str {
        match self.inner {
            Inner::Uring(_) => "io_uring",
            Inner::Threads(_) => "threads",
        }
    }
}

impl Layer for RealDevices {
    type Inner = dyn Devices;

    fn inner(&self) -> &Self::Inner {
        match &self.inner {
            Inner::Uring(ring) => &**ring,
            Inner::Threads(threads) => threads,
        }
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        match &mut self.inner {
            Inner::Uring(ring) => &mut **ring,
            Inner::Threads(threads) => threads,
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inner::Uring(ring) => ring.fmt(f),
            Inner::Threads(threads) => threads.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_backend_and_others_are_refused_with_the_names() {
        for name in Backend::NAMES {
            assert!(name.parse::<Backend>().is_ok(), "{name}");
        }
        let error = "aio".parse::<Backend>().unwrap_err().to_string();
        assert!(Backend::NAMES.iter().all(|name| error.contains(name)), "{error}");
    }
}
