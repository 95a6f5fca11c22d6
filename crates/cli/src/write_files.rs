//! Writes files, which appear complete or not at all, and standard output.

use std::io::Write;
use std::path::Path;

use forebay_analysis::Columns;

use crate::error::CliError;

/// Writes `bytes` to standard output; a closed pipe does not count as a failure.
pub fn write_stdout(bytes: &[u8]) -> Result<(), CliError> {
    try_write_stdout(bytes).map_err(CliError::writing_stdout)
}

/// Like [`write_stdout`], but a closed pipe is an error; for commands that must know about it.
pub fn try_write_stdout(bytes: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Writes a whole file: it appears complete or not at all.
///
/// An existing file that is not regular (`/dev/stdout`, a pipe) is written directly. A symbolic
/// link is kept, and its target is written.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let failed = |error| CliError::file("cannot write", path, error);
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return std::fs::write(path, bytes).map_err(failed);
    }
    let failed = |error| match path.exists() {
        true => failed(error).kept("the file, unchanged"),
        false => failed(error),
    };
    // The system's error names the temporary file, which means nothing to users.
    let mut file = temporary(path).map_err(|error| failed(error.kind().into()))?;
    file.write_all(bytes).map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

/// Writes `rows` to `path`, which appears complete or not at all.
pub fn write_parquet(path: &Path, rows: &Columns) -> Result<(), CliError> {
    let bytes = forebay_render::parquet(rows);
    write_file(path, &bytes.map_err(|error| CliError::file("cannot encode", path, error))?)
}

/// The directory that a path lies in.
pub fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Creates a temporary file next to `path`, to be renamed to `path`.
pub fn temporary(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let directory = directory_of(path);
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(".forebay-").permissions(permissions()).tempfile_in(directory);
    made.map_err(without_name)
}

/// Removes the file name from a system error: the name of a temporary file means nothing to the
/// user.
fn without_name(error: std::io::Error) -> std::io::Error {
    match error.to_string().split_once(" at path ") {
        Some((what, _)) => std::io::Error::new(error.kind(), what),
        None => error,
    }
}

/// The permissions of an ordinary new file, before the umask; temporary files are private by
/// default.
fn permissions() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_temporary_file_is_in_no_message() {
        let missing = tempfile::Builder::new().prefix(".forebay-").tempfile_in("/nonexistent");
        let error = missing.unwrap_err();
        assert!(error.to_string().contains(".forebay-"), "{error}");
        let error = without_name(error);
        assert!(!error.to_string().contains(".forebay-"), "{error}");
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
