//! Clients that others wrote against the codec's server half: nbdinfo, nbdcopy, qemu-img and
//! qemu-io, where installed.

#![allow(clippy::print_stderr)] // a test that skips says so

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

struct Server {
    process: Child,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    fn start(name: &str) -> Server {
        let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let process = Command::new(env!("CARGO_BIN_EXE_ramserver"))
            .arg(&socket)
            .args(["16777216", "disk"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        while !socket.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Server { process, folder }
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.folder.join("socket").display())
    }

    /// What a client prints; `None`, with a word about it, if it is not installed.
    fn run(&self, program: &str, arguments: &[&str]) -> Option<(bool, String)> {
        let Ok(output) = Command::new(program).args(arguments).output() else {
            eprintln!("skipped: {program} is not installed");
            return None;
        };
        let text = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }
}

#[test]
fn nbdinfo_describes_lists_and_maps_the_export() {
    let server = Server::start("nbdinfo");
    let Some((ok, text)) = server.run("nbdinfo", &[&server.uri("disk")]) else { return };
    assert!(ok, "{text}");
    for line in ["structured packets", "export-size: 16777216", "base:allocation", "can_fua: true"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }
    let (ok, text) = server.run("nbdinfo", &["--list", &server.uri("")]).unwrap();
    assert!(ok && text.contains("export=\"disk\""), "{text}");
    let (ok, text) = server.run("nbdinfo", &["--map", &server.uri("disk")]).unwrap();
    assert!(ok && text.contains("16777216"), "{text}");
    let (ok, text) = server.run("nbdinfo", &[&server.uri("nope")]).unwrap();
    assert!(!ok, "{text}");
}

#[test]
fn nbdcopy_brings_back_what_it_took() {
    let server = Server::start("nbdcopy");
    let (from, to) = (server.folder.join("from"), server.folder.join("to"));
    let data: Vec<u8> =
        (0..16u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    std::fs::write(&from, &data).unwrap();
    let (from, to) = (from.display().to_string(), to.display().to_string());
    let Some((ok, text)) = server.run("nbdcopy", &[&from, &server.uri("disk")]) else { return };
    assert!(ok, "{text}");
    let (ok, text) = server.run("nbdcopy", &[&server.uri("disk"), &to]).unwrap();
    assert!(ok, "{text}");
    assert!(std::fs::read(&to).unwrap() == data);
}

#[test]
fn qemu_io_reads_what_it_wrote_zeroed_and_discarded() {
    let server = Server::start("qemu-io");
    let uri = server.uri("disk");
    let mut arguments = vec!["-f", "raw"];
    for command in [
        "write -P 7 4k 16k",
        "write -f -P 9 1M 3M",
        "write -z 4k 4k",
        "discard 8k 4k",
        "flush",
        "read -P 0 4k 8k",
        "read -P 7 12k 8k",
        "read -P 9 1M 3M",
    ] {
        arguments.extend(["-c", command]);
    }
    arguments.push(&uri);
    let Some((ok, text)) = server.run("qemu-io", &arguments) else { return };
    assert!(ok && !text.contains("fail"), "{text}");
    let (ok, text) = server.run("qemu-img", &["info", &uri]).unwrap();
    assert!(ok && text.contains("16777216"), "{text}");
}
