//! Sends requests to a running server.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use forebay_config::Address;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::token::Token;

/// Maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The first bytes that an NBD server sends.
const NBD_GREETING: &[u8] = b"NBDMAGIC";

/// An answer of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The HTTP status: 200 and 202 mean success.
    pub code: u16,
    /// The body: JSON or text.
    pub body: String,
}

/// Why there is no answer from a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No server accepts connections on the address.
    #[error("no server answers on {address}: {source}")]
    Connect {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Something else than the control of a server answers on the address.
    #[error(
        "{address} is not the control address of a server{}; use the address set as `control` in \
         [serve]",
        if *nbd { ": clients use it for NBD" } else { "" }
    )]
    NotControl {
        /// The address.
        address: String,
        /// Whether the answer is the greeting of an NBD server.
        nbd: bool,
    },
    /// The connection ended without a valid answer.
    #[error("the server on {address} closed the connection: {source}")]
    Broken {
        /// The address.
        address: String,
        /// The error.
        source: io::Error,
    },
}

/// Sends one request and waits for its answer. Over TCP, a server requires its token.
///
/// # Errors
/// If no server answers on the address, or the answer is not valid HTTP.
pub fn ask(
    address: &Address,
    token: Option<&Token>,
    method: &str,
    path: &str,
) -> Result<Reply, ClientError> {
    let refused = |source| ClientError::Connect { address: address.to_string(), source };
    let broken = |source| ClientError::Broken { address: address.to_string(), source };
    let answer = match address {
        Address::Unix(path_of) => {
            let socket = UnixStream::connect(path_of).map_err(refused)?;
            converse(socket, "localhost", token, method, path).map_err(broken)?
        }
        Address::Tcp(address) => {
            let socket = TcpStream::connect(address).map_err(refused)?;
            converse(socket, &address.to_string(), token, method, path).map_err(broken)?
        }
    };
    let not_control = |nbd| ClientError::NotControl { address: address.to_string(), nbd };
    match parse(&answer) {
        Some(reply) => Ok(reply),
        None if answer.starts_with(NBD_GREETING) => Err(not_control(true)),
        None if !answer.is_empty() && !answer.starts_with(b"HTTP/") => Err(not_control(false)),
        None => Err(broken(io::ErrorKind::InvalidData.into())),
    }
}

/// Percent-encodes a value, so that it can follow `=` in a path.
pub fn encoded(value: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(value, NON_ALPHANUMERIC)
}

fn converse(
    mut socket: impl Read + Write,
    host: &str,
    token: Option<&Token>,
    method: &str,
    path: &str,
) -> io::Result<Vec<u8>> {
    let token = token.map(|t| format!("Authorization: Bearer {}\r\n", t.text()));
    let token = token.unwrap_or_default();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}\
         Content-Length: 0\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Parses a complete answer, after which the server has closed the connection.
pub(super) fn parse(answer: &[u8]) -> Option<Reply> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let code = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let chunked = lines.any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
    let body = &answer[end + 4..];
    let body = if chunked { unchunk(body)? } else { body.to_vec() };
    Some(Reply { code, body: String::from_utf8(body).ok()? })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = rest.get(line + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_any_characters_is_one_value() {
        for value in ["vm1", "vm1#x", "a b", "?&=%20+/", "\u{fc}\u{1f600}"] {
            let text = encoded(value).to_string();
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'%'), "{text}");
            let back = percent_encoding::percent_decode_str(&text).decode_utf8().unwrap();
            assert_eq!(back, value);
        }
    }

    #[test]
    fn plain_and_chunked_answers_are_understood() {
        let plain = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(plain), Some(Reply { code: 404, body: "{}".into() }));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                        3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Some(Reply { code: 200, body: "abcde".into() }));
        for cut in 0..chunked.len() - 4 {
            assert_eq!(parse(&chunked[..cut]), None, "{cut}");
        }
    }
}
