//! Devices that begin to fail while an engine runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_config::Config;
use forebay_device::DeviceError;
use forebay_engine::watch::{Operation, Watch};
use forebay_engine::{Engine, EngineOptions};

/// Fails some operations after it was switched on.
#[derive(Debug)]
pub struct Fail {
    which: fn(&Operation) -> bool,
    /// Whether it is switched on.
    pub now: AtomicBool,
}

impl Watch for Fail {
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError> {
        let fails = self.now.load(Ordering::Relaxed) && (self.which)(&operation);
        if fails { Err(DeviceError::Gone) } else { Ok(0) }
    }

    fn end(&self, _: u64, _: bool) {}
}

/// An engine whose operations of that kind can be made to fail.
pub fn open_to_fail(config: &Config, which: fn(&Operation) -> bool) -> (Engine, Arc<Fail>) {
    let fail = Arc::new(Fail { which, now: AtomicBool::new(false) });
    let options = EngineOptions { watch: Some(fail.clone()), ..EngineOptions::default() };
    (Engine::open(config, options).unwrap(), fail)
}
