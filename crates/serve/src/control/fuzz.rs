//! Entry points for fuzzers: the parts of a request that this crate handles, after the HTTP
//! library. They check what must hold for any input, and panic if it does not.

use std::net::{Ipv4Addr, SocketAddr};

use hyper::header::AUTHORIZATION;
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::access::Access;
use super::token::Token;
use super::{client, order};

/// The token of the control address under test.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Checks a request given as lines: the target, then `name: value` for each header. Returns whether
/// the request is allowed over TCP and is a valid order.
pub fn fuzz_request(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let Some(Ok(target)) = lines.next().map(Uri::try_from) else { return false };
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value)
            && headers.try_append(name, value).is_err()
        {
            return false;
        }
    }
    assert_eq!(Access::Socket.check(&target, &headers), Ok(()), "sockets have their file's mode");
    let bound = SocketAddr::from((Ipv4Addr::LOCALHOST, 9100));
    let access = Access::Token { token: Token::known(TOKEN), bound };
    let allowed = access.check(&target, &headers).is_ok();
    let given = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    assert!(!allowed || given.ends_with(TOKEN.as_bytes()), "allowed without the token");
    headers.remove(AUTHORIZATION);
    assert!(access.check(&target, &headers).is_err(), "allowed without the header");

    let query = target.query().unwrap_or_default();
    let understood = match target.path() {
        "/set" => order::set(query).is_ok(),
        "/resize" => order::resize(query).is_ok(),
        "/quiesce" => order::quiesce(query).is_ok(),
        "/stop" => order::stop(query).is_ok(),
        "/invalidate" => order::invalidate(query).is_ok(),
        _ => false,
    };
    allowed && understood
}

/// Parses what a server sends to `forebay ctl`. Returns whether it is a valid answer.
pub fn fuzz_reply(bytes: &[u8]) -> bool {
    let reply = client::parse(bytes);
    if let Some(reply) = &reply {
        assert!(reply.body.len() <= bytes.len() * 3, "a body from nowhere");
    }
    reply.is_some()
}
