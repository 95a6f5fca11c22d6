//! `forebay flash`: inspects, checks and recovers a flash tier while the server is stopped.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use forebay_analysis::{Meter, Unit};
use forebay_config::Config;
use forebay_engine::{
    CheckReport, Engine, EngineError, EngineOptions, Found, Loss, StopMode, check_flash,
    inspect_flash,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::output::DocumentArgs;
use forebay_render::format::{count, counted};

pub(super) const EXAMPLE: &str = "Example, with the server stopped:
  $ forebay flash info flash.img";

const EXAMPLE_CHECK: &str = "Example, with the server stopped:
  $ forebay flash check flash.img --json";

const EXAMPLE_RECOVER: &str = "Example, with the server stopped:
  $ forebay flash recover flash.img --config forebay.toml";

/// Maximum number of errors in the text output; the JSON output lists all errors.
const ERRORS_SHOWN: usize = 10;

/// What to do with a flash tier.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show what a flash tier contains; this reads the whole tier
    #[command(after_help = EXAMPLE)]
    Info(Args),
    /// Read and verify the whole tier; fail if anything is damaged
    #[command(after_help = EXAMPLE_CHECK)]
    Check(Args),
    /// Destage a tier's dirty blocks to the backing stores while the server is stopped
    #[command(after_help = EXAMPLE_RECOVER)]
    Recover(RecoverArgs),
}

/// Arguments of `forebay flash info` and `check`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device or file of the flash tier
    pub device: PathBuf,
    #[command(flatten)]
    pub output: DocumentArgs,
}

/// Arguments of `forebay flash recover`.
#[derive(clap::Args, Debug)]
pub struct RecoverArgs {
    /// The device or file of the flash tier
    pub device: PathBuf,
    /// The configuration file, which names the backing stores
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    #[command(flatten)]
    pub output: DocumentArgs,
}

/// What the command reports.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FlashReport")]
pub(crate) struct Report {
    /// UUID of the tier, generated when it was formatted.
    uuid: String,
    /// Version of the format.
    format: u16,
    /// `slots` or `log`.
    layout: &'static str,
    /// Whether the last run stopped cleanly.
    clean: bool,
    /// Number of the last run.
    epoch: u64,
    /// Block size in bytes.
    block_size: u32,
    /// Number of blocks on the tier.
    blocks: u64,
    /// Number of blocks not yet written to their backing store.
    dirty_blocks: u64,
    /// Number of regions of the log; in the slots layout, of the journal.
    regions: u32,
    /// Number of regions that hold records; in the slots layout, entries of the journal.
    regions_used: u32,
    /// The volumes that the tier caches.
    volumes: Vec<Bound>,
    /// The damage that was found.
    errors: Vec<Damage>,
}

/// A volume that is bound to the tier.
#[derive(Serialize, JsonSchema)]
struct Bound {
    /// The volume's number in the tier's records.
    index: u32,
    /// UUID of the volume's backing store.
    uuid: String,
}

/// Runs the subcommand.
pub fn run(command: Command, ctx: &Context) -> Result<(), CliError> {
    match command {
        Command::Info(args) => {
            // Inspection only reads, so a signal may end it at any point.
            ctx.end_at_first_signal();
            emit(&report(&args.device)?, &args.output)
        }
        Command::Check(args) => {
            ctx.end_at_first_signal();
            let report = report(&args.device)?;
            emit(&report, &args.output)?;
            if report.errors.is_empty() {
                return Ok(());
            }
            let what = format!("{} is damaged: {}", args.device.display(), summary(&report.errors));
            Err(CliError::failed(what).kept("all data; nothing was written"))
        }
        Command::Recover(args) => recover(&args, ctx),
    }
}

