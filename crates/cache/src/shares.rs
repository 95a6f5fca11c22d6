//! How much of flash the dirty blocks of each volume, and of all volumes together, may fill.
//!
//! What a store does not take stays on flash. The log carries it on, so it must have room for it and for the writes to
//! other stores meanwhile. Which stores will hang, nobody knows before they do, so the limits hold for all volumes at
//! all times:
//!
//! - A volume has at most half of the blocks that can be dirty, its *share*: one store that takes nothing leaves half
//!   to the others.
//! - All volumes together have at most three quarters. So whichever stores take nothing, their records can be carried
//!   on (`cleaner/progress.rs`).
//! - Of these three quarters, one quarter is divided evenly and reserved: up to this *least*, a volume never waits for
//!   what others have. The reservations of the others leave a volume at least half, so with one busy volume only the
//!   share counts.
//!
//! A piece of a modifying request counts like the dirty block that it may become.

use forebay_block::Volume;

use crate::volume_set::VolumeSet;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Largest number of a volume's blocks that may be dirty on flash; without limit for the only
    /// volume.
    pub share: u64,
    /// What each volume may have, whatever others have.
    least: u64,
    /// Largest number for all volumes together. What a volume has not used of its least counts as used.
    together_max: u64,
    together: u64,
    /// Volumes at three quarters of their share.
    crowded: VolumeSet,
    /// Volumes at three quarters of their least.
    above_least: VolumeSet,
}

impl Shares {
    pub fn new() -> Shares {
        Shares {
            share: u64::MAX,
            least: 0,
            together_max: u64::MAX,
            together: 0,
            crowded: VolumeSet::EMPTY,
            above_least: VolumeSet::EMPTY,
        }
    }

    /// The limits for several `volumes`, none of which has anything dirty yet. `blocks` can be dirty at once.
    pub fn divide(&mut self, volumes: u64, blocks: u64) {
        self.share = (blocks / 2).max(1);
        self.least = (blocks / 4 / volumes).max(1);
        self.together_max = blocks * 3 / 4;
        self.together = self.least * volumes;
    }

    /// Whether a volume that has `count` dirty blocks and pieces has to wait with more.
    #[inline]
    pub fn is_over(&self, count: u64) -> bool {
        count >= self.share || count >= self.least && self.together >= self.together_max
    }

    /// Volumes that are destaged to before they have to wait: at three quarters of their share, or, if all volumes are
    /// near what they may have together, of their least.
    #[inline]
    pub fn crowded(&self) -> VolumeSet {
        match self.together >= self.together_max - self.together_max / 8 {
            true => self.crowded | self.above_least,
            false => self.crowded,
        }
    }

    /// Notes that a volume had `before` dirty blocks and pieces, and has `after`.
    #[inline]
    pub fn note(&mut self, before: u64, after: u64) {
        self.together = self.together + after.max(self.least) - before.max(self.least);
    }

    /// Notes that `volume` has `blocks` dirty blocks on flash.
    #[inline]
    pub fn note_dirty(&mut self, volume: Volume, blocks: u64) {
        self.crowded.remove(volume);
        self.crowded.insert_if(volume, blocks >= self.share - self.share / 4);
        self.above_least.remove(volume);
        self.above_least.insert_if(volume, blocks > 0 && blocks >= self.least - self.least / 4);
    }

    /// Checks the sum over all volumes. `counts`: the dirty blocks and pieces of each.
    ///
    /// # Panics
    /// If it is wrong.
    pub fn check(&self, counts: impl Iterator<Item = u64>) {
        let together: u64 = counts.map(|count| count.max(self.least)).sum();
        assert_eq!(together, self.together, "miscounted: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets volumes take blocks in turn until all of those that take any have to wait.
    fn fill(shares: &mut Shares, has: &mut [u64], takes: &[usize]) {
        for n in (0..1000).flat_map(|_| takes) {
            if !shares.is_over(has[*n]) {
                shares.note(has[*n], has[*n] + 1);
                has[*n] += 1;
            }
        }
        shares.check(has.iter().copied());
    }

    fn divided(volumes: u64, blocks: u64) -> Shares {
        let mut shares = Shares::new();
        shares.divide(volumes, blocks);
        shares
    }

    #[test]
    fn all_but_one_leave_it_its_least_and_have_three_quarters_with_it() {
        let (mut shares, mut has) = (divided(3, 120), [0; 3]);
        fill(&mut shares, &mut has, &[0, 1]);
        assert_eq!(has, [40, 40, 0]);
        fill(&mut shares, &mut has, &[2]);
        assert_eq!(has, [40, 40, 10]);
        for volumes in [2, 3, 16, 64] {
            let (mut shares, mut has) = (divided(volumes, 1280), vec![0; volumes as usize]);
            fill(&mut shares, &mut has, &[0]);
            assert_eq!(
                has[0], 640,
                "the reservations of {volumes} volumes do not limit a single one"
            );
        }
    }

    #[test]
    fn however_few_blocks_there_are_each_volume_may_have_one() {
        for (volumes, blocks) in [(2, 1), (3, 2), (64, 5)] {
            let shares = divided(volumes, blocks);
            assert!(!shares.is_over(0) && shares.is_over(1), "{volumes}, {blocks}");
        }
    }

    #[test]
    fn volumes_are_destaged_before_they_have_to_wait_for_others() {
        let mut shares = divided(3, 120);
        let volumes = [Volume(0), Volume(1), Volume(2)];
        let mut has = [0, 0, 7];
        fill(&mut shares, &mut has, &[0, 1]);
        volumes.iter().zip(has).for_each(|(&volume, has)| shares.note_dirty(volume, has));
        assert_eq!(has, [40, 40, 7]);
        assert_eq!(shares.crowded(), volumes.iter().copied().take(2).collect());
        shares.note_dirty(Volume(2), 8);
        assert_eq!(shares.crowded(), volumes.into_iter().collect());
        // Less than seven eighths of what they may have together.
        shares.note(40, 27);
        assert_eq!(shares.crowded(), VolumeSet::EMPTY);
    }
}
