//! Loads a configuration, and finds the lines of its errors.

use core::ops::Range;
use std::io::ErrorKind;
use std::path::Path;

use forebay_names::nearest;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::Config;
use crate::document::header;
use crate::error::{ConfigError, Problem};
use crate::schema::{Key, Nested, Section, Table};

impl Config {
    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// Returns all problems that were found, each with its key and line.
    pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
        read(text).map_err(|problems| ConfigError { file: None, problems })
    }

    /// Loads and checks a configuration file.
    ///
    /// # Errors
    /// If the file cannot be read, and the errors of [`from_toml`](Self::from_toml).
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        let failed = |problems| ConfigError { file: Some(file.to_path_buf()), problems };
        let text = std::fs::read_to_string(file).map_err(|e| {
            let what = match e.kind() {
                ErrorKind::InvalidData => "is not a text file, so it cannot be a configuration; \
                                           it may be a trace or a device"
                    .to_owned(),
                _ => format!("cannot be read: {e}"),
            };
            failed(vec![Problem::new("", what)])
        })?;
        read(&text).map_err(failed)
    }
}

fn read(text: &str) -> Result<Config, Vec<Problem>> {
    let lines = Lines(text);
    let document = DeTable::parse(text).map_err(|e| {
        let line = e.span().map(|span| lines.line_of(&span));
        vec![Problem { line, ..Problem::new("", not_toml(e.message())) }]
    })?;
    let document = document.get_ref();
    let named = |problem: Problem| Problem { volume: volume_name(document, &problem), ..problem };
    let mut problems = Vec::new();
    check_keys(document, Config::TABLE.keys, "", &mut |key, span, message| {
        problems.push(named(Problem {
            line: Some(lines.line_of(&span)),
            ..Problem::new(key, message)
        }));
    });
    if !problems.is_empty() {
        problems.sort_by_key(|p| p.line);
        return Err(problems);
    }
    let config =
        toml::de::Deserializer::parse(text).and_then(Config::deserialize).map_err(|e| {
            let span = e.span();
            let key = span.as_ref().map(|span| key_at(document, span)).unwrap_or_default();
            let line = span.map(|span| lines.line_of(&span));
            vec![named(Problem { line, ..Problem::new(key, e.message()) })]
        })?;
    config.check().map_err(|problems| {
        let placed = problems.into_iter().map(|problem| {
            let line = span_of(document, &problem.key).map(|span| lines.line_of(&span));
            named(Problem { line, ..problem })
        });
        placed.collect::<Vec<_>>()
    })?;
    Ok(config)
}

/// What is wrong with a file that is not TOML. The parser describes a missing quote in terms of its
/// grammar.
fn not_toml(message: &str) -> String {
    match message {
        "invalid basic string, expected `\"`"
        | "invalid multi-line basic string, expected `\"`" => {
            "this text has no closing quote (`\"`)".to_owned()
        }
        "invalid literal string, expected `'`"
        | "invalid multi-line literal string, expected `'`" => {
            "this text has no closing quote (`'`)".to_owned()
        }
        _ => message.strip_suffix(", expected literal string").unwrap_or(message).to_owned(),
    }
}

/// The name of the volume whose table contains the problem.
fn volume_name(document: &DeTable<'_>, problem: &Problem) -> Option<String> {
    let (number, _) = problem.in_volume()?;
    let (_, volumes) = document.iter().find(|(key, _)| key.get_ref() == "volume")?;
    let volume = volumes.get_ref().as_array()?.get(number)?.get_ref().as_table()?;
    let (_, name) = volume.iter().find(|(key, _)| key.get_ref() == "name")?;
    Some(name.get_ref().as_str()?.to_owned()).filter(|name| !name.is_empty())
}

/// Reports unknown keys, missing keys and values of the wrong kind.
fn check_keys(
    table: &DeTable<'_>,
    known: &[Key],
    prefix: &str,
    report: &mut dyn FnMut(String, Range<usize>, String),
) {
    for (name, value) in table {
        let path = join(prefix, name.get_ref());
        let Some(key) = known.iter().find(|k| k.name == name.get_ref()) else {
            report(path, name.span(), unknown(name.get_ref(), known, prefix.is_empty()));
            continue;
        };
        if let (Nested::Tables(_), DeValue::Table(_)) = (key.nested, value.get_ref()) {
            let message =
                format!("write [[{path}]] in double brackets, because there may be several");
            report(path, name.span(), message);
            continue;
        }
        // Otherwise, serde would assign the items of a list to the keys, in order.
        if let Some((path, message)) = not_a_table(&path, value, key.nested) {
            report(path, name.span(), message);
            continue;
        }
        if let (Nested::None, Err(error)) = (key.nested, (key.check)(value.clone())) {
            let span = error.span().unwrap_or_else(|| value.span());
            // The wrong value may be in a table without declared keys.
            let inner = value.get_ref().as_table().map(|table| key_at(table, &span));
            report(join(&path, &inner.unwrap_or_default()), span, error.message().to_owned());
            continue;
        }
        for (path, span, table, keys) in nested(&path, name.span(), value, key.nested) {
            for key in keys.iter().filter(|k| k.required() && !has(table, k.name)) {
                report(path.clone(), span.clone(), format!("`{}` is missing", key.name));
            }
            check_keys(table, keys, &path, report);
        }
    }
}

type NestedTable<'a> = (String, Range<usize>, &'a DeTable<'a>, &'static [Key]);

