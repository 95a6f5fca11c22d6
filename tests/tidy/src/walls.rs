//! How the heart is divided: what belongs to one type is found in few files, and no file is long.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Violation;

/// Where the rules hold.
const HEART: &str = "crates/cache/src";
/// Most files that the methods of one type lie in.
const FILES_MAX: usize = 3;
/// Most lines of a file.
const LINES_MAX: usize = 500;

/// Whether the rules apply to a file.
pub fn applies(path: &Path) -> bool {
    path.starts_with(HEART) && path.extension().is_some_and(|e| e == "rs")
}

/// Reports types whose inherent methods are spread over too many files, and files that are too long.
/// Files with their texts; those elsewhere pass. Types of the same name count as one.
pub fn check(files: &[(PathBuf, String)]) -> Vec<Violation> {
    let mut homes: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| applies(path)) {
        text.lines().filter_map(inherent).for_each(|name| {
            homes.entry(name).or_default().insert(path);
        });
        let lines = text.lines().count();
        if lines > LINES_MAX {
            let message = format!("{lines} lines: more than {LINES_MAX}, split it");
            found.push(Violation::new(path, 0, message));
        }
    }
    for (name, files) in homes.into_iter().filter(|(_, files)| files.len() > FILES_MAX) {
        let last = files.last().expect("more than none");
        let list: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let list = list.join(", ");
        let message = format!("`impl {name}` in {} files, split the type: {list}", files.len());
        found.push(Violation::new(last, 0, message));
    }
    found
}

/// The type of an inherent `impl` that begins with this line. (Tests are indented.)
fn inherent(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        None => rest.strip_prefix(' ')?,
        Some(parameters) => {
            let mut open = 1;
            let end = parameters.find(|c| {
                open += i32::from(c == '<') - i32::from(c == '>');
                open == 0
            })?;
            parameters[end + 1..].trim_start()
        }
    };
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!rest.contains(" for ")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (PathBuf, String) {
        (Path::new(HEART).join(name), text.into())
    }

    #[test]
    fn a_type_in_more_files_than_three_is_found() {
        let names = ["a.rs", "b.rs", "shard/c.rs", "shard/d.rs"];
        let mut files: Vec<_> = names.map(|name| file(name, "impl Cache {\n}\n")).into();
        assert_eq!(check(&files).len(), 1);
        files[3].1 =
            "impl Machine for Cache {\n}\nimpl CacheConfig {}\n    impl Cache {\n}\n".into();
        assert_eq!(check(&files), []);
        files[3].1 = "impl<'a, T: Into<u8>> Cache<T> {\n}\n".into();
        assert_eq!(check(&files).len(), 1);
        files[3].0 = PathBuf::from("crates/flash/src/d.rs");
        assert_eq!(check(&files), [], "elsewhere");
    }

    #[test]
    fn a_file_of_too_many_lines_is_found() {
        assert_eq!(check(&[file("a.rs", &"x\n".repeat(LINES_MAX))]), []);
        assert_eq!(check(&[file("a.rs", &"x\n".repeat(LINES_MAX + 1))]).len(), 1);
    }
}