fn recover(args: &RecoverArgs, ctx: &Context) -> Result<(), CliError> {
    let config = Config::load(&args.config).map_err(CliError::usage)?;
    if let Err(error) = args.device.metadata() {
        return Err(CliError::file("cannot open", &args.device, error));
    }
    let same = |path: &Path| match (path.canonicalize(), args.device.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => path == args.device,
    };
    if !config.flash.as_ref().is_some_and(|flash| same(&flash.path)) {
        let what =
            format!("{} is not the flash tier of {}", args.device.display(), args.config.display());
        return Err(CliError::usage(what).next("use the server's configuration file"));
    }
    if !matches!(inspect_flash(&args.device)?, Found::Tier(_)) {
        // Reports what is wrong with the tier; opening it would format it.
        check_flash(&args.device)?;
    }
    let go_on = || match ctx.interrupted() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let opened = Engine::open_watched(&config, EngineOptions::default(), &mut |_| go_on());
    let engine = opened.map_err(|error| match error {
        EngineError::StartEnded | EngineError::StartCut { .. } => {
            CliError::interrupted().kept("all data")
        }
        error => error.into(),
    })?;
    let left = engine.status().total.dirty_blocks;
    let progress = ctx.progress("destaging blocks", Unit::Count, Some(left));
    let remain = engine.stop_unless(StopMode::Destage, |dirty| {
        progress.set(left.saturating_sub(dirty));
        go_on()
    })?;
    if remain > 0 {
        // The tier may not yet have recorded that the last of these blocks were destaged.
        let kept =
            format_args!("all data; at least {} blocks on flash are still dirty", count(remain));
        return Err(CliError::interrupted()
            .kept(kept)
            .next("run the command again to destage them"));
    }
    progress.finish();
    ctx.note(match left {
        0 => "no blocks were dirty".to_owned(),
        _ => format!("destaged {}", counted(left, "block")),
    });
    emit(&report(&args.device)?, &args.output)
}

fn report(device: &Path) -> Result<Report, CliError> {
    let Found::Tier(superblock) = inspect_flash(device)? else {
        // The error says what the device holds instead of a flash tier.
        check_flash(device)?;
        return Err(CliError::failed("the flash tier changed while it was being read"));
    };
    let check = check_flash(device)?;
    Ok(Report {
        uuid: superblock.uuid.to_string(),
        format: forebay_engine::FLASH_FORMAT,
        layout: forebay_engine::layout_name(&superblock),
        clean: superblock.clean,
        epoch: superblock.epoch,
        block_size: superblock.block_size,
        blocks: check.blocks,
        dirty_blocks: check.dirty_blocks,
        regions: superblock.regions,
        regions_used: check.recovery.regions_used,
        volumes: superblock
            .bindings
            .iter()
            .map(|b| Bound { index: b.volume.0, uuid: b.uuid.to_string() })
            .collect(),
        errors: errors(&check),
    })
}

fn errors(check: &CheckReport) -> Vec<Damage> {
    let damage = &check.recovery.damage;
    let failure = check.failure.iter().map(|error| Damage::Failure { message: error.to_string() });
    let batches = damage.batches.iter();
    let batches = batches.map(|(first, last)| Damage::Batches { first: first.0, last: last.0 });
    let blocks = check.unreadable.iter().map(|found| Damage::Block {
        volume: found.key.volume().0,
        block: found.key.block().0,
        page: found.position.0,
        state: match found.loss {
            Loss::Dirty => LossName::Dirty,
            Loss::Clean => LossName::Clean,
            Loss::Superseded => LossName::Superseded,
        },
    });
    let misplaced = damage.misplaced.iter().map(|&page| Damage::Misplaced { page });
    failure.chain(batches).chain(blocks).chain(misplaced).collect()
}

/// One instance of damage.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Damage {
    /// The tier could not be read to its end.
    Failure {
        /// The reason.
        message: String,
    },
    /// Batches of records are lost; it is unknown which blocks they held.
    Batches {
        /// The first lost batch.
        first: u64,
        /// The last lost batch.
        last: u64,
    },
    /// A record's data does not match its checksum.
    Block {
        /// The volume's number in the tier's records.
        volume: u32,
        /// The block's number in the volume.
        block: u64,
        /// The page of the record.
        page: u32,
        /// What the damage means for the block.
        state: LossName,
    },
    /// A page holds data that was written for another page.
    Misplaced {
        /// The page.
        page: u32,
    },
}

