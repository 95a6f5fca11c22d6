//! Any set of devices, chosen at run time.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use forebay_device::{Capabilities, Completion, Devices, Doorbell, Io, MemorySlice, Sender};
use forebay_effect::Device;

/// A set of devices of a kind that only its creator knows.
pub struct AnyDevices(Box<dyn Devices + Send>);

impl AnyDevices {
    /// These devices.
    pub fn new(devices: impl Devices + Send + 'static) -> AnyDevices {
        AnyDevices(Box::new(devices))
    }
}

impl Devices for AnyDevices {
    fn capabilities(&self, device: Device) -> Option<Capabilities> {
        self.0.capabilities(device)
    }
    unsafe fn submit(&mut self, io: Io<'_>) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.submit(io) }
    }
    fn flush(&mut self) {
        self.0.flush();
    }
    fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        self.0.send_apart()
    }
    fn reap(&mut self, done: &mut Vec<Completion>) {
        self.0.reap(done);
    }
    fn abandon(&mut self) {
        self.0.abandon();
    }
    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        self.0.doorbell()
    }
    fn next_due(&self) -> Option<Instant> {
        self.0.next_due()
    }
    unsafe fn register(&mut self, memory: MemorySlice) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.register(memory) }
    }
}

impl fmt::Debug for AnyDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyDevices")
    }
}
