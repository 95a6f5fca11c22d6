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
/// Advancing it costs one relaxed atomic addition; a separate thread draws.
pub struct Progress {
    done: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    painter: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts the display. `lasts` is how long the work takes if that does not depend on its speed.
    pub(crate) fn start(
        label: &str,
        unit: Unit,
        total: Option<u64>,
        lasts: Option<Duration>,
        quiet: bool,
    ) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        if quiet {
            return Self { done, stop: None, painter: None };
        }
        let (stop, stopped) = mpsc::channel();
        let shown = Shown { label: label.to_string(), unit, total, lasts, started: Instant::now() };
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
    lasts: Option<Duration>,
    started: Instant,
}

impl Shown {
    fn line(&self, done: u64) -> String {
        self.line_after(done, self.started.elapsed())
    }

    /// `reading: 12 M of 45 M (27 %), 4.1 M/s, 8 s left`.
    fn line_after(&self, done: u64, elapsed: Duration) -> String {
        let show = |n: u64| match self.unit {
            Unit::Count => count(n),
            Unit::Bytes => Size(n).to_string(),
        };
        let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
        let mut text = format!("{}: {}", self.label, show(done));
        if let Some(total) = self.total.filter(|&total| total > 0) {
            let percent = (done as f64 / total as f64 * 100.0).min(100.0);
            text += &format!(" of {} ({percent:.0} %)", show(total));
        }
        text += &format!(", {}/s", show(rate as u64));
        if let Some(left) = self.left(done, rate, elapsed) {
            text += &format!(", {} left", duration(left));
        }
        text
    }

    /// The time left: the rest of `lasts`, or an estimate from the speed so far if `lasts` is
    /// unknown or has passed.
    fn left(&self, done: u64, rate: f64, elapsed: Duration) -> Option<Duration> {
        let planned = self.lasts.and_then(|lasts| lasts.checked_sub(elapsed));
        let by_speed = || {
            let left = self.total?.saturating_sub(done) as f64 / rate;
            (done > 0).then(|| Duration::from_secs_f64(left.min(1e9)))
        };
        planned.or_else(by_speed)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(label: &str, unit: Unit, total: Option<u64>, lasts: Option<u64>) -> Shown {
        let lasts = lasts.map(Duration::from_secs);
        Shown { label: label.to_owned(), unit, total, lasts, started: Instant::now() }
    }

    #[test]
    fn a_line_shows_position_rate_and_time_left() {
        let ten = Duration::from_secs(10);
        assert_eq!(
            shown("reading", Unit::Count, Some(4_000_000), None).line_after(1_000_000, ten),
            "reading: 1 M of 4 M (25 %), 100 k/s, 30 s left"
        );
        assert_eq!(
            shown("writing", Unit::Bytes, None, None).line_after(1 << 20, Duration::from_secs(1)),
            "writing: 1 MiB, 1 MiB/s"
        );
    }

    #[test]
    fn nothing_done_yet_promises_no_end() {
        let text = shown("reading", Unit::Count, Some(10), None);
        let text = text.line_after(0, Duration::from_secs(1));
        assert_eq!(text, "reading: 0 of 10 (0 %), 0/s");
    }

    #[test]
    fn work_of_known_duration_has_the_rest_of_it_left_however_much_is_done() {
        let replay = shown("replaying", Unit::Count, Some(1000), Some(60));
        let line = |done, seconds| replay.line_after(done, Duration::from_secs(seconds));
        assert_eq!(line(0, 15), "replaying: 0 of 1 k (0 %), 0/s, 45 s left");
        assert_eq!(line(900, 15), "replaying: 900 of 1 k (90 %), 60/s, 45 s left");
        // The work takes longer than planned.
        assert_eq!(line(900, 90), "replaying: 900 of 1 k (90 %), 10/s, 10 s left");
    }
}
