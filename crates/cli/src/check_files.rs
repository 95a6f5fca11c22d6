//! Refuses files that a command must not write, before its work starts.

use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::output::OutputArgs;
use crate::write_files::{directory_of, temporary};

impl OutputArgs {
    /// Checks the outputs before the work starts. Refuses files that cannot be written, that would
    /// be written twice, that another process uses, or that are in `read`.
    pub fn check<'a>(&self, read: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), CliError> {
        self.check_with(None, read)
    }

    /// Like [`check`](Self::check), for a command that also writes `further` files.
    pub fn check_with<'a, 'b>(
        &'b self,
        further: impl IntoIterator<Item = &'b PathBuf>,
        read: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<(), CliError> {
        let output = self.document.output.iter().filter(|_| self.document.file().is_some());
        let written = output.chain(&self.parquet).chain(&self.html).chain(further);
        check_files(written, read)
    }
}

/// Refuses files in `written` that cannot be written, that are written twice, that another process
/// uses, or that are also in `read`. Also refuses `-`, because traces, columns and pages can go
/// only to files.
///
/// `read` is everything that the command reads or runs on: traces, configurations and devices.
pub fn check_files<'a, 'b>(
    written: impl IntoIterator<Item = &'b PathBuf>,
    read: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), CliError> {
    let written: Vec<_> = written.into_iter().collect();
    check_names(written.iter().copied(), read)?;
    for path in written {
        check_unused(path)?;
        check_file(path)?;
    }
    Ok(())
}

/// The part of [`check_files`] that only compares paths, for files that other code creates and
/// locks.
pub fn check_names<'a, 'b>(
    written: impl IntoIterator<Item = &'b PathBuf>,
    read: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), CliError> {
    let read = read.into_iter().flat_map(|path| [Some(path.clone()), index_of(path)]).flatten();
    let mut taken: Vec<(Place, &str)> = read.map(|path| (Place::new(&path), "read")).collect();
    for path in written {
        if path.as_os_str() == "-" {
            let error =
                CliError::usage("`-`: this output can go only to a file, not to standard output");
            let next = "use a file; write ./- for a file called `-`";
            return Err(error.kept("nothing was written").next(next));
        }
        let place = Place::new(path);
        if let Some((_, how)) = taken.iter().find(|(other, _)| place.is(other)) {
            let what = match *how {
                "read" => format!("{} is both read and written", path.display()),
                _ => format!("{} would be written twice", path.display()),
            };
            let error = CliError::usage(what).kept("nothing was written");
            return Err(error.next("choose another file name"));
        }
        taken.push((place, "written"));
    }
    Ok(())
}

/// The files of a recording: the file itself, and the temporary files that exist while it is
/// written.
pub fn files_of_recording(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), with(path, ".partial"), with(path, ".partial.index")]
}

/// The index of an interrupted recording, which is read with the recording.
fn index_of(path: &Path) -> Option<PathBuf> {
    path.extension().is_some_and(|extension| extension == "partial").then(|| with(path, ".index"))
}

/// Appends `more` to the path.
fn with(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    name.into()
}

/// The file that a path refers to, whether it exists or not.
struct Place {
    /// The canonical directory and the file name.
    path: PathBuf,
    found: Option<std::fs::Metadata>,
}

impl Place {
    fn new(path: &Path) -> Place {
        let in_directory = || {
            let directory = directory_of(path).canonicalize().ok()?;
            Some(directory.join(path.file_name()?))
        };
        let real = path.canonicalize().ok().or_else(in_directory);
        let path = real.unwrap_or_else(|| path.to_owned());
        Place { found: path.metadata().ok(), path }
    }

    /// Whether both refer to the same file or device. Pipes and terminals never count as the same,
    /// so they may be named several times.
    fn is(&self, other: &Place) -> bool {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        match (&self.found, &other.found) {
            (Some(a), Some(b)) if a.is_file() => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            (Some(a), Some(b)) if a.file_type().is_block_device() => {
                b.file_type().is_block_device() && a.rdev() == b.rdev()
            }
            (None, None) => self.path == other.path,
            _ => false,
        }
    }
}

/// Refuses a file that another process has locked, such as the store of a running server, and the
/// files of a recording in progress.
fn check_unused(path: &Path) -> Result<(), CliError> {
    let partial = with(path, ".partial");
    let is = |path: &Path, kind: &str| path.extension().is_some_and(|extension| extension == kind);
    let recorded = path.with_extension("");
    let recorded = (is(path, "index") && is(&recorded, "partial")).then_some(recorded);
    let locked = [Some(path.to_owned()), Some(partial), recorded];
    match locked.into_iter().flatten().find(|path| is_locked(path)) {
        None => Ok(()),
        Some(by) => {
            let what = match by == *path {
                true => format!("{} is in use by another process", path.display()),
                false => format!(
                    "{} belongs to a recording in progress: {} is in use by another process",
                    path.display(),
                    by.display()
                ),
            };
            let error = CliError::failed(what).kept("nothing was written");
            Err(error.next("choose another file name, or stop that process first"))
        }
    }
}

