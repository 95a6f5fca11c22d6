//! Devices that record the calls they receive, to check that layers around them forward every call.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use forebay_device::{
    Capabilities, Completion, Devices, Doorbell, Io, IoTag, MemorySlice, Sender, Verb,
};
use forebay_effect::Device;

/// The methods of [`Devices`], in the order in which [`check`] calls them.
const METHODS: [&str; 9] = [
    "register",
    "send_apart",
    "capabilities",
    "submit",
    "flush",
    "doorbell",
    "next_due",
    "reap",
    "abandon",
];
const CAPABILITIES: Capabilities = Capabilities {
    size: 4096,
    logical_block: 512,
    memory_alignment: 64,
    zeroes: true,
    punches: false,
};
const COMPLETION: Completion = Completion { tag: IoTag(7), result: Ok(0) };

/// Devices that record the names of the methods that are called.
#[derive(Debug)]
pub struct Calls {
    names: Arc<Mutex<Vec<&'static str>>>,
    bell: Arc<Doorbell>,
    due: Instant,
}

impl Calls {
    fn note(&self, name: &'static str) {
        self.names.lock().unwrap().push(name);
    }
}

impl Devices for Calls {
    fn capabilities(&self, _: Device) -> Option<Capabilities> {
        self.note("capabilities");
        Some(CAPABILITIES)
    }

    unsafe fn submit(&mut self, io: Io<'_>) {
        assert_eq!(io.tag, COMPLETION.tag);
        self.note("submit");
    }

    fn flush(&mut self) {
        self.note("flush");
    }

    fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        self.note("send_apart");
        Some(Arc::new(Nothing))
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        self.note("reap");
        done.push(COMPLETION);
    }

    fn abandon(&mut self) {
        self.note("abandon");
    }

    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        self.note("doorbell");
        Some(self.bell.clone())
    }

    fn next_due(&self) -> Option<Instant> {
        self.note("next_due");
        Some(self.due)
    }

    unsafe fn register(&mut self, memory: MemorySlice) {
        assert_eq!(memory.length, 4096);
        self.note("register");
    }
}

struct Nothing;

impl Sender for Nothing {
    fn has_queued(&self) -> bool {
        false
    }

    fn send(&self) {}
}

/// Checks that the layer that `around` puts around other devices forwards every call and returns
/// every answer, for a device that it does not change. `around` also receives the bell of the
/// devices inside.
pub fn check<D: Devices>(name: &str, around: impl FnOnce(Calls, Arc<Doorbell>) -> D) {
    let names = Arc::new(Mutex::new(Vec::new()));
    let (bell, due) = (Arc::new(Doorbell::new().unwrap()), Instant::now());
    let inner = Calls { names: names.clone(), bell: bell.clone(), due };
    let mut devices = around(inner, bell.clone());
    names.lock().unwrap().clear();
    let mut memory = vec![0; 4096];
    let memory = MemorySlice { pointer: memory.as_mut_ptr(), length: memory.len() };
    // SAFETY: `Calls` accesses no memory.
    unsafe { devices.register(memory) };
    assert!(devices.send_apart().is_some(), "{name}");
    assert_eq!(devices.capabilities(Device::Flash), Some(CAPABILITIES), "{name}");
    let (tag, device, verb) = (COMPLETION.tag, Device::Flash, Verb::Sync);
    // SAFETY: a sync has no memory.
    unsafe { devices.submit(Io { tag, device, verb, offset: 0, length: 0, memory: &[] }) };
    devices.flush();
    assert!(devices.doorbell().is_some_and(|it| Arc::ptr_eq(&it, &bell)), "{name}");
    assert_eq!(devices.next_due(), Some(due), "{name}");
    let mut done = Vec::new();
    devices.reap(&mut done);
    assert_eq!(done, [COMPLETION], "{name}");
    devices.abandon();
    let mut seen = names.lock().unwrap().clone();
    // (`NbdDevices` keeps the bell itself.)
    if !seen.contains(&"doorbell") {
        seen.insert(5, "doorbell");
    }
    assert_eq!(seen, METHODS, "{name}");
}
