//! Devices around other devices.

mod calls;

use forebay_device::nbd::NbdDevices;
use forebay_device::{JointSyncs, Pauses, Shaped};

/// A method of `Devices` that has a default can be forgotten without an error of the compiler.
#[test]
fn devices_around_others_pass_every_call_on() {
    calls::check("Pauses", |inner, _| Pauses::new(inner));
    calls::check("JointSyncs", |inner, _| JointSyncs::new(inner));
    calls::check("Shaped", |inner, _| Shaped::new(inner));
    calls::check("NbdDevices", NbdDevices::new);
}
