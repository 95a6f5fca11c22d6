//! What the pure crates must not name: clocks, threads, files, sockets, ambient randomness,
//! unordered maps.
//!
//! The cache, the flash log and the NBD sessions are driven by the server, the simulator and
//! the adversary alike; they can be because nothing in them depends on where they run. Tests
//! may use what they like.

use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::Violation;

/// Where the crates lie that know no clock, thread, file or socket.
const PURE: [&str; 5] = [
    "crates/cache/src",
    "crates/effect/src",
    "crates/flash/src",
    "crates/nbd/src",
    "crates/replacement/src",
];

/// Paths that may not be named, with the reason.
const BANNED_PATHS: [(&str, &str); 8] = [
    ("std::thread", "threads belong to drivers"),
    ("std::fs", "files belong to drivers"),
    ("std::net", "sockets belong to drivers"),
    ("std::os", "the operating system belongs to drivers"),
    ("std::process", "the process belongs to drivers"),
    ("std::env", "the environment makes two runs differ"),
    ("std::sync::mpsc", "channels belong to drivers"),
    ("rand::rng", "random numbers come from a seed that is passed in"),
];

/// Names that may not be used wherever they come from, with the reason.
const BANNED_NAMES: [(&str, &str); 16] = [
    ("Instant", "time is passed in"),
    ("SystemTime", "time is passed in"),
    ("Mutex", "locks belong to drivers"),
    ("RwLock", "locks belong to drivers"),
    ("Condvar", "locks belong to drivers"),
    ("OnceLock", "locks belong to drivers"),
    ("LazyLock", "locks belong to drivers"),
    ("thread_local", "threads belong to drivers"),
    ("thread_rng", "random numbers come from a seed that is passed in"),
    ("HashMap", "its order differs from run to run: use BTreeMap or the index"),
    ("HashSet", "its order differs from run to run: use BTreeSet or the index"),
    ("RandomState", "it differs from run to run"),
    ("tokio", "I/O belongs to drivers"),
    ("io_uring", "I/O belongs to drivers"),
    ("libc", "the operating system belongs to drivers"),
    ("println", "libraries never print"),
];

/// Reports what a source file of a pure crate must not name; other files pass.
pub fn check(path: &Path, text: &str) -> Vec<Violation> {
    if is_test_file(path) || !PURE.iter().any(|directory| path.starts_with(directory)) {
        return Vec::new();
    }
    match text.parse::<TokenStream>() {
        Ok(tokens) => {
            let mut names = Vec::new();
            collect(tokens, "", &mut names);
            names.iter().filter_map(|(name, line)| judge(path, name, *line)).collect()
        }
        Err(error) => vec![Violation::new(path, 0, format!("cannot be read as Rust: {error}"))],
    }
}

/// Whether a source file has only tests.
pub(crate) fn is_test_file(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "tests" || stem == "test")
}

fn judge(path: &Path, name: &str, line: usize) -> Option<Violation> {
    let canonical = name.replacen("core::", "std::", 1);
    let by_path = BANNED_PATHS.iter().find(|(banned, _)| {
        canonical.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    });
    let by_name = || BANNED_NAMES.iter().find(|(banned, _)| name.split("::").any(|s| s == *banned));
    let (banned, why) = by_path.or_else(by_name)?;
    Some(Violation::new(path, line, format!("`{banned}` may not be used here: {why}")))
}

/// Collects every path in `tokens` with its line, `use` groups spelled out behind `prefix`.
/// Items under `#[cfg(test)]` are passed over.
fn collect(tokens: TokenStream, prefix: &str, names: &mut Vec<(String, usize)>) {
    let mut path = PathBuilder { prefix, path: prefix.to_string(), line: 0, names };
    let mut in_test_item = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if in_test_item {
            in_test_item = !ends_item(&token);
            continue;
        }
        match token {
            TokenTree::Ident(ident) => path.push(&ident.to_string(), ident.span().start().line),
            TokenTree::Punct(p) if p.as_char() == ':' => match tokens.peek() {
                Some(TokenTree::Punct(next)) if next.as_char() == ':' => {
                    tokens.next();
                    path.join();
                }
                _ => path.end(),
            },
            TokenTree::Group(group) if path.is_open() && group.delimiter() == Delimiter::Brace => {
                collect(group.stream(), &path.path, path.names);
                path.clear();
            }
            TokenTree::Group(group) => {
                path.end();
                in_test_item = is_test_attribute(&group);
                collect(group.stream(), "", path.names);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => path.end(),
        }
    }
    path.end();
}

