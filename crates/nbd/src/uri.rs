//! NBD addresses: `nbd://host:port/export` and `nbd+unix:///export?socket=path`.

use core::fmt;
use core::str::FromStr;

/// The port that IANA assigned to NBD.
pub const PORT_DEFAULT: u16 = 10809;

/// Where an export is.
///
/// ```
/// use forebay_nbd::{NbdUri, NbdAddress};
/// let uri: NbdUri = "nbd+unix:///my%20disk?socket=/run/nbd.sock".parse().unwrap();
/// assert_eq!(uri.address, NbdAddress::Unix("/run/nbd.sock".into()));
/// assert_eq!(uri.export, "my disk");
/// let uri: NbdUri = "nbd://[::1]:9999//disk".parse().unwrap();
/// assert_eq!(uri.address, NbdAddress::Tcp { host: "::1".into(), port: 9999 });
/// assert_eq!(uri.export, "/disk");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NbdUri {
    /// The server.
    pub address: NbdAddress,
    /// The export's name; empty for the default one.
    pub export: String,
    /// Whether TLS is required (`nbds`, `nbds+unix`).
    pub tls: bool,
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NbdAddress {
    /// On TCP.
    Tcp {
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// On the Unix socket with this path.
    Unix(String),
}

/// An address that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The scheme is none of nbd, nbds, nbd+unix, nbds+unix.
    #[error(
        "{0:?} is not an NBD address: it must begin with nbd://, nbds://, nbd+unix:// or \
         nbds+unix://"
    )]
    Scheme(String),
    /// A unix address without `?socket=path`.
    #[error(
        "an NBD address for a Unix socket needs the socket's path: nbd+unix:///EXPORT?socket=PATH"
    )]
    SocketMissing,
    /// A TCP address without a host.
    #[error("an NBD address for TCP needs a host: nbd://HOST:PORT/EXPORT")]
    HostMissing,
    /// A port that is not a number from 1 to 65535.
    #[error("{0:?} is not a TCP port")]
    Port(String),
    /// A percent sign that two hex digits do not follow, or decoded bytes that are not UTF-8.
    #[error("{0:?} contains a percent sign that does not encode a character (write %25)")]
    Escape(String),
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<NbdUri, UriError> {
        let unknown = || UriError::Scheme(uri.to_owned());
        let (scheme, rest) = uri.split_once("://").ok_or_else(unknown)?;
        let (tls, unix) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(unknown()),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let address = if unix { unix_address(query)? } else { tcp_address(authority)? };
        Ok(NbdUri { address, export: unescape(path)?, tls })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.tls { "s" } else { "" };
        match &self.address {
            NbdAddress::Tcp { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd{s}://{open}{}{close}", escape(host, ":"))?;
                if *port != PORT_DEFAULT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{}", escape(&self.export, "/"))
            }
            NbdAddress::Unix(path) => {
                let (export, path) = (escape(&self.export, "/"), escape(path, "/"));
                write!(f, "nbd{s}+unix:///{export}?socket={path}")
            }
        }
    }
}

fn unix_address(query: &str) -> Result<NbdAddress, UriError> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
    match value.map(unescape).transpose()? {
        Some(path) if !path.is_empty() => Ok(NbdAddress::Unix(path)),
        _ => Err(UriError::SocketMissing),
    }
}

fn tcp_address(authority: &str) -> Result<NbdAddress, UriError> {
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UriError::HostMissing)?;
            (host, after.strip_prefix(':').unwrap_or(after))
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let port = match port {
        "" => PORT_DEFAULT,
        text => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(UriError::Port(text.to_owned())),
        },
    };
    let host = unescape(host)?;
    if host.is_empty() { Err(UriError::HostMissing) } else { Ok(NbdAddress::Tcp { host, port }) }
}

fn unescape(text: &str) -> Result<String, UriError> {
    let bad = || UriError::Escape(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(bad)?;
        let digit = |d: u8| char::from(d).to_digit(16).ok_or_else(bad);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// Percent-encodes `text`, except letters, digits, `-._~` and the characters in `plain`.
fn escape(text: &str, plain: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        let harmless = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if harmless || plain.as_bytes().contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        let address = NbdAddress::Tcp { host: host.into(), port };
        NbdUri { address, export: export.into(), tls: false }
    }

    #[test]
    fn the_examples_of_the_uri_document_mean_what_it_says() {
        for (text, uri) in [
            ("nbd://example.com/disk", tcp("example.com", PORT_DEFAULT, "disk")),
            ("nbd://example.com/", tcp("example.com", PORT_DEFAULT, "")),
            ("nbd://example.com", tcp("example.com", PORT_DEFAULT, "")),
            ("nbd://example.com//disk", tcp("example.com", PORT_DEFAULT, "/disk")),
            ("nbd://example.com/hello%20world", tcp("example.com", PORT_DEFAULT, "hello world")),
            ("nbd://user@127.0.0.1:1/a", tcp("127.0.0.1", 1, "a")),
            ("NBD://[fe80::1]", tcp("fe80::1", PORT_DEFAULT, "")),
        ] {
            assert_eq!(text.parse(), Ok(uri), "{text}");
        }
        let unix: NbdUri = "nbds+unix:///disk?tls-type=psk&socket=s%3Dck".parse().unwrap();
        assert_eq!((unix.address, unix.tls), (NbdAddress::Unix("s=ck".into()), true));
    }

    #[test]
    fn addresses_that_lack_something_are_refused_with_the_reason() {
        let parse = |text: &str| text.parse::<NbdUri>().unwrap_err();
        assert!(matches!(parse("/dev/sda"), UriError::Scheme(_)));
        assert!(matches!(parse("http://x/"), UriError::Scheme(_)));
        assert_eq!(parse("nbd+unix:///disk"), UriError::SocketMissing);
        assert_eq!(parse("nbd+unix:///disk?socket="), UriError::SocketMissing);
        assert_eq!(parse("nbd:///disk"), UriError::HostMissing);
        assert!(matches!(parse("nbd://h:0/"), UriError::Port(_)));
        assert!(matches!(parse("nbd://h:65536/"), UriError::Port(_)));
        assert!(matches!(parse("nbd://h/%2"), UriError::Escape(_)));
        assert!(matches!(parse("nbd://h/%FF"), UriError::Escape(_)));
    }

    proptest! {
        #[test]
        fn an_address_survives_being_written_and_read(
            export in "[^\u{0}]{0,20}", path in "[^\u{0}]{1,20}", port in 1u16.., tls: bool
        ) {
            for address in [
                NbdAddress::Unix(path.clone()),
                NbdAddress::Tcp { host: "::1".into(), port },
                NbdAddress::Tcp { host: path.clone(), port },
            ] {
                let uri = NbdUri { address, export: export.clone(), tls };
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text in "\\PC{0,60}") {
            let _ = text.parse::<NbdUri>();
            let _ = format!("nbd://{text}").parse::<NbdUri>();
            let _ = format!("nbd+unix:///{text}?socket={text}").parse::<NbdUri>();
        }
    }
}
