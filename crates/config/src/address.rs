//! Addresses on which a server listens.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// An address on which a server listens: `unix:/run/forebay/nbd.sock` or `tcp:127.0.0.1:10809`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port on an address of this host.
    Tcp(SocketAddr),
}

/// The text is not an address to listen on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is not of the form `unix:PATH` or `tcp:IP:PORT`.
    #[error(
        "`{0}` is not an address: write unix:/path/of/socket or tcp:IP:PORT, such as \
         tcp:127.0.0.1:10809"
    )]
    Form(String),
    /// The path of the Unix socket is longer than the kernel supports.
    #[error(
        "the path of the Unix socket `{path}` is {} bytes long; the maximum is \
         {UNIX_PATH_BYTES_MAX} bytes",
        path.len()
    )]
    LongPath {
        /// The path.
        path: String,
    },
}

/// Size of the path in the kernel's `sockaddr_un`, without the final zero byte.
const UNIX_PATH_BYTES_MAX: usize = 107;

impl Address {
    /// Whether only this host can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(address) => match address.ip() {
                IpAddr::V4(ip) => ip.is_loopback(),
                IpAddr::V6(ip) => ip.is_loopback(),
            },
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError::Form(text.to_string());
        match text.split_once(':') {
            Some(("unix", path)) if path.len() > UNIX_PATH_BYTES_MAX => {
                Err(AddressError::LongPath { path: path.to_string() })
            }
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(path.into())),
            Some(("tcp", address)) => {
                let address = address.replace("localhost:", "127.0.0.1:");
                address.parse().map(Address::Tcp).map_err(|_| error())
            }
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

crate::schema::read_from_text!(Address);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_alike() {
        for text in ["unix:/run/forebay/nbd.sock", "tcp:127.0.0.1:10809", "tcp:[::1]:10809"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert!(address.is_local());
        }
        assert!(!"tcp:0.0.0.0:10809".parse::<Address>().unwrap().is_local());
        assert!(!"tcp:[::]:10809".parse::<Address>().unwrap().is_local());
    }

    #[test]
    fn what_is_not_an_address_is_refused_with_the_form_expected() {
        for text in ["", "unix:", "/run/x", "tcp:", "tcp:127.0.0.1", "tcp:nowhere:1"] {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains("unix:/path"), "{message}");
        }
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_BYTES_MAX));
        let message = long.parse::<Address>().unwrap_err().to_string();
        assert!(message.contains("is 108 bytes long; the maximum is 107 bytes"), "{message}");
        assert!(long[..long.len() - 1].parse::<Address>().is_ok());
    }
}
