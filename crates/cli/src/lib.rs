//! The `forebay` command line: parses arguments, calls the library that does the work, and prints.
//!
//! Exit status 0 = done; 1 = the work failed; 2 = bad usage or configuration. Results go to
//! standard output (or `-o FILE`), progress and messages to standard error.

mod advice;
mod args;
mod check_files;
mod commands;
mod context;
mod error;
mod messages;
mod notes;
mod notify;
mod output;
mod progress;
mod write_files;

use std::process::ExitCode;

pub use commands::{Cli, description, documents, run};
pub use context::Context;

/// Runs the command given by the arguments of this process.
pub fn main() -> ExitCode {
    let code = match commands::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report();
            error.exit_code()
        }
    };
    messages::finish();
    code
}
