//! Maps each request of the workload to its place on the target.

use forebay_block::{Flags, Op, Request};
use forebay_setup::{TooManyVolumes, WorkloadVolume, volume_targets};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ReplayError;
use crate::survey::VolumeSurvey;
use crate::target::{Limits, TargetVolume};

/// Whether the target may be written to, and how requests are fitted onto it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlacementOptions {
    /// Whether the target may be written to.
    pub writes: Writes,
    /// Wrap requests beyond the end back into the target, instead of refusing to start.
    pub wrap: bool,
    /// Place all volumes of the workload one after the other on the target's first volume.
    pub concatenate: bool,
}

/// Whether a target may be written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Writes {
    /// No: a workload that writes is rejected.
    #[default]
    Refused,
    /// No: writes, trims and zeroings are left out.
    LeftOut,
    /// Yes.
    Allowed,
}

/// A request as it is sent to the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The target's volume.
    pub volume: u32,
    /// The operation.
    pub op: Op,
    /// The flags of the operation.
    pub flags: Flags,
    /// Offset on the target's volume in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Whether this is a write of zeroes, because the target does not support zeroing.
    pub zeroes: bool,
}

/// Requests that were not sent as they stand in the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Adjusted {
    /// Writes, trims and write-zeroes requests skipped because of `--reads-only`.
    pub writes_left_out: u64,
    /// Trims and flushes left out because the target does not support them.
    pub unsupported: u64,
    /// Requests left out because their length is 0.
    pub empty: u64,
    /// Requests beyond the end of the target that were wrapped back into it.
    pub wrapped: u64,
    /// Requests shortened because they were longer than the whole target.
    pub shortened: u64,
    /// Requests widened to the block size that the target requires.
    pub widened: u64,
}

impl Adjusted {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Adjusted) {
        self.writes_left_out += other.writes_left_out;
        self.unsupported += other.unsupported;
        self.empty += other.empty;
        self.wrapped += other.wrapped;
        self.shortened += other.shortened;
        self.widened += other.widened;
    }
}

/// Fits requests onto a target.
#[derive(Clone, Debug)]
pub struct Placement {
    /// By volume number of the workload; `None` for volumes without requests.
    places: Vec<Option<Place>>,
    targets: Vec<TargetVolume>,
    alignment: u64,
    writes: Writes,
    /// Requests left out or changed so far.
    pub adjusted: Adjusted,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    target: u32,
    base: u64,
    /// Bytes of the target that belong to the volume.
    size: u64,
}

impl Placement {
    /// Decides where each volume of the workload goes: to the target's volume with the same name if
    /// every volume with requests has one, otherwise the first to the first, and so on. Volumes
    /// without requests go nowhere, and are counted only if there are targets for all volumes.
    ///
    /// # Errors
    /// If the workload does not fit, or if it writes and that is not allowed or not possible.
    pub fn new(
        volumes: &[VolumeSurvey],
        targets: &[TargetVolume],
        limits: Limits,
        options: PlacementOptions,
    ) -> Result<Placement, ReplayError> {
        if targets.is_empty() {
            return Err(ReplayError::NoTarget);
        }
        let alignment = limits.alignment_bytes.max(1);
        let used: Vec<&VolumeSurvey> = volumes.iter().filter(|volume| volume.used).collect();
        let places = if options.concatenate {
            concatenate(&used, &targets[0], alignment, options.wrap)?
        } else {
            side_by_side(volumes, targets, alignment)?
        };
        for (volume, place) in used.iter().zip(&places) {
            let target = &targets[place.target as usize];
            let fits = volume.end_bytes <= place.size;
            if !options.wrap && !fits || place.size == 0 && volume.end_bytes > 0 {
                return Err(ReplayError::BeyondEnd {
                    volume: volume.name.clone(),
                    end: place.base + volume.end_bytes,
                    target: target.name.clone(),
                    size: target.size_bytes,
                });
            }
            if volume.modified && options.writes != Writes::LeftOut {
                let target_name = || target.name.clone();
                if target.read_only {
                    return Err(ReplayError::ReadOnly { target: target_name() });
                }
                if options.writes == Writes::Refused {
                    return Err(ReplayError::WritesNotAllowed { target: target_name() });
                }
            }
        }
        let mut places = places.into_iter();
        let places = volumes.iter().map(|v| if v.used { places.next() } else { None }).collect();
        let targets = targets.to_vec();
        let (writes, adjusted) = (options.writes, Adjusted::default());
        Ok(Placement { places, targets, alignment, writes, adjusted })
    }

