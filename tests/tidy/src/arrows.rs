//! Arrows between crates point down only.

use std::path::Path;

use crate::Violation;

/// Every crate and how high it stands; one may depend on lower ones only.
const LEVELS: [(&str, u32); 25] = [
    ("forebay-block", 0),
    ("forebay-names", 0),
    ("forebay-effect", 1),
    ("forebay-model", 1),
    ("forebay-locality", 1),
    ("forebay-replacement", 1),
    ("forebay-report", 1),
    ("forebay-config", 2),
    ("forebay-nbd", 2),
    ("forebay-flash", 2),
    ("forebay-cache", 3),
    ("forebay-results", 4),
    ("forebay-trace", 5),
    ("forebay-device", 5),
    ("forebay-setup", 5),
    ("forebay-engine", 6),
    ("forebay-simulate", 7),
    ("forebay-plan", 7),
    ("forebay-serve", 7),
    ("forebay-replay", 8),
    ("forebay-adversary", 8),
    ("forebay-analysis", 9),
    ("forebay-render", 10),
    ("forebay", 11),
    ("forebay-python", 11),
];

/// Crates that no other depends on: tools, benchmarks, tests. They may use everything.
const LEAVES: [&str; 4] = ["bench/", "fuzz/", "tests/", "xtask/"];

/// Crates that know no clock, thread, file or socket.
const PURE: [&str; 7] = [
    "forebay-block",
    "forebay-effect",
    "forebay-locality",
    "forebay-replacement",
    "forebay-nbd",
    "forebay-flash",
    "forebay-cache",
];

/// External crates that bring I/O, threads or ambient randomness.
const IMPURE: [&str; 14] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "polling",
    "io-uring",
    "libc",
    "nix",
    "rustix",
    "rayon",
    "parking_lot",
    "crossbeam",
    "rand",
    "getrandom",
];

/// Reports dependencies in a crate's `Cargo.toml` that point up or sideways, and impure ones of
/// pure crates. Development dependencies are free.
pub fn check(path: &Path, text: &str) -> Vec<Violation> {
    let fail = |message: String| Violation::new(path, 0, message);
    let manifest: toml::Table = match toml::from_str(text) {
        Ok(manifest) => manifest,
        Err(error) => return vec![fail(format!("cannot be read: {error}"))],
    };
    let name = manifest.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str());
    let Some(name) = name else { return Vec::new() };
    let is_leaf = LEAVES.iter().any(|leaf| path.starts_with(leaf));
    let Some(level) = level(name).or(is_leaf.then_some(u32::MAX)) else {
        return vec![fail(format!("`{name}` has no level: add it to LEVELS in {}", file!()))];
    };
    let mut found = Vec::new();
    for dependency in dependencies(&manifest) {
        if PURE.contains(&name) && IMPURE.contains(&dependency.as_str()) {
            found.push(fail(format!("`{name}` is pure and may not depend on `{dependency}`")));
        }
        if dependency.starts_with("forebay")
            && self::level(&dependency).is_none_or(|lower| lower >= level)
        {
            let message = format!("`{name}` may not depend on `{dependency}`: arrows point down");
            found.push(fail(message));
        }
    }
    found
}

fn level(name: &str) -> Option<u32> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// Normal and build dependencies, those of single targets included.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(|t| t.as_table());
    let targets = targets.into_iter().flat_map(|t| t.values()).filter_map(|t| t.as_table());
    let tables = std::iter::once(manifest).chain(targets);
    let sections = tables.flat_map(|t| [t.get("dependencies"), t.get("build-dependencies")]);
    sections.flatten().filter_map(|s| s.as_table()).flat_map(|s| s.keys().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, name: &str, rest: &str) -> usize {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        check(Path::new(path), &text).len()
    }

    #[test]
    fn an_arrow_that_points_up_or_sideways_is_found() {
        let cache = |rest| found("crates/cache/Cargo.toml", "forebay-cache", rest);
        assert_eq!(cache("[dependencies]\nforebay-block.workspace = true"), 0);
        assert_eq!(cache("[dependencies]\nforebay-engine.workspace = true"), 1);
        assert_eq!(cache("[dependencies]\nforebay-trace = { path = \"../trace\" }"), 1);
        assert_eq!(cache("[build-dependencies]\nforebay = { path = \"../cli\" }"), 1);
        assert_eq!(cache("[dev-dependencies]\nforebay-simulate = { path = \"../simulate\" }"), 0);
        assert_eq!(cache("[target.'cfg(unix)'.dependencies]\nforebay-serve = {}"), 1);
        assert_eq!(cache("[dependencies]\nforebay-unheard-of = {}"), 1);
    }

    #[test]
    fn an_impure_dependency_of_a_pure_crate_is_found() {
        let text = "[dependencies]\ntokio = \"1\"";
        assert_eq!(found("crates/flash/Cargo.toml", "forebay-flash", text), 1);
        assert_eq!(found("crates/serve/Cargo.toml", "forebay-serve", text), 0);
    }

    #[test]
    fn a_crate_without_a_level_is_found_unless_it_is_a_leaf() {
        assert_eq!(found("crates/new/Cargo.toml", "forebay-new", ""), 1);
        let text = "[dependencies]\nforebay-serve = {}";
        assert_eq!(found("bench/new/Cargo.toml", "forebay-bench-new", text), 0);
    }
}
