//! Goal: every command keeps what users and scripts rely on: exit statuses, which stream text goes
//! to, and examples that work when pasted. Method: run the binary.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

fn forebay(args: &[&str]) -> Output {
    Command::new(FOREBAY).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Every command as a list of words, such as `["trace"]` and `["trace", "info"]`, read from the
/// binary's help.
fn commands() -> Vec<Vec<String>> {
    fn below(words: &[String], found: &mut Vec<Vec<String>>) {
        let mut args = words.to_vec();
        args.push("--help".into());
        let output = Command::new(FOREBAY).args(&args).output().unwrap();
        let help = stdout(&output);
        if !words.is_empty() {
            found.push(words.to_vec());
        }
        let Some((_, list)) = help.split_once("Commands:\n") else { return };
        let list = list.split("\n\n").next().unwrap();
        // Descriptions that continue on another line are indented further than names.
        let names = list.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
        for name in names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help") {
            let mut words = words.to_vec();
            words.push(name.to_string());
            below(&words, found);
        }
    }
    let mut found = Vec::new();
    below(&[], &mut found);
    assert!(found.len() >= 25, "{found:?}");
    found
}

#[test]
fn help_and_version_go_to_standard_output_with_status_0() {
    for args in [&["--help"][..], &["help"], &["--version"], &["version"], &["help", "man"]] {
        let output = forebay(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(stdout(&forebay(&["version"])), stdout(&forebay(&["--version"])));
}

#[test]
fn every_command_describes_itself() {
    for words in commands() {
        let mut args: Vec<&str> = vec!["help"];
        args.extend(words.iter().map(String::as_str));
        let output = forebay(&args);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(stdout(&output).contains("Usage: forebay"), "{words:?}");
    }
}

#[test]
fn bad_usage_ends_with_status_2_and_says_why_on_standard_error() {
    for (args, says) in [
        (&[][..], "Usage"),
        (&["no-such-command"], "no command `no-such-command`"),
        (&["representatives", "a.csv"], "Python package"),
        (&["study", "a.toml"], "Python package"),
        (&["advise", "a.csv"], "Python package"),
        (&["complétions"], "did you mean `forebay completions`"),
        (&["mcr"], "did you mean `forebay mrc`"),
        (&["help", "serv"], "did you mean `forebay serve`"),
        (&["trace", "show"], "the commands of `forebay trace` are info, convert, synth"),
        (&["ctl", "-q", "statu"], "did you mean `forebay ctl status`"),
        (&["completions"], "<SHELL>"),
        (&["completions", "dos"], "possible values"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["man"], "<DIR>"),
    ] {
        let output = forebay(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn work_that_fails_ends_with_status_1_and_says_what_failed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = forebay(&["man", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(file.to_str().unwrap()), "{}", stderr(&output));
}

#[test]
fn the_status_of_a_server_may_be_asked_for_as_json() {
    let args = ["ctl", "status", "--json", "--control", "unix:/nonexistent/control.sock"];
    let output = forebay(&args);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("/nonexistent/control.sock"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(FOREBAY)
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn unknown_commands_are_programs_on_the_path_as_with_git() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("forebay-study");
    std::fs::write(&program, "#!/bin/sh\necho \"study: $*\"\necho $FOREBAY\nexit 7\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |path: &str| {
        Command::new(FOREBAY)
            .args(["study", "a", "-x", "--json"])
            .env("PATH", path)
            .env_remove("FOREBAY")
            .output()
            .unwrap()
    };
    let output = run(&format!("{}:/usr/bin:/bin", dir.path().display()));
    // The package runs the `forebay` that started it, which need not be on the PATH.
    let own = std::path::Path::new(FOREBAY).canonicalize().unwrap();
    assert_eq!(stdout(&output), format!("study: a -x --json\n{}\n", own.display()));
    assert_eq!(output.status.code(), Some(7));
    // Options before the first argument of the Python program belong to `forebay`, which passes
    // `-q` on.
    for words in [["-q", "study", "a"], ["study", "--quiet", "a"]] {
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let output = Command::new(FOREBAY).args(words).env("PATH", path).output().unwrap();
        let said = stdout(&output);
        assert!(said.starts_with("study: --quiet a\n"), "{words:?}: {said}");
    }
    let help = Command::new(FOREBAY).args(["study", "--help"]).env("PATH", "/nonexistent").output();
    let help = stdout(&help.unwrap());
    assert!(help.contains("Usage: forebay study"), "{help}");
    let output = run("/nonexistent");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("Python package"), "{}", stderr(&output));
}

#[test]
fn completions_exist_for_every_shell_and_manual_pages_for_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&forebay(&["completions", shell]));
        assert!(script.contains("forebay") && script.contains("completions"), "{shell}");
        assert!(
            ["representatives", "study", "fleet", "advise"]
                .iter()
                .all(|name| script.contains(name)),
            "{shell}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(forebay(&["-q", "man", dir.path().to_str().unwrap()]).status.code(), Some(0));
    for words in commands() {
        let page = dir.path().join(format!("forebay-{}.1", words.join("-")));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
        assert!(text.contains("EXAMPLE") || text.contains("Example"), "{page:?} has no example");
    }
}

/// Starts a server with a flash tier, configured by `forebay.toml`, and waits until it is ready.
const SERVE: &str = r#"
cat > forebay.toml <<'END'
[cache]
dram = "32MiB"
write_policy = "write-back"
[flash]
path = "flash.img"
size = "64MiB"
[[volume]]
name = "vm1"
backing = "disk.img"
size = "64MiB"
[serve]
nbd = "unix:nbd.sock"
control = "unix:control.sock"
END
forebay serve --config forebay.toml > ready &
server=$!
for _ in $(seq 600); do [ -s ready ] && break; sleep 0.05; done
[ -s ready ]
"#;

/// Shell lines that prepare what a command's examples need: a running server for `ctl`, and the
/// devices of a stopped server for `flash` and `backing`.
fn prepared(command: &str) -> String {
    match command {
        "ctl" => SERVE.to_string(),
        "flash" | "backing" => format!("{SERVE}kill -INT $server\nwait $server\n"),
        _ => String::new(),
    }
}

/// Runs lines in a shell as if pasted, in an empty directory, and then ends all processes that they
/// started. Returns the shell's status and what it wrote to standard error.
fn paste(lines: &str) -> (ExitStatus, String) {
    let dir = tempfile::tempdir().unwrap();
    let errors = tempfile::NamedTempFile::new().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = Path::new(FOREBAY).parent().unwrap().display().to_string();
    // Output goes to files, because a server that an example starts would keep a pipe open.
    let status = Command::new("timeout")
        .args(["120", "bash", "-e", "-c", lines])
        .current_dir(dir.path())
        .env("PATH", format!("{bin}:{path}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.reopen().unwrap())
        .process_group(0)
        .spawn()
        .map(|mut child| {
            let status = child.wait().unwrap();
            end_group(child.id());
            status
        })
        .unwrap();
    (status, std::fs::read_to_string(errors.path()).unwrap())
}

/// Ends every process of a group, if any is left.
fn end_group(group: u32) {
    let group = format!("-{group}");
    let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
}

#[test]
fn the_example_of_every_command_works_when_pasted() {
    let mut failures = Vec::new();
    // EXAMPLES restricts the test to these commands: scripts/test-python.sh runs those that need
    // the package.
    let wanted = std::env::var("EXAMPLES").ok();
    for words in commands() {
        if wanted.as_ref().is_some_and(|w| !w.split_whitespace().any(|w| w == words[0])) {
            continue;
        }
        let mut args = words.clone();
        args.push("--help".into());
        // With an empty PATH, the Python package is not found, so the help is the binary's own.
        let help = stdout(&Command::new(FOREBAY).args(&args).env("PATH", "").output().unwrap());
        let lines: Vec<_> = help.lines().filter_map(|l| l.strip_prefix("  $ ")).collect();
        if lines.is_empty() {
            failures.push(format!("forebay {}: no example", words.join(" ")));
            continue;
        }
        let of_python =
            ["representatives", "study", "fleet", "advise"].contains(&words[0].as_str());
        if of_python && !paste(&format!("type forebay-{}", words[0])).0.success() {
            println!("left to scripts/test-python.sh: the example of {}", words[0]);
            continue;
        }
        let (status, errors) = paste(&(prepared(&words[0]) + &lines.join("\n")));
        if !status.success() {
            failures.push(format!("forebay {}: {status}\n{errors}", words.join(" ")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn an_example_that_fails_is_noticed_with_and_without_a_server() {
    for (command, line) in [
        ("trace", "forebay trace info nowhere.parquet"),
        ("ctl", "forebay ctl attach --config forebay.toml"),
        ("ctl", "forebay ctl status --control unix:nowhere.sock"),
        ("flash", "forebay flash info disk.img"),
        ("backing", "forebay backing info flash.img"),
    ] {
        let (status, errors) = paste(&(prepared(command) + line));
        assert_eq!(status.code(), Some(1), "{line}: {errors}");
        // The line itself failed, not the preparation.
        assert!(errors.lines().any(|l| l.starts_with("forebay: ")), "{line}: {errors}");
    }
    assert!(paste(&(prepared("ctl") + "true")).0.success());
}

#[test]
fn what_cannot_be_read_is_said_in_words_of_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str], stdin: Stdio| {
        let mut command = Command::new(FOREBAY);
        let output = command.current_dir(dir.path()).args(args).stdin(stdin).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let spec = "zipf:blocks=64,requests=100";
    assert_eq!(run(&["trace", "synth", spec, "-o", "t.parquet"], Stdio::null()).0, Some(0));
    let file = std::fs::File::open(dir.path().join("t.parquet")).unwrap();
    let (status, says) = run(&["trace", "info", "-"], file.into());
    assert_eq!(status, Some(1), "{says}");
    assert!(says.contains("Parquet") && says.contains("use a file"), "{says}");
    let (status, says) = run(&["report", "t.parquet", "-o", "x.html"], Stdio::null());
    assert_eq!(status, Some(2), "{says}");
    assert!(says.contains("t.parquet is not a JSON document") && says.contains("--json"), "{says}");
    let (status, _) = run(&["trace", "info", "t.parquet", "--json", "-o", "i.json"], Stdio::null());
    assert_eq!(status, Some(0));
    std::fs::write(dir.path().join("other.json"), "{\"requests\": 1}").unwrap();
    let (status, says) = run(&["report", "other.json", "-o", "x.html"], Stdio::null());
    assert!(status == Some(2) && says.contains("consolidate, sample, representatives"), "{says}");
    for command in [
        &["trace", "convert", "t.parquet", "--to", "parquet", "-o", "-"][..],
        &["mrc", "t.parquet", "--html", "-"],
        &["mrc", "t.parquet", "--parquet", "-"],
        &["report", "i.json", "-o", "-"],
    ] {
        let (status, says) = run(command, Stdio::null());
        assert!(status == Some(2) && says.contains("only to a file"), "{says}");
        assert!(!dir.path().join("-").exists(), "{command:?}");
    }
}

#[test]
fn wrong_names_and_places_end_every_command_that_reads_a_trace_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .current_dir(dir.path())
            .args(args)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let spec = "zipf:blocks=64,requests=100";
    assert_eq!(run(&["trace", "synth", spec, "-o", "t.parquet"]).0, Some(0));
    std::fs::write(dir.path().join("c.toml"), "[cache]\ndram = '1MiB'\n").unwrap();
    for command in [
        &["trace", "info", "t.parquet"][..],
        &["trace", "convert", "t.parquet", "-o", "x.csv"],
        &["mrc", "t.parquet"],
        &["consolidate", "t.parquet", "--size", "1MiB"],
        &["plan", "t.parquet", "--budget", "50%"],
        &["partition", "t.parquet", "--flash", "1MiB"],
        &["simulate", "t.parquet", "--config", "c.toml"],
        &["replay", "t.parquet", "--target", "disk.img", "--create", "1MiB"],
    ] {
        for (wrong, says) in [
            (["--format", "nonsense"], "no trace format \"nonsense\""),
            (["--volumes", "nobody"], "no volume `nobody`; it has"),
        ] {
            let (status, stderr) = run(&[command, &wrong].concat());
            assert_eq!(status, Some(2), "{command:?} {wrong:?}: {stderr}");
            assert!(stderr.contains(says), "{command:?} {wrong:?}: {stderr}");
        }
        if command[1] != "convert" {
            let (status, stderr) = run(&[command, &["--html", "missing/x.html"]].concat());
            assert_eq!(status, Some(1), "{command:?}: {stderr}");
            assert!(
                stderr
                    .contains("cannot write missing/x.html: the directory missing does not exist"),
                "{stderr}"
            );
            assert!(stderr.contains("nothing was started"), "{stderr}");
        }
    }
    assert!(!dir.path().join("disk.img").exists());
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for line in [&["help"][..], &["--help"], &["help", "mrc"], &["mrc", "--help"], &["--version"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_forebay")).args(line).stdout(full).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{line:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot write to standard output"), "{line:?}: {said}");
        let whole = Command::new(env!("CARGO_BIN_EXE_forebay")).args(line).output().unwrap();
        assert!(whole.status.success() && !whole.stdout.is_empty(), "{line:?}");
    }
}

#[test]
fn a_trace_in_the_place_of_a_configuration_is_recognised() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/sqlite-shop.parquet");
    let said = crate::common::refusal("simulate", &["cache.toml", "--config", trace]);
    assert!(said.contains("is not a text file") && said.contains("may be a trace"), "{said}");
}

#[test]
fn an_option_says_what_it_expects_instead_of_a_negative_number() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/sqlite-shop.parquet");
    for (line, says) in [
        (&["mrc", trace, "--sample", "-0.1"][..], "is not a rate"),
        (&["plan", trace, "--budget", "1", "--wear-max", "-1"], "a number above 0"),
        (&["plan", trace, "--budget", "-1"], "is not a budget"),
        (&["sample", trace, "--rate", "-0.5", "-o", "s.parquet"], "is not a rate"),
        (&["simulate", trace, "--config", "c.toml", "--rate", "-1"], "is not a number above 0"),
        (&["mrc", trace, "--points", "-1"], "2 or more"),
    ] {
        let output = forebay(line);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{line:?}: {said}");
    }
}

/// Goal: an output that cannot be written costs only itself. Method: outputs on a full device.
#[test]
fn a_result_is_printed_although_its_page_and_its_rows_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let run = |line: &str, stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(line.split_whitespace()).current_dir(&dir).stdout(stdout);
        let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let [said, told] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), said, told)
    };
    let made = run("trace synth zipf:blocks=100,requests=1k -o t.csv", Stdio::piped());
    assert_eq!(made.0, Some(0), "{made:?}");

    let line = "mrc t.csv --json --parquet /dev/full --html /dev/full";
    let (status, said, told) = run(line, Stdio::piped());
    assert!(serde_json::from_str::<serde_json::Value>(&said).is_ok(), "{said}");
    assert_eq!(told.matches("cannot write /dev/full").count(), 2, "{told}");
    assert!(told.contains("kept: the result on standard output"), "{told}");
    assert_eq!(status, Some(1));

    let line = "mrc t.csv -o r.txt --parquet r.parquet --html /dev/full";
    let (status, _, told) = run(line, Stdio::piped());
    assert!(told.contains("kept: the result in r.txt, r.parquet"), "{told}");
    assert!(dir.path().join("r.txt").exists() && dir.path().join("r.parquet").exists());
    assert_eq!(status, Some(1));

    let load = "load zipf:blocks=1k --target l.img --create 4MiB --requests 100";
    let line = format!("{load} --intervals /dev/full --html l.html");
    let (status, said, told) = run(&line, Stdio::piped());
    assert!(said.contains("100"), "{said}");
    assert!(told.contains("cannot write /dev/full") && told.contains("l.html"), "{told}");
    assert!(dir.path().join("l.html").exists());
    assert_eq!(status, Some(1));

    // Even if the report cannot be written, the trace file exists and the message names it.
    for (line, file) in [
        ("trace synth zipf:requests=1k -o s.csv", "kept: s.csv"),
        ("trace convert t.csv -o c.csv", "kept: c.csv"),
        ("sample t.csv --rate 0.5 --bits 0 -o q.parquet", "kept: q.parquet"),
        ("mrc t.csv --html m.html", "kept: m.html"),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (status, _, told) = run(line, full.into());
        assert!(told.contains("standard output") && told.contains(file), "{line}: {told}");
        assert_eq!(status, Some(1), "{line}");
    }
}
