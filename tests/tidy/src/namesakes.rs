//! Every type of the heart has a name of its own, so that a reader knows which type is meant without the path of
//! its file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

use crate::Violation;
use crate::bans::{ends_item, is_test_attribute, is_test_file};

/// Where the rule holds. All these crates share one set of names.
const HEART: [&str; 3] = ["crates/cache/src", "crates/engine/src", "crates/flash/src"];
/// Names that two types may have, with the reason.
const SHARED: [(&str, &str); 1] =
    [("Tiers", "those of a shard; the JSON schema of the status has the name of the engine's")];

/// Whether the rule applies to a file.
pub fn applies(path: &Path) -> bool {
    let in_tests = path.components().any(|part| part.as_os_str() == "tests");
    HEART.iter().any(|heart| path.starts_with(heart))
        && path.extension().is_some_and(|e| e == "rs")
        && !in_tests
        && !is_test_file(path)
}

/// Reports types with the name of another, except those that may share theirs with one, and exceptions that are
/// needless. All files to which the rule applies, with their texts.
pub fn check(files: &[(PathBuf, String)]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut homes: BTreeMap<String, Vec<(&Path, usize)>> = BTreeMap::new();
    for (path, text) in files {
        match text.parse::<TokenStream>() {
            Ok(tokens) => collect(tokens, true, &mut |name, line| {
                homes.entry(name).or_default().push((path, line));
            }),
            Err(error) => {
                let message = format!("cannot be read as Rust: {error}");
                found.push(Violation::new(path, 0, message));
            }
        }
    }
    for (name, _) in SHARED {
        if homes.get(name).is_none_or(|homes| homes.len() < 2) {
            let message = format!("`{name}` is the name of one type only: remove the exception");
            found.push(Violation::new(Path::new("tests/tidy/src/namesakes.rs"), 0, message));
        }
    }
    for (name, homes) in &homes {
        let most = if SHARED.iter().any(|(shared, _)| shared == name) { 2 } else { 1 };
        if homes.len() > most {
            let list: Vec<_> = homes.iter().map(|(path, _)| path.display().to_string()).collect();
            let (path, line) = homes[homes.len() - 1];
            let message = format!("`{name}` is the name of several types: {}", list.join(", "));
            found.push(Violation::new(path, line, message));
        }
    }
    found
}

/// Gives every type that `tokens` declare, with its line. Items under `#[cfg(test)]` are passed over. Within
/// braces, `type` declares the type of a trait, so it counts only outside.
fn collect(tokens: TokenStream, outside: bool, give: &mut impl FnMut(String, usize)) {
    let mut in_test_item = false;
    let mut declares = false;
    for token in tokens {
        if in_test_item {
            in_test_item = !ends_item(&token);
            continue;
        }
        match token {
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                if declares {
                    give(word.clone(), ident.span().start().line);
                }
                declares = ["struct", "enum", "trait", "union"].contains(&word.as_str())
                    || outside && word == "type";
            }
            TokenTree::Group(group) => {
                declares = false;
                in_test_item = is_test_attribute(&group);
                collect(group.stream(), false, give);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => declares = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (PathBuf, String) {
        (PathBuf::from(name), text.into())
    }

    /// The exceptions, as the rule expects them.
    fn shared() -> String {
        SHARED.map(|(name, _)| format!("enum {name} {{}}\nstruct {name};\n")).concat()
    }

    fn lines(other: &str) -> Vec<usize> {
        let first = format!("struct Step;\ntype Name = u8;\ntrait Way {{}}\n{}", shared());
        let files = [file("crates/cache/src/a.rs", &first), file("crates/flash/src/b.rs", other)];
        check(&files).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_second_type_of_a_name_is_found_with_its_line() {
        for text in [
            "\npub(super) enum Step {\n}",
            "\nstruct Name(u8);",
            "\ntype Way = u8;",
            "\nmacro! { /// A.\n#[derive(Debug)] pub struct Other { x: u8 } }\n",
            "\nmod inner { pub trait Step<T> {} }",
        ] {
            let twice = text.contains("Other").then_some("struct Other;");
            let found = lines(&format!("{text}{}", twice.unwrap_or_default()));
            assert_eq!(found, [if twice.is_some() { 4 } else { 2 }], "{text}");
        }
    }

    #[test]
    fn variants_types_of_traits_tests_and_comments_have_the_names_they_like() {
        for text in [
            "enum Other { Step, Name(u8), Way {} }",
            "impl Deref for X { type Name = u8; }",
            "#[cfg(test)]\nmod tests { struct Step; }",
            "// struct Step;\nuse crate::Step as Name;",
            "macro_rules! m { ($name:ident) => { struct $name; }; }",
        ] {
            assert_eq!(lines(text), [0; 0], "{text}");
        }
    }

    #[test]
    fn a_name_that_two_types_may_have_is_found_at_the_third_and_if_one_has_it() {
        let (name, _) = SHARED[0];
        assert_eq!(lines(&format!("\n\nstruct {name};")), [3]);
        let one = check(&[file("crates/cache/src/a.rs", &format!("struct {name};"))]);
        assert_eq!(one.len(), 1, "{one:?}");
    }

    #[test]
    fn other_crates_and_test_files_pass() {
        assert!(applies(Path::new("crates/flash/src/log/pump.rs")));
        assert!(!applies(Path::new("crates/serve/src/server.rs")));
        assert!(!applies(Path::new("crates/cache/tests/stops.rs")));
        assert!(!applies(Path::new("crates/engine/src/core/tests.rs")));
        assert!(!applies(Path::new("crates/cache/src/cache/tests/stops.rs")));
    }
}
