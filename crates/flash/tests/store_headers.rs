//! Goal: whatever a driver does with a store and its flash tier, and wherever a crash comes, the
//! header of the store never hides that the tier has newer data.
//! Method: a model of a driver makes random steps, in the order that the protocol prescribes.
//! Header writes may fail, and the header may then be on the store or not. All headers that a crash
//! could leave are checked after every step, and while each write is in flight.

use forebay_flash::{
    FIRST_EPOCH, Fingerprint, HeaderChange, Stamp, StampNumber, StoreHeader, TierId,
};
use proptest::prelude::*;

/// What the driver is doing now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Off,
    /// The header announces a start; `former` is the header before that. `tier` is the identity and
    /// epoch to come. `given_up`: newer data on the present tier was given up.
    Announced {
        former: StoreHeader,
        tier: (TierId, u64),
        given_up: bool,
    },
    /// The tier has begun its epoch.
    Begun,
    Serving,
    /// Clients are paused.
    Quiesced,
}

#[derive(Clone, Debug)]
struct Model {
    phase: Phase,
    /// The header as the driver knows it.
    header: StoreHeader,
    /// Every header that may be on the store.
    on_store: Vec<StoreHeader>,
    /// The tier's identity and epoch.
    tier: (Option<TierId>, u64),
    /// The stamp number that the log has noted.
    noted: StampNumber,
    /// The tier has newer data than the store, and the user has not given it up.
    newer: bool,
    /// Writes that are only on the tier may be acknowledged.
    marks_dirty: bool,
    /// The log has failed: the tier gets no newer data.
    failed: bool,
    /// The volume bypasses a failed log.
    passes: bool,
}

/// A step, and the random choices that decide its outcome.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: u8,
    /// The write of a header fails.
    fails: bool,
    one: bool,
    other: bool,
}

impl Model {
    fn new() -> Model {
        let header = StoreHeader::new(1 << 20);
        Model {
            phase: Phase::Off,
            header,
            on_store: vec![header],
            tier: (None, 0),
            noted: StampNumber::NONE,
            newer: false,
            marks_dirty: false,
            failed: false,
            passes: false,
        }
    }

    /// Number of tiers so far: each has the next number as its identity.
    fn formats(&self) -> u8 {
        self.tier.0.map_or(0, |tier| tier.bytes()[0])
    }

    /// Checks every header that a crash could leave now.
    fn judge(&self) -> Result<(), TestCaseError> {
        for header in &self.on_store {
            let ours = header.flash_uuid == self.tier.0;
            let seen = format!("{header:?} of {self:?}");
            if self.newer {
                prop_assert!(header.dirty && ours, "newer data is hidden: {seen}");
            }
            if ours {
                prop_assert!(header.epochs().contains(&self.tier.1), "wrong epoch: {seen}");
                prop_assert!(header.stamp_number >= self.noted, "looks like an older copy: {seen}");
            }
            if matches!(self.phase, Phase::Serving | Phase::Quiesced) {
                prop_assert!(!header.opening, "another epoch would be accepted: {seen}");
            }
            if self.phase == Phase::Serving {
                prop_assert_eq!(header.fingerprint, None, "the store changes: {}", seen);
            }
        }
        Ok(())
    }

    /// Writes the header; returns false if that fails.
    fn write(&mut self, change: HeaderChange, fails: bool) -> Result<bool, TestCaseError> {
        let next = self.header.after(&change);
        prop_assert_eq!(next.update, self.header.update + 1);
        self.on_store.push(next);
        self.judge()?;
        if fails {
            self.header.not_written(&next);
        } else {
            (self.header, self.on_store) = (next, vec![next]);
        }
        self.judge()?;
        Ok(!fails)
    }

    /// The process ends, and the next start finds one of the possible headers.
    fn crash(&mut self, one: bool) {
        let last = self.on_store.len() - 1;
        self.header = self.on_store[if one { last } else { 0 }].found_again();
        (self.phase, self.on_store) = (Phase::Off, vec![self.header]);
    }

    fn stamp(&self) -> Stamp {
        Stamp::default()
    }

    fn leave(&self, whole: bool, released: bool) -> HeaderChange {
        let (fingerprint, data_bytes) = (Some(Fingerprint::of_hash(7)), self.header.data_bytes);
        HeaderChange::Leave { whole, released, fingerprint, data_bytes, stamp: self.stamp() }
    }

    /// The header is durable, and the log notes its stamp.
    fn note(&mut self) {
        if self.header.flash_uuid == self.tier.0 && !self.failed {
            self.noted = self.header.stamp_number;
        }
    }

