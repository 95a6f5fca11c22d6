//! What cuts have left that was looked at already.
//!
//! What a start finds, and whether it is right, follows from what the devices hold, from what the oracle lets be
//! found, and from the time. Where all that is as after an earlier cut, another look would see the same.

use std::collections::HashSet;
use std::hash::Hasher;

use forebay_block::{Nanos, Volume};
use forebay_device::memory::MemoryDevices;
use forebay_effect::Device;

use crate::oracle::Oracle;
use crate::witness::Digest;

/// States that were looked at: for each, sums of what the devices hold, and a digest of the rest.
#[derive(Debug, Default)]
pub(crate) struct LookedAt(HashSet<([u64; 2], u64)>);

impl LookedAt {
    /// Notes a state; whether it is a new one. `further` is whether the look goes on after the first start.
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
