//! Older stores that an operator accepts: a start writes dirty blocks over them, and drops clean
//! blocks.
//!
//! Afterwards, the volume has exactly the contents of its store. If this is cut short, the store is
//! as old as before: a start that does not accept it must notice that, whatever stamps the earlier
//! start has written.

use forebay_block::Volume;
use forebay_cache::Order;
use forebay_device::choices::Choices;
use forebay_effect::Device;
use forebay_flash::{RecoveryReport, SEAL_BYTES, Sealed};

use super::Runner;
use super::older::{Accepted, Attack, oracle_of};

/// Maximum number of completions before a start is cut short.
const CUT_AFTER_MAX: u64 = 40;

impl Runner<'_> {
    /// After a start was refused because of this store: makes the next start accept it.
    pub(super) fn accept_older(&mut self, mut attack: Attack) {
        self.seen.stats.add("older store accepted", 1);
        self.tell(|| "--- the older store is accepted".into());
        attack.must = true;
        attack.accepted = true;
        self.older.attack = Some(attack);
        (self.older.drops, self.older.refused) = (true, true);
        self.world.reboot(self.world.config.clone());
    }

    /// After a start has accepted an older store: destages dirty blocks and drops clean ones, or
    /// cuts the power before that.
    pub(super) fn drop_clean(
        &mut self,
        attack: Attack,
        report: &RecoveryReport,
    ) -> Result<Accepted, String> {
        let Device::Backing(volume) = attack.device else {
            return Err(format!("{:?} was accepted", attack.device));
        };
        if !report.outdated.is_empty() || !report.completing.is_empty() {
            return Err(format!(
                "an accepted store is reported as {:?} or {:?}",
                report.outdated, report.completing
            ));
        }
        if self.choices.choose(2) == 1 {
            self.world.order(Order::Destage);
            for _ in 0..self.choices.choose(CUT_AFTER_MAX) {
                // The timer of an engine.
                if self.choices.one_in(4) {
                    self.world.order(Order::Stamp);
                }
                self.world.complete_one(&mut self.choices);
            }
            self.check_watch()?;
            return Ok(self.cut_dropping(attack));
        }
        self.settle("dropping clean contents")?;
        let all = (0..self.oracles.len() as u32).map(|n| Sealed {
            volume: Volume(n),
            seal: [0; SEAL_BYTES],
            distrust: true,
            stamp: None,
        });
        let patience = self.choices_of_a_cut();
        if !self.seal(all.collect(), patience)? {
            return Ok(self.cut_dropping(attack));
        }
        self.older.drops = false;
        let image = self.world.executor.devices().durable(attack.device).to_vec();
        let sectors = self.oracles[volume.index()].sectors();
        self.oracles[volume.index()] = oracle_of(volume.0, sectors, &image);
        self.seen.stats.add("older store accepted: clean contents dropped", 1);
        self.tell(|| "--- clean contents are dropped".into());
        Ok(Accepted::GoesOn)
    }

    fn cut_dropping(&mut self, attack: Attack) -> Accepted {
        self.tell(|| "--- cut while an older store is accepted".into());
        self.seen.stats.add("older store accepted: cut short", 1);
        self.older.attack = Some(attack);
        Accepted::Again
    }
}