/// Whether another process has locked a regular file. Always false on a file system without locks.
fn is_locked(path: &Path) -> bool {
    // Opening a pipe or a device could block or have side effects.
    if !path.is_file() {
        return false;
    }
    let locked = std::fs::File::open(path).map(|file| file.try_lock());
    matches!(locked, Ok(Err(std::fs::TryLockError::WouldBlock)))
}

/// Refuses a file that [`write_file`](crate::write_files::write_file) could not write.
pub fn check_file(path: &Path) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::file("cannot write", path, error).kept("nothing was started")
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(missing) = directory.filter(|parent| !parent.exists()) {
        let what = format!(
            "cannot write {}: the directory {} does not exist",
            path.display(),
            missing.display()
        );
        return Err(CliError::failed(what).kept("nothing was started"));
    }
    match path.metadata() {
        Ok(found) if found.is_dir() => Err(failed(std::io::ErrorKind::IsADirectory.into())),
        // A pipe may be opened only once, so do not try it here.
        Ok(found) if !found.is_file() => Ok(()),
        _ => temporary(path).map(|_| ()).map_err(|error| failed(error.kind().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::DocumentArgs;

    #[test]
    fn what_cannot_be_written_is_refused_before_and_a_check_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &Path| OutputArgs { html: Some(path.into()), ..Default::default() };
        at(&dir.path().join("x.html")).check([]).unwrap();
        at(Path::new("/dev/null")).check([]).unwrap();
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        for path in [dir.path().join("missing/x.html"), dir.path().to_owned()] {
            let error = at(&path).check([]).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn only_the_answer_itself_goes_to_standard_output() {
        let dash = Some(PathBuf::from("-"));
        let document = DocumentArgs { output: dash.clone(), ..Default::default() };
        OutputArgs { document, ..Default::default() }.check([]).unwrap();
        for args in [
            OutputArgs { html: dash.clone(), ..Default::default() },
            OutputArgs { parquet: dash.clone(), ..Default::default() },
        ] {
            let error = args.check([]).unwrap_err().to_string();
            assert!(error.contains("standard output"), "{error}");
        }
    }

    #[test]
    fn what_is_read_or_written_already_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (trace, other) = (dir.path().join("a.csv"), dir.path().join("b.html"));
        std::fs::write(&trace, "kept").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&trace, &link).unwrap();
        let args = OutputArgs { html: Some(link), ..Default::default() };
        let error = args.check([&trace]).unwrap_err().to_string();
        assert!(error.contains("both read and written"), "{error}");
        let both = Some(other.clone());
        let args = OutputArgs { html: both.clone(), parquet: both, ..Default::default() };
        let error = args.check([&trace]).unwrap_err().to_string();
        assert!(error.contains("written twice"), "{error}");
        OutputArgs { html: Some(other), ..Default::default() }.check([&trace]).unwrap();
    }

    #[test]
    fn one_file_is_known_by_any_of_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        let check = |written: &[&str], read: &[&str]| {
            let paths = |names: &[&str]| names.iter().map(|name| at(name)).collect::<Vec<_>>();
            check_files(&paths(written), &paths(read)).map_err(|error| error.to_string())
        };
        // The files do not exist yet.
        let twice = check(&["new.html", "d/../new.html"], &[]).unwrap_err();
        assert!(twice.contains("written twice"), "{twice}");
        let read = check(&["d/../new.img"], &["new.img"]).unwrap_err();
        assert!(read.contains("both read and written"), "{read}");
        check(&["new.html", "d/new.html"], &["new.img"]).unwrap();
        // The index is read together with the recording; the recording's final name is free.
        let read = check(&["x.parquet.partial.index"], &["x.parquet.partial"]).unwrap_err();
        assert!(read.contains("both read and written"), "{read}");
        check(&["x.parquet"], &["x.parquet.partial"]).unwrap();
    }

    #[test]
    fn what_another_process_has_locked_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let store = std::fs::File::create(at("store.img")).unwrap();
        let recording = std::fs::File::create(at("x.parquet.partial")).unwrap();
        check_files([&at("store.img"), &at("x.parquet")], []).unwrap();
        store.lock_shared().unwrap();
        recording.lock().unwrap();
        for name in ["store.img", "x.parquet", "x.parquet.partial", "x.parquet.partial.index"] {
            let error = check_files([&at(name)], []).unwrap_err().to_string();
            assert!(error.contains("in use by another process"), "{name}: {error}");
        }
        drop((store, recording));
        check_files([&at("store.img"), &at("x.parquet")], []).unwrap();
    }
}