    /// The volume of the target for each volume of the workload; `None` if there are no requests
    /// for it.
    pub fn targets(&self) -> impl Iterator<Item = Option<u32>> + '_ {
        self.places.iter().map(|place| place.map(|place| place.target))
    }

    /// Where a request goes; `None` if it is left out.
    pub fn place(&mut self, request: &Request) -> Option<Placed> {
        let Some(&Some(place)) = self.places.get(request.volume.0 as usize) else {
            // The survey found no requests for this volume, so the workload has changed since.
            self.adjusted.unsupported += 1;
            return None;
        };
        let target = &self.targets[place.target as usize];
        let mut placed = Placed {
            volume: place.target,
            op: request.op,
            flags: request.flags,
            offset: 0,
            length: 0,
            zeroes: false,
        };
        if request.op.modifies() && self.writes != Writes::Allowed {
            self.adjusted.writes_left_out += 1;
            return None;
        }
        let able = match request.op {
            Op::Trim => target.able.trim,
            Op::Flush => target.able.flush,
            Op::Read | Op::Write | Op::WriteZeroes => true,
        };
        if !able {
            self.adjusted.unsupported += 1;
            return None;
        }
        if request.op == Op::Flush {
            return Some(placed);
        }
        if request.length == 0 {
            self.adjusted.empty += 1;
            return None;
        }
        if request.op == Op::WriteZeroes && !target.able.zero {
            (placed.op, placed.zeroes) = (Op::Write, true);
        }
        (placed.offset, placed.length) = self.fit(place, request.offset, request.length);
        Some(placed)
    }

    fn fit(&mut self, place: Place, offset: u64, length: u64) -> (u64, u64) {
        let (mut offset, mut length) = (offset, length);
        if length > place.size {
            self.adjusted.shortened += 1;
            length = place.size;
        }
        if offset.checked_add(length).is_none_or(|end| end > place.size) {
            self.adjusted.wrapped += 1;
            // Move the request into the range without splitting or shortening it. A request that is
            // aligned to a power of two stays aligned if the size is.
            offset = (offset % place.size).min(place.size - length);
        }
        let aligned = offset & !(self.alignment - 1);
        let end = (offset + length).next_multiple_of(self.alignment).min(place.size);
        if (aligned, end) != (offset, offset + length) {
            self.adjusted.widened += 1;
        }
        (place.base + aligned, end - aligned)
    }
}

/// Assigns each volume of a workload to one of the targets with these names, by
/// [`volume_targets`]; a volume without requests gets `None`.
///
/// # Errors
/// If there are too few targets.
pub fn targets_of(
    volumes: &[VolumeSurvey],
    names: &[&str],
) -> Result<Vec<Option<usize>>, ReplayError> {
    let volumes = volumes.iter().map(|v| WorkloadVolume { name: &v.name, used: v.used });
    let volumes: Vec<_> = volumes.collect();
    volume_targets(&volumes, names).map_err(|TooManyVolumes { volumes, targets }| {
        ReplayError::TooManyVolumes { volumes, targets }
    })
}

/// The places of the volumes with requests, on one target volume each.
fn side_by_side(
    all: &[VolumeSurvey],
    targets: &[TargetVolume],
    alignment: u64,
) -> Result<Vec<Place>, ReplayError> {
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    let numbers = targets_of(all, &names)?;
    let place = |target: usize| {
        let size = targets[target].size_bytes & !(alignment - 1);
        Place { target: target as u32, base: 0, size }
    };
    Ok(numbers.into_iter().flatten().map(place).collect())
}

