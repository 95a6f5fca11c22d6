//! The context of every command: messages, progress, and whether the user wants to stop.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use forebay_analysis::{Observer, Unit};
use forebay_serve::IgnoredSignals;

use crate::error::CliError;
use crate::messages;
use crate::progress::Progress;

/// The environment of one run of a command.
pub struct Context {
    quiet: bool,
    /// Set by the first signal.
    pub(crate) interrupted: Arc<AtomicBool>,
    impatient: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    /// What the first signal prints if it ends the process at once.
    last_words: Arc<OnceLock<String>>,
    /// Messages that [`note_once`](Context::note_once) has printed.
    noted: Mutex<HashSet<String>>,
}

impl Context {
    /// Installs the handler of Ctrl-C and SIGTERM: the first signal asks the command to stop, the
    /// second exits at once. Signals that are ignored, as under `nohup`, stay ignored.
    pub fn new(quiet: bool) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        let impatient = Arc::new(AtomicBool::new(false));
        let silent = Arc::new(AtomicBool::new(quiet));
        let last_words = Arc::new(OnceLock::<String>::new());
        let (flag, ends, says_nothing, words) = (
            Arc::clone(&interrupted),
            Arc::clone(&impatient),
            Arc::clone(&silent),
            Arc::clone(&last_words),
        );
        let handler = move || {
            if flag.swap(true, Ordering::SeqCst) || ends.load(Ordering::SeqCst) {
                if let Some(words) = words.get().filter(|_| !says_nothing.load(Ordering::SeqCst)) {
                    note(words);
                }
                std::process::exit(1);
            }
            if !says_nothing.load(Ordering::SeqCst) {
                note("stopping; a second signal exits immediately, and may leave temporary files");
            }
        };
        let ignored = IgnoredSignals::now();
        // Without a handler, a signal ends the process immediately, which is acceptable.
        let _ = ctrlc::set_handler(handler);
        // Keep the signals that `nohup` ignores ignored.
        ignored.restore();
        Self { quiet, interrupted, impatient, silent, last_words, noted: Mutex::default() }
    }

    /// Whether the user asked for errors only.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Makes the first signal exit at once.
    pub fn end_at_first_signal(&self) {
        self.impatient.store(true, Ordering::SeqCst);
    }

    /// Makes the first signal print `words` and exit at once.
    pub fn end_at_first_signal_saying(&self, words: String) {
        // (A command says this once, before it waits.)
        let _ = self.last_words.set(words);
        self.end_at_first_signal();
    }

    /// Makes the first signal print no message. In a command that only watches a server, the
    /// message would suggest that the server is stopping.
    pub fn stop_without_words(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }

    /// Whether the user asked to stop. Loops check this every few thousand steps.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns `Err` once the user has asked to stop; use `ctx.check()?` in a loop.
    pub fn check(&self) -> Result<(), CliError> {
        Ok(Observer::check(self)?)
    }

    /// Starts showing progress towards `total` units (`None`: the total is unknown).
    pub fn progress(&self, label: &str, unit: Unit, total: Option<u64>) -> Progress {
        Progress::start(label, unit, total, None, self.quiet)
    }

    /// Like [`progress`](Self::progress), for work that takes the time `lasts` even if it could be
    /// done faster.
    pub fn progress_lasting(
        &self,
        label: &str,
        unit: Unit,
        total: Option<u64>,
        lasts: Option<Duration>,
    ) -> Progress {
        Progress::start(label, unit, total, lasts, self.quiet)
    }

    /// Like [`note`](Self::note), but prints each message only once even if several passes over a
    /// trace produce it.
    pub fn note_once(&self, message: &str) {
        let new = |noted: &mut HashSet<String>| noted.insert(message.to_owned());
        if self.noted.lock().is_ok_and(|mut noted| new(&mut noted)) {
            self.note(message);
        }
    }

    /// Prints a message on standard error about something the user should know, such as an
    /// assumption.
    pub fn note(&self, message: impl std::fmt::Display) {
        if !self.quiet {
            note(message);
        }
    }
}

fn note(message: impl std::fmt::Display) {
    messages::say(format_args!("forebay: {message}"));
}
