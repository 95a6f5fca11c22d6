//! Generates tables of fields from JSON schemas.

use std::collections::BTreeMap;
use std::fmt::Write;

use schemars::Schema;
use serde_json::{Map, Value};

use crate::pages::Pages;

/// The types of documents.
#[derive(Default)]
pub struct Types {
    /// The schemas of all types, by the names of the types.
    definitions: Map<String, Value>,
    /// For each table, the name of its type's schema.
    tables: BTreeMap<String, String>,
    /// For each table of columns, the schema of a row of `--parquet`.
    rows: BTreeMap<String, Value>,
}

/// The description of a field's value.
struct Kind<'a> {
    /// The kind in words, such as `integer` or `list of texts`.
    words: String,
    /// The suffix of the field's name: `[]` for lists.
    suffix: String,
    /// The names that the value may take, with their meanings.
    choices: Vec<String>,
    /// The object whose fields get rows too.
    object: Option<&'a Value>,
}

impl<'a> Kind<'a> {
    fn word(words: impl Into<String>) -> Self {
        Self { words: words.into(), suffix: String::new(), choices: Vec::new(), object: None }
    }
}

impl Types {
    /// Adds a type that has a table.
    ///
    /// # Panics
    /// If the type has no schema of its own, or already has a table.
    pub fn add(&mut self, table: &str, reference: &Schema) {
        let reference = reference.as_value();
        let name = referred(reference).unwrap_or_else(|| panic!("{table}: {reference}"));
        assert!(self.tables.values().all(|known| known != name), "{name} has two tables");
        self.tables.insert(table.to_owned(), name.to_owned());
    }

    /// Adds a table of columns for rows of this type: a struct, or a tuple of several structs.
    pub fn add_rows(&mut self, table: &str, schema: &Schema) {
        self.rows.insert(table.to_owned(), schema.as_value().clone());
    }

    /// Sets the schemas of all types.
    pub fn define(&mut self, definitions: Map<String, Value>) {
        self.definitions = definitions;
    }

    /// The names of all tables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().chain(self.rows.keys()).map(String::as_str)
    }

    /// Generates a table for a page.
    ///
    /// # Panics
    /// If there is no table of this name, or one of its fields has no documentation.
    pub fn table(&self, name: &str, pages: &Pages, page: &str) -> String {
        let own = self.tables.get(name).map_or("", String::as_str);
        let mut writer = Writer { types: self, pages, page, own, text: String::new() };
        if let Some(row) = self.rows.get(name) {
            writer.text.push_str("| column | type | meaning |\n| --- | --- | --- |\n");
            writer.columns(row, "", false);
        } else {
            let object = self.definitions.get(own);
            let object = object.unwrap_or_else(|| panic!("no type is called `{name}`"));
            writer.text.push_str("| field | type | meaning |\n| --- | --- | --- |\n");
            writer.object(object, "");
        }
        writer.text
    }

    /// Tables whose fields are a subset of an object's fields, largest first; no two of the
    /// returned tables overlap.
    fn parts<'a>(&'a self, object: &'a Value, but: &str) -> Vec<(&'a str, Vec<&'a str>)> {
        let fields = fields(object);
        let mut parts: Vec<(&str, Vec<&str>)> = Vec::new();
        for (table, name) in &self.tables {
            let part = self::fields(&self.definitions[name]);
            let is_part = name != but && part.len() > 1 && part.iter().all(|f| fields.contains(f));
            if is_part {
                parts.push((table, part.iter().map(|(name, _)| *name).collect()));
            }
        }
        parts.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
        let mut disjoint: Vec<(&str, Vec<&str>)> = Vec::new();
        for (table, names) in parts {
            if disjoint.iter().all(|(_, other)| other.iter().all(|name| !names.contains(name))) {
                disjoint.push((table, names));
            }
        }
        disjoint
    }

    /// The name of a type's table.
    fn table_of(&self, definition: &str) -> Option<&str> {
        let table = self.tables.iter().find(|(_, name)| *name == definition);
        table.map(|(table, _)| table.as_str())
    }
}

/// Writes one table.
struct Writer<'a> {
    types: &'a Types,
    pages: &'a Pages,
    page: &'a str,
    /// The type that the table describes.
    own: &'a str,
    text: String,
}

impl<'a> Writer<'a> {
    /// Writes a row for each field, including nested fields.
    fn object(&mut self, object: &'a Value, prefix: &str) {
        if let Some(variants) = object.get("oneOf").and_then(Value::as_array) {
            return self.variants(variants, prefix);
        }
        let own = if prefix.is_empty() { self.own } else { "" };
        let parts = self.types.parts(object, own);
        let mut said: Vec<&str> = Vec::new();
        for (name, schema) in fields(object) {
            match parts.iter().find(|(_, names)| names.contains(&name)) {
                Some((table, _)) if said.contains(table) => {}
                Some((table, names)) => {
                    said.push(table);
                    let is_required = names.iter().all(|name| required(object).contains(name));
                    let words = if is_required { "" } else { "or left out" };
                    let link = self.link(table);
                    self.row(&format!("`{prefix}*`"), words, &format!("The fields of {link}."));
                }
                None => self.field(object, name, schema, prefix),
            }
        }
    }

