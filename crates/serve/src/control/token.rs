//! The token that requests over TCP carry: a file that only its owner can read.
//!
//! Every process on the machine can connect to a TCP port of the loopback, but a file has an owner
//! and a mode.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forebay_device::file::sync_name;

/// Random bytes for a token. The first four name a temporary file; the token consists of the
/// others, as two hexadecimal digits each.
const RANDOM_BYTES: usize = 32;
/// Minimum length of a token, in bytes. Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of a token file, in bytes. A larger file holds something else.
const TOKEN_BYTES_MAX: u64 = 4096;

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Reading or writing failed.
    #[error(
        "cannot {action} the control token {}: {source}; use another file with \
         serve.control_token_file (forebay ctl: --token-file)",
        path.display()
    )]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users can read or write the file, so it protects nothing.
    #[error(
        "other users can read or change the control token {}: remove it, so that the server creates \
         a new one; or, if nobody has read it, `chown` it to this user and `chmod 600` it",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file holds no token.
    #[error(
        "{} does not hold a control token (one line of at least {TOKEN_BYTES_MIN} letters and \
         digits). Remove it, so that the server creates a new one",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

/// Proof that a client may give orders.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Reads a token.
    ///
    /// # Errors
    /// If there is no valid token, or other users can read or write the file.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let failed = |source| TokenError::Io { action: "read", path: path.to_owned(), source };
        // `O_NONBLOCK` prevents waiting for a writer if the file is a pipe.
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let own = found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0;
        if !own || found.mode() & 0o077 != 0 {
            return Err(TokenError::Exposed { path: path.to_owned() });
        }
        let mut text = String::new();
        // One byte more shows that the file is too long.
        file.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        let is_too_long = text.len() as u64 > TOKEN_BYTES_MAX;
        let token = text.trim();
        if is_too_long
            || token.len() < TOKEN_BYTES_MIN
            || !token.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(TokenError::Malformed { path: path.to_owned() });
        }
        Ok(Token(token.to_owned()))
    }

    /// Reads a token, and creates the file if it does not exist.
    ///
    /// # Errors
    /// As [`Token::read`], and if the file cannot be created.
    pub fn read_or_create(path: &Path) -> Result<Token, TokenError> {
        match Token::read(path) {
            Err(TokenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create(path).map_err(|source| TokenError::Io {
                    action: "create",
                    path: path.to_owned(),
                    source,
                })?;
                Token::read(path)
            }
            result => result,
        }
    }

    /// A token that was not read from a file, for tests.
    pub(super) fn known(text: &str) -> Token {
        Token(text.to_owned())
    }

    /// Whether `given` is this token. The time that this takes does not reveal where they differ.
    pub fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differences = own.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        own.len() == given.len() && differences == 0
    }

    /// The text for the header of a request.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Creates a file with a new token. The file appears together with its contents; if another process
/// creates it first, that token counts.
fn create(path: &Path) -> io::Result<()> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}-{}", std::process::id(), &token[..8]));
    let new = path.with_file_name(name);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    // The first digits name the temporary file, so they are not part of the token.
    let token = token.split_at(8).1;
    // A power cut must not leave the name without the contents, or no server could start.
    let written = writeln!(file, "{token}").and_then(|()| file.sync_all());
    let linked = written.and_then(|()| fs::hard_link(&new, path));
    fs::remove_file(&new)?;
    linked.or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
    sync_name(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let first = Token::read_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert!(Token::read_or_create(&path).unwrap().is(first.text()));
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
        assert!(first.text().len() >= 48 && !first.is(&first.text()[1..]) && !first.is(""));
        fs::remove_file(&path).unwrap();
        assert!(!Token::read_or_create(&path).unwrap().is(first.text()));
    }

    #[test]
    fn a_token_that_others_can_read_or_guess_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Token::read_or_create(&path), Err(TokenError::Exposed { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::read(&path).unwrap().is("0123456789abcdef"));
        let long = "0123456789abcdef".repeat(257);
        let padded = format!("0123456789abcdef{}", " ".repeat(5000));
        for bad in ["", "short", "two words of some length", &long, &padded] {
            fs::write(&path, bad).unwrap();
            assert!(matches!(Token::read(&path), Err(TokenError::Malformed { .. })), "{bad}");
        }
    }
}
