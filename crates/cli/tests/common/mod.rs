//! Runs the command as users do.

#![allow(dead_code, reason = "each test of the command line uses a part of it")]

use std::process::{Command, Output};

use serde_json::Value;

/// Runs a command line.
pub fn forebay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).output().unwrap()
}

/// The JSON document that `command` prints.
pub fn json(command: &str, args: &[&str]) -> Value {
    let output = forebay(&[&[command, "--json", "--quiet"], args].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The error message of `command`, which must fail with status 2 and print nothing on standard
/// output.
pub fn refusal(command: &str, args: &[&str]) -> String {
    let output = forebay(&[&[command], args].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}