/// If the value of a key should be a table but is not, returns its path and the message.
fn not_a_table(
    path: &str,
    value: &Spanned<DeValue<'_>>,
    nested: Nested,
) -> Option<(String, String)> {
    let is_table = |value: &Spanned<DeValue<'_>>| value.get_ref().as_table().is_some();
    match (nested, value.get_ref()) {
        (Nested::None, _) | (Nested::Table(_), DeValue::Table(_)) => None,
        (Nested::Named(_), DeValue::Table(tables)) => {
            let (name, _) = tables.iter().find(|(_, value)| !is_table(value))?;
            let path = join(path, name.get_ref());
            let message = format!("expected a table: write [{path}]");
            Some((path, message))
        }
        (Nested::Table(_), DeValue::Array(array)) if array.iter().all(is_table) => {
            let message = format!("expected a table: write [{path}] once, in single brackets");
            Some((path.to_owned(), message))
        }
        (Nested::Tables(_), DeValue::Array(array)) => {
            let wrong = array.iter().position(|value| !is_table(value))?;
            Some((join(path, &wrong.to_string()), format!("expected a table: write [[{path}]]")))
        }
        (Nested::Tables(_), _) => {
            Some((path.to_owned(), format!("expected tables: write [[{path}]]")))
        }
        (Nested::Table(_), _) => {
            Some((path.to_owned(), format!("expected a table: write [{path}]")))
        }
        (Nested::Named(_), _) => {
            Some((path.to_owned(), format!("expected a table: write [{path}.NAME]")))
        }
    }
}

/// The tables in a key's value, with their paths.
fn nested<'a>(
    path: &str,
    name: Range<usize>,
    value: &'a Spanned<DeValue<'a>>,
    nested: Nested,
) -> Vec<NestedTable<'a>> {
    match (nested, value.get_ref()) {
        (Nested::Table(t), DeValue::Table(table)) => vec![(path.to_string(), name, table, t.keys)],
        (Nested::Named(t), DeValue::Table(tables)) => tables
            .iter()
            .filter_map(|(name, value)| {
                let path = join(path, name.get_ref());
                value.get_ref().as_table().map(|table| (path, name.span(), table, t.keys))
            })
            .collect(),
        (Nested::Tables(t), DeValue::Array(array)) => array
            .iter()
            .enumerate()
            .filter_map(|(i, value)| {
                let path = join(path, &i.to_string());
                value.get_ref().as_table().map(|table| (path, value.span(), table, t.keys))
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn has(table: &DeTable<'_>, name: &str) -> bool {
    table.keys().any(|key| key.get_ref() == name)
}

fn unknown(name: &str, known: &[Key], is_top: bool) -> String {
    let what = if is_top { "section" } else { "key" };
    // A valid name in the wrong section is not misspelt.
    let has_it = |t: &Table| t.keys.iter().any(|key| key.name == name);
    let home = Config::TABLE.keys.iter().find(|k| k.nested.table().as_ref().is_some_and(has_it));
    if let Some(home) = home {
        let header = header(home, "");
        return format!("there is no {what} `{name}` here; it belongs to {header}");
    }
    let names = known.iter().map(|key| key.name);
    match nearest(name, names.clone()) {
        Some(near) => format!("there is no {what} `{name}`; the closest name is `{near}`"),
        None => {
            let names: Vec<_> = names.map(|n| format!("`{n}`")).collect();
            format!("there is no {what} `{name}`; the valid {what}s are {}", names.join(", "))
        }
    }
}

/// The innermost key whose value contains `span`.
fn key_at(table: &DeTable<'_>, span: &Range<usize>) -> String {
    fn within(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
        let inner = match value.get_ref() {
            DeValue::Table(table) => Some(key_at(table, span)).filter(|key| !key.is_empty()),
            DeValue::Array(array) => array
                .iter()
                .enumerate()
                .find_map(|(i, v)| within(v, span).map(|rest| join(&i.to_string(), &rest))),
            _ => None,
        };
        let own = value.span();
        inner.or_else(|| (own.start <= span.start && span.end <= own.end).then(String::new))
    }
    let found = table
        .iter()
        .find_map(|(name, value)| within(value, span).map(|rest| join(name.get_ref(), &rest)));
    found.unwrap_or_default()
}

/// Where `path` stands in the file; if it does not, where the nearest table around it does.
fn span_of(table: &DeTable<'_>, path: &str) -> Option<Range<usize>> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, value): (&Spanned<DeString<'_>>, _) =
        table.iter().find(|(name, _)| name.get_ref() == first)?;
    let inner = match value.get_ref() {
        DeValue::Table(table) if !rest.is_empty() => span_of(table, rest),
        DeValue::Array(array) if !rest.is_empty() => {
            let (index, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let item = index.parse().ok().and_then(|i: usize| array.get(i));
            item.and_then(|item| {
                item.get_ref().as_table().and_then(|t| span_of(t, rest)).or(Some(item.span()))
            })
        }
        _ => None,
    };
    Some(inner.unwrap_or_else(|| name.span()))
}

fn join(prefix: &str, name: &str) -> String {
    match (prefix, name) {
        ("", name) => name.to_string(),
        (prefix, "") => prefix.to_string(),
        _ => format!("{prefix}.{name}"),
    }
}

struct Lines<'a>(&'a str);

impl Lines<'_> {
    /// The line, from 1, on which a span starts.
    fn line_of(&self, span: &Range<usize>) -> usize {
        let before = &self.0.as_bytes()[..span.start.min(self.0.len())];
        1 + before.iter().filter(|&&b| b == b'\n').count()
    }
}
