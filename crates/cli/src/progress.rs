//! Progress on standard error: a bar on a terminal, a line every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_analysis::{Meter, Unit};
use forebay_config::Size;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use forebay_render::format::{count, duration};

const BAR_PERIOD: Duration = Duration::from_millis(100);
const LINE_PERIOD: Duration = Duration::from_secs(5);

/// A running display of progress; it ends when dropped.
///
/// Advancing it costs one relaxed atomic addition; a thread of its own does the drawing.
pub struct Progress {
    done: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    painter: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start(label: &str, unit: Unit, total: Option<u64>, quiet: bool) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        if quiet {
            return Self { done, stop: None, painter: None };
        }
        let (stop, stopped) = mpsc::channel();
        let shown = Shown { label: label.to_string(), unit, total, started: Instant::now() };
        let position = Arc::clone(&done);
        let painter = std::thread::spawn(move || {
            let is_terminal = std::io::stderr().is_terminal();
            let bar = is_terminal.then(|| bar(&shown));
            let period = if is_terminal { BAR_PERIOD } else { LINE_PERIOD };
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let done = position.load(Ordering::Relaxed);
                match &bar {
                    Some(bar) => {
                        bar.set_message(shown.line(done));
                        bar.set_position(done);
                    }
                    None => print_line(&shown.line(done)),
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        Self { done, stop: Some(stop), painter: Some(painter) }
    }

    /// Removes the display; dropping does the same.
    pub fn finish(self) {}
}

impl Meter for Progress {
    fn inc(&self, n: u64) {
        self.done.fetch_add(n, Ordering::Relaxed);
    }

    fn set(&self, n: u64) {
        self.done.store(n, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(painter) = self.painter.take() {
            // A painter that panicked has already said so; the work itself is unharmed.
            let _ = painter.join();
        }
    }
}

struct Shown {
    label: String,
    unit: Unit,
    total: Option<u64>,
    started: Instant,
}

impl Shown {
    fn line(&self, done: u64) -> String {
        line(&self.label, self.unit, done, self.total, self.started.elapsed())
    }
}

fn bar(shown: &Shown) -> ProgressBar {
    let target = ProgressDrawTarget::stderr();
    let (bar, template) = match shown.total {
        Some(total) => (ProgressBar::new(total), "{bar:24} {wide_msg}"),
        None => (ProgressBar::no_length(), "{spinner} {wide_msg}"),
    };
    let style = ProgressStyle::with_template(template);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_draw_target(target);
    bar
}

fn print_line(line: &str) {
    crate::messages::say(format_args!("forebay: {line}"));
}

/// `reading: 12 M of 45 M (27 %), 4.1 M/s, 8 s left`.
fn line(label: &str, unit: Unit, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let show = |n: u64| match unit {
        Unit::Count => count(n),
        Unit::Bytes => Size(n).to_string(),
    };
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
    let mut text = format!("{label}: {}", show(done));
    if let Some(total) = total.filter(|&total| total > 0) {
        let percent = (done as f64 / total as f64 * 100.0).min(100.0);
        text += &format!(" of {} ({percent:.0} %)", show(total));
    }
    text += &format!(", {}/s", show(rate as u64));
    if let (Some(total), true) = (total, done > 0) {
        let left = total.saturating_sub(done) as f64 / rate;
        text += &format!(", {} left", duration(Duration::from_secs_f64(left.min(1e9))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_position_rate_and_time_left() {
        let ten = Duration::from_secs(10);
        assert_eq!(
            line("reading", Unit::Count, 1_000_000, Some(4_000_000), ten),
            "reading: 1 M of 4 M (25 %), 100 k/s, 30 s left"
        );
        assert_eq!(
            line("writing", Unit::Bytes, 1 << 20, None, Duration::from_secs(1)),
            "writing: 1 MiB, 1 MiB/s"
        );
    }

    #[test]
    fn nothing_done_yet_promises_no_end() {
        let text = line("reading", Unit::Count, 0, Some(10), Duration::from_secs(1));
        assert_eq!(text, "reading: 0 of 10 (0 %), 0/s");
    }
}
