//! Reads the configuration file again while the server runs.
//!
//! Some keys take effect at once. The reload names the others, so that the operator knows that they
//! require a restart.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use forebay_config::{Acknowledge, Config, Size};
use forebay_engine::Engine;

use crate::nbd::Limits;
use crate::server::{Explain, Server, usual_stop};
use crate::signals::StopSignals;

/// Keys that the engine applies, which may take a while: dirty data may have to be destaged.
const OF_ENGINE: [&str; 3] = ["cache.write_policy", "cache.acknowledge", "cache.dram"];
/// Keys that apply to new connections.
const OF_LIMITS: [&str; 4] = [
    "serve.volume_connections",
    "serve.handshake_timeout",
    "serve.stall_timeout",
    "serve.idle_timeout",
];
/// Keys whose values are those of the last format, in all later starts.
const OF_FORMAT: [&str; 6] = [
    "cache.block_size",
    "flash.layout",
    "flash.size",
    "flash.page_size",
    "flash.region_size",
    "flash.activity_extent",
];
/// The key that sets the default stop.
const OF_STOP: &str = "flush.on_stop";

/// The outcome of a configuration reload.
#[derive(Debug)]
pub struct Reload {
    /// Messages that are available at once, one per line.
    pub lines: Vec<String>,
    /// The thread that applies the remaining changes to the engine, if any. When they are done, it
    /// ends a wait for signals ([`StopSignals::wait`]) and returns messages about the outcome.
    pub rest: Option<JoinHandle<Vec<String>>>,
}

impl Server {
    /// Applies the changes that are possible at run time, and names those that require a restart.
    /// Compares `new` with what the server runs, not with what the file said before.
    pub fn reload(&self, new: &Config) -> Reload {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = running.changed_keys(new);
        let mut lines = Vec::new();
        for key in keys.iter().map(String::as_str).filter(|key| !OF_ENGINE.contains(key)) {
            if key == OF_STOP {
                self.stop.set_usual(usual_stop(new));
                running.flush.on_stop = new.flush.on_stop;
            } else if OF_LIMITS.contains(&key) {
                let (serve, new) = (&mut running.serve, &new.serve);
                serve.volume_connections = new.volume_connections;
                serve.handshake_timeout = new.handshake_timeout;
                serve.stall_timeout = new.stall_timeout;
                serve.idle_timeout = new.idle_timeout;
                self.nbd.set_limits(Limits::from(&*serve));
            } else {
                lines.push(at_a_start(key, new));
                continue;
            }
            lines.push(format!("applied the new value of {key}"));
        }
        let policy = new.cache.write_policy;
        // Defaults depend on the tiers that run now, not on those of the next start.
        let tiers = Config { flash: running.flash.clone(), ..new.clone() };
        let acknowledge = tiers.acknowledge_of_write_back();
        let policy =
            (!self.engine.has_policy(policy, acknowledge)).then_some((policy, acknowledge));
        let dram = new.cache.dram;
        let block = u64::from(self.engine.block_bytes());
        let blocks = u64::from(self.engine.status().tiers.dram_blocks);
        let dram = (dram.bytes() / block != blocks).then_some(dram);
        if policy.is_none() && dram.is_none() {
            if lines.is_empty() {
                lines.push("the configuration has not changed".to_owned());
            }
            return Reload { lines, rest: None };
        }
        let engine = self.engine.clone();
        let thread = std::thread::Builder::new().name("forebay-reload".into());
        let explain = self.explain;
        let rest = thread.spawn(move || {
            let lines = apply(&engine, policy, dram, explain);
            drop(engine);
            StopSignals::wake();
            lines
        });
        let rest = rest.map_err(|error| lines.push(format!("cannot start a thread: {error}"))).ok();
        Reload { lines, rest }
    }
}

/// The message for a key that requires a restart: which start, and what has to be done first.
fn at_a_start(key: &str, new: &Config) -> String {
    let start = match new.flash.is_some() && OF_FORMAT.contains(&key) {
        true => "when you start with --format",
        false => "at the next start",
    };
    let message = format!("{key} has changed; the change takes effect {start}");
    match shortage(key, new) {
        Some((path, bytes)) => {
            let has = Size(bytes);
            format!(
                "{message}, provided that {} is enlarged first: its size is only {has}",
                path.display()
            )
        }
        None => message,
    }
}

/// The file that is too short for the new value of `key`, and its size in bytes. What is no file
/// yet, or a device, is left to the start.
fn shortage<'a>(key: &str, new: &'a Config) -> Option<(&'a Path, u64)> {
    let (path, size) = match key.strip_prefix("volume.").and_then(|key| key.strip_suffix(".size")) {
        Some(number) => {
            let volume = new.volume.get(number.parse::<usize>().ok()?)?;
            (Path::new(volume.backing.as_str()), volume.size)
        }
        None if key == "flash.size" => new.flash.as_ref().map(|f| (f.path.as_path(), f.size))?,
        None => return None,
    };
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    (file.len() < size?.bytes()).then_some((path, file.len()))
}

/// Applies the changes to the engine.
fn apply(
    engine: &Arc<Engine>,
    policy: Option<(forebay_config::WritePolicy, Acknowledge)>,
    dram: Option<Size>,
    explain: Explain,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((policy, acknowledge)) = policy {
        lines.push(match engine.set_policy(policy, Some(acknowledge)) {
            Ok(()) => format!("cache.write_policy is now {policy}"),
            Err(error) => format!("cache.write_policy was not changed: {}", explain(&error)),
        });
    }
    if let Some(dram) = dram {
        lines.push(match engine.set_dram_bytes(dram.bytes()) {
            Ok(()) => format!("cache.dram is now {dram}"),
            Err(error) => format!("cache.dram was not changed: {}", explain(&error)),
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_with_a_flash_tier_a_key_waits_for_the_next_format() {
        let file = "[[volume]]\nname = 'a'\nbacking = '/dev/null'\n";
        let flash = "[flash]\npath = 'flash.img'\nsize = '64MiB'\n";
        let said = |key: &str, flash: &str| {
            at_a_start(key, &Config::from_toml(&format!("{flash}{file}")).unwrap())
        };
        let next = "cache.block_size has changed; the change takes effect at the next start";
        assert_eq!(said("cache.block_size", ""), next);
        let format =
            "cache.block_size has changed; the change takes effect when you start with --format";
        assert_eq!(said("cache.block_size", flash), format);
        assert!(said("cache.shards", flash).ends_with("at the next start"));
    }
}
