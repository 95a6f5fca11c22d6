//! Rules about any text: length of files, words that stand for unfinished work, and paths of
//! somebody's own machine.

use std::path::Path;

use crate::{Violation, tree};

/// Above this many lines a file needs a wall in it.
const LINES_MAX: usize = 1000;
/// Above this many lines a file must be on the list of exceptions.
const LINES_FEW: usize = 700;
/// Files above [`LINES_FEW`] that read best as one, each with its reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// Words that stand for unfinished work. Spelt in pieces, so that this file passes its own rule.
const UNFINISHED: [&str; 7] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("unimple", "mented!"),
    concat!("to", "do!("),
    concat!("#[ig", "nore"),
];

/// Beginnings of paths that exist on one machine only.
const PRIVATE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Use", "rs/"), concat!("/ro", "ot/")];

/// Whether the rules about text apply to a file.
pub fn applies(path: &Path) -> bool {
    let kinds = ["rs", "py", "sh", "md", "toml", "yml", "yaml", "json", "html", "js", "cfg"];
    let named = ["Makefile", "run", "LICENSE"].iter().any(|n| path.file_name() == Some(n.as_ref()));
    tree::has_extension(path, &kinds) || named
}

/// Reports source files that are too long.
pub fn check_length(path: &Path, text: &str) -> Vec<Violation> {
    if !tree::has_extension(path, &["rs", "py", "sh"]) {
        return Vec::new();
    }
    let lines = text.lines().count();
    let excepted = LONG_FILES.iter().any(|(long, _)| Path::new(long) == path);
    let message = match lines {
        _ if lines > LINES_MAX => format!("{lines} lines: more than {LINES_MAX}, split it"),
        _ if lines > LINES_FEW && !excepted => {
            format!("{lines} lines: more than {LINES_FEW}, split it or add it to LONG_FILES")
        }
        _ => return Vec::new(),
    };
    vec![Violation::new(path, 0, message)]
}

/// Reports unfinished work and private paths.
pub fn check_words(path: &Path, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let mut report = |message: String| found.push(Violation::new(path, i + 1, message));
        for word in UNFINISHED.iter().filter(|word| has_word(line, word)) {
            report(format!("`{word}` stands for unfinished work: finish it, or write an issue"));
        }
        for start in PRIVATE_PATHS.iter().filter(|start| has_path(line, start)) {
            report(format!("a path under {start} exists on one machine only"));
        }
    }
    found
}

/// Whether `line` has `word` with no letter or digit on either side.
fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_word);
        let ends_in_word = word.chars().next_back().is_some_and(is_word);
        let after = line[at + word.len()..].chars().next().is_some_and(is_word);
        !(before || ends_in_word && after)
    })
}

/// Whether `line` has a path that begins with `start`, rather than one that has it further on.
fn has_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/*}$)".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_word_is_found_with_its_line() {
        for word in UNFINISHED {
            let text = format!("fn a() {{}}\n// {word} later\n");
            let found = check_words(Path::new("a.rs"), &text);
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!(found[0].line, 2);
        }
    }

    #[test]
    fn words_within_words_are_left_alone() {
        let text = concat!("let TO", "DOS = 1; HA", "CKER; mk_XX", "XX");
        assert_eq!(check_words(Path::new("a.rs"), text), []);
    }

    #[test]
    fn a_planted_private_path_is_found() {
        for start in PRIVATE_PATHS {
            let text = format!("see {start}someone/file");
            assert_eq!(check_words(Path::new("a.md"), &text).len(), 1, "{start}");
            let text = format!("see docs{start}file");
            assert_eq!(check_words(Path::new("a.md"), &text), [], "{start}");
        }
    }

    #[test]
    fn a_file_of_too_many_lines_is_found() {
        let path = Path::new("a.rs");
        assert_eq!(check_length(path, &"x\n".repeat(LINES_FEW)), []);
        assert_eq!(check_length(path, &"x\n".repeat(LINES_FEW + 1)).len(), 1);
        assert_eq!(check_length(path, &"x\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(check_length(Path::new("a.csv"), &"x\n".repeat(5000)), []);
    }
}