/// The loss when a block's data cannot be read.
#[derive(Serialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum LossName {
    /// Its newest data is lost.
    Dirty,
    /// The backing store has its data.
    Clean,
    /// Nothing is lost: a newer record exists.
    Superseded,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Failure { message } => f.write_str(message),
            Damage::Batches { first, last } => {
                write!(f, "batches {first} to {last} are lost (blocks unknown)")
            }
            Damage::Block { volume, block, page, state } => {
                let state = match state {
                    LossName::Dirty => "it was dirty, so its newest data is lost",
                    LossName::Clean => "it was clean, so the backing store has its data",
                    LossName::Superseded => "nothing is lost, because a newer record exists",
                };
                write!(f, "block {block} of volume {volume} at page {page} is unreadable: {state}")
            }
            Damage::Misplaced { page } => {
                write!(f, "page {page} holds data that was written for another page")
            }
        }
    }
}

/// Summarises the damage in one line; empty if there is none.
fn summary(errors: &[Damage]) -> String {
    let blocks = |which| {
        let is = |e: &&Damage| matches!(e, Damage::Block { state, .. } if *state == which);
        errors.iter().filter(is).count() as u64
    };
    let (dirty, clean, old) =
        (blocks(LossName::Dirty), blocks(LossName::Clean), blocks(LossName::Superseded));
    let mut parts = Vec::new();
    if dirty + clean + old > 0 {
        let mut text = format!(
            "{} unreadable blocks, {} of them dirty and lost, {} clean",
            count(dirty + clean + old),
            count(dirty),
            count(clean)
        );
        if old > 0 {
            text += &format!(", {} superseded", count(old));
        }
        parts.push(text);
    }
    let (mut batches, mut misplaced) = (0, 0);
    for error in errors {
        match error {
            Damage::Failure { message } => parts.push(message.clone()),
            Damage::Batches { first, last } => batches += last - first + 1,
            Damage::Misplaced { .. } => misplaced += 1,
            Damage::Block { .. } => {}
        }
    }
    if batches > 0 {
        let what = if batches == 1 { "batch" } else { "batches" };
        parts.push(format!("{} {what} lost (blocks unknown)", count(batches)));
    }
    if misplaced > 0 {
        parts.push(format!("{} misplaced pages", count(misplaced)));
    }
    parts.join("; ")
}

fn emit(report: &Report, output: &DocumentArgs) -> Result<(), CliError> {
    output.emit(report, |out: &mut dyn Write| {
        writeln!(out, "uuid          {}", report.uuid)?;
        writeln!(out, "format        {}", report.format)?;
        writeln!(out, "layout        {}", report.layout)?;
        writeln!(out, "stopped       {}", if report.clean { "cleanly" } else { "uncleanly" })?;
        writeln!(out, "blocks        {} ({} dirty)", report.blocks, report.dirty_blocks)?;
        // In slots, only the journal is in regions; blocks are in cells.
        let regions = if report.layout == "slots" { "journal" } else { "regions" };
        let unit = if report.layout == "slots" { " regions" } else { "" };
        writeln!(out, "{regions}       {}{unit} ({} used)", report.regions, report.regions_used)?;
        for volume in &report.volumes {
            writeln!(out, "volume {:<6} {}", volume.index, volume.uuid)?;
        }
        if report.errors.is_empty() {
            return writeln!(out, "damage        none");
        }
        writeln!(out, "damage        {}", summary(&report.errors))?;
        for error in report.errors.iter().take(ERRORS_SHOWN) {
            writeln!(out, "error         {error}")?;
        }
        match report.errors.len().saturating_sub(ERRORS_SHOWN) {
            0 => Ok(()),
            more => {
                writeln!(out, "              and {} more; --json lists all", count(more as u64))
            }
        }
    })
}