/// Whether an item ends with this token of it.
pub(crate) fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    }
}

/// Whether these are the brackets of `#[cfg(test)]`.
pub(crate) fn is_test_attribute(group: &Group) -> bool {
    let text = || group.stream().to_string().replace(' ', "");
    group.delimiter() == Delimiter::Bracket && text() == "cfg(test)"
}

/// Puts the segments of one path together.
struct PathBuilder<'a> {
    prefix: &'a str,
    path: String,
    line: usize,
    names: &'a mut Vec<(String, usize)>,
}

impl PathBuilder<'_> {
    /// Whether the path ends in `::`, so that what follows belongs to it.
    fn is_open(&self) -> bool {
        self.path.ends_with("::")
    }
    fn push(&mut self, segment: &str, line: usize) {
        if !self.is_open() {
            self.end();
        }
        self.path += segment;
        self.line = line;
    }
    fn join(&mut self) {
        if !self.path.is_empty() {
            self.path += "::";
        }
    }
    fn end(&mut self) {
        if self.path.len() > self.prefix.len() {
            self.names.push((self.path.trim_end_matches("::").to_string(), self.line));
        }
        self.clear();
    }
    fn clear(&mut self) {
        self.path.clear();
        self.path += self.prefix;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banned(text: &str) -> Vec<usize> {
        check(Path::new("crates/cache/src/x.rs"), text).iter().map(|v| v.line).collect()
    }

    #[test]
    fn planted_clocks_threads_files_and_maps_are_found_with_their_line() {
        for text in [
            "\nuse std::time::Instant;",
            "\nuse std::time::{Duration, SystemTime};",
            "\nuse std::{fmt, fs};",
            "\nuse std::{io, collections::{BTreeMap, HashMap}};",
            "\nfn f() { std::thread::spawn(|| ()); }",
            "\nfn f() { let x: std::net::TcpStream; }",
            "\nstruct S { a: u8, m: Mutex<u8> }",
            "\nuse std::sync::{Arc, RwLock as L};",
            "\nfn f() -> u64 { rand::rng() }",
            "\nfn f() { g(&[std::fs::read(\"x\")]) }",
            "\nfn f() { println!(\"x\") }",
            "\nuse core::{cell::Cell}; fn f() { tokio::spawn(()) }",
            "\nuse std::fs as f;",
        ] {
            assert_eq!(banned(text), [2], "{text}");
        }
    }

    #[test]
    fn comments_texts_and_tests_may_say_what_they_like() {
        for text in [
            "/// Never reads std::time::Instant.\nfn f() {}",
            "fn f() -> &'static str { \"std::fs\" }",
            "#[cfg(test)]\nmod tests { use std::collections::HashMap; }",
            "#[cfg(test)]\nuse std::fs;",
            "use std::sync::Arc; use std::collections::BTreeMap;",
            "fn instant(x: Foo::Bar) -> thread::X { self.fs::<u8>() }",
        ] {
            assert_eq!(banned(text), [0; 0], "{text}");
        }
        let after = "#[cfg(test)]\nmod tests { }\nuse std::fs;";
        assert_eq!(banned(after), [3], "what follows the tests counts again");
    }

    #[test]
    fn other_crates_and_test_files_pass() {
        let text = "use std::fs;";
        assert_eq!(check(Path::new("crates/engine/src/x.rs"), text), []);
        assert_eq!(check(Path::new("crates/cache/tests/x.rs"), text), []);
        assert_eq!(check(Path::new("crates/cache/src/front/tests.rs"), text), []);
    }
}
