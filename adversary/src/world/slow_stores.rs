//! What completes while a store is slow, or hangs.

use forebay_block::Volume;
use forebay_device::Verb;
use forebay_device::choices::Choices;
use forebay_device::memory::PendingIo;
use forebay_effect::Device;

use super::World;

/// What a store that hangs does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Silence {
    /// Writes.
    Writes,
    /// Syncs.
    Syncs,
    /// Neither writes nor syncs.
    Both,
}

impl Silence {
    /// All ways to hang.
    pub const ALL: [Silence; 3] = [Silence::Writes, Silence::Syncs, Silence::Both];

    /// Whether the store answers such an operation.
    fn answers(self, verb: Verb) -> bool {
        match verb {
            Verb::Write | Verb::WriteZeroes { .. } => self == Silence::Syncs,
            Verb::Sync => self == Silence::Writes,
            Verb::Read => true,
        }
    }

    /// The name of the situation in which a cleaning continues without such a store.
    pub fn left(self) -> &'static str {
        match self {
            Silence::Writes => "stores: a cleaning left writes that hung",
            Silence::Syncs => "stores: a cleaning left syncs that hung",
            Silence::Both => "stores: a cleaning left a store that hung",
        }
    }
}

impl World {
    /// Whether the store of this volume hangs.
    pub fn hangs(&self, volume: Volume) -> bool {
        self.hung.iter().any(|&(hung, _)| hung == volume)
    }

    /// While stores hang: completes an operation that they answer, writes headers, or lets time pass.
    pub(super) fn complete_beside_hung(&mut self, choices: &mut dyn Choices) -> bool {
        let parted = self.cache.stats().cleanings_parted;
        let any = self.complete_but_hung(choices);
        let left = self.cache.stats().cleanings_parted - parted;
        // (Of several stores that hang, the cache does not say which one a cleaning has left.)
        if let [(_, silence)] = self.hung[..] {
            self.left_hung[silence as usize] += left;
        }
        any
    }

    fn complete_but_hung(&mut self, choices: &mut dyn Choices) -> bool {
        match choices.choose(16) {
            15 if self.pass_time() => return true,
            0..=3 if self.write_stamps(choices) => return true,
            _ => {}
        }
        let hung = &self.hung;
        let answers = |io: &PendingIo| {
            hung.iter().all(|&(volume, silence)| {
                io.device != Device::Backing(volume) || silence.answers(io.verb)
            })
        };
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
