//! Tests of devices that wrap other devices.

mod calls;

use forebay_device::nbd::NbdDevices;
use forebay_device::{JointSyncs, Pauses, Shaped};

/// The compiler does not notice if a layer fails to forward a method of `Devices` that has a
/// default.
#[test]
fn devices_around_others_pass_every_call_on() {
    calls::check("Pauses", |inner, _| Pauses::new(inner));
    calls::check("JointSyncs", |inner, _| JointSyncs::new(inner));
    calls::check("Shaped", |inner, _| Shaped::new(inner));
    calls::check("NbdDevices", NbdDevices::new);
}
