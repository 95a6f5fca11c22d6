//! Devices around other devices.
//!
//! A [`Layer`] says what it changes; this module passes everything else on, in one place. So no layer
//! can forget a method of [`Devices`] that has a default, which nobody would notice. A new method of
//! [`Devices`] is passed on here.

use std::sync::Arc;
use std::time::Instant;

use forebay_effect::Device;

use crate::devices::{Capabilities, Completion, Devices, Io, MemorySlice, Sender};
use crate::doorbell::Doorbell;

/// A set of devices around another one. Every layer implements [`Devices`].
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

    /// Takes note of an operation before it is submitted to the devices inside. Returns whether the
    /// layer keeps it: they do not get it then, and the layer completes it.
    ///
    /// # Safety
    /// As for [`Devices::submit`].
    unsafe fn keep(&mut self, io: &Io<'_>) -> bool {
        let _ = io;
        false
    }

    /// Changes what has been reaped: removes, changes and appends completions. Those in `done` from
    /// `from` on come from the devices inside; the others are the caller's.
    fn reaped(&mut self, done: &mut Vec<Completion>, from: usize) {
        let _ = (done, from);
    }

    /// Forgets all operations. The devices inside have abandoned theirs.
    fn abandoned(&mut self) {}

    /// A bell that rings also for the devices inside, and replaces theirs.
    fn own_doorbell(&self) -> Option<Arc<Doorbell>> {
        None
    }

    /// When a completion is due that the layer holds back.
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