/// Places volumes one after the other, each from a multiple of 1 MiB on. If they do not fit and
/// `wrap` is set, they get equal parts of the target.
fn concatenate(
    volumes: &[&VolumeSurvey],
    target: &TargetVolume,
    alignment: u64,
    wrap: bool,
) -> Result<Vec<Place>, ReplayError> {
    const STEP: u64 = 1 << 20;
    let all = target.size_bytes & !(alignment - 1);
    let needed = |v: &VolumeSurvey| v.end_bytes.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
    let sum = volumes.iter().fold(0u64, |sum, v| sum.saturating_add(needed(v)));
    // The last volume need not fill its last MiB.
    let slack = volumes.last().map_or(0, |v| needed(v).saturating_sub(v.end_bytes));
    let fits = sum.saturating_sub(slack) <= all;
    if !fits && !wrap {
        let volume = volumes.last().map_or(String::new(), |v| v.name.clone());
        return Err(ReplayError::BeyondEnd {
            volume,
            end: sum.saturating_sub(slack),
            target: target.name.clone(),
            size: all,
        });
    }
    let share = (all / volumes.len().max(1) as u64) & !(alignment.max(4096) - 1);
    let mut base = 0;
    let place = |volume: &&VolumeSurvey| {
        let size = if fits { needed(volume).min(all - base) } else { share };
        let place = Place { target: 0, base, size };
        base += size;
        place
    };
    Ok(volumes.iter().map(place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Abilities;
    use forebay_block::{Nanos, Volume};

    fn target(name: &str, size_bytes: u64) -> TargetVolume {
        TargetVolume { name: name.into(), size_bytes, read_only: false, able: Abilities::ALL }
    }

    fn volume(name: &str, end_bytes: u64, modified: bool) -> VolumeSurvey {
        VolumeSurvey { name: name.into(), used: true, end_bytes, modified }
    }

    fn limits(alignment_bytes: u64) -> Limits {
        let max = 1 << 25;
        Limits { alignment_bytes, transfer_bytes_max: max, zero_bytes_max: max, depth_max: 64 }
    }

    fn request(volume: u32, op: Op, offset: u64, length: u64) -> Request {
        let (time, volume, flags) = (Nanos(0), Volume(volume), Flags::NONE);
        Request { time, volume, op, flags, offset, length }
    }

    const ALLOWED: PlacementOptions =
        PlacementOptions { writes: Writes::Allowed, wrap: false, concatenate: false };

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes_unless_it_may_wrap() {
        let volumes = [volume("v", 4097, false)];
        let new = |options| Placement::new(&volumes, &[target("t", 4096)], limits(1), options);
        let error = new(PlacementOptions::default()).unwrap_err().to_string();
        assert!(error.contains("4097") && error.contains("4096"));
        let mut wrapped = new(PlacementOptions { wrap: true, ..ALLOWED }).unwrap();
        let at = wrapped.place(&request(0, Op::Read, 4096, 1)).unwrap();
        assert_eq!((at.offset, at.length), (0, 1));
        assert_eq!(wrapped.adjusted.wrapped, 1);
    }

    #[test]
    fn wrapped_requests_lie_on_the_target_whole() {
        let options = PlacementOptions { wrap: true, ..ALLOWED };
        let volumes = [volume("v", u64::MAX, true)];
        for alignment in [1, 512, 4096] {
            let mut placement =
                Placement::new(&volumes, &[target("t", 10_000)], limits(alignment), options)
                    .unwrap();
            let size = 10_000 & !(alignment - 1);
            for (offset, length) in
                [(0, 1), (9_999, 2), (1 << 40, 8192), (123_456_789, 20_000), (u64::MAX - 5, 5)]
            {
                let at = placement.place(&request(0, Op::Write, offset, length)).unwrap();
                assert!(at.offset + at.length <= size && at.length >= length.min(size), "{at:?}");
                assert!(
                    at.offset.is_multiple_of(alignment) && at.length.is_multiple_of(alignment),
                    "{at:?}"
                );
            }
        }
    }

    #[test]
    fn nothing_is_written_unless_that_is_allowed() {
        let volumes = [volume("v", 512, true)];
        let new = |writes| {
            let options = PlacementOptions { writes, ..ALLOWED };
            Placement::new(&volumes, &[target("/dev/x", 512)], limits(1), options)
        };
        let error = new(Writes::Refused).unwrap_err().to_string();
        assert!(error.contains("/dev/x") && error.contains("nothing was written"), "{error}");
        let mut reads = new(Writes::LeftOut).unwrap();
        for op in [Op::Write, Op::Trim, Op::WriteZeroes] {
            assert_eq!(reads.place(&request(0, op, 0, 512)), None);
        }
        assert!(reads.place(&request(0, Op::Read, 0, 512)).is_some());
        let Adjusted { writes_left_out, unsupported, empty, .. } = reads.adjusted;
        assert_eq!((writes_left_out, unsupported, empty), (3, 0, 0));
        assert!(new(Writes::Allowed).unwrap().place(&request(0, Op::Write, 0, 512)).is_some());

        let read_only = TargetVolume { read_only: true, ..target("t", 512) };
        let error = Placement::new(&volumes, &[read_only], limits(1), ALLOWED).unwrap_err();
        assert!(matches!(error, ReplayError::ReadOnly { .. }));
    }

    #[test]
    fn volumes_go_to_those_of_their_name_or_else_of_their_number() {
        let targets = [target("a", 100), target("b", 100)];
        let goes = |names: &[&str]| {
            let volumes: Vec<_> = names.iter().map(|n| volume(n, 10, false)).collect();
            let placement = Placement::new(&volumes, &targets, limits(1), ALLOWED)?;
            Ok::<_, ReplayError>(placement.targets().flatten().collect::<Vec<_>>())
        };
        assert_eq!(goes(&["b", "a"]).unwrap(), [1, 0]);
        assert_eq!(goes(&["b"]).unwrap(), [1]);
        assert_eq!(goes(&["b", "c"]).unwrap(), [0, 1]);
        let error = goes(&["x", "y", "z"]).unwrap_err();
        assert!(
            error.to_string().contains("more volumes (3) than there are targets (2)"),
            "{error}"
        );
    }

    #[test]
    fn volumes_without_requests_need_no_target_and_take_no_room() {
        let unused = |name| VolumeSurvey { used: false, ..volume(name, 0, false) };
        let volumes = [unused("a"), volume("b", 4096, true), unused("c"), volume("d", 512, true)];
        let targets = [target("x", 4096), target("y", 4096)];
        let mut apart = Placement::new(&volumes, &targets, limits(1), ALLOWED).unwrap();
        assert_eq!(apart.targets().collect::<Vec<_>>(), [None, Some(0), None, Some(1)]);
        assert_eq!(apart.place(&request(3, Op::Write, 0, 512)).unwrap().volume, 1);
        // (If the trace changes after the survey, no request reaches an unchecked target.)
        assert_eq!(apart.place(&request(0, Op::Write, 0, 512)), None);
        // With a target for each volume, unused volumes are counted, too.
        let each = ["w", "x", "y", "z"].map(|name| target(name, 4096));
        let each = Placement::new(&volumes, &each, limits(1), ALLOWED).unwrap();
        assert_eq!(each.targets().collect::<Vec<_>>(), [None, Some(1), None, Some(3)]);
        // Volumes are matched by name, even if one without requests has no target of its name.
        let named = [target("d", 4096), target("b", 4096)];
        let named = Placement::new(&volumes, &named, limits(1), ALLOWED).unwrap();
        assert_eq!(named.targets().flatten().collect::<Vec<_>>(), [1, 0]);
        // Only the two used volumes share the target, so each gets half of it.
        let options = PlacementOptions { concatenate: true, wrap: true, ..ALLOWED };
        let mut tight =
            Placement::new(&volumes, &[target("t", 16384)], limits(1), options).unwrap();
        let at = tight.place(&request(1, Op::Write, 0, 1 << 20)).unwrap();
        assert_eq!((at.offset, at.length), (0, 8192));
    }

    #[test]
    fn concatenated_volumes_do_not_overlap_and_must_fit() {
        let volumes = [volume("a", 5, true), volume("b", 3 << 20, true), volume("c", 7, true)];
        let options = PlacementOptions { concatenate: true, ..ALLOWED };
        let new = |size, wrap| {
            let options = PlacementOptions { wrap, ..options };
            Placement::new(&volumes, &[target("t", size)], limits(1), options)
        };
        let mut placement = new((4 << 20) + 7, false).unwrap();
        let offsets: Vec<u64> =
            (0..3).map(|v| placement.place(&request(v, Op::Write, 1, 4)).unwrap().offset).collect();
        assert_eq!(offsets, [1, (1 << 20) + 1, (4 << 20) + 1]);
        assert!(matches!(new((4 << 20) + 6, false), Err(ReplayError::BeyondEnd { .. })));
        let mut tight = new(3 << 12, true).unwrap();
        let at = tight.place(&request(1, Op::Write, 2 << 20, 8192)).unwrap();
        assert_eq!((at.offset, at.length), (4096, 4096));
    }

    #[test]
    fn targets_that_cannot_do_something_are_not_asked_to() {
        let able = Abilities { trim: false, zero: false, flush: false };
        let targets = [TargetVolume { able, ..target("t", 8192) }];
        let mut placement =
            Placement::new(&[volume("v", 8192, true)], &targets, limits(1), ALLOWED).unwrap();
        assert_eq!(placement.place(&request(0, Op::Trim, 0, 512)), None);
        assert_eq!(placement.place(&request(0, Op::Flush, 0, 0)), None);
        assert_eq!(placement.adjusted.unsupported, 2);
        let zeroing = placement.place(&request(0, Op::WriteZeroes, 0, 512)).unwrap();
        assert!(zeroing.op == Op::Write && zeroing.zeroes);
    }
}
