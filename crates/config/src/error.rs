//! Errors in a configuration file.

use core::fmt;
use std::path::{Path, PathBuf};

/// All problems with one configuration file; nothing was opened or written.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    /// The file, if the configuration came from one.
    pub file: Option<PathBuf>,
    /// The problems, at least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Adds the file that the configuration came from.
    #[must_use]
    pub fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.to_path_buf()), ..self }
    }

    /// Whether the file itself could not be read, so that the problems concern no key and no line.
    pub fn is_unreadable(&self) -> bool {
        self.problems.iter().all(|problem| problem.key.is_empty() && problem.line.is_none())
    }
}

/// One problem with a configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The key, as a path: `cache.block_size`, `volume.0.name`; empty if the problem concerns no
    /// key.
    pub key: String,
    /// Name of the volume to which the key belongs, if the file gives one.
    pub volume: Option<String>,
    /// Line of the key, counted from 1; `None` if the file does not contain the key.
    pub line: Option<usize>,
    /// What is wrong, and what would be valid.
    pub message: String,
}

impl Problem {
    /// Creates a problem whose line is not known yet.
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), volume: None, line: None, message: message.into() }
    }

    /// The number of the `[[volume]]` table that the key is in, from 0, and the key within it.
    pub(crate) fn in_volume(&self) -> Option<(usize, &str)> {
        let rest = self.key.strip_prefix("volume.")?;
        let (number, key) = rest.split_once('.').unwrap_or((rest, ""));
        Some((number.parse().ok()?, key))
    }

    /// Where the problem is, for users. The number of a volume counts from 0 only in the key.
    fn place(&self) -> String {
        let Some((number, key)) = self.in_volume() else { return self.key.clone() };
        let which = match number {
            0 => "the first [[volume]]".to_owned(),
            1 => "the second [[volume]]".to_owned(),
            2 => "the third [[volume]]".to_owned(),
            _ => format!("[[volume]] number {}", number + 1),
        };
        let name = self.volume.as_ref().map(|name| format!(" (name \"{name}\")"));
        let volume = which + &name.unwrap_or_default();
        if key.is_empty() { volume } else { format!("{key} in {volume}") }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            match &self.file {
                Some(file) => write!(f, "{}", file.display())?,
                None => f.write_str("configuration")?,
            }
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
            if !problem.key.is_empty() {
                write!(f, "{}: ", problem.place())?;
            }
            f.write_str(&problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
