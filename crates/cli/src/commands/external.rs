//! Commands that are separate programs: `forebay study` runs `forebay-study`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::CliError;
use crate::write_files::write_stdout;

/// Replaces this process with `forebay-NAME`, where NAME is the first of `words`; returns only on
/// failure.
pub fn run(words: &[OsString]) -> Result<(), CliError> {
    let (name, rest) = words.split_first().ok_or_else(|| CliError::usage("no command given"))?;
    if name == "version" {
        return write_stdout(super::description().render_version().as_bytes());
    }
    let mut program = OsString::from("forebay-");
    program.push(name);
    let error = Command::new(&program).args(rest).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let name = name.to_string_lossy();
        return Err(super::unknown::command(&super::description(), [""; 0], &name));
    }
    Err(CliError::failed(format_args!("cannot run {}: {error}", program.display())))
}

/// Runs a command of the Python package that the command line lists.
pub fn run_python(name: &str, words: &[OsString]) -> Result<(), CliError> {
    let program = format!("forebay-{name}");
    let mut command = Command::new(&program);
    // The Python program runs this executable, which need not be on the PATH.
    if let (None, Ok(own)) = (std::env::var_os("FOREBAY"), std::env::current_exe()) {
        command.env("FOREBAY", own);
    }
    let error = command.args(words).exec();
    let what = match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("`forebay {name}` runs the program {program}, which is not on the PATH")
        }
        _ => format!("cannot run {program}: {error}"),
    };
    let next = "install the Python package `forebay` (docs/python.md), or put its bin directory on the PATH";
    Err(CliError::usage(what).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_exist_is_bad_usage() {
        let error = run(&["no-such-command-anywhere".into()]).unwrap_err();
        assert_eq!(error.exit_code(), std::process::ExitCode::from(2));
    }
}
