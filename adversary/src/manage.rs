//! The operator's operations (formatting, starting, destaging, changing the policy, stopping), with
//! a failure or a cut at every device operation.

use forebay_cache::{Open, Order, StopTarget, WritePolicy};
use forebay_device::choices::Seeded;
use forebay_device::memory::{CutStyle, Fault, FaultRates};
use forebay_effect::Device;
use forebay_flash::TierId;

use crate::campaign::Tally;
use crate::catch::catch;
use crate::exhaustive::{Action, CacheKind, Case, perform_whole};
use crate::run::after::End;
use crate::run::{Plan, Runner};
use crate::world::Started;

/// An operation of the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    /// Format a new flash tier over an old one that was stopped cleanly.
    Format,
    /// Start after a power cut.
    Start,
    /// Start with another write policy, which comes into force only after dirty data has been
    /// destaged.
    StartOther,
    /// Change the write policy of a cache that serves.
    Switch,
    /// Destage all dirty data to the backing stores.
    Destage,
    /// Stop cleanly and leave dirty data on flash.
    Stop,
    /// Stop cleanly and leave no dirty data.
    StopDestaged,
}

/// The fault at the n-th device operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// The power is cut after the operation completes.
    Cut,
    /// The operation fails, and so do its retries.
    Error,
    /// This operation and all later ones fail, until the operator repairs the device.
    Dead,
    /// There is no space for the data to be written.
    NoSpace,
    /// The operation fails if it is a sync.
    SyncFailure,
}

const OPERATIONS: [Operation; 7] = [
    Operation::Format,
    Operation::Start,
    Operation::StartOther,
    Operation::Switch,
    Operation::Destage,
    Operation::Stop,
    Operation::StopDestaged,
];
const TROUBLES: [Trouble; 5] =
    [Trouble::Cut, Trouble::Error, Trouble::Dead, Trouble::NoSpace, Trouble::SyncFailure];
const KINDS: [CacheKind; 6] = [
    CacheKind::DRAM_ONLY,
    CacheKind::BACK_TO_FLASH,
    CacheKind::BACK_TO_DRAM,
    CacheKind::THROUGH,
    CacheKind::SLOTS_BACK_TO_FLASH,
    CacheKind::SLOTS_THROUGH,
];

/// Number of cases: one for each operation, fault and kind of cache.
pub const CASES: u64 = (OPERATIONS.len() * TROUBLES.len() * KINDS.len()) as u64;
/// Number of seeds for each case; a seed determines the order of completions and what each cut
/// leaves on the devices.
const WAYS: u64 = 12;
/// Maximum number of device operations of one operation; more would mean an endless loop.
const OPERATIONS_MAX: u64 = 500;
/// Number of times that the executor tries an operation.
const ATTEMPTS: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Trial {
    kind: CacheKind,
    operation: Operation,
    trouble: Trouble,
    /// The index of the device operation with the fault.
    at: u64,
}

/// Plays a case with the fault at every device operation, and adds the results to a tally.
pub fn play(case: u64, plan: Plan, tally: &mut Tally) {
    tally.runs += 1;
    let n = case as usize;
    let operation = OPERATIONS[n % OPERATIONS.len()];
    let trouble = TROUBLES[n / OPERATIONS.len() % TROUBLES.len()];
    let kind = KINDS[n / OPERATIONS.len() / TROUBLES.len() % KINDS.len()];
    for way in 0..WAYS {
        for at in 0.. {
            let trial = Trial { kind, operation, trouble, at };
            match catch(|| once(&trial, way, plan, tally)) {
                Ok(true) if at < OPERATIONS_MAX => {}
                Ok(true) => return tally.failures.push((case, format!("{trial:?}: does not end"))),
                Ok(false) => break,
                Err(how) => {
                    return tally.failures.push((case, format!("{trial:?} way {way}: {how}")));
                }
            }
        }
    }
}

/// Plays one trial; returns false if the operation ended before the fault occurred.
fn once(trial: &Trial, way: u64, plan: Plan, tally: &mut Tally) -> Result<bool, String> {
    let mut choices = Seeded::new(way);
    let mut run = Runner::new(&Case::flushes_only(trial.kind).scenario(), plan, &mut choices);
    let before = run.choices.enter_first();
    run.format()?;
    prelude(&mut run, trial.operation)?;
    run.choices.leave(before);

    run.plan.errors_allowed = trial.trouble != Trouble::Cut;
    let came = operate(&mut run, trial)?;
    tally.coverage.add("management: operations with a fault", u64::from(came));
    if run.world.cache.unsettled().is_some() {
        tally.coverage.add("management: starts with the wrong policy", 1);
        settle(&mut run)?;
    }
    // In all cases, after the devices have been repaired and have lost power, a start must find
    // everything that was promised, and a stop must destage it to the backing stores.
    mend(&mut run);
    run.plan.errors_allowed = false;
    if !came || trial.trouble != Trouble::Cut {
        run.end(End::Cut, false)?;
    }
    if run.world.start_whole(Open::RECOVER, &mut run.choices) != Started::Ready {
        // A format may have been cut before there was anything to recover.
        if trial.operation != Operation::Format {
            return Err(format!("the start after it was refused: {:?}", run.world.found));
        }
        run.world.reboot(run.world.config.clone());
        run.format()?;
    }
    run.verify("after the fault")?;
    let before = run.choices.enter_first();
    perform_whole(&mut run, Action::Write)?;
    run.end(End::Stop { destage: true }, true)?;
    run.choices.leave(before);
    run.cover();
    tally.add_seen(&run.finish()?);
    Ok(came)
}

