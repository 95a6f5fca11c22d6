//! Finds data that a replay on a cache would destroy: the existing files and devices of the
//! configuration.

use std::path::Path;

use forebay_config::Config;

/// The files and devices that a configuration names, the flash tier first. Exports of servers are
/// not included.
pub fn local_paths(config: &Config) -> Vec<&Path> {
    let backing = config.volume.iter().map(|v| v.backing.as_str());
    let local = backing.filter(|name| !name.contains("://")).map(Path::new);
    config.flash.iter().map(|flash| flash.path.as_path()).chain(local).collect()
}

/// The first flash tier or store of a configuration that may hold data: a file that exists and is
/// not empty, a device, or an export. `None` if a run creates all of them. Call this before
/// anything is opened, because opening creates missing files.
pub fn at_stake(config: &Config) -> Option<String> {
    // The length of a device is 0.
    let holds = |path: &&Path| std::fs::metadata(path).is_ok_and(|m| !m.is_file() || m.len() > 0);
    let there = local_paths(config).into_iter().find(holds).map(|path| path.display().to_string());
    let export = || config.volume.iter().find(|v| v.backing.contains("://"));
    there.or_else(|| export().map(|v| v.backing.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_with_a_size_is_at_stake_and_what_a_run_creates_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let with = |backing: &str| {
            let text = format!(
                "[flash]\npath = '{}'\nsize = '16MiB'\n[[volume]]\nname = 'v'\nbacking = '{backing}'\n",
                path("flash.img")
            );
            Config::from_toml(&text).unwrap()
        };
        assert_eq!(at_stake(&with(&path("disk.img"))), None);
        std::fs::write(path("disk.img"), "").unwrap();
        assert_eq!(at_stake(&with(&path("disk.img"))), None, "it is empty");
        std::fs::write(path("disk.img"), "data").unwrap();
        assert_eq!(at_stake(&with(&path("disk.img"))), Some(path("disk.img")));
        assert_eq!(at_stake(&with("/dev/null")), Some("/dev/null".to_owned()), "a device");
        assert_eq!(at_stake(&with("nbd://san/v")), Some("nbd://san/v".to_owned()));
        std::fs::write(path("flash.img"), "data").unwrap();
        assert_eq!(at_stake(&with("nbd://san/v")), Some(path("flash.img")));
    }
}
