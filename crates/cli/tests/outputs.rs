//! Goal: no output overwrites a file that the command reads or runs on, or that another process
//! uses. Method: commands whose options name a file twice; afterwards, compare the contents of the
//! files.

use std::path::Path;
use std::process::{Command, Output};

fn forebay(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).current_dir(dir).args(args).output().unwrap()
}

/// A directory with a trace, a workload description, a configuration, the configuration's files and
/// a device.
fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let spec = "zipf:blocks=64,requests=100,write=0";
    assert!(forebay(dir.path(), &["trace", "synth", spec, "-o", "t.parquet"]).status.success());
    let write = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
    write("w.toml", b"pattern = 'zipf'\nblocks = 64\nrequests = 100\n");
    let config = "[cache]\ndram = '1MiB'\n[flash]\npath = 'flash.img'\nsize = '16MiB'\n\
                  [[volume]]\nname = 'a'\nbacking = 'n1.img'\nsize = '4MiB'\n";
    write("c.toml", config.as_bytes());
    write("n1.img", &vec![1; 8 << 20]);
    write("d.img", &vec![2; 4 << 20]);
    dir
}

#[test]
fn no_output_replaces_what_the_command_reads_or_runs_on() {
    let dir = files();
    let plan = ["plan", "t.parquet", "--budget", "50%", "--backing", "SlowHDD"];
    let load = ["load", "zipf:blocks=64,requests=100,write=0"];
    let (target, config) = (["--target", "d.img"], ["--config", "c.toml"]);
    for (args, output) in [
        ([&["replay", "t.parquet"][..], &target].concat(), ["--intervals", "t.parquet"]),
        ([&["replay", "t.parquet"][..], &target].concat(), ["--html", "d.img"]),
        ([&load[..], &target, &["--parquet", "x"]].concat(), ["--intervals", "./x"]),
        ([&load[..], &target].concat(), ["-o", "d.img"]),
        ([&load[..], &config].concat(), ["--html", "n1.img"]),
        ([&load[..], &config].concat(), ["--intervals", "flash.img"]),
        ([&["load", "w.toml"][..], &target].concat(), ["-o", "w.toml"]),
        ([&plan[..], &config].concat(), ["-o", "c.toml"]),
        ([&plan[..], &config].concat(), ["--html", "n1.img"]),
        (vec!["plan", "t.parquet", "--study=2", "--resume", "r.json"], ["-o", "./r.json"]),
        ([&["simulate", "t.parquet"][..], &config].concat(), ["--html", "n1.img"]),
        ([&["mrc", "t.parquet"][..], &config].concat(), ["--html", "n1.img"]),
        (vec!["mrc", "t.parquet", "-o", "o.x"], ["--html", "./o.x"]),
        (vec!["trace", "synth", "w.toml"], ["-o", "w.toml"]),
    ] {
        let before = contents(dir.path());
        let output = forebay(dir.path(), &[&args[..], &output].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        let says = ["both read and written", "would be written twice"];
        assert!(says.iter().any(|text| stderr.contains(text)), "{args:?}: {stderr}");
        assert!(contents(dir.path()) == before, "{args:?} has changed a file");
    }
}

#[test]
fn no_output_replaces_what_another_process_uses() {
    let dir = files();
    let store = std::fs::File::open(dir.path().join("n1.img")).unwrap();
    store.lock().unwrap();
    let before = contents(dir.path());
    let output = forebay(dir.path(), &["mrc", "t.parquet", "--html", "n1.img"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("n1.img is in use by another process"), "{stderr}");
    assert!(contents(dir.path()) == before);
}

/// Every file and its contents.
fn contents(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let files = dir.read_dir().unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> =
        files.map(|f| (f.file_name(), std::fs::read(f.path()).unwrap())).collect();
    files.sort();
    files
}
