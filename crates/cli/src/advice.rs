//! Turns the errors of the analysis into command-line failures: the message, and what to do next.
//! [`engine`] does the same for the errors of the engine.

pub mod engine;

use std::any::Any;
use std::io::ErrorKind;

use forebay_analysis::AnalysisError;
use forebay_config::Size;
use forebay_engine::EngineError;
use forebay_names::nearest;
use forebay_plan::{Budget, PlanError};
use forebay_replay::ReplayError;
use forebay_report::Unit;
use forebay_serve::ServeError;
use forebay_trace::TraceError;

use crate::error::{CliError, chain};

/// What was kept: the command failed before it read anything.
const NOT_READ: &str = "nothing was read";
/// What was kept: the command failed before it wrote anything.
const NOT_WRITTEN: &str = "nothing was written";
/// What was kept: the command failed before it wrote a sample.
const NOT_MADE: &str = "no file was written";
/// Advice: the file itself shows its format.
const OMIT_FORMAT: &str = "omit --format, which specifies the input format";

// `CliError` itself does not implement `Error`, so that this does not overlap with
// `From<T> for T`.
impl<E: std::error::Error + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        if let Some(error) = of_engine(&error) {
            return CliError::failed(engine::explain(error));
        }
        let what = chain(&error);
        match (&error as &dyn Any).downcast_ref::<AnalysisError>() {
            Some(AnalysisError::Trace(TraceError::OtherFormat { .. })) => {
                CliError::usage(what).next(OMIT_FORMAT)
            }
            _ if reader_gone(&error) => CliError::writing_stdout(ErrorKind::BrokenPipe.into()),
            _ if is_bad_usage(&error) => CliError::usage(what),
            Some(error) => advised(error, what),
            None => match (&error as &dyn Any).downcast_ref() {
                Some(error) => of_replay(error, what),
                None => CliError::failed(what),
            },
        }
    }
}

