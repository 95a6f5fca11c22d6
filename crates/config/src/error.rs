//! Errors in a configuration file.

use core::fmt;
use std::path::PathBuf;

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
    /// Line of the key, counted from 1; `None` if the file does not contain the key.
    pub line: Option<usize>,
    /// What is wrong, and what would be valid.
    pub message: String,
}

impl Problem {
    /// Creates a problem whose line is not known yet.
    pub(crate) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), line: None, message: message.into() }
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
                write!(f, "{}: ", problem.key)?;
            }
            f.write_str(&problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
