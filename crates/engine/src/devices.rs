//! Any set of devices, chosen at run time.

use std::fmt;

use forebay_device::{Devices, Layer};

/// A set of devices of a kind that only its creator knows.
pub struct AnyDevices(Box<dyn Devices + Send>);

impl AnyDevices {
    /// These devices.
    pub fn new(devices: impl Devices + Send + 'static) -> AnyDevices {
        AnyDevices(Box::new(devices))
    }
}

impl Layer for AnyDevices {
    type Inner = dyn Devices + Send;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.0
    }
}

impl fmt::Debug for AnyDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyDevices")
    }
}

#[cfg(test)]
#[path = "../../device/tests/calls/mod.rs"]
mod calls;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_device::DeviceError;

    use super::{AnyDevices, calls};
    use crate::watch::{Operation, Watch, Watched};

    #[derive(Debug)]
    struct Blind;

    impl Watch for Blind {
        fn begin(&self, _: Operation) -> Result<u64, DeviceError> {
            Ok(0)
        }

        fn end(&self, _: u64, _: bool) {}
    }

    #[test]
    fn devices_around_others_pass_every_call_on() {
        calls::check("AnyDevices", |inner, _| AnyDevices::new(inner));
        calls::check("Watched", |inner, _| Watched::new(inner, Arc::new(Blind)));
    }
}
