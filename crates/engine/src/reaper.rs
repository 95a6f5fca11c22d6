//! The thread that waits for devices and for time.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::core::Life;
use crate::shared::Shared;

/// Starts the thread. It ends when the engine's life has ended and the bell has rung.
pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("forebay-reaper".into()).spawn(move || work(&shared))
}

fn work(shared: &Shared) {
    forebay_device::precise_timers();
    loop {
        let mut core = shared.lock();
        core.reaper_wakes_at = None;
        if core.life == Life::Ended {
            return;
        }
        core.pass_timeout(shared.clock.now());
        core.reaper_wakes_at = core.next_due(shared.clock);
        let until = core.reaper_wakes_at.map(|at| shared.clock.instant(at));
        let more = core.has_more();
        drop(core);
        if more {
            // Hits come between the parts of a region's work.
            shared.let_others_lock();
        } else {
            shared.bell.wait(until);
        }
    }
}
