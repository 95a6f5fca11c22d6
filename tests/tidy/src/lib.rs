//! The house rules, as functions from a file's path and text to what is wrong with it.
//!
//! What can be checked is checked, so that reviews can be about the rest. `tests/tidy.rs` runs
//! every rule over the whole repository; each module tests its rule on a planted violation,
//! because a rule that finds nothing may also be a rule that looks nowhere.

pub mod arrows;
pub mod bans;
pub mod comments;
pub mod items;
pub mod licences;
pub mod links;
pub mod names;
pub mod namesakes;
pub mod programs;
pub mod promises;
pub mod text;
pub mod tree;
pub mod walls;

use std::fmt;
use std::path::{Path, PathBuf};

/// One broken rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Violation {
    /// The file, relative to the repository.
    pub path: PathBuf,
    /// The line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Violation {
    /// A violation at a line of a file; line 0 means the whole file.
    pub fn new(path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.message),
        }
    }
}
