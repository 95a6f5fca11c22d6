//! Tests that a page names next to its promises exist, so that the tables cannot rot.
//!
//! In the last column of a table whose last heading is *test*, a cell names a test by its file, by its
//! function, by a kind of run of the adversary (`adversary: *back*`), or is "the same" as above.
//! Anywhere on the page, a path in backticks is one of the repository.

use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::Violation;

/// The pages that promise something.
pub const PAGES: [&str; 3] = ["docs/fault-model.md", "docs/user-guide.md", "docs/nbd.md"];

/// Where paths of the repository begin.
const ROOMS: [&str; 5] = ["adversary/", "bench/", "crates/", "scripts/", "tests/"];

/// What tests there are.
pub struct Tests<'a> {
    /// Files of the repository that may be tests, and their texts.
    pub files: &'a [(PathBuf, String)],
    /// The source that declares the kinds of runs of the adversary.
    pub kinds: &'a str,
}

/// A span of a page that may name something.
#[derive(Debug)]
enum Span {
    Code(String),
    Emphasis(String),
}

/// A cell of the last column.
struct Cell {
    line: usize,
    text: String,
    spans: Vec<Span>,
}

/// Reports paths and tests that a page names and that do not exist, and promises without a test.
pub fn check(path: &Path, text: &str, tests: &Tests<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut report = |line, message| found.push(Violation::new(path, line, message));
    let (cells, codes) = parse(text);
    for (code, line) in &codes {
        let is_path = ROOMS.iter().any(|room| code.starts_with(room)) || is_test_file(code);
        if is_path && tests.files_named(code).next().is_none() {
            report(*line, format!("`{code}` does not exist"));
        }
    }
    for cell in &cells {
        let files: Vec<_> = cell.codes().filter(|code| is_file(code)).collect();
        for function in cell.codes().filter(|code| is_function(code)) {
            if !tests.has_function(function, &files) {
                report(cell.line, format!("there is no test `{function}` where the row says"));
            }
        }
        let adversary = cell.text.contains("adversary");
        for kind in cell.emphases().filter(|_| adversary) {
            let mut names = tests.kinds.split('"').skip(1).step_by(2);
            if !names.any(|name| name == kind || name.split('-').any(|word| word == kind)) {
                report(cell.line, format!("the adversary has no kind *{kind}*"));
            }
        }
        let functions = cell.codes().any(is_function);
        if files.is_empty() && !functions && !adversary && !cell.text.contains("the same") {
            report(cell.line, format!("`{}` names no test", cell.text.trim()));
        }
    }
    found
}

impl Tests<'_> {
    /// Files of that path, of that name, or below that directory.
    fn files_named(&self, name: &str) -> impl Iterator<Item = &(PathBuf, String)> {
        let (below, name) = (format!("{}/", name.trim_end_matches('/')), name.to_owned());
        self.files.iter().filter(move |(path, _)| {
            path == Path::new(&name)
                || path.to_string_lossy().starts_with(&below)
                || is_test_file(&name) && path.file_name() == Some(name.as_ref())
        })
    }

    /// Whether one of these files, or of all if none is named, has a function of that name.
    fn has_function(&self, function: &str, files: &[&str]) -> bool {
        let head = format!("fn {function}(");
        let has = |text: &str| text.contains(&head);
        match files {
            [] => self.files.iter().any(|(_, text)| has(text)),
            _ => files.iter().any(|file| self.files_named(file).any(|(_, text)| has(text))),
        }
    }
}

impl Cell {
    fn codes(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().filter_map(|span| match span {
            Span::Code(code) => Some(code.as_str()),
            Span::Emphasis(_) => None,
        })
    }

    fn emphases(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().filter_map(|span| match span {
            Span::Emphasis(words) => Some(words.as_str()),
            Span::Code(_) => None,
        })
    }
}

/// A test that is named without its directory.
fn is_test_file(code: &str) -> bool {
    let plain = |stem: &str| !stem.is_empty() && !stem.contains([' ', '/', '*', '<']);
    code.strip_suffix(".sh").or(code.strip_suffix(".rs")).is_some_and(plain)
}

fn is_file(code: &str) -> bool {
    is_test_file(code) || ROOMS.iter().any(|room| code.starts_with(room))
}

/// Names of tests are claims, of three words or more.
fn is_function(code: &str) -> bool {
    let word = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
    code.matches('_').count() >= 2 && code.chars().all(word)
}

