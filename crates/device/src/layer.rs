//! Devices that wrap other devices.
//!
//! A [`Layer`] implements what it changes; this module forwards everything else, in one place. So
//! no layer can fail to forward a method of [`Devices`] that has a default, which would go
//! unnoticed. A new method of [`Devices`] must be forwarded here.

use std::sync::Arc;
use std::time::Instant;

use forebay_effect::Device;

use crate::devices::{Capabilities, Completion, Devices, Io, MemorySlice, Sender};
use crate::doorbell::Doorbell;

/// A set of devices that wraps another one. Every layer implements [`Devices`].
pub trait Layer {
    /// The devices inside.
    type Inner: Devices + ?Sized;

    /// The devices inside.
    fn inner(&self) -> &Self::Inner;

    /// The devices inside, for their own controls.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// The properties of a device that belongs to this layer; `None` for those inside.
    fn own_capabilities(&self, device: Device) -> Option<Capabilities> {
        let _ = device;
        None
    }

    /// Inspects an operation before it is submitted to the devices inside. Returns whether the
    /// layer keeps the operation: if so, the devices inside do not get it, and the layer completes
    /// it.
    ///
    /// # Safety
    /// As for [`Devices::submit`].
    unsafe fn keep(&mut self, io: &Io<'_>) -> bool {
        let _ = io;
        false
    }

    /// Adjusts the reaped completions: may remove, change and append some. Entries of `done` from
    /// index `from` on come from the devices inside; earlier ones belong to the caller.
    fn reaped(&mut self, done: &mut Vec<Completion>, from: usize) {
        let _ = (done, from);
    }

    /// Forgets all operations. The devices inside have abandoned theirs.
    fn abandoned(&mut self) {}

    /// A bell that replaces the bell of the devices inside, and also rings for them.
    fn own_doorbell(&self) -> Option<Arc<Doorbell>> {
        None
    }

    /// When the next completion that the layer holds back is due.
    fn own_due(&self) -> Option<Instant> {
        None
    }
}

impl<L: Layer> Devices for L {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        self.own_capabilities(device).or_else(|| self.inner().capabilities(device))
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        // SAFETY: the caller's promise is passed on.
        if !unsafe { self.keep(&io) } {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.inner_mut().submit(io) };
        }
    }

    fn flush(&mut self) {
        self.inner_mut().flush();
    }

    fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        self.inner_mut().send_apart()
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        let from = done.len();
        self.inner_mut().reap(done);
        self.reaped(done, from);
    }

    fn abandon(&mut self) {
        self.inner_mut().abandon();
        self.abandoned();
    }

    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        self.own_doorbell().or_else(|| self.inner().doorbell())
    }

    fn next_due(&self) -> Option<Instant> {
        self.own_due().into_iter().chain(self.inner().next_due()).min()
    }

    unsafe fn register(&mut self, memory: MemorySlice) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner_mut().register(memory) };
    }
}
