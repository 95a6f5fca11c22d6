//! Signals that ask a server to stop, or to read its configuration again: counted, and waited for.

use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_device::Doorbell;

static COUNT: AtomicU32 = AtomicU32::new(0);
static RELOADS: AtomicU32 = AtomicU32::new(0);
static BELL_FD: AtomicI32 = AtomicI32::new(-1);
static BELL: OnceLock<Doorbell> = OnceLock::new();

/// The signals that would end this process, but that its parent let it ignore, as `nohup` does.
#[derive(Clone, Debug)]
pub struct IgnoredSignals(Vec<libc::c_int>);

impl IgnoredSignals {
    /// Finds the signals that are ignored now; to be called before handlers are installed.
    pub fn now() -> IgnoredSignals {
        let is_ignored = |signal: &libc::c_int| {
            // SAFETY: without a new action, this only reads the present one into `action`, for which
            // all-zero bytes are valid.
            let (done, action) = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                (libc::sigaction(*signal, std::ptr::null(), &mut action), action)
            };
            done == 0 && action.sa_sigaction == libc::SIG_IGN
        };
        let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        IgnoredSignals(signals.into_iter().filter(is_ignored).collect())
    }

    /// Ignores them again, after something has installed handlers for them.
    pub fn restore(&self) {
        for &signal in &self.0 {
            // SAFETY: no handler runs.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}

/// SIGTERM and SIGINT, and SIGHUP, from [`StopSignals::install`] on. There is one set for the process.
#[derive(Debug)]
pub struct StopSignals {
    bell: &'static Doorbell,
}

impl StopSignals {
    /// Takes the signals over from their former owner.
    ///
    /// # Errors
    /// If a file descriptor or the handlers cannot be had.
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
        // A limit on the size of files fails the write, as a full disk does; by default it ends the
        // process.
        // SAFETY: no handler runs.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Ok(StopSignals { bell })
    }

    /// Signals that ask for another look at the configuration, so far.
    pub fn reloads(&self) -> u32 {
        RELOADS.load(Ordering::Acquire)
    }

    /// Signals that ask for a stop, so far.
    pub fn count(&self) -> u32 {
        COUNT.load(Ordering::Acquire)
    }

    /// Waits until a signal comes, the bell is rung by other means, or the time is up.
    pub fn wait(&self, time: Duration) {
        self.bell.wait(Some(Instant::now() + time));
    }

    /// Ends a wait, from anywhere.
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
