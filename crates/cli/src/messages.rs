//! Lines on standard error.
//!
//! A server must not wait for the reader of its messages: with [`in_background`] a thread writes them, and
//! what finds no room is counted and given up.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Lines that wait for a reader at most.
const LINES_MAX: usize = 1024;
/// How long the last of them are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(1);

static BACKGROUND: OnceLock<Background> = OnceLock::new();

struct Background {
    lines: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

enum Line {
    Text(String),
    /// Asks the thread to answer once all earlier lines are written.
    Mark(SyncSender<()>),
}

/// Writes a line; if it cannot be written, it is lost.
pub fn say(line: impl Display) {
    let Some(background) = BACKGROUND.get() else { return write(&line.to_string()) };
    if background.lines.try_send(Line::Text(line.to_string())).is_err() {
        background.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// From now on [`say`] never waits.
pub fn in_background() {
    let (lines, queue) = sync_channel(LINES_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let of_thread = lost.clone();
    let thread = std::thread::Builder::new().name("forebay-messages".into());
    // Without a thread lines are written as before.
    if thread.spawn(move || write_all(&queue, &of_thread)).is_ok() {
        let _ = BACKGROUND.set(Background { lines, lost });
    }
}

/// Waits until what was said is written, but not for long.
pub fn finish() {
    let Some(background) = BACKGROUND.get() else { return };
    let (mark, written) = sync_channel(1);
    if background.lines.try_send(Line::Mark(mark)).is_ok() {
        let _ = written.recv_timeout(PATIENCE);
    }
}

fn write_all(queue: &Receiver<Line>, lost: &AtomicU64) {
    for line in queue {
        match line {
            Line::Text(line) => write(&line),
            Line::Mark(mark) => _ = mark.try_send(()),
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            write(&format!("forebay: nobody read standard error, so {lost} messages were lost"));
        }
    }
}

fn write(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
