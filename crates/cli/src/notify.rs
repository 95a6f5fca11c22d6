//! Reports the server's state to a service manager (systemd's `Type=notify`); does nothing without
//! one.

use std::fmt::Display;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::context::Context;

/// How much longer a start or a stop may take after it has made progress: longer than any step
/// takes on a working device.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reports the progress of a start or a stop to the service manager.
pub struct Notify<'a> {
    ctx: &'a Context,
    /// The status that was sent last.
    told: String,
    failed: bool,
}

impl<'a> Notify<'a> {
    pub fn new(ctx: &'a Context) -> Notify<'a> {
        Notify { ctx, told: String::new(), failed: false }
    }

    /// Reports progress, and extends the service manager's timeout. Repeating the same status does
    /// not extend it, so that a hung server is ended when the timeout expires.
    pub fn progress(&mut self, status: impl Display) {
        let status = status.to_string();
        if status != self.told {
            let longer = NotifyState::ExtendTimeoutUsec(PATIENCE.as_micros() as u32);
            self.tell(&[NotifyState::Status(&status), longer]);
            self.told = status;
        }
    }

    /// Reports that the server accepts clients.
    pub fn ready(&mut self, status: impl Display) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status.to_string())]);
    }

    /// Reports that the server is about to stop.
    pub fn stopping(&mut self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Sends states to systemd. If this fails, the first failure is printed, and the server
    /// continues.
    fn tell(&mut self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states)
            && !std::mem::replace(&mut self.failed, true)
        {
            let what = "cannot report progress to the service manager";
            self.ctx.note(format_args!("{what}: {error}"));
        }
    }
}
