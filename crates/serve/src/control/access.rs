//! Who may give orders over the control address.
//!
//! Over a unix socket, anyone who can open it may. A TCP port of the loopback is open to every user
//! of the machine and, through web pages, to browsers. So a request over TCP must carry the token.
//! It must name this machine as its host (otherwise a page of another site could be served under a
//! name that resolves to this machine), and it must not come from a page of another site.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use hyper::http::uri::Authority;
use hyper::http::{HeaderMap, Uri};

use super::token::Token;

/// The rule of one control address.
#[derive(Debug)]
pub(super) enum Access {
    /// Anyone who can connect is allowed.
    Socket,
    /// Anyone who has the token is allowed.
    Token {
        /// The token.
        token: Token,
        /// The address that the server listens on.
        bound: SocketAddr,
    },
}

/// Why a request is refused: the HTTP status and a message.
pub(super) type Refused = (u16, &'static str);

impl Access {
    /// Checks by its target and headers whether a request is allowed.
    pub fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        let Access::Token { token, bound } = self else { return Ok(()) };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let named = [host, target.authority().map(Authority::as_str)];
        let named = || named.into_iter().flatten();
        if named().next().is_none() || !named().all(|host| is_own(host, bound.ip())) {
            return Err((
                421,
                "the Host header does not name this server: use the server's address, or localhost",
            ));
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let own = |host: &str| origin.as_bytes() == format!("http://{host}").as_bytes();
            if !host.is_some_and(own) {
                return Err((403, "requests from web pages on other sites are refused"));
            }
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        match given {
            Some((scheme, given))
                if scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim()) =>
            {
                Ok(())
            }
            _ => Err((
                401,
                "over TCP, each request must carry the token from serve.control_token_file: send \
                 `Authorization: Bearer TOKEN`, or use `forebay ctl --token-file FILE`",
            )),
        }
    }
}

/// Whether a host, with or without a port, is this machine.
fn is_own(host: &str, bound: IpAddr) -> bool {
    let Ok(host) = host.parse::<Authority>() else { return false };
    let name = host.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match address.parse::<IpAddr>() {
        Ok(address) => address == bound || address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(target: &str, headers: &[(&'static str, &str)]) -> u16 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::read_or_create(&path).unwrap();
        let authorization = format!("Bearer {}", token.text());
        let access = Access::Token { token, bound: "127.0.0.1:9100".parse().unwrap() };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = value.replace("TOKEN", &authorization);
            map.insert(*name, value.parse().unwrap());
        }
        access.check(&target.parse().unwrap(), &map).map_or_else(|(code, _)| code, |()| 200)
    }

    #[test]
    fn only_the_token_opens_a_tcp_address() {
        for (given, code) in [("TOKEN", 200), ("TOKENx", 401), ("Bearer", 401), ("Basic x", 401)] {
            let headers = [("host", "localhost:9100"), ("authorization", given)];
            assert_eq!(check("/status", &headers), code, "{given}");
        }
        assert_eq!(check("/status", &[("host", "localhost")]), 401);
    }

    #[test]
    fn a_name_of_another_site_is_refused_even_with_the_token() {
        for (host, code) in [
            ("127.0.0.1:9100", 200),
            ("127.0.0.1", 200),
            ("[::1]:1", 200),
            ("LOCALHOST:9", 200),
            ("evil.example:9100", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("192.0.2.1", 421),
            ("", 421),
        ] {
            let headers = [("host", host), ("authorization", "TOKEN")];
            assert_eq!(check("/status", &headers), code, "{host}");
        }
        assert_eq!(check("/status", &[("authorization", "TOKEN")]), 421, "no host at all");
        let headers = [("host", "localhost"), ("authorization", "TOKEN")];
        assert_eq!(check("http://evil.example/status", &headers), 421);
    }

    #[test]
    fn a_page_of_another_site_is_refused_even_with_the_token() {
        for (origin, code) in [
            ("http://localhost:9100", 200),
            ("http://localhost:9101", 403),
            ("http://evil.example", 403),
            ("null", 403),
        ] {
            let host = ("host", "localhost:9100");
            let headers = [host, ("origin", origin), ("authorization", "TOKEN")];
            assert_eq!(check("/stop", &headers), code, "{origin}");
        }
    }

    #[test]
    fn a_unix_socket_asks_for_nothing() {
        assert_eq!(Access::Socket.check(&"/stop".parse().unwrap(), &HeaderMap::new()), Ok(()));
    }
}
