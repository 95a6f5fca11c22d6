//! One declaration per key: type, default and documentation.
//!
//! [`section!`] and [`choice!`] declare the configuration as plain structs and enums and, from
//! the same lines, the tables that unknown-key errors and the reference are made from. So a
//! key cannot lack a default or documentation, and what the reference says is what happens.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay_names::nearest;
use serde::Deserialize;

use crate::{Address, FileMode, Size, TimeSpan};

/// One key of the configuration file, as the reference shows it.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it means: the lines of its documentation.
    pub doc: &'static [&'static str],
    /// What kind of value it takes: "size", "time", "path" ...
    pub word: &'static str,
    /// Its default as TOML; "required" or "unset" where it has none.
    pub default: &'static str,
    /// The values it may take, for keys that name one of several.
    pub choices: &'static [Choice],
    /// The keys within it, for tables.
    pub nested: Nested,
}

impl Key {
    /// Whether the file must give it.
    pub fn required(&self) -> bool {
        self.default == "required"
    }
}

/// Keys within a key.
#[derive(Clone, Copy, Debug)]
pub enum Nested {
    /// None: a plain value.
    None,
    /// `[name]`.
    Table(Table),
    /// `[[name]]`, any number of times.
    Tables(Table),
    /// `[name.ANYTHING]`, any number of times.
    Named(Table),
}

/// A table of keys.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What it is about: the lines of its documentation.
    pub doc: &'static [&'static str],
    /// Its keys.
    pub keys: &'static [Key],
}

impl Nested {
    /// The table, whatever the way it is repeated.
    pub fn table(&self) -> Option<Table> {
        match *self {
            Nested::None => None,
            Nested::Table(table) | Nested::Tables(table) | Nested::Named(table) => Some(table),
        }
    }
}

/// One value of a key that names one of several.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// As written in the file.
    pub name: &'static str,
    /// What it means: the lines of its documentation.
    pub doc: &'static [&'static str],
}

/// A type that a key's value can have.
pub trait Value: Sized + PartialEq {
    /// What kind of value it is, for the reference.
    const WORD: &'static str;
    /// The values it may take, if it names one of several.
    const CHOICES: &'static [Choice] = &[];
    /// The keys within it, if it is a table.
    const NESTED: Nested = Nested::None;

    /// Appends the keys whose values differ: `path`, or where it is a table, keys within it.
    fn differences(&self, other: &Self, path: &str, keys: &mut Vec<String>) {
        if self != other {
            keys.push(path.to_owned());
        }
    }
}

