//! Documentation comments stand alone: a reader meets one without its neighbour, in an editor, in rustdoc or
//! in a table made of fields.

use std::path::Path;

use crate::Violation;

/// How a comment begins that is understood only after the one above.
const BEGINNINGS: [&str; 7] =
    ["That", "Those", "The same", "Of", "Likewise", "As above", "See above"];

/// Reports documentation comments that begin by pointing at another one.
pub fn check(path: &Path, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut above = None;
    for (i, line) in text.lines().enumerate() {
        let comment = documentation(line);
        if let (Some(comment), None) = (comment, above)
            && let Some(beginning) = BEGINNINGS.iter().find(|word| begins_with(comment, word))
        {
            let message = format!("`{beginning} ...` needs the comment above: say what it is");
            found.push(Violation::new(path, i + 1, message));
        }
        above = comment;
    }
    found
}

/// The text of a line of documentation.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or(line.strip_prefix("//!")).map(str::trim_start)
}

/// Whether these words come first, as words.
fn begins_with(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(Path::new("a.rs"), text).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_comment_that_needs_the_one_above_is_found() {
        let fields = "/// Hits of reads.\nread: u64,\n    /// Of writes.\n    write: u64,\n";
        assert_eq!(lines(fields), [3]);
        assert_eq!(lines("//! The same, for writes.\n"), [1]);
        assert_eq!(lines("/// Those that wait.\n///\n/// That is all.\n"), [1]);
    }

    #[test]
    fn a_comment_that_stands_alone_passes() {
        assert!(lines("/// Often.\n/// Of these, the first.\na: u8,\n").is_empty());
        assert!(lines("// Those that wait.\n").is_empty());
    }
}
