//! `forebay serve`: refused starts.

use std::path::Path;
use std::process::Command;

/// Writes a configuration whose sockets are in the directory.
fn configure(directory: &Path, more: &str) {
    let text = format!(
        "[cache]\ndram = '1MiB'\n[flash]\npath = 'flash.img'\nsize = '16MiB'\n\
         [[volume]]\nname = 'v'\nbacking = 'disk.img'\nsize = '8MiB'\n\
         [serve]\ncontrol = 'unix:control.sock'\n{more}"
    );
    std::fs::write(directory.join("f.toml"), text).unwrap();
}

/// The message of a start that is refused with status 1.
fn refused(directory: &Path, more: &[&str]) -> String {
    refused_with(1, directory, more)
}

fn refused_with(status: i32, directory: &Path, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(directory).args(["serve", "--config", "f.toml"]).args(more);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{more:?}: {stderr}");
    stderr
}

/// The files of a directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Method: recordings and tapes that cannot be created, and stores that cannot be opened;
/// afterwards, list the directory.
#[test]
fn a_refused_start_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "nbd = 'unix:nbd.sock'\n");
    let said = refused(dir.path(), &["--record", "missing/x.parquet"]);
    let message = "cannot record to missing/x.parquet: the directory missing does not exist; nothing was \
                   started";
    assert!(said.contains(message), "{said}");
    assert_eq!(files(dir.path()), ["f.toml"]);
    let said = refused(dir.path(), &["--tape", "missing/x.tape"]);
    assert!(said.contains("missing/x.tape"), "{said}");
    assert_eq!(files(dir.path()), ["f.toml"]);
    std::fs::write(dir.path().join("flash.img"), [7; 1 << 20]).unwrap();
    refused(dir.path(), &["--record", "x.parquet", "--tape", "x.tape"]);
    assert_eq!(files(dir.path()), ["f.toml", "flash.img"], "the recording is gone, too");
}

/// Method: two outputs that are the same file, also after they are numbered because the file
/// exists; outputs that the server uses for something else; afterwards, list the directory.
#[test]
fn outputs_that_are_one_file_are_refused_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "nbd = 'unix:nbd.sock'\n");
    let refuses = |record: &str, tape: &str, message: &str| {
        let before = files(dir.path());
        let said = refused_with(2, dir.path(), &["--record", record, "--tape", tape]);
        assert!(said.contains(message) && said.contains("nothing was written"), "{said}");
        assert_eq!(files(dir.path()), before);
    };
    refuses("x", "x", "x would be written twice");
    refuses("x", "./x", "./x would be written twice");
    refuses("x", "x.partial", "x.partial would be written twice");
    refuses("disk.img", "x", "disk.img is both read and written");
    refuses("x", "flash.img", "flash.img is both read and written");
    refuses("x", "-", "only to a file");
    std::fs::write(dir.path().join("x"), "a recording").unwrap();
    refuses("x", "x", "x would be written twice");
    refuses("x", "x-2", "x-2 would be written twice");
}

#[test]
fn a_socket_without_its_directory_is_told_with_the_command_that_makes_it() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "nbd = 'unix:run/nbd.sock'\n");
    let said = refused(dir.path(), &[]);
    let message = "cannot listen on unix:run/nbd.sock: the directory run does not exist; create it (`mkdir -m 700 \
                   run`)";
    assert!(said.contains(message), "{said}");
    assert_eq!(files(dir.path()), ["f.toml"]);
}

#[test]
fn a_file_that_is_missing_and_has_no_size_is_told_with_the_volume_and_the_key() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "nbd = 'unix:nbd.sock'\n");
    let file = dir.path().join("f.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for (size, message) in [
        (
            "size = '8MiB'\n",
            "volume v: disk.img does not exist; nothing was created. To create it, set a `size` for volume v",
        ),
        (
            "size = '16MiB'\n",
            "the flash tier: flash.img does not exist; nothing was created. To create it, set a `size` for the flash",
        ),
    ] {
        std::fs::write(&file, text.replacen(size, "", 1)).unwrap();
        let said = refused(dir.path(), &[]);
        assert!(said.contains(message), "{said}");
        assert_eq!(files(dir.path()), ["f.toml"]);
    }
}

#[test]
fn a_file_without_its_directory_is_told_with_the_command_that_makes_it() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "nbd = 'unix:nbd.sock'\n");
    let file = dir.path().join("f.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for name in ["disk.img", "flash.img"] {
        std::fs::write(&file, text.replace(name, &format!("no/where/{name}"))).unwrap();
        let said = refused(dir.path(), &[]);
        let message = format!(
            "cannot create no/where/{name}: the directory no/where does not exist; create it (`mkdir -p no/where`)"
        );
        assert!(said.contains(&message), "{said}");
        assert_eq!(files(dir.path()), ["f.toml"]);
    }
}

/// Method: the reader closes the pipe before the server is ready; then a signal stops the server.
#[test]
fn a_server_serves_on_if_nobody_reads_its_addresses() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "nbd = 'unix:nbd.sock'\n");
    let (reader, stdout) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(dir.path()).args(["serve", "--config", "f.toml"]);
    let mut server = command.stdout(stdout).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let ctl = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.current_dir(dir.path()).args(["ctl", "status", "--control", "unix:control.sock"]);
        command.output().unwrap()
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let is_up = || {
        let status = ctl();
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        status.status.success() && !said.contains("\"state\": \"recovering\"")
    };
    let mut up = is_up();
    while !up && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
        up = is_up();
    }
    assert!(up, "{:?}", ctl());
    assert!(server.try_wait().unwrap().is_none(), "the server has ended");
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let output = server.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("serving, but"), "{said}");
}
