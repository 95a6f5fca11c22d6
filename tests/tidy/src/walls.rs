//! How the heart is divided: what changes one type is found in few files, and no file is long.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Violation;

/// Where the rules hold, and the most lines of a file there.
const HEART: [(&str, usize); 3] =
    [("crates/cache/src", 500), ("crates/engine/src", 700), ("crates/flash/src", 700)];
/// Most files that methods of one type, and functions whose first parameter is `&mut` of it, lie in.
const FILES_MAX: usize = 3;
/// Types that lie in more, and in how many. A number may only fall.
const WIDE: [(&str, usize); 6] =
    [("Engine", 4), ("Log", 4), ("Recovery", 5), ("Shard", 5), ("Tiers", 5), ("World", 7)];

/// The place of the heart that this file is in, and the most lines it may have, if the rules apply to it.
fn place(path: &Path) -> Option<(&'static str, usize)> {
    let (heart, most) = HEART.iter().find(|(heart, _)| path.starts_with(heart))?;
    path.extension().is_some_and(|e| e == "rs").then_some((*heart, *most))
}

/// Whether the rules apply to a file.
pub fn applies(path: &Path) -> bool {
    place(path).is_some()
}

/// Reports types that are changed in too many files, and files that are too long. Files with their
/// texts; those elsewhere pass. Types of one crate with the same name count as one.
pub fn check(files: &[(PathBuf, String)]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in files {
        let lines = text.lines().count();
        if let Some((_, most)) = place(path).filter(|(_, most)| lines > *most) {
            let message = format!("{lines} lines: more than {most}, split it");
            found.push(Violation::new(path, 0, message));
        }
    }
    for ((_, name), files) in homes(files) {
        let recorded = WIDE.iter().find(|(wide, _)| *wide == name).map(|(_, count)| *count);
        let most = recorded.unwrap_or(FILES_MAX);
        if files.len() > most {
            let last = files.last().expect("more than none");
            let list: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            let (count, list) = (files.len(), list.join(", "));
            let message = format!("`{name}` is changed in {count} files, not {most}: {list}");
            found.push(Violation::new(last, 0, message));
        }
    }
    found
}

/// Reports types that lie in fewer files than `WIDE` says. All files, with their texts.
pub fn check_records(files: &[(PathBuf, String)]) -> Vec<Violation> {
    let homes = homes(files);
    let mut found = Vec::new();
    for (name, recorded) in WIDE {
        // (Types of both crates may have the name.)
        let counts = homes.iter().filter(|((_, n), _)| *n == name).map(|(_, files)| files.len());
        let count = counts.max().unwrap_or(0);
        if count < recorded {
            let message = format!("`{name}` is changed in {count} files: lower the record");
            found.push(Violation::new(Path::new("tests/tidy/src/walls.rs"), 0, message));
        }
    }
    found
}

/// The place of a type, and its name.
type Type<'a> = (&'static str, &'a str);

/// The files that change each type.
fn homes(files: &[(PathBuf, String)]) -> BTreeMap<Type<'_>, BTreeSet<&Path>> {
    let mut homes: BTreeMap<Type<'_>, BTreeSet<&Path>> = BTreeMap::new();
    for (path, text) in files {
        let Some((place, _)) = place(path) else { continue };
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let next = lines.peek().copied().unwrap_or_default();
            if let Some(name) = inherent(line).or_else(|| changed(line, next)) {
                homes.entry((place, name)).or_default().insert(path);
            }
        }
    }
    homes
}

/// The type that a function changes whose first parameter is `&mut` of it. The function begins with
/// this line; its parameters may begin on the next. (Methods and tests are indented.)
fn changed<'a>(line: &'a str, next: &'a str) -> Option<&'a str> {
    let rest = match line.strip_prefix("pub") {
        None => line,
        Some(rest) => match rest.strip_prefix('(') {
            None => rest.trim_start(),
            Some(scope) => scope.split_once(") ")?.1,
        },
    };
    let (_, parameters) = rest.strip_prefix("fn ")?.split_once('(')?;
    let parameters = if parameters.is_empty() { next.trim_start() } else { parameters };
    let (_, kind) = parameters.split_once(':')?;
    let kind = kind.strip_prefix(" &mut ")?;
    let name = kind.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some(name)
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
        (Path::new(HEART[0].0).join(name), text.into())
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
        files[3].0 = PathBuf::from("crates/serve/src/d.rs");
        assert_eq!(check(&files), [], "elsewhere");
    }

    #[test]
    fn functions_that_change_a_type_count() {
        let names = ["a.rs", "b.rs", "c.rs", "d.rs"];
        let in_all = |text: &str| check(&names.map(|name| file(name, text))).len();
        assert_eq!(in_all("fn f(cache: &mut Cache, n: u8) {\n}\n"), 1);
        assert_eq!(in_all("pub(super) fn f(\n    cache: &mut Cache,\n    n: u8,\n) {\n}\n"), 1);
        assert_eq!(in_all("pub fn f(cache: &Cache, other: &mut Cache) {\n}\n"), 0);
        assert_eq!(in_all("    fn f(cache: &mut Cache) {}\n"), 0, "a method, or a test");
        assert_eq!(in_all("fn f() {\n    let x: &mut Cache;\n}\n"), 0);
    }

    #[test]
    fn a_recorded_number_may_only_fall() {
        let (name, recorded) = WIDE[0];
        let text = format!("impl {name} {{\n}}\n");
        let files = |count| (0..count).map(|n| file(&format!("{n}.rs"), &text)).collect::<Vec<_>>();
        assert_eq!(check(&files(recorded)), []);
        assert_eq!(check(&files(recorded + 1)).len(), 1);
        let low = |count| check_records(&files(count)).len();
        assert_eq!(low(recorded - 1), low(recorded) + 1);
    }

    #[test]
    fn a_file_of_too_many_lines_is_found() {
        let most = HEART[0].1;
        assert_eq!(check(&[file("a.rs", &"x\n".repeat(most))]), []);
        assert_eq!(check(&[file("a.rs", &"x\n".repeat(most + 1))]).len(), 1);
    }
}
