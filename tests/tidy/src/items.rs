//! Items of the source that a page quotes by their bare names exist. If the page names a file next to an
//! item (`Item` in `file.rs`), that file declares it. [`names`] checks the members of types.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser};

use crate::{Violation, names};

/// The page that is checked.
pub const PAGE: &str = "ARCHITECTURE.md";

/// Names of the standard library and of other crates.
const OTHERS: [&str; 5] = ["Deserialize", "IndexMut", "JsonSchema", "Serialize", "plotly"];

/// Whether a file may declare what the page quotes. This crate only plants names.
pub fn applies(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "rs") && !path.starts_with("tests/tidy")
}

/// Reports names that the page quotes and that no source declares, or not the file that the page names.
pub fn check(path: &Path, text: &str, sources: &[(PathBuf, String)]) -> Vec<Violation> {
    let files: Vec<_> = sources.iter().map(|(path, text)| (path, declared(text))).collect();
    let is_room = |word: &str| files.iter().any(|(path, _)| room(path) == Some(word));
    let is_declared = |word: &str| files.iter().any(|(_, items)| items.contains(word));
    let mut found = Vec::new();
    // The last name, and the words since.
    let mut last: Option<(String, String)> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let code = match (event, &mut last) {
            (Event::Code(code), _) => code,
            (Event::Text(words), Some((_, since))) => {
                since.push_str(&words);
                continue;
            }
            (Event::SoftBreak, _) => continue,
            _ => {
                last = None;
                continue;
            }
        };
        let mut report = |message| {
            let line = 1 + text[..range.start].matches('\n').count();
            found.push(Violation::new(path, line, message));
        };
        let before = last.take();
        if code.ends_with(".rs") {
            let Some((item, since)) = before else { continue };
            let mut there = files.iter().filter(|(path, _)| path.ends_with(&*code));
            if ["in", "of", "("].contains(&since.trim()) && !there.any(|(_, i)| i.contains(&*item))
            {
                report(format!("`{code}` does not declare `{item}`"));
            }
            continue;
        }
        let bare = code.strip_suffix("()").unwrap_or(&code);
        let Some(item) = bare.rsplit("::").next().filter(|item| names::is_identifier(item)) else {
            continue;
        };
        if item == bare && !OTHERS.contains(&item) && !is_room(item) && !is_declared(item) {
            report(format!("no source declares `{item}`"));
        }
        last = Some((item.to_owned(), String::new()));
    }
    found
}

/// The crate or directory that a file is in.
fn room(path: &Path) -> Option<&str> {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.find(|&part| part != "crates")
}

/// What a source declares: items, and the fields and variants of types that have a line each.
fn declared(text: &str) -> BTreeSet<&str> {
    let mut items = BTreeSet::new();
    // The indentation of the type that is being declared.
    let mut within = None;
    for line in text.lines() {
        let (indent, visible) = (line.len() - line.trim_start().len(), names::visible(line));
        match within {
            Some(outer) if indent == outer && !line.is_empty() => within = None,
            Some(outer) if indent == outer + 4 => items.extend(first_word(visible)),
            _ => {}
        }
        let Some(item) = names::declaration(visible) else { continue };
        items.extend(first_word(item));
        let has_members = visible.starts_with("struct ") || visible.starts_with("enum ");
        if has_members && line.ends_with('{') {
            within = Some(indent);
        }
    }
    items
}

/// The identifier that a line begins with.
fn first_word(line: &str) -> Option<&str> {
    let end = line.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(line.len());
    Some(&line[..end]).filter(|word| names::is_identifier(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCES: [(&str, &str); 2] = [
        (
            "crates/cache/src/entry.rs",
            "/// Names `Gone`.\npub(crate) struct Record<T> {\n    /// Doc.\n    pub told: bool,\n}\n\
             enum Way {\n    Out(u8),\n\n    In,\n}\nconst FEW_MAX: u32 = 1;\n",
        ),
        (
            "crates/cache/src/tiers/write.rs",
            "impl Tiers {\n    pub const fn write_back(&self) {\n        let gone = wait_to_pass(\n\
             \x20           Past,\n        );\n    }\n}\nmacro_rules! shard_context {\n}\ntype Place = u8;\n",
        ),
    ];

    fn found(page: &str) -> Vec<String> {
        let sources = SOURCES.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        check(Path::new("p.md"), page, &sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_exists_passes() {
        for page in [
            "`Record`, `told`, `Way`, `Out`, `In`, `FEW_MAX`, `write_back()`, `shard_context`, `Place`",
            "the crate `cache`; `Serialize` of serde; `two words`, `a/path.rs`, `--flag`",
            "`Record` (`cache/src/entry.rs`), `Tiers::write_back` in\n`tiers/write.rs`",
            "`Way::Out` of `entry.rs`",
            "`Record` and `write.rs`\n\n```\nGone\n```\n",
        ] {
            assert_eq!(found(page), [""; 0], "{page}");
        }
    }

    #[test]
    fn what_no_source_declares_is_found() {
        for name in ["Gone", "gone", "Past", "wait_to_pass", "FEW_MIN", "Rec", "let"] {
            let message = format!("p.md:2: no source declares `{name}`");
            assert_eq!(found(&format!("Text,\nsee `{name}`.")), [message]);
        }
    }

    #[test]
    fn what_another_file_declares_is_found() {
        for page in
            ["\n`Record` in `write.rs`", "`told`\n(`tiers/write.rs`)", "a\n`Way::Out` of `gone.rs`"]
        {
            let found = found(page);
            assert!(found.len() == 1 && found[0].starts_with("p.md:2: "), "{found:?}");
        }
    }
}
