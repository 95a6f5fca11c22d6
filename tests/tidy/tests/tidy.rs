//! Runs every house rule over the whole repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_tidy::{
    Violation, arrows, bans, comments, items, licences, links, names, namesakes, programs,
    promises, text, tree, walls,
};

/// Files of the repository with their texts; bytes that are no UTF-8 are replaced.
fn texts(wanted: impl Fn(&Path) -> bool) -> Vec<(PathBuf, String)> {
    let root = tree::root();
    let files = tree::files(&root).unwrap();
    let wanted = files.into_iter().filter(|path| wanted(path));
    let read = |path: PathBuf| {
        // A file may go while others are being read.
        let bytes = std::fs::read(root.join(&path)).ok()?;
        Some((path, String::from_utf8_lossy(&bytes).into_owned()))
    };
    let texts: Vec<_> = wanted.filter_map(read).collect();
    assert!(!texts.is_empty(), "the rule looks at no file at all");
    texts
}

fn none(mut violations: Vec<Violation>) {
    violations.sort();
    let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} broken rules:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let texts = texts(text::applies);
    none(texts.iter().flat_map(|(path, text)| text::check_length(path, text)).collect());
}

#[test]
fn the_heart_has_short_files_and_types_in_few_of_them() {
    let heart = texts(walls::applies);
    none(walls::check(&heart));
    none(walls::check_records(&heart));
}

#[test]
fn a_type_of_the_heart_has_a_name_of_its_own() {
    none(namesakes::check(&texts(namesakes::applies)));
}

#[test]
fn no_file_speaks_of_unfinished_work_or_private_paths() {
    let texts = texts(text::applies);
    none(texts.iter().flat_map(|(path, text)| text::check_words(path, text)).collect());
}

#[test]
fn documentation_comments_stand_alone() {
    let texts = texts(|path| tree::has_extension(path, &["rs"]));
    none(texts.iter().flat_map(|(path, text)| comments::check(path, text)).collect());
}

#[test]
fn pure_crates_name_no_clock_thread_file_socket_or_unordered_map() {
    let texts = texts(|path| tree::has_extension(path, &["rs"]));
    none(texts.iter().flat_map(|(path, text)| bans::check(path, text)).collect());
}

#[test]
fn arrows_between_crates_point_down() {
    let texts = texts(|path| path.file_name() == Some("Cargo.toml".as_ref()));
    none(texts.iter().flat_map(|(path, text)| arrows::check(path, text)).collect());
}

#[test]
fn every_file_of_tests_is_in_a_program() {
    let manifests = texts(|path| path.file_name() == Some("Cargo.toml".as_ref()));
    let files = texts(promises::applies);
    none(manifests.iter().flat_map(|(path, text)| programs::check(path, text, &files)).collect());
}

#[test]
fn links_in_the_documentation_lead_somewhere_and_every_page_is_reached() {
    let pages = texts(|path| tree::has_extension(path, &["md"]));
    let root = tree::root();
    none(links::check(&pages, &|path| root.join(path).exists()));
}

#[test]
fn names_of_the_source_that_pages_quote_exist() {
    let sources = texts(|path| tree::has_extension(path, &["rs"]));
    let pages = texts(names::applies);
    none(pages.iter().flat_map(|(path, text)| names::check(path, text, &sources)).collect());
}

#[test]
fn items_that_the_architecture_names_exist_where_it_says() {
    let sources = texts(items::applies);
    let page = std::fs::read_to_string(tree::root().join(items::PAGE)).unwrap();
    none(items::check(Path::new(items::PAGE), &page, &sources));
}

#[test]
fn tests_that_are_named_next_to_promises_exist() {
    let files = texts(promises::applies);
    let kinds = std::fs::read_to_string(tree::root().join("adversary/src/kind.rs")).unwrap();
    let tests = promises::Tests { files: &files, kinds: &kinds };
    let pages = texts(|path| promises::PAGES.iter().any(|page| path == Path::new(page)));
    assert_eq!(pages.len(), promises::PAGES.len(), "a page that promises is gone");
    for (path, text) in &pages {
        assert!(promises::rows(text) > 10, "{} has no tables of tests", path.display());
    }
    none(pages.iter().flat_map(|(path, text)| promises::check(path, text, &tests)).collect());
}

#[test]
fn the_changelog_has_a_place_for_what_is_not_released() {
    let changelog = std::fs::read_to_string(tree::root().join("CHANGELOG.md")).unwrap();
    assert!(changelog.contains("## [Unreleased]"), "CHANGELOG.md lacks `## [Unreleased]`");
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let root = tree::root();
    let deny = std::fs::read_to_string(root.join("deny.toml")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1"])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = String::from_utf8(output.stdout).unwrap();
    none(licences::check(&metadata, &licences::allowed(&deny).unwrap()).unwrap());
}