/// The engine error inside the error of a command that runs the engine.
fn of_engine(error: &dyn Any) -> Option<&EngineError> {
    match (error.downcast_ref::<ServeError>(), error.downcast_ref::<ReplayError>()) {
        (Some(ServeError::Engine(error)), _) | (_, Some(ReplayError::Engine(error))) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// Whether a trace goes to standard output and its reader has closed the pipe.
fn reader_gone(error: &dyn Any) -> bool {
    matches!(error.downcast_ref(), Some(TraceError::Io { path, source, .. })
        if path.as_os_str() == "-" && source.kind() == ErrorKind::BrokenPipe)
}

/// Whether the error is about words on the command line: the name of a trace's format or volume.
fn is_bad_usage(error: &dyn Any) -> bool {
    let of_trace = match (error.downcast_ref::<ReplayError>(), error.downcast_ref()) {
        (Some(ReplayError::Trace(error)), _) => Some(error),
        (_, Some(AnalysisError::Trace(error))) => Some(error),
        _ => error.downcast_ref::<TraceError>(),
    };
    matches!(of_trace, Some(TraceError::Options(_) | TraceError::NoSuchFormat { .. }))
}

/// Turns an error of the analysis into a failure; `what` is the error's own message.
fn advised(error: &AnalysisError, what: String) -> CliError {
    use AnalysisError as E;
    match error {
        E::Plan(PlanError::NoBacking) => CliError::usage(what).kept(NOT_READ).next(
            "specify the backing store with --backing, or in a [[combination]] of the catalogue",
        ),
        E::Plan(PlanError::NoSuchCombination) => {
            CliError::usage(what).next("specify the devices with both --tiers and --backing")
        }
        E::SeveralCombinations => {
            let what = "a replay uses the devices that --config names, so it can evaluate only one \
                 combination";
            CliError::usage(what).next("specify those devices with --tiers and one --backing")
        }
        E::NotMemory(_) => {
            CliError::usage(what).next("--evaluate simulate accepts any device as tier 1")
        }
        E::WouldDestroy(_) => CliError::usage(what).kept("nothing was opened").next(
            "use --write to allow this; the replay creates missing files and removes them \
             afterwards",
        ),
        E::HaveTooLittle { unit_bytes } => {
            let least = Unit::Bytes.show(*unit_bytes as f64);
            CliError::usage(format_args!(
                "--have is less than {least}, the smallest size that a plan uses"
            ))
            .next("if you have no tier 1, omit --have to plan both tiers")
        }
        E::NotAStudy { .. } => CliError::usage(what)
            .kept("the file, unchanged")
            .next("use a file written by an earlier run with --resume"),
        E::Refused { error, budget } => refused(error, *budget, what),
        E::Plan(error) => of_plan(error, what),
        E::TooManyTiers
        | E::NoBudget
        | E::NoFlash
        | E::Configuration(_)
        | E::NotTwoTiers
        | E::OneVolume(_)
        | E::Impossible(_) => CliError::usage(what),
        _ => about_volumes(error, what),
    }
}

/// Like [`advised`], for questions about volumes and their devices.
fn about_volumes(error: &AnalysisError, what: String) -> CliError {
    use AnalysisError as E;
    match error {
        E::NoDevice(name) => {
            let known = forebay_model::Profile::NAMES;
            let near = nearest(name, known.iter().copied())
                .map_or_else(String::new, |near| format!("; the closest name is `{near}`"));
            CliError::usage(format_args!("{what}{near}"))
                .next(format_args!("the devices are {}", known.join(", ")))
        }
        E::NothingToDivide | E::NoAccesses => CliError::failed(what).kept(NOT_WRITTEN),
        E::NoVolume { name, known } => {
            let error = CliError::usage(format_args!("--target: {what}"));
            match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => error.next(format_args!(
                    "did you mean `{near}`? `forebay trace info` lists all volumes"
                )),
                None => error.next(volumes(known)),
            }
        }
        E::TwoTargets(name) => CliError::usage(format_args!("--target: `{name}` is given twice")),
        E::Groups(_) => CliError::usage(format_args!("--group: {what}")).kept(NOT_READ),
        E::NoGroupVolume { known, .. } => {
            CliError::usage(format_args!("--group: {what}")).kept(NOT_WRITTEN).next(volumes(known))
        }
        E::LateName { other, .. } => {
            CliError::usage(format_args!("--group: {what}")).kept(NOT_WRITTEN).next(format_args!(
                "select {other} by its name, or first convert the traces to one Parquet file, \
                 which lists all volumes at its start"
            ))
        }
        E::InTwoGroups { .. } => CliError::usage(format_args!("--group: {what}")).kept(NOT_WRITTEN),
        _ => about_measuring(error, what),
    }
}

/// Like [`advised`], for curves, simulations and samples.
fn about_measuring(error: &AnalysisError, what: String) -> CliError {
    use AnalysisError as E;
    match error {
        E::NoHashes => CliError::failed(what)
            .next("record a trace with hashes: `forebay serve --record X.parquet --hash`"),
        E::HashUnits { .. } => {
            CliError::failed(what).next("choose a --block-size that is a multiple of this size")
        }
        E::EmptySample | E::SampleTooSmall { .. } => CliError::failed(what).next("raise --sample"),
        E::TooManyBlocks => {
            CliError::failed(what).next("measure a sample of the blocks with --sample")
        }
        E::BlockSize(_) => CliError::usage(what).next("change cache.block_size"),
        E::NoFlashToSize => {
            let what = "--flash sets the sizes of the flash tier, but the configuration has no \
                        flash tier";
            CliError::usage(what).next("add a [flash] section")
        }
        E::NoFlashSize => CliError::usage(what).next("set the sizes with --flash"),
        E::NoSizes { sampled } => CliError::failed(what).next(match sampled {
            false => "use larger sizes with --at",
            true => "use larger sizes with --at, or a higher --sample",
        }),
        E::NoSuchCache { memory_bytes, flash_bytes, error } => {
            let flash = flash_bytes.map_or(String::new(), |size| format!(" and {}", Size(size)));
            CliError::usage(format_args!(
                "cannot simulate a cache of {}{flash}: {error}",
                Size(*memory_bytes)
            ))
        }
        E::NotSimulated(error) => CliError::usage(error).kept("nothing was simulated"),
        E::NothingToSample => CliError::failed(what).kept(NOT_MADE),
        E::SampleOfSample { .. } => {
            CliError::failed(what).kept(NOT_MADE).next("choose another --seed")
        }
        E::NoRegion { .. } => CliError::failed(what).kept(NOT_MADE).next("raise --rate"),
        _ => CliError::failed(what),
    }
}

/// Turns an error of a replay into a failure; `what` is the error's own message.
fn of_replay(error: &ReplayError, what: String) -> CliError {
    use ReplayError as E;
    let failure = CliError::failed(what);
    match error {
        E::BeyondEnd { .. } => failure
            .next("use a larger target, or --wrap to move such requests back onto the target"),
        E::TooManyVolumes { .. } => failure.next(
            "use one --target for each volume, select volumes with --volumes, or place all volumes \
             one after another on the first target with --concatenate",
        ),
        E::SameTarget { .. } => CliError::usage(error).kept("nothing was opened").next(
            "use another target, or place all volumes one after another on one target with \
             --concatenate",
        ),
        E::WritesNotAllowed { .. } => {
            failure.next("use --write to allow this, or --reads-only to skip writes")
        }
        E::ReadOnly { .. } => failure.next("use another target, or --reads-only to skip writes"),
        _ => failure,
    }
}

/// The failure for a refused budget. If the budget was given as a percentage, the amount was
/// unknown until the traces were read.
fn refused(error: &PlanError, budget: Budget, what: String) -> CliError {
    match (error, budget) {
        (PlanError::BuysNothing { .. } | PlanError::NotABudget(_), Budget::Fraction(_)) => {
            CliError::usage(what).next("raise the percentage, or set the budget in dollars")
        }
        (PlanError::BuysNothing { .. } | PlanError::NotABudget(_), _) => CliError::usage(what),
        _ => of_plan(error, what),
    }
}

fn of_plan(error: &PlanError, what: String) -> CliError {
    match error {
        PlanError::CydoniaTiers(_) => {
            CliError::usage(what).next("--method exhaustive searches any number of tiers")
        }
        PlanError::WearsOut { .. } => {
            CliError::failed(what).next("raise the budget, or the wear limit (--wear-max)")
        }
        PlanError::Floors => CliError::usage(what).next("lower --floor or --dram-floor"),
        PlanError::TooManySteps { .. } | PlanError::TooManyBudgets { .. } => CliError::usage(what)
            .next("use a larger --unit and --dram-unit, or use --search anneal"),
        PlanError::Catalogue { .. } => CliError::usage(what),
        _ => CliError::failed(what),
    }
}

/// Lists the volumes of the trace, at most the first 20.
fn volumes(known: &[String]) -> String {
    let names: Vec<&str> = known.iter().map(String::as_str).take(20).collect();
    format!("the trace has the volumes {}", names.join(", "))
}
