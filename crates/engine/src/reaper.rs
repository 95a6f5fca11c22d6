//! The thread that waits for devices and for time.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::core::ReaperTurn;
use crate::shared::Shared;

/// Starts the thread. It ends when the engine's life has ended and the bell has rung.
pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("forebay-reaper".into()).spawn(move || work(&shared))
}

fn work(shared: &Shared) {
    forebay_device::precise_timers();
    loop {
        // (Not in the `match`, which would keep the lock.)
        let turn = shared.lock().take_reaper_turn(shared.clock);
        match turn {
            // Hits come between the parts of a region's work.
            ReaperTurn::Again => shared.let_others_lock(),
            ReaperTurn::Wait(until) => {
                shared.bell.wait(until.map(|at| shared.clock.instant(at)));
            }
            ReaperTurn::Leave => return,
        }
    }
}
