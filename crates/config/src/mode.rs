//! Permissions of files, in `chmod` notation.

use core::fmt;
use core::str::FromStr;

/// Permissions of a file: octal digits for its owner, its group and others.
///
/// ```
/// use forebay_config::FileMode;
/// assert_eq!("0660".parse::<FileMode>().unwrap().bits(), 0o660);
/// assert_eq!(FileMode(0o600).to_string(), "0600");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileMode(pub u32);

/// The text is not a mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a mode: write octal digits for owner, group and others, such as \"0660\"")]
pub struct FileModeError(String);

impl FileMode {
    /// The mode as the kernel expects it.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl FromStr for FileMode {
    type Err = FileModeError;

    fn from_str(text: &str) -> Result<Self, FileModeError> {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
        let octal = text.bytes().all(|b| b.is_ascii_digit()) && (3..=4).contains(&text.len());
        bits.filter(|_| octal).map(FileMode).ok_or_else(|| FileModeError(text.to_string()))
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

crate::schema::read_from_text!(FileMode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_mode_is_refused() {
        for (text, bits) in [("0600", 0o600), ("660", 0o660), ("0777", 0o777)] {
            assert_eq!(text.parse::<FileMode>().unwrap().bits(), bits);
        }
        for text in ["", "6", "0888", "+600", "1777", "07777", "rw-rw----"] {
            assert!(text.parse::<FileMode>().unwrap_err().to_string().contains("0660"), "{text}");
        }
    }
}
