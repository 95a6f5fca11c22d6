//! Parameters after a format's name, as in `csv:time=ts@us,offset=lba@512`.

use crate::{Result, TraceError};

/// The parameters given with a format's name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    format: String,
    pairs: Vec<(String, String)>,
}

impl Params {
    /// Splits "name:key=value,..." into the name and its parameters.
    pub(crate) fn split(text: &str) -> Result<(&str, Params)> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut params = Params { format: name.to_owned(), pairs: Vec::new() };
        for pair in rest.split(',').filter(|p| !p.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(TraceError::Options(format!(
                    "\"{pair}\" in the format \"{text}\" does not have the form key=value"
                )));
            };
            params.pairs.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        Ok((name, params))
    }

    /// Whether `key` was given and not yet taken.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    /// Takes the value of `key`, if it was given.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(k, _)| k == key)?;
        Some(self.pairs.remove(at).1)
    }

    /// Takes a size in bytes, `default` if it was not given.
    pub(crate) fn take_bytes(&mut self, key: &str, default: u64) -> Result<u64> {
        let Some(text) = self.take(key) else { return Ok(default) };
        match text.parse() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(self.bad(key, &text, "a number of bytes")),
        }
    }

    /// The error for an invalid value of `key`; `wanted` describes valid values.
    pub(crate) fn bad(&self, key: &str, value: &str, wanted: &str) -> TraceError {
        TraceError::Options(format!(
            "format {}: {key} is \"{value}\", but should be {wanted}",
            self.format
        ))
    }

    /// Returns an error if parameters are left that the format does not know.
    pub(crate) fn finish(self, known: &str) -> Result<()> {
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => Err(TraceError::Options(format!(
                "format {} has no parameter \"{key}\"; it has {}",
                self.format,
                if known.is_empty() { "none" } else { known }
            ))),
        }
    }
}
