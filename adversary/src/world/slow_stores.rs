//! What completes while a store is slow, or hangs.

use forebay_block::Volume;
use forebay_device::Verb;
use forebay_device::choices::Choices;
use forebay_device::memory::PendingIo;
use forebay_effect::Device;

use super::World;

impl World {
    /// While stores hang: completes an operation that they do not keep, writes headers, or lets time pass.
    pub(super) fn complete_beside_hung(&mut self, choices: &mut dyn Choices) -> bool {
        match choices.choose(16) {
            15 if self.pass_time() => return true,
            0..=3 if self.write_stamps(choices) => return true,
            _ => {}
        }
        let hung = &self.hung;
        let hangs = |device| matches!(device, Device::Backing(volume) if hung.contains(&volume));
        let writes = |verb| matches!(verb, Verb::Write | Verb::WriteZeroes { .. });
        let answers = |io: &PendingIo| !hangs(io.device) || !writes(io.verb);
        if self.executor.devices_mut().complete_any_io(choices, answers) {
            self.run();
            return true;
        }
        self.write_stamps(choices) || self.pass_time()
    }

    /// While a store is slow: usually completes an operation of another device, sometimes one of
    /// the slow store, or advances the time while operations are in flight. Returns whether an
    /// operation completed; `None` if time passed instead.
    pub(super) fn complete_beside(
        &mut self,
        late: Volume,
        choices: &mut dyn Choices,
    ) -> Option<bool> {
        let own = Device::Backing(late);
        let draw = choices.choose(16);
        if draw == 15 && self.pass_time() {
            return None;
        }
        let devices = self.executor.devices_mut();
        if draw == 0 && devices.complete_any_of(choices, |device| device == own)
            || devices.complete_any_of(choices, |device| device != own)
        {
            return Some(true);
        }
        if devices.pending() > 0 && choices.choose(2) == 0 && self.pass_time() {
            return None;
        }
        Some(self.executor.devices_mut().complete_any(choices))
    }
}
