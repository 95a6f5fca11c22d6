//! Names of the source that pages quote exist: `Type::member` and `module::item`.

use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Parser};

use crate::Violation;

/// Whether the names on a page are held against the source.
pub fn applies(path: &Path) -> bool {
    path == Path::new("ARCHITECTURE.md")
        || path.starts_with("docs") && path.extension().is_some_and(|e| e == "md")
}

/// Reports names that a page quotes and that the sources do not define.
pub fn check(path: &Path, text: &str, sources: &[(PathBuf, String)]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (event, range) in Parser::new(text).into_offset_iter() {
        let Event::Code(code) = event else { continue };
        let Some((owner, item)) = quoted(&code) else { continue };
        if !homes(owner, sources).any(|text| defines(text, item)) {
            let line = 1 + text[..range.start].matches('\n').count();
            found.push(Violation::new(path, line, format!("`{code}` is not in the source")));
        }
    }
    found
}

/// The last two words of a name with a path.
fn quoted(code: &str) -> Option<(&str, &str)> {
    let code = code.strip_suffix("()").unwrap_or(code);
    let (path, item) = code.rsplit_once("::")?;
    let owner = path.rsplit("::").next()?;
    (is_identifier(item) && path.split("::").all(is_identifier)).then_some((owner, item))
}

/// Whether a word can be the name of an item.
pub(crate) fn is_identifier(word: &str) -> bool {
    let inner = |c: char| c == '_' || c.is_ascii_alphanumeric();
    word.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic()) && word.chars().all(inner)
}

/// Texts where something of a type may be defined, or the files of a module or a crate.
fn homes<'a>(
    owner: &'a str,
    sources: &'a [(PathBuf, String)],
) -> impl Iterator<Item = &'a str> + 'a {
    let is_type = owner.starts_with(|c: char| c.is_ascii_uppercase());
    let part = format!("{owner}.rs");
    let within = move |path: &Path| {
        path.components().any(|c| c.as_os_str() == owner || c.as_os_str() == part.as_str())
    };
    let found = sources.iter().filter(move |(path, text)| match is_type {
        true => text.lines().any(|line| is_about(line, owner)),
        false => within(path),
    });
    found.map(|(_, text)| text.as_str())
}

/// Whether a line begins the definition of a type, or an `impl` of one.
fn is_about(line: &str, owner: &str) -> bool {
    let line = visible(line);
    let begins = ["struct ", "enum ", "trait ", "union ", "type "]
        .iter()
        .filter_map(|kind| line.strip_prefix(kind))
        .any(|rest| is_word(rest, owner));
    let ends = || {
        let head = line.strip_suffix('{').unwrap_or(line).trim_end();
        let last = head.rsplit([' ', '>']).find(|part| !part.is_empty()).unwrap_or_default();
        is_word(last, owner)
    };
    begins || line.starts_with("impl") && ends()
}

/// Whether a source defines this: a function, a constant, a type, a field or a variant.
fn defines(text: &str, item: &str) -> bool {
    text.lines().any(|line| {
        let line = visible(line);
        let member = |rest: &str| rest.starts_with([':', ',', '(', ' ']) || rest.is_empty();
        declaration(line).is_some_and(|rest| is_word(rest, item))
            || line.strip_prefix(item).is_some_and(member)
    })
}

/// What follows the keywords of a line that declares an item: its name, and the rest.
pub(crate) fn declaration(visible: &str) -> Option<&str> {
    let kinds = [
        "const fn ",
        "unsafe fn ",
        "async fn ",
        "fn ",
        "const ",
        "struct ",
        "enum ",
        "trait ",
        "type ",
        "static ",
        "macro_rules! ",
        "mod ",
    ];
    kinds.iter().find_map(|kind| visible.strip_prefix(kind))
}

/// A line without indentation and visibility.
pub(crate) fn visible(line: &str) -> &str {
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("pub") else { return line };
    match rest.strip_prefix('(').and_then(|rest| rest.split_once(") ")) {
        Some((_, rest)) => rest,
        None => rest.strip_prefix(' ').unwrap_or(line),
    }
}

/// Whether a text begins with this word.
fn is_word(text: &str, word: &str) -> bool {
    let inner = |c: char| c == '_' || c.is_alphanumeric();
    text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<(PathBuf, String)> {
        let tiers = "pub(crate) struct Tiers {\n    pub room: bool,\n}\nimpl<'a> Tiers<'a> {\n    \
                     pub const fn read(&self) {}\n}\n";
        let leave =
            "pub(super) fn destage() {}\nenum Way {\n    Out,\n}\nimpl Machine for Way {\n}\n";
        [("crates/cache/src/tiers.rs", tiers), ("crates/cache/src/leave.rs", leave)]
            .map(|(path, text)| (path.into(), text.into()))
            .into()
    }

    fn broken(text: &str) -> Vec<usize> {
        let found = check(Path::new("docs/a.md"), text, &sources());
        found.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn names_that_exist_pass() {
        assert!(
            broken("`Tiers::read`, `Tiers::room`, `Way::Out` and `leave::destage()`\n").is_empty()
        );
        assert!(
            broken("`forebay_cache::Tiers::read`, `cache::Tiers`, `std` and `a: b::c`\n")
                .is_empty()
        );
        assert!(broken("```\nTiers::write\n```\n").is_empty(), "a block of code is no quotation");
    }

    #[test]
    fn names_that_are_gone_are_found() {
        assert_eq!(broken("\n`Tiers::write` is\n`Gone::read`\n"), [2, 3]);
        assert_eq!(broken("`leave::read`, `Tiers::re`"), [1, 1]);
    }
}