macro_rules! plain_values {
    ($($type:ty => $word:literal),* $(,)?) => {
        $(impl Value for $type { const WORD: &'static str = $word; })*
    };
}

plain_values! {
    bool => "true or false",
    u32 => "whole number",
    u64 => "whole number",
    f64 => "number",
    String => "text",
    PathBuf => "path",
    Size => "size",
    TimeSpan => "time",
    Address => "address",
    FileMode => "octal mode",
    Vec<(f64, TimeSpan)> => "list of [percent, time]",
}

impl<T: Value> Value for Option<T> {
    const WORD: &'static str = T::WORD;
    const CHOICES: &'static [Choice] = T::CHOICES;
    const NESTED: Nested = T::NESTED;

    fn differences(&self, other: &Self, path: &str, keys: &mut Vec<String>) {
        match (self, other) {
            (Some(one), Some(other)) => one.differences(other, path, keys),
            (None, None) => {}
            _ => keys.push(path.to_owned()),
        }
    }
}

impl<T: Section + Value> Value for Vec<T> {
    const WORD: &'static str = "tables";
    const NESTED: Nested = Nested::Tables(T::TABLE);

    fn differences(&self, other: &Self, path: &str, keys: &mut Vec<String>) {
        if self.len() != other.len() {
            return keys.push(path.to_owned());
        }
        for (n, (one, other)) in self.iter().zip(other).enumerate() {
            one.differences(other, &format!("{path}.{n}"), keys);
        }
    }
}

impl<T: Section + PartialEq> Value for BTreeMap<String, T> {
    const WORD: &'static str = "named tables";
    const NESTED: Nested = Nested::Named(T::TABLE);
}

impl Value for BTreeMap<String, u32> {
    const WORD: &'static str = "table of whole numbers";
}

/// A table of the configuration file.
pub trait Section: Sized {
    /// What it is about and its keys.
    const TABLE: Table;
}

/// The value that a piece of TOML stands for; used for defaults, which are written as TOML.
///
/// # Panics
/// If it does not stand for a `T`; a test goes through every default.
pub(crate) fn literal<T: for<'de> Deserialize<'de>>(toml: &str) -> T {
    toml::de::ValueDeserializer::parse(toml)
        .and_then(T::deserialize)
        .unwrap_or_else(|error| panic!("default `{toml}` is not valid: {error}"))
}

/// Declares a table: `key: Type = default;`. The default is TOML, or `required`, or `unset` for an `Option`.
macro_rules! section {
    ($(#[doc = $section_doc:literal])+ pub struct $name:ident {
        $($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:tt;)*
    }) => {
        $(#[doc = $section_doc])+
        #[derive(Clone, PartialEq, Debug, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $crate::schema::default_value!($default),)* }
            }
        }

        impl $crate::schema::Section for $name {
            const TABLE: $crate::schema::Table = $crate::schema::Table {
                doc: &[$($section_doc),+],
                keys: &[$($crate::schema::Key {
                    name: stringify!($key),
                    doc: &[$($doc),+],
                    word: <$type as $crate::schema::Value>::WORD,
                    default: stringify!($default),
                    choices: <$type as $crate::schema::Value>::CHOICES,
                    nested: <$type as $crate::schema::Value>::NESTED,
                },)*],
            };
        }

        impl $crate::schema::Value for $name {
            const WORD: &'static str = "table";
            const NESTED: $crate::schema::Nested =
                $crate::schema::Nested::Table(<Self as $crate::schema::Section>::TABLE);

            fn differences(&self, other: &Self, path: &str, keys: &mut Vec<String>) {
                let join = |key: &str| match path {
                    "" => key.to_owned(),
                    _ => format!("{path}.{key}"),
                };
                $($crate::schema::Value::differences(
                    &self.$key, &other.$key, &join(stringify!($key)), keys,
                );)*
            }
        }
    };
}

macro_rules! default_value {
    (required) => {
        Default::default()
    };
    (unset) => {
        None
    };
    ($default:tt) => {
        $crate::schema::literal(stringify!($default))
    };
}

/// Reads a value of the file as its `FromStr` reads text.
macro_rules! read_from_text {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Declares a value that names one of several: `Variant = "name",`. The text after the colon says what they are.
macro_rules! choice {
    ($(#[doc = $enum_doc:literal])+ pub enum $name:ident: $what:literal {
        $($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)*
    }) => {
        $(#[doc = $enum_doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl $name {
            /// All of them, in the order of the reference.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name it has in the configuration file.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }

        impl core::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let choices = <Self as $crate::schema::Value>::CHOICES;
                $crate::schema::choose($what, choices, text).map(|index| Self::ALL[index])
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        $crate::schema::read_from_text!($name);

        impl $crate::schema::Value for $name {
            const WORD: &'static str = $what;
            const CHOICES: &'static [$crate::schema::Choice] = &[$($crate::schema::Choice {
                name: $text,
                doc: &[$($doc),+],
            },)*];
        }
    };
}

pub(crate) use {choice, default_value, read_from_text, section};

/// The index of the choice called `text`, or what to tell the user.
pub(crate) fn choose(what: &str, choices: &[Choice], text: &str) -> Result<usize, String> {
    let names = || choices.iter().map(|choice| choice.name);
    let all = || names().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    names().position(|name| name == text).ok_or_else(|| match nearest(text, names()) {
        Some(near) => format!("there is no {what} `{text}`; the closest name is `{near}`"),
        None => format!("there is no {what} `{text}`; use {}", all()),
    })
}