    /// Writes a row for the field that selects the variant, and rows for the fields of each
    /// variant.
    fn variants(&mut self, variants: &'a [Value], prefix: &str) {
        let tag = |variant: &'a Value| {
            fields(variant)
                .into_iter()
                .find_map(|(name, schema)| Some((name, schema.get("const")?.as_str()?)))
        };
        let tags: Vec<_> = variants.iter().filter_map(tag).collect();
        assert!(tags.len() == variants.len(), "a variant without a name: {variants:?}");
        let said = variants.iter().zip(&tags).map(|(variant, (_, name))| {
            let said = variant.get("description").and_then(Value::as_str).unwrap_or_default();
            format!("`{name}`: {said}")
        });
        let said = said.collect::<Vec<_>>().join(" ");
        self.row(&format!("`{prefix}{}`", tags[0].0), "text", &said);
        for (variant, (tag, name)) in variants.iter().zip(&tags) {
            let others = fields(variant).into_iter().filter(|(field, _)| field != tag);
            for (field, schema) in others {
                let kind = self.kind(schema);
                let said = schema.get("description").and_then(Value::as_str);
                let said = said.unwrap_or_else(|| panic!("`{field}` of {name} is not documented"));
                let choices = kind.choices.iter().map(|choice| format!(" {choice}"));
                let meaning = format!("With `{name}`: {said}{}", choices.collect::<String>());
                self.row(
                    &format!("`{prefix}{field}`"),
                    &kind.words,
                    &translate(&meaning, self.page),
                );
            }
        }
    }

    fn field(&mut self, object: &Value, name: &str, schema: &'a Value, prefix: &str) {
        let kind = self.kind(schema);
        let path = format!("{prefix}{name}{}", kind.suffix);
        let words = match required(object).contains(&name) {
            true => kind.words,
            // A null value is left out of the document.
            false => format!("{}, or left out", kind.words.trim_end_matches(" or null")),
        };
        let said = schema.get("description").and_then(Value::as_str);
        let said = said.unwrap_or_else(|| panic!("`{path}` of {} is not documented", self.own));
        let meaning = [&[said.to_owned()][..], &kind.choices].concat().join(" ");
        let meaning = translate(&meaning, self.page);
        self.row(&format!("`{path}`"), &words, &meaning);
        if let Some(inner) = kind.object {
            self.object(inner, &format!("{path}."));
        }
    }

    /// Writes a row for each column of a row of `--parquet`, as `Columns::from_rows` creates them:
    /// names of nested fields are joined, each tuple element has its own columns, and lists have
    /// none.
    fn columns(&mut self, schema: &'a Value, prefix: &str, is_null: bool) {
        let (schema, is_null) = match not_null(schema) {
            Some(schema) => (schema, true),
            None => (schema, is_null),
        };
        if let Some(elements) = schema.get("prefixItems").and_then(Value::as_array) {
            return elements.iter().for_each(|element| self.columns(element, prefix, is_null));
        }
        let Some(name) = referred(schema) else { panic!("no columns of {schema}") };
        if let Some(table) = self.types.table_of(name) {
            let words = if is_null { "or null" } else { "" };
            let fields = fields(&self.types.definitions[name]);
            let has_lists = fields.iter().any(|(_, field)| field["type"] == "array");
            let but = if has_lists { ", except lists" } else { "" };
            let meaning = format!("The fields of {}{but}.", self.link(table));
            return self.row(&format!("`{prefix}*`"), words, &meaning);
        }
        for (name, field) in fields(&self.types.definitions[name]) {
            let kind = self.kind(field);
            if kind.words.starts_with("list") {
                continue;
            }
            let name = format!("{prefix}{name}");
            let is_nested = referred(not_null(field).unwrap_or(field))
                .is_some_and(|name| fields(&self.types.definitions[name]).len() > 1);
            if is_nested {
                self.columns(field, &format!("{name}_"), is_null);
                continue;
            }
            let null = if is_null && !kind.words.ends_with(" or null") { " or null" } else { "" };
            let said = field.get("description").and_then(Value::as_str);
            let said = said.unwrap_or_else(|| panic!("`{name}` is not documented"));
            let meaning =
                translate(&[&[said.to_owned()][..], &kind.choices].concat().join(" "), self.page);
            self.row(&format!("`{name}`"), &format!("{}{null}", kind.words), &meaning);
        }
    }

    fn row(&mut self, field: &str, kind: &str, meaning: &str) {
        let kind = if kind.is_empty() { String::new() } else { format!(" {kind}") };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "| {field} |{kind} | {} |", meaning.replace('|', "\\|"));
    }

    fn link(&self, table: &str) -> String {
        let place = self.pages.place(table);
        let place = place.unwrap_or_else(|| panic!("no page has `<!-- fields: {table} -->`"));
        place.link(self.page)
    }

    fn kind(&self, schema: &'a Value) -> Kind<'a> {
        if let Some(name) = referred(schema) {
            return match self.types.table_of(name) {
                Some(table) => Kind::word(self.link(table)),
                None => self.kind(&self.types.definitions[name]),
            };
        }
        if let Some(one) = not_null(schema) {
            let kind = self.kind(one);
            return Kind { words: format!("{} or null", kind.words), ..kind };
        }
        if let Some(one_of) = schema.get("oneOf").and_then(Value::as_array) {
            if one_of.iter().all(|variant| variant.get("properties").is_some()) {
                return Kind { object: Some(schema), ..Kind::word("object") };
            }
            let choices = one_of.iter().map(|choice| {
                let name = choice["const"].as_str().unwrap_or_else(|| panic!("{choice}"));
                let said = choice.get("description").and_then(Value::as_str).unwrap_or_default();
                format!("`{name}`: {said}")
            });
            return Kind { choices: choices.collect(), ..Kind::word("text") };
        }
        match &schema["type"] {
            Value::String(word) => self.of_type(word, schema),
            Value::Array(words) => {
                let word = words.iter().filter_map(Value::as_str).find(|word| *word != "null");
                let kind = self.of_type(word.unwrap_or_default(), schema);
                Kind { words: format!("{} or null", kind.words), ..kind }
            }
            _ => panic!("no words for {schema}"),
        }
    }

    fn of_type(&self, word: &str, schema: &'a Value) -> Kind<'a> {
        match word {
            "integer" | "number" | "boolean" => Kind::word(word),
            "string" => Kind::word("text"),
            "null" => Kind::word(word),
            "array" => self.list(schema),
            "object" => match schema.get("additionalProperties") {
                Some(value @ Value::Object(_)) => {
                    let kind = self.kind(value);
                    let suffix = format!(".NAME{}", kind.suffix);
                    Kind { words: format!("{} by name", kind.words), suffix, ..kind }
                }
                _ => Kind { object: Some(schema), ..Kind::word("object") },
            },
            _ => panic!("no words for {schema}"),
        }
    }

    fn list(&self, schema: &'a Value) -> Kind<'a> {
        if let Some(elements) = schema.get("prefixItems").and_then(Value::as_array) {
            let words: Vec<String> = elements.iter().map(|e| self.kind(e).words).collect();
            return Kind::word(format!("[{}]", words.join(", ")));
        }
        let kind = self.kind(&schema["items"]);
        let plural = match kind.words.as_str() {
            word @ ("integer" | "number" | "boolean" | "text" | "object") => format!("{word}s"),
            words => words.to_owned(),
        };
        let is_of_pairs = schema["items"].get("prefixItems").is_some();
        let suffix = if is_of_pairs { kind.suffix } else { format!("[]{}", kind.suffix) };
        Kind { words: format!("list of {plural}"), suffix, ..kind }
    }
}

/// The schema of the non-null value, if the value can be null.
fn not_null(schema: &Value) -> Option<&Value> {
    let any = schema.get("anyOf")?.as_array()?;
    let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
    let mut others = any.iter().filter(|schema| !is_null(schema));
    match (others.next(), others.next()) {
        (Some(one), None) => Some(one),
        _ => panic!("no words for {schema}"),
    }
}

/// The name of the schema that a reference points to.
fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// The fields of an object in the order of their declaration; optional fields come last.
fn fields(object: &Value) -> Vec<(&str, &Value)> {
    let Some(properties) = object.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let required = required(object);
    let named = |name: &str| properties.get_key_value(name);
    let first = required.iter().filter_map(|name| named(name));
    let others = properties.iter().filter(|(name, _)| !required.contains(&name.as_str()));
    first.chain(others).map(|(name, schema)| (name.as_str(), schema)).collect()
}

fn required(object: &Value) -> Vec<&str> {
    let required = object.get("required").and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Converts documentation for a page: joins the lines, and replaces rustdoc links with links for
/// the page.
fn translate(text: &str, page: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut translated = String::new();
    let mut rest = text.as_str();
    while let Some(begin) = rest.find('[') {
        let Some(length) = rest[begin..].find(']') else { break };
        let (words, after) = (&rest[begin + 1..begin + length], &rest[begin + length + 1..]);
        translated.push_str(&rest[..begin]);
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        match target {
            Some((target, after)) => {
                match target.strip_prefix("docs/") {
                    Some(target) => {
                        let target = target.strip_prefix(page).unwrap_or(target);
                        translated.push_str(&format!("[{words}]({target})"));
                    }
                    None => translated.push_str(words),
                }
                rest = after;
            }
            None => {
                match words.starts_with('`') {
                    true => translated.push_str(words),
                    false => translated.push_str(&format!("[{words}]")),
                }
                rest = after;
            }
        }
    }
    translated + rest
}
