//! Counts the signals that ask a server to stop or to reload its configuration, and waits for them.

use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_device::Doorbell;

static COUNT: AtomicU32 = AtomicU32::new(0);
static RELOADS: AtomicU32 = AtomicU32::new(0);
static BELL_FD: AtomicI32 = AtomicI32::new(-1);
static BELL: OnceLock<Doorbell> = OnceLock::new();

/// Termination signals that this process inherited as ignored, as it does under `nohup`.
#[derive(Clone, Debug)]
pub struct IgnoredSignals(Vec<libc::c_int>);

impl IgnoredSignals {
    /// Returns the signals that are ignored now. Call this before installing handlers.
    pub fn now() -> IgnoredSignals {
        let is_ignored = |signal: &libc::c_int| {
            // SAFETY: without a new action, this only reads the current one into `action`, for
            // which all-zero bytes are valid.
            let (done, action) = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                (libc::sigaction(*signal, std::ptr::null(), &mut action), action)
            };
            done == 0 && action.sa_sigaction == libc::SIG_IGN
        };
        let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        IgnoredSignals(signals.into_iter().filter(is_ignored).collect())
    }

    /// Ignores these signals again, after other code has installed handlers for them.
    pub fn restore(&self) {
        for &signal in &self.0 {
            // SAFETY: `SIG_IGN` installs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}

/// Counts SIGTERM and SIGINT (stop) and SIGHUP (reload), from [`StopSignals::install`] on. All
/// values share the counters of the process.
#[derive(Debug)]
pub struct StopSignals {
    bell: &'static Doorbell,
}

impl StopSignals {
    /// Installs handlers for the signals, in place of any earlier ones.
    ///
    /// # Errors
    /// If a file descriptor cannot be created, or a handler cannot be installed.
    pub fn install() -> std::io::Result<StopSignals> {
        let bell = match BELL.get() {
            Some(bell) => bell,
            None => {
                let bell = Doorbell::new()?;
                BELL.get_or_init(|| bell)
            }
        };
        BELL_FD.store(bell.as_raw_fd(), Ordering::Release);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            // SAFETY: the handler does only what is allowed in one: it adds to an atomic and
            // writes to a file descriptor that is never closed.
            let done = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut())
            };
            if done != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        // A write beyond the file size limit (`ulimit -f`) then fails, as on a full disk. By
        // default, the signal ends the process.
        // SAFETY: `SIG_IGN` installs no handler.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Ok(StopSignals { bell })
    }

    /// Number of signals so far that asked for a reload of the configuration.
    pub fn reloads(&self) -> u32 {
        RELOADS.load(Ordering::Acquire)
    }

    /// Number of signals so far that asked for a stop.
    pub fn count(&self) -> u32 {
        COUNT.load(Ordering::Acquire)
    }

    /// Waits until a signal arrives, other code rings the doorbell, or `time` has passed.
    pub fn wait(&self, time: Duration) {
        self.bell.wait(Some(Instant::now() + time));
    }

    /// Ends a wait. Can be called from any thread.
    pub(crate) fn wake() {
        if let Some(bell) = BELL.get() {
            bell.ring();
        }
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    let count = if signal == libc::SIGHUP { &RELOADS } else { &COUNT };
    count.fetch_add(1, Ordering::AcqRel);
    let one = 1u64.to_ne_bytes();
    // SAFETY: `write` is async-signal-safe; the bytes outlive it.
    unsafe { libc::write(BELL_FD.load(Ordering::Acquire), one.as_ptr().cast(), one.len()) };
}
