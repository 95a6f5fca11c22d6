//! The repository's files.

use std::io;
use std::path::{Path, PathBuf};

/// Directories that hold no files of ours.
const FOREIGN: [&str; 10] = [
    ".git",
    ".venv",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "node_modules",
    "out",
    "forebay-demo",
    "dist",
];

/// The repository that this crate lies in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a repository")
}

/// Every file under `root`, as paths relative to it, sorted.
///
/// # Errors
/// If a directory cannot be read.
pub fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !FOREIGN.contains(&name.as_ref())
                    && name != "target"
                    && !name.starts_with("target-")
                {
                    pending.push(entry.path());
                }
            } else if kind.is_file() {
                let path = entry.path();
                found.push(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a path names a file of one of these kinds, by extension.
pub fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x))
}
