//! Messages on standard error.
//!
//! A server must not wait for the reader of its messages. After [`in_background`], a thread writes
//! the messages; messages that do not fit in its queue are dropped and counted.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum number of lines in the queue.
const LINES_MAX: usize = 1024;
/// Maximum time that [`finish`] waits for the queue to drain.
const PATIENCE: Duration = Duration::from_secs(1);

static BACKGROUND: OnceLock<Background> = OnceLock::new();

struct Background {
    lines: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

enum Line {
    Text(String),
    /// Asks the thread to reply once it has written all earlier lines.
    Mark(SyncSender<()>),
}

/// Writes a line, or drops it if it cannot be written.
pub fn say(line: impl Display) {
    let Some(background) = BACKGROUND.get() else { return write(&line.to_string()) };
    if background.lines.try_send(Line::Text(line.to_string())).is_err() {
        background.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes [`say`] queue its lines, so that it never waits.
pub fn in_background() {
    let (lines, queue) = sync_channel(LINES_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let of_thread = lost.clone();
    let thread = std::thread::Builder::new().name("forebay-messages".into());
    // Without a thread, `say` continues to write directly.
    if thread.spawn(move || write_all(&queue, &of_thread)).is_ok() {
        let _ = BACKGROUND.set(Background { lines, lost });
    }
}

/// Waits until all queued lines are written, for at most 1 second.
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
            write(&format!(
                "forebay: standard error was not read in time, so {lost} messages were dropped"
            ));
        }
    }
}

fn write(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
