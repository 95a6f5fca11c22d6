//! Every file of tests runs: where a crate names its test programs, each file in `tests/` is one of them or
//! a module of one.
//!
//! Cargo finds test programs alone unless a crate says `autotests = false`. A file that nobody names
//! is then not compiled, and its tests would pass unseen.

use std::path::{Path, PathBuf};

use crate::Violation;

/// Reports files of tests that no program of their crate includes. `files` are those of the repository that
/// may be tests, and their texts.
pub fn check(path: &Path, text: &str, files: &[(PathBuf, String)]) -> Vec<Violation> {
    let fail = |path: &Path, message: String| vec![Violation::new(path, 0, message)];
    let manifest: toml::Table = match toml::from_str(text) {
        Ok(manifest) => manifest,
        Err(error) => return fail(path, format!("cannot be read: {error}")),
    };
    let found_by_cargo = manifest.get("package").and_then(|p| p.get("autotests")?.as_bool());
    if found_by_cargo != Some(false) {
        return Vec::new();
    }
    let folder = path.parent().unwrap_or(Path::new("")).join("tests");
    let programs = programs(&manifest, &folder);
    let included = |file: &Path| {
        let module = file.file_stem().unwrap_or_default().to_string_lossy();
        let line = format!("mod {module};");
        let texts = files.iter().filter(|(path, _)| programs.contains(path)).map(|(_, text)| text);
        texts.flat_map(|text| text.lines()).any(|other| other == line)
    };
    let missed = files.iter().map(|(path, _)| path).filter(|file| {
        let below = file.strip_prefix(&folder).unwrap_or(Path::new(""));
        let alone = below.components().count() == 1 && below.extension().is_some_and(|e| e == "rs");
        let folder = below.components().count() == 2 && below.ends_with("main.rs");
        (alone || folder) && !programs.contains(file) && !(alone && included(file))
    });
    let message = || format!("no test program of {} includes it", path.display());
    missed.map(|file| Violation::new(file, 0, message())).collect()
}

/// The files that the test programs of a crate begin with.
fn programs(manifest: &toml::Table, folder: &Path) -> Vec<PathBuf> {
    let tests = manifest.get("test").and_then(|tests| tests.as_array());
    let names = tests.into_iter().flatten().filter_map(|test| test.get("name")?.as_str());
    names
        .flat_map(|name| [folder.join(format!("{name}.rs")), folder.join(name).join("main.rs")])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: &str =
        "[package]\nautotests = false\n[[test]]\nname = \"all\"\n[[test]]\nname = \"own\"\n";

    fn missed(manifest: &str, files: &[(&str, &str)]) -> Vec<PathBuf> {
        let files: Vec<_> = files.iter().map(|(p, t)| (p.into(), t.to_string())).collect();
        let found = check(Path::new("crates/a/Cargo.toml"), manifest, &files);
        found.into_iter().map(|violation| violation.path).collect()
    }

    #[test]
    fn a_file_that_no_program_includes_is_found() {
        let files = [
            ("crates/a/tests/all.rs", "mod claims;\n// mod other;\n"),
            ("crates/a/tests/claims.rs", ""),
            ("crates/a/tests/other.rs", ""),
            ("crates/a/tests/apart/main.rs", ""),
        ];
        let expected = ["crates/a/tests/apart/main.rs", "crates/a/tests/other.rs"];
        let mut missed = missed(NAMED, &files);
        missed.sort();
        assert_eq!(missed, expected.map(PathBuf::from));
    }

    #[test]
    fn programs_their_modules_and_other_crates_pass() {
        let files = [
            ("crates/a/tests/all.rs", "mod claims;\nmod common;\n"),
            ("crates/a/tests/claims.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/tests/own/main.rs", "mod model;\n"),
            ("crates/a/tests/own/model.rs", ""),
            ("crates/a/tests/data/list.csv", ""),
            ("crates/b/tests/other.rs", ""),
        ];
        assert_eq!(missed(NAMED, &files), [] as [PathBuf; 0]);
    }

    #[test]
    fn where_cargo_finds_programs_there_is_nothing_to_name() {
        let files = [("crates/a/tests/other.rs", "")];
        assert_eq!(missed("[package]\nname = \"a\"\n", &files), [] as [PathBuf; 0]);
    }
}
