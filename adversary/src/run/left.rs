//! Remembers the states after cuts that were already checked.
//!
//! The contents of the devices, the versions that the oracle allows, and the time determine what a
//! start finds and whether that is correct. If all three are the same as after an earlier cut,
//! another check would find the same.

use std::collections::HashSet;
use std::hash::Hasher;

use forebay_block::{Nanos, Volume};
use forebay_device::memory::MemoryDevices;
use forebay_effect::Device;

use crate::oracle::Oracle;
use crate::witness::Digest;

/// States that were checked: for each, checksums of the devices' contents, and a digest of the
/// rest.
#[derive(Debug, Default)]
pub(crate) struct LookedAt(HashSet<([u64; 2], u64)>);

impl LookedAt {
    /// Adds a state; returns whether it is new. `further` says whether the check continues after
    /// the first start.
    pub fn is_new(
        &mut self,
        devices: &MemoryDevices,
        has_flash: bool,
        oracles: &[Oracle],
        now: Nanos,
        further: bool,
    ) -> bool {
        let mut sums = [0_u64; 2];
        let flash = has_flash.then_some(Device::Flash);
        let stores = (0..oracles.len() as u32).map(|volume| Device::Backing(Volume(volume)));
        for image in flash.into_iter().chain(stores).map(|device| devices.durable(device)) {
            let words = image.chunks_exact(8);
            let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
            let crc = u64::from(crc32c::crc32c(image));
            sums[0] = sums[0].rotate_left(32) ^ crc;
            sums[1] = sums[1].rotate_left(7) ^ words.fold(0, u64::wrapping_add);
        }
        let mut rest = Digest::default();
        rest.write_u64(now.0);
        rest.write_u8(further.into());
        oracles.iter().for_each(|oracle| oracle.hash_survivors(&mut rest));
        self.0.insert((sums, rest.finish()))
    }
}