/// The cells that name tests, and all code spans with their lines.
fn parse(text: &str) -> (Vec<Cell>, Vec<(String, usize)>) {
    let (mut cells, mut codes) = (Vec::new(), Vec::new());
    let mut headings: Vec<String> = Vec::new();
    let (mut in_head, mut column, mut emphasis) = (false, 0, false);
    let mut cell = Cell { line: 0, text: String::new(), spans: Vec::new() };
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::TableHead) => (headings, in_head) = (Vec::new(), true),
            Event::Start(Tag::TableRow | Tag::Table(_)) => column = 0,
            Event::End(TagEnd::TableHead) => (in_head, column) = (false, 0),
            Event::Start(Tag::TableCell) => {
                let line = 1 + text[..range.start].matches('\n').count();
                cell = Cell { line, text: String::new(), spans: Vec::new() };
            }
            Event::End(TagEnd::TableCell) => {
                column += 1;
                let names_tests = headings.last().is_some_and(|h| h.eq_ignore_ascii_case("test"));
                let done = Cell { line: 0, text: String::new(), spans: Vec::new() };
                let done = std::mem::replace(&mut cell, done);
                match in_head {
                    true => headings.push(done.text),
                    false if names_tests && column == headings.len() => cells.push(done),
                    false => {}
                }
            }
            Event::Start(Tag::Emphasis) => emphasis = true,
            Event::End(TagEnd::Emphasis) => emphasis = false,
            Event::Code(code) => {
                codes.push((code.to_string(), 1 + text[..range.start].matches('\n').count()));
                cell.text.push_str(&code);
                cell.spans.push(Span::Code(code.into_string()));
            }
            Event::Text(words) => {
                cell.text.push_str(&words);
                if emphasis {
                    cell.spans.push(Span::Emphasis(words.into_string()));
                }
            }
            _ => {}
        }
    }
    (cells, codes)
}

/// How many promises of a page have a place for a test: none, and the rule looks nowhere.
pub fn rows(text: &str) -> usize {
    parse(text).0.len()
}

/// Whether a file can hold tests that pages name.
pub fn applies(path: &Path) -> bool {
    ROOMS.iter().any(|room| path.starts_with(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let files = [
            file("tests/integration/kill9.sh", ""),
            file("crates/a/tests/b.rs", "#[test]\nfn it_does_hold() {}"),
            file("crates/a/src/c.rs", "#[test]\nfn it_is_elsewhere() {}"),
        ];
        let kinds = "kind(\"back-errors\", true)";
        let tests = Tests { files: &files, kinds };
        check(Path::new("p.md"), page, &tests).iter().map(ToString::to_string).collect()
    }

    fn table(cell: &str) -> String {
        format!("| promise | test |\n| --- | --- |\n| p | {cell} |\n")
    }

    #[test]
    fn tests_that_exist_pass() {
        let none: [String; 0] = [];
        for cell in [
            "`tests/integration/kill9.sh`",
            "`kill9.sh`",
            "`it_does_hold` in `crates/a/tests/b.rs`",
            "`it_does_hold`",
            "adversary: the kinds *errors*, *back-errors*",
            "the same",
            "`crates/a/tests`",
        ] {
            assert_eq!(found(&table(cell)), none, "{cell}");
        }
        // Other tables name what they like.
        assert_eq!(found("| a | b |\n| --- | --- |\n| c | nothing |\n"), none);
    }

    #[test]
    fn a_planted_path_that_does_not_exist_is_found_anywhere() {
        for name in ["tests/integration/kill8.sh", "kill8.sh", "crates/a/tests/c.rs", "c2.rs"] {
            let message = format!("p.md:2: `{name}` does not exist");
            assert_eq!(found(&format!("Text,\nsee `{name}`.")), [message]);
        }
    }

    #[test]
    fn a_planted_test_that_does_not_exist_or_is_elsewhere_is_found() {
        for cell in ["`it_never_was`", "`it_is_elsewhere` in `crates/a/tests/b.rs`"] {
            let found = found(&table(cell));
            assert!(
                found.len() == 1 && found[0].starts_with("p.md:3: there is no test"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_planted_kind_and_a_promise_without_a_test_are_found() {
        assert_eq!(
            found(&table("adversary: *eras*")),
            ["p.md:3: the adversary has no kind *eras*"]
        );
        assert_eq!(found(&table("believe us")), ["p.md:3: `believe us` names no test"]);
        assert_eq!(found(&table("")).len(), 1);
    }
}
