//! `forebay-adversary`: looks for runs in which the cache breaks a disk's promises.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod command;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = command::Arguments::parse();
    match command::perform(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("forebay-adversary: {what}");
            ExitCode::FAILURE
        }
    }
}
