//! What a service manager hears of a server (systemd's `Type=notify`): nothing where there is none.

use std::fmt::Display;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::context::Context;

/// How much longer a start or a stop may take once it has got further: more than any step takes on a
/// device that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells the service manager how far a start or a stop is.
pub struct Notify<'a> {
    ctx: &'a Context,
    /// What was told last.
    told: String,
    failed: bool,
}

impl<'a> Notify<'a> {
    pub fn new(ctx: &'a Context) -> Notify<'a> {
        Notify { ctx, told: String::new(), failed: false }
    }

    /// Something goes on: the manager shows it, and waits longer. Said again it changes nothing, so that
    /// what hangs is ended when its time is up.
    pub fn progress(&mut self, status: impl Display) {
        let status = status.to_string();
        if status != self.told {
            let longer = NotifyState::ExtendTimeoutUsec(PATIENCE.as_micros() as u32);
            self.tell(&[NotifyState::Status(&status), longer]);
            self.told = status;
        }
    }

    /// Clients are welcome.
    pub fn ready(&mut self, status: impl Display) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status.to_string())]);
    }

    /// The server is about to end.
    pub fn stopping(&mut self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Tells systemd. If that fails, the first failure is printed, and the server runs on.
    fn tell(&mut self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states)
            && !std::mem::replace(&mut self.failed, true)
        {
            let what = "cannot report progress to the service manager";
            self.ctx.note(format_args!("{what}: {error}"));
        }
    }
}