    fn step(&mut self, Step { what, fails, one, other }: Step) -> Result<(), TestCaseError> {
        match (self.phase, what) {
            (Phase::Off, 0..=5) => {
                let ours = self.header.flash_uuid == self.tier.0 && self.tier.1 != 0;
                // (A format gives up dirty data only if the user demands it.)
                let formats = !ours || one && (!self.header.dirty || other);
                let tier = match formats {
                    true => (TierId::new([self.formats() + 1; 16]), FIRST_EPOCH),
                    false => (self.tier.0.expect("it is in the header"), self.tier.1 + 1),
                };
                let given_up = formats && self.newer;
                let former = self.header;
                self.newer &= !formats;
                let (uuid, epoch) = tier;
                let announce =
                    HeaderChange::Announce { tier: uuid, epoch, keeps_fingerprint: other };
                if self.write(announce, fails)? {
                    self.phase = Phase::Announced { former, tier, given_up };
                } else {
                    self.newer |= given_up;
                    // (The announcement may have been written, so the next start finds either
                    // header.)
                    if given_up {
                        self.on_store.truncate(1);
                    }
                    self.crash(one);
                }
            }
            (Phase::Off, 6) if !self.header.dirty => {
                let released = self.write(HeaderChange::Release, fails)?;
                if !released {
                    self.crash(one);
                }
            }
            (Phase::Announced { former, given_up, .. }, 0..=1) => {
                if self.write(HeaderChange::Retract { former }, fails && !given_up)? {
                    self.newer |= given_up;
                }
                self.crash(one);
            }
            (Phase::Announced { tier, .. }, 2..=8) => {
                if Some(tier.0) != self.tier.0 {
                    self.noted = StampNumber::NONE;
                }
                self.tier = (Some(tier.0), tier.1);
                self.phase = Phase::Begun;
            }
            (Phase::Begun, 0..=6) => {
                self.failed = other && !self.newer;
                (self.marks_dirty, self.passes) = (one || self.newer, self.failed);
                let dirty = self.marks_dirty && !self.passes;
                let open = HeaderChange::Open {
                    tier: self.tier.0,
                    epoch: self.tier.1,
                    noted: self.noted,
                    instead: None,
                    dirty,
                    released: self.passes,
                };
                match self.write(open, fails)? {
                    true => self.phase = Phase::Serving,
                    false => self.crash(one),
                }
            }
            (Phase::Serving, 0..=1) if self.marks_dirty && !self.failed => self.newer = true,
            (Phase::Serving, 2) => self.newer = false,
            (Phase::Serving, 3) => {
                let stamp = HeaderChange::Stamp { stamp: self.stamp(), release: false };
                let stamped = self.write(stamp, fails)?;
                if stamped {
                    self.note();
                }
            }
            (Phase::Serving, 4) if !self.marks_dirty && !self.failed => {
                self.marks_dirty = self.write(HeaderChange::MarkDirty, fails)?;
            }
            // The volume continues without the log, once the store has all data.
            (Phase::Serving, 5) if other => {
                (self.failed, self.newer) = (true, false);
                let release = HeaderChange::Stamp { stamp: self.stamp(), release: true };
                self.passes |= self.write(release, fails)?;
            }
            (Phase::Serving, 6) => {
                // Clients are paused, and nothing is dirty.
                (self.phase, self.newer) = (Phase::Quiesced, false);
                if self.write(self.leave(true, self.passes), fails)? {
                    self.note();
                }
            }
            (Phase::Quiesced, 0..=4) => {
                let dirty = self.marks_dirty && !self.passes;
                if self.write(HeaderChange::Withdraw { dirty }, fails)? {
                    self.phase = Phase::Serving;
                }
            }
            (Phase::Serving, 7) => {
                self.newer &= !one;
                // No more requests are served.
                self.phase = Phase::Quiesced;
                let whole = !self.newer;
                if self.write(self.leave(whole, whole && other || self.passes), fails)? {
                    self.note();
                }
                self.crash(one);
            }
            (_, 9) => self.crash(one),
            _ => {}
        }
        self.judge()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn no_crash_leaves_a_header_that_hides_newer_data_on_flash(
        steps in proptest::collection::vec((0..10u8, 0..5u8, any::<bool>(), any::<bool>()), 1..80),
    ) {
        let mut model = Model::new();
        for (what, fails, one, other) in steps {
            model.step(Step { what, fails: fails == 0, one, other })?;
        }
    }
}

/// The model is useful only if its runs reach all these states.
#[test]
fn the_model_reaches_every_phase_with_newer_data() {
    let (mut model, mut newer) = (Model::new(), [0; 5]);
    let mut random = 1u64;
    for _ in 0..20_000 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = random >> 33;
        let (what, fails) = ((bits % 10) as u8, (bits / 10).is_multiple_of(8));
        let step = Step { what, fails, one: bits & (1 << 20) != 0, other: bits & (1 << 21) != 0 };
        // (Each tier has a new identity, and there are 255 of them.)
        if model.formats() == u8::MAX {
            model = Model::new();
        }
        model.step(step).expect("no header hides anything");
        let phase = match model.phase {
            Phase::Off => 0,
            Phase::Announced { .. } => 1,
            Phase::Begun => 2,
            Phase::Serving => 3,
            Phase::Quiesced => 4,
        };
        newer[phase] += u32::from(model.newer);
    }
    assert!(newer[..4].iter().all(|&count| count > 100), "{newer:?}");
    assert_eq!(newer[4], 0, "a quiesce leaves nothing on flash only");
}
