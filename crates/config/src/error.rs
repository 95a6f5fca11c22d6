//! What is wrong with a configuration file.

use core::fmt;
use std::path::PathBuf;

/// Everything that was found wrong with one configuration file; nothing was opened or written.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    /// The file, if the configuration came from one.
    pub file: Option<PathBuf>,
    /// What is wrong, at least one thing.
    pub problems: Vec<Problem>,
}

/// One thing wrong with a configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The key, as a path: `cache.block_size`, `volume.0.name`; empty where there is none.
    pub key: String,
    /// Its line, from 1; `None` where the file does not mention the key.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Problem {
    /// A problem whose line is yet to be found.
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
