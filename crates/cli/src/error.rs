//! The failure that a user sees when a command cannot do its work.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use forebay_analysis::Interrupted;

/// A failure as users see it: what happened to what, what was kept, and what to do next.
///
/// Any `std::error::Error` turns into one with `?` (exit status 1, its chain of causes as the
/// message); add [`kept`](CliError::kept) and [`next`](CliError::next) where they help.
#[derive(Debug)]
pub struct CliError {
    kind: Kind,
    what: String,
    kept: Option<String>,
    next: Option<String>,
    /// Failures that happened before this one.
    earlier: Vec<CliError>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Failed,
    Usage,
    /// The reader of standard output has closed the pipe (`forebay ... | head`), so nothing is
    /// printed.
    ReaderGone,
}

impl CliError {
    /// The work failed: exit status 1.
    pub fn failed(what: impl fmt::Display) -> Self {
        let (kept, next, earlier) = (None, None, Vec::new());
        Self { kind: Kind::Failed, what: what.to_string(), kept, next, earlier }
    }

    /// Bad usage or configuration: exit status 2, nothing was started.
    pub fn usage(what: impl fmt::Display) -> Self {
        Self { kind: Kind::Usage, ..Self::failed(what) }
    }

    /// An operation on a file failed: `CliError::file("cannot write", &path, error)`.
    pub fn file(what: &str, path: &Path, error: impl std::error::Error) -> Self {
        Self::failed(format_args!("{what} {}: {}", path.display(), chain(&error)))
    }

    /// The user stopped the work.
    pub fn interrupted() -> Self {
        Self::failed(Interrupted)
    }

    /// Adds what was kept in spite of the failure.
    pub fn kept(mut self, what: impl fmt::Display) -> Self {
        self.kept = Some(what.to_string());
        self
    }

    /// Adds what to do next.
    pub fn next(mut self, what: impl fmt::Display) -> Self {
        self.next = Some(what.to_string());
        self
    }

    /// Combines several failures of one command, which are printed in this order; `None` if there
    /// are none.
    pub fn all(failures: impl IntoIterator<Item = Self>) -> Option<Self> {
        let each = failures.into_iter().flat_map(|mut failure| {
            let earlier = std::mem::take(&mut failure.earlier);
            earlier.into_iter().chain([failure])
        });
        let (gone, mut told): (Vec<_>, Vec<_>) =
            each.partition(|failure| failure.kind == Kind::ReaderGone);
        let last = told.pop();
        last.map(|last| Self { earlier: told, ..last }).or_else(|| gone.into_iter().next())
    }

    /// The exit status for this failure.
    pub fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Failed => ExitCode::from(1),
            Kind::Usage => ExitCode::from(2),
            Kind::ReaderGone => ExitCode::SUCCESS,
        }
    }

    /// Writes the failure to standard error.
    pub fn report(&self) {
        if self.kind != Kind::ReaderGone {
            crate::messages::say(self);
        }
    }

    /// An error from writing to standard output; a closed pipe does not count as a failure.
    pub fn writing_stdout(error: std::io::Error) -> Self {
        let failed = Self::failed(format_args!("cannot write to standard output: {error}"));
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self { kind: Kind::ReaderGone, ..failed },
            _ => failed,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.earlier.iter().try_for_each(|earlier| writeln!(f, "{earlier}"))?;
        // A configuration may have several problems, one per line.
        write!(f, "forebay: {}", without_numbers(&self.what).replace('\n', "\nforebay: "))?;
        if let Some(kept) = &self.kept {
            write!(f, "\n  kept: {kept}")?;
        }
        if let Some(next) = &self.next {
            write!(f, "\n  next: {next}")?;
        }
        Ok(())
    }
}

/// Removes the kernel's error numbers, such as "(os error 2)", which follow their own explanations.
fn without_numbers(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut parts = text.split(BEGIN);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<u32>().is_ok() => kept += rest,
            _ => kept = kept + BEGIN + part,
        }
    }
    kept
}

/// Puts the error and its causes on one line, leaving out causes that the text already contains.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text.push_str(": ");
            text.push_str(&inner);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_happened_what_was_kept_and_what_to_do() {
        let error = CliError::failed("x.csv, line 3: no such operation `Q`")
            .kept("2 requests in y.parquet")
            .next("fix the line, or use --skip-bad-lines");
        assert_eq!(
            error.to_string(),
            "forebay: x.csv, line 3: no such operation `Q`\n  kept: 2 requests in y.parquet\n  \
             next: fix the line, or use --skip-bad-lines"
        );
        assert_eq!(error.exit_code(), ExitCode::from(1));
        assert_eq!(CliError::usage("x").exit_code(), ExitCode::from(2));
    }

    #[test]
    fn every_problem_of_a_configuration_says_which_program_reports_it() {
        let error = CliError::usage("f.toml:1: a\nf.toml:2: b").next("c");
        assert_eq!(error.to_string(), "forebay: f.toml:1: a\nforebay: f.toml:2: b\n  next: c");
    }

    #[test]
    fn the_numbers_of_system_errors_are_left_out() {
        for (text, shown) in [
            ("x: No such file (os error 2)", "x: No such file"),
            ("x: a (os error 5); y: b (os error 28): c", "x: a; y: b: c"),
            ("x (os error", "x (os error"),
            ("x (os error two)", "x (os error two)"),
        ] {
            assert_eq!(CliError::failed(text).to_string(), format!("forebay: {shown}"));
        }
    }

    #[test]
    fn several_failures_are_all_told_and_a_reader_that_went_away_hides_none() {
        let gone = || CliError::writing_stdout(std::io::ErrorKind::BrokenPipe.into());
        let both = [CliError::failed("a").kept("x"), gone(), CliError::failed("b").next("y")];
        let both = CliError::all(both).unwrap();
        assert_eq!(both.to_string(), "forebay: a\n  kept: x\nforebay: b\n  next: y");
        assert_eq!(both.exit_code(), ExitCode::from(1));
        let three = CliError::all([CliError::failed("c"), both]).unwrap().to_string();
        assert_eq!(three, "forebay: c\nforebay: a\n  kept: x\nforebay: b\n  next: y");
        assert_eq!(CliError::all([gone()]).unwrap().exit_code(), ExitCode::SUCCESS);
        assert!(CliError::all([]).is_none());
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let gone = CliError::writing_stdout(std::io::ErrorKind::BrokenPipe.into());
        assert_eq!(gone.exit_code(), ExitCode::SUCCESS);
        let full = CliError::writing_stdout(std::io::ErrorKind::StorageFull.into());
        assert_eq!(full.exit_code(), ExitCode::from(1));
    }
}