/// Creates dirty data in DRAM and on flash, flushed and unflushed, and a stale record.
fn prelude(run: &mut Runner<'_>, operation: Operation) -> Result<(), String> {
    let before = [
        Action::Write,
        Action::Flush,
        Action::Evict,
        Action::WritePart,
        Action::Flush,
        Action::Zero,
        Action::WritePart,
    ];
    for action in before {
        perform_whole(run, action)?;
    }
    match operation {
        Operation::Format => run.end(End::Stop { destage: true }, false),
        Operation::Start => run.end(End::Cut, false),
        Operation::StartOther => {
            run.end(End::Cut, false)?;
            let mut config = run.world.config.clone();
            config.write_policy = other_policy(config.write_policy);
            run.world.reboot(config);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// After a start whose policy is not in force: the operator sets the policy again, with repaired
/// devices. After a failed sync, only a loss of power can help.
fn settle(run: &mut Runner<'_>) -> Result<(), String> {
    mend(run);
    let (wanted, when) = (run.world.config.write_policy, run.world.config.acknowledge);
    if !run.world.cache.config().write_policy.write_back {
        return Err("the policy is in force, but the cache reports that it is not".into());
    }
    run.world.order(Order::SetPolicy(wanted, when));
    loop {
        run.hear()?;
        if let Some(result) = run.world.policy_set() {
            let cache = &run.world.cache;
            let holds = cache.config().write_policy == wanted;
            let consistent = holds == result.is_ok() && holds == cache.unsettled().is_none();
            return if consistent { Ok(()) } else { Err(format!("{result:?}, holds: {holds}")) };
        }
        if !run.world.complete_one(&mut run.choices) {
            return Err(format!("it hangs: {}", run.world.cache.describe()));
        }
    }
}

/// Performs the operation with its fault; returns whether the fault occurred.
fn operate(run: &mut Runner<'_>, trial: &Trial) -> Result<bool, String> {
    let first = run.world.executor.devices().operations();
    plan_trouble(run, trial, first);
    match trial.operation {
        Operation::Format => {
            run.world.start(Open::Format { uuid: TierId::new([8; 16]), bindings: Vec::new() });
        }
        Operation::Start | Operation::StartOther => run.world.start(Open::RECOVER),
        Operation::Switch => {
            let config = run.world.cache.config();
            let (other, when) = (other_policy(config.write_policy), config.acknowledge);
            run.world.order(Order::SetPolicy(other, when));
        }
        Operation::Destage => run.world.order(Order::Destage),
        Operation::Stop => run.world.order(Order::Stop(StopTarget::Flash)),
        Operation::StopDestaged => run.world.order(Order::Stop(StopTarget::Stores)),
    }
    run.world.run();
    let mut mended = false;
    for turn in 0_u64.. {
        run.hear()?;
        let devices = run.world.executor.devices();
        let came = devices.operations() > first + trial.at;
        if trial.trouble == Trouble::Dead && came && !mended && turn < DEAD_TURNS {
            kill_devices(run);
        }
        if ended(run, trial.operation)? {
            return Ok(came && trial.trouble != Trouble::Cut);
        }
        if trial.trouble == Trouble::Cut && turn == trial.at {
            cut(run);
            return Ok(true);
        }
        if turn == DEAD_TURNS {
            mend(run);
            mended = true;
        }
        if turn > DEAD_TURNS + 10_000 || !run.world.complete_one(&mut run.choices) {
            return Err(format!("it hangs: {}", run.world.cache.describe()));
        }
    }
    unreachable!("the loop has a bound")
}

/// A policy without write-back for one with write-back, and the reverse.
pub(crate) fn other_policy(policy: WritePolicy) -> WritePolicy {
    if policy.write_back { WritePolicy::WRITE_THROUGH } else { WritePolicy::WRITE_BACK }
}

/// Number of completions after which a dead device is repaired.
const DEAD_TURNS: u64 = 200;

fn plan_trouble(run: &mut Runner<'_>, trial: &Trial, first: u64) {
    let devices = run.world.executor.devices_mut();
    let fault = match trial.trouble {
        Trouble::Cut | Trouble::Dead => return,
        Trouble::Error => Fault::TransientError,
        Trouble::NoSpace => Fault::NoSpace,
        Trouble::SyncFailure => Fault::SyncFailure,
    };
    for attempt in 0..ATTEMPTS {
        devices.fail_at(first + trial.at + attempt, fault);
    }
}

fn set_rates(run: &mut Runner<'_>, rates: FaultRates) {
    let (flash, volumes) = (run.has_flash(), run.oracles.len());
    let devices = run.world.executor.devices_mut();
    if flash {
        devices.set_rates(Device::Flash, rates);
    }
    for v in 0..volumes {
        devices.set_rates(Device::Backing(forebay_block::Volume(v as u32)), rates);
    }
}

fn kill_devices(run: &mut Runner<'_>) {
    let all = FaultRates::NONE.with(Fault::TransientError, 1).with(Fault::SyncFailure, 1);
    set_rates(run, all);
}

fn mend(run: &mut Runner<'_>) {
    run.world.executor.devices_mut().forget_plans();
    set_rates(run, FaultRates::NONE);
}

fn cut(run: &mut Runner<'_>) {
    run.cover();
    run.seen.cuts += 1;
    run.world.power_cut(CutStyle::Any, &mut run.choices);
    run.forget_requests();
    run.oracles.iter_mut().for_each(|o| o.power_cut(false));
}

fn ended(run: &mut Runner<'_>, operation: Operation) -> Result<bool, String> {
    let allowed = run.plan.errors_allowed;
    let (ended, failed) = match operation {
        Operation::Format | Operation::Start => match run.world.started() {
            Started::NotYet => (false, false),
            Started::Ready => (true, false),
            Started::Refused(_) => (true, true),
        },
        // The policy comes into force, or fails to, some time after the cache is ready for
        // requests.
        Operation::StartOther => match run.world.started() {
            Started::Refused(_) => (true, true),
            Started::NotYet | Started::Ready => {
                let cache = &run.world.cache;
                (cache.is_ready() && cache.is_idle(), cache.unsettled().is_some())
            }
        },
        Operation::Switch => {
            run.world.policy_set().map_or((false, false), |outcome| (true, outcome.is_err()))
        }
        Operation::Destage => {
            run.world.destaged().map_or((false, false), |outcome| (true, outcome.is_err()))
        }
        Operation::Stop | Operation::StopDestaged => {
            run.world.stopped().map_or((false, false), |outcome| (true, outcome.is_err()))
        }
    };
    if failed && !allowed {
        return Err(format!("it failed without a cause: {:?}", run.world.found));
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::BlockSize;
    use forebay_cache::CacheConfig;

    /// Creates dirty data on flash. A start with an incompatible configuration must be refused; a
    /// start with the former configuration must find everything.
    fn refused(change: impl Fn(&mut CacheConfig, &mut Vec<forebay_cache::VolumeConfig>)) {
        for way in 0..WAYS {
            let mut choices = Seeded::new(way);
            let kind = CacheKind::BACK_TO_FLASH;
            let mut run =
                Runner::new(&Case::flushes_only(kind).scenario(), Plan::CUTS, &mut choices);
            run.format().unwrap();
            prelude(&mut run, Operation::Start).unwrap();
            let (mut config, volumes) = (run.world.config.clone(), run.world.volumes.clone());
            let former = config.clone();
            change(&mut config, &mut run.world.volumes);
            run.world.reboot(config);
            let before = *run.world.executor.devices().faults();
            let started = run.world.start_whole(Open::RECOVER, &mut run.choices);
            assert!(matches!(started, Started::Refused(_)), "{started:?}");
            assert_eq!(run.world.executor.devices().unsynced(), 0, "something was written");
            assert_eq!(&before, run.world.executor.devices().faults());
            run.world.volumes = volumes;
            run.world.reboot(former);
            run.restart().unwrap();
            run.verify("under the former configuration").unwrap();
        }
    }

    #[test]
    fn another_block_size_is_refused_and_changes_nothing() {
        refused(|config, _| {
            config.block_size = BlockSize::new(8192).unwrap();
            let flash = config.flash.as_mut().unwrap();
            flash.geometry.block_size = 8192;
            flash.geometry.batch_pages_max = flash.geometry.batch_pages_max.max(3);
            flash.geometry.extent_bytes = flash.geometry.extent_bytes.max(8192);
        });
    }

    #[test]
    fn a_volume_that_ends_before_its_dirty_data_is_refused_and_changes_nothing() {
        refused(|_, volumes| volumes.iter_mut().for_each(|v| v.size_bytes = 0));
    }

    #[test]
    fn a_case_of_each_operation_meets_its_trouble() {
        let mut tally = Tally::default();
        // Cuts of a write-back cache with flash, and errors of this cache and of a write-through
        // cache, which begins with what the other left.
        let (operations, of_kind) = (OPERATIONS.len(), OPERATIONS.len() * TROUBLES.len());
        for n in 0..operations {
            play((of_kind + n) as u64, Plan::CUTS, &mut tally);
            play((of_kind + operations + n) as u64, Plan::CUTS, &mut tally);
        }
        assert_eq!(tally.failures, []);
        assert!(tally.coverage.get("management: operations with a fault") > 100);
        assert!(tally.coverage.get("management: starts with the wrong policy") > 10);
    }
}
