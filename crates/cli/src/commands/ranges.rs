//! Explains numbers outside the range of an option in words. clap names the range in Rust's syntax.

use std::io::{IsTerminal, Write};

use clap::error::ErrorKind;

/// Between a number and the range that it is not in.
const BETWEEN: &str = " is not in ";

/// Prints the error and exits, like [`clap::Error::exit`], with a range in words.
pub fn explain(error: clap::Error) -> ! {
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let worded = match error.kind() {
        ErrorKind::ValueValidation => in_words(&cause),
        _ => None,
    };
    let Some(worded) = worded else { error.exit() };
    let page = error.render();
    let page = match std::io::stderr().is_terminal() {
        true => page.ansi().to_string(),
        false => page.to_string(),
    };
    let _ = std::io::stderr().write_all(page.replace(&cause, &worded).as_bytes());
    std::process::exit(error.exit_code())
}

/// Words for `5 is not in 1..=4`; `None` for any other text.
fn in_words(cause: &str) -> Option<String> {
    let (value, range) = cause.split_once(BETWEEN)?;
    let (least, most) = range.split_once("..")?;
    let number = |text: &str| text.parse::<i128>().ok();
    let most = match most.strip_prefix('=') {
        Some(most) => number(most)?,
        None => number(most)? - 1,
    };
    let least = number(least)?;
    // The largest values of the integer types stand for ranges without an upper end.
    let open = most >= i128::from(u32::MAX) - 1;
    Some(match open {
        true => format!("{value} is too small: the minimum is {least}"),
        false => format!("{value} is out of range: use a number from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn ranges_are_explained_in_words() {
        for (cause, words) in [
            ("0 is not in 1..=4096", "0 is out of range: use a number from 1 to 4096"),
            ("9 is not in 1..9", "9 is out of range: use a number from 1 to 8"),
            ("10 is not in 256..18446744073709551615", "10 is too small: the minimum is 256"),
            ("0 is not in 1..=4294967295", "0 is too small: the minimum is 1"),
        ] {
            assert_eq!(in_words(cause).as_deref(), Some(words));
        }
        assert_eq!(in_words("invalid digit found in string"), None);
    }
}
