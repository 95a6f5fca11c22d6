//! The reference of the configuration file, generated from the declarations of its keys.

use core::fmt::Write;

use forebay_replacement::{Kind, Parameter};

use crate::Config;
use crate::schema::{Key, Nested, Section, Table};

/// Every section of the configuration file with its keys.
pub fn sections() -> &'static [Key] {
    Config::TABLE.keys
}

/// The chapter of `docs/configuration.md` that lists every key, as Markdown.
pub fn reference() -> String {
    let mut text = String::new();
    for key in sections() {
        section(&mut text, key, "");
    }
    text
}

fn section(text: &mut String, key: &Key, parent: &str) {
    let Some(Table { doc, keys }) = key.nested.table() else { return };
    let header = header(key, parent);
    let level = if parent.is_empty() { "##" } else { "###" };
    // Writing to a String cannot fail.
    let _ = write!(text, "\n{level} `{header}`\n\n{}\n\n", sentence(doc));
    text.push_str("| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
    for key in keys {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            key.name,
            key.word,
            default(key),
            meaning(key)
        );
    }
    for key in keys.iter().filter(|key| !key.choices.is_empty()) {
        let _ = write!(text, "\n`{}` is one of:\n\n", key.name);
        for choice in key.choices {
            let _ = writeln!(text, "- `\"{}\"`: {}", choice.name, sentence(choice.doc));
        }
    }
    if header == "[replacement]" {
        parameters(text);
    }
    for inner in keys {
        section(text, inner, &format!("{parent}{}.", key.name));
    }
}

/// The parameters of replacement policies.
fn parameters(text: &mut String) {
    text.push_str(
        "\n| policy | parameter | value | default | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for kind in Kind::ALL {
        for Parameter { name, unit, default, min, max, meaning } in kind.about().parameters {
            let range = match *max {
                u32::MAX => format!("{unit}, at least {min}"),
                max => format!("{unit}, {min} to {max}"),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| `{kind}` | `{name}` | {range} | `{default}` | {meaning} |");
        }
    }
}

/// How the file opens the table of `key`.
pub(crate) fn header(key: &Key, parent: &str) -> String {
    match key.nested {
        Nested::Tables(_) => format!("[[{parent}{}]]", key.name),
        Nested::Named(_) => format!("[{parent}{}.NAME]", key.name),
        Nested::Table(_) | Nested::None => format!("[{parent}{}]", key.name),
    }
}

fn default(key: &Key) -> String {
    match key.default {
        "required" | "unset" => key.default.to_string(),
        toml => format!("`{toml}`"),
    }
}

fn meaning(key: &Key) -> String {
    sentence(key.doc).replace('|', "\\|")
}

fn sentence(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Visits every key at every depth.
    fn each(keys: &[Key], path: &str, visit: &mut dyn FnMut(&str, &Key)) {
        for key in keys {
            let path = format!("{path}.{}", key.name);
            visit(&path, key);
            if let Some(table) = key.nested.table() {
                each(table.keys, &path, visit);
            }
        }
    }

    #[test]
    fn every_key_says_what_it_means_and_has_a_line_in_the_reference() {
        let text = reference();
        let mut keys = 0;
        each(Config::TABLE.keys, "", &mut |path, key| {
            keys += 1;
            assert!(sentence(key.doc).len() > 5, "{path} is not documented");
            if matches!(key.nested, Nested::None) {
                assert!(text.contains(&format!("| `{}` | {} |", key.name, key.word)), "{path}");
            }
        });
        assert!(keys > 50, "only {keys} keys were found");
    }

    /// `docs/configuration.md` contains the reference between two markers. If it differs, this test
    /// writes nothing and says how to update it.
    #[test]
    fn the_documentation_holds_the_reference_as_it_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let file = std::fs::read_to_string(path).unwrap();
        let (before, rest) = file.split_once("<!-- reference -->\n").unwrap();
        let (old, after) = rest.split_once("<!-- end of reference -->").unwrap();
        if std::env::var_os("FOREBAY_UPDATE_DOCS").is_some() {
            let new = format!(
                "{before}<!-- reference -->\n{}\n<!-- end of reference -->{after}",
                reference()
            );
            std::fs::write(path, new).unwrap();
        } else {
            assert!(
                old == format!("{}\n", reference()),
                "docs/configuration.md is out of date: run \
                 `FOREBAY_UPDATE_DOCS=1 cargo test -p forebay-config`"
            );
        }
    }
}
