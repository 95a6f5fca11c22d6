//! One declaration per key: type, default and documentation.
//!
//! [`section!`] and [`choice!`] declare the configuration as plain structs and enums. From the same
//! lines, they generate the tables for the errors about unknown keys and for the reference. A key
//! therefore cannot lack a default or documentation, and the reference cannot differ from the code.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay_names::nearest;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use crate::{Address, FileMode, Size, TimeSpan};

/// One key of the configuration file, as the reference shows it.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name of the key.
    pub name: &'static str,
    /// The meaning of the key: the lines of its documentation.
    pub doc: &'static [&'static str],
    /// The kind of its value: "size", "time", "path" ...
    pub word: &'static str,
    /// The default as TOML, or "required" or "unset" if there is none.
    pub default: &'static str,
    /// The valid values, for keys that take one of several names.
    pub choices: &'static [Choice],
    /// The keys in the table, if the value is a table.
    pub nested: Nested,
    /// Checks a value of the key.
    pub(crate) check: for<'a> fn(Spanned<DeValue<'a>>) -> Result<(), toml::de::Error>,
}

impl Key {
    /// Whether the file must contain the key.
    pub fn required(&self) -> bool {
        self.default == "required"
    }
}

/// The tables in the value of a key.
#[derive(Clone, Copy, Debug)]
pub enum Nested {
    /// The value is not a table.
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
    /// The topic of the table: the lines of its documentation.
    pub doc: &'static [&'static str],
    /// The keys in the table.
    pub keys: &'static [Key],
}

impl Nested {
    /// The table, regardless of how it may be repeated.
    pub fn table(&self) -> Option<Table> {
        match *self {
            Nested::None => None,
            Nested::Table(table) | Nested::Tables(table) | Nested::Named(table) => Some(table),
        }
    }
}

/// One of the names that a key takes as its value.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The name in the file.
    pub name: &'static str,
    /// The meaning: the lines of its documentation.
    pub doc: &'static [&'static str],
}

/// A type that the value of a key may have.
pub trait Value: Sized + PartialEq {
    /// The kind of value, for the reference.
    const WORD: &'static str;
    /// The valid values, if the value is one of several names.
    const CHOICES: &'static [Choice] = &[];
    /// The keys in the table, if the value is a table.
    const NESTED: Nested = Nested::None;

    /// Appends the keys whose values differ: `path` itself or, for a table, the keys in it.
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
    /// The topic of the table, and its keys.
    const TABLE: Table;
}

/// Parses a TOML value; used for defaults, which are written as TOML.
///
/// # Panics
/// If the text is not a valid `T`; a test parses every default.
pub(crate) fn literal<T: for<'de> Deserialize<'de>>(toml: &str) -> T {
    toml::de::ValueDeserializer::parse(toml)
        .and_then(T::deserialize)
        .unwrap_or_else(|error| panic!("default `{toml}` is not valid: {error}"))
}

/// Checks that a TOML value is a valid `T`.
pub(crate) fn check<T: for<'de> Deserialize<'de>>(
    value: Spanned<DeValue<'_>>,
) -> Result<(), toml::de::Error> {
    T::deserialize(ValueDeserializer::from(value)).map(drop)
}

/// Declares a table: `key: Type = default;`. The default is TOML, or `required`, or `unset` for an
/// `Option`.
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
                    check: $crate::schema::check::<$type>,
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

/// Deserializes a value with the type's `FromStr`.
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

/// Declares a value that is one of several names: `Variant = "name",`. The text after the colon
/// says what the names stand for.
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
            /// All values, in the order of the reference.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name in the configuration file.
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

/// The index of the choice named `text`, or an error message.
pub(crate) fn choose(what: &str, choices: &[Choice], text: &str) -> Result<usize, String> {
    let names = || choices.iter().map(|choice| choice.name);
    let all = || names().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    names().position(|name| name == text).ok_or_else(|| match nearest(text, names()) {
        Some(near) => format!("there is no {what} `{text}`; the closest name is `{near}`"),
        None => format!("there is no {what} `{text}`; use {}", all()),
    })
}
