//! `forebay backing`: inspects, recovers and releases a backing store while the server is stopped.

use std::io::Write;
use std::path::{Path, PathBuf};

use forebay_config::{BackingLayout, Config, Size};
use forebay_engine::backing_header::{AREA_BYTES, HeaderError};
use forebay_engine::{
    BackingHeader, Engine, EngineError, EngineOptions, StopMode, inspect_backing, is_as_left,
    release_backing,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::output::DocumentArgs;

pub(super) const EXAMPLE: &str = "Example, with the server stopped:
  $ forebay backing info disk.img";

const EXAMPLE_RECOVER: &str = "Example, with the server stopped:
  $ forebay backing recover disk.img";

const EXAMPLE_RELEASE: &str = "Example, with the server stopped:
  $ forebay backing release disk.img";

/// What to do with a backing store.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show the store's header: which flash tier the store last used, and whether that tier has
    /// newer data
    ///
    /// A store with layout = "none" has no header; `forebay flash info` shows how many blocks of its
    /// flash tier are dirty.
    #[command(after_help = EXAMPLE)]
    Info(Args),
    /// Replay the store's journal, if there is one
    #[command(after_help = EXAMPLE_RECOVER)]
    Recover(Args),
    /// Release the store: invalidate its blocks on flash, so that other programs can write to the
    /// store
    #[command(after_help = EXAMPLE_RELEASE)]
    Release(ReleaseArgs),
}

/// Arguments of `forebay backing release`.
#[derive(clap::Args, Debug)]
pub struct ReleaseArgs {
    /// The device or file of the backing store
    pub device: PathBuf,
    /// The server's configuration file; required if the store has layout = "none", because then
    /// only the flash tier can record the release
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub output: DocumentArgs,
}

/// Arguments of `info` and `recover`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device or file of the backing store
    pub device: PathBuf,
    #[command(flatten)]
    pub output: DocumentArgs,
}

/// What the command reports.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BackingReport")]
pub(crate) struct Report {
    /// UUID of the store, generated when its header was first written; null if the store has no header.
    uuid: Option<String>,
    /// Where the header is: `offset`, `tail` or `none`.
    layout: String,
    /// Number of times that the store has been opened; null if the store has no header.
    generation: Option<u64>,
    /// Whether the newest data of some blocks is only on flash.
    dirty: bool,
    /// Whether the store was released: all its blocks on flash are invalid.
    released: bool,
    /// Whether the contents are unchanged since Forebay last used the store; null if this is
    /// unknown, because the store is in use or the last run did not stop cleanly.
    as_left: Option<bool>,
    /// Size of the volume in bytes.
    data_bytes: u64,
    /// UUID of the flash tier with which the store was last served; null if there was none, or if the
    /// store has no header.
    flash_uuid: Option<String>,
    /// Epoch (run number) of that tier when the store was last served; null if the store has no header.
    flash_epoch: Option<u64>,
    /// Always null: this version has no journal.
    journal: Option<()>,
}

/// Runs the subcommand.
pub fn run(command: Command, ctx: &Context) -> Result<(), CliError> {
    let (args, recover) = match command {
        Command::Info(args) => (args, false),
        Command::Recover(args) => (args, true),
        Command::Release(args) => return release(&args, ctx),
    };
    let header = inspect_backing(&args.device).map_err(without_header)?;
    if recover && header.dirty {
        let what = format!("{} has no journal to replay", args.device.display());
        return Err(CliError::failed(what)
            .kept("all data; the newest data is on the store's flash tier")
            .next("serve the store with that tier, or run `forebay flash recover`"));
    }
    if recover {
        ctx.note("there is no journal to replay, and nothing is dirty");
    }
    emit(&args.device, &header, &args.output)
}

/// The failure for a store whose header cannot be read; such a store may have layout = "none".
fn without_header(error: EngineError) -> CliError {
    use HeaderError::{Damaged, Foreign, Impossible, Missing};
    let (path, error) = match error {
        EngineError::NoStore {
            path,
            error: error @ (Damaged | Foreign | Impossible(_) | Missing),
        } => (path, error),
        error => return error.into(),
    };
    let is_short = path.metadata().is_ok_and(|found| found.is_file() && found.len() < AREA_BYTES);
    let what = match error {
        // A header copy beyond the end of the file counts as damaged.
        Damaged if is_short => {
            format!("{} is too short to contain a Forebay header", path.display())
        }
        Damaged | Impossible(_) => {
            format!("the Forebay header of {} cannot be read: {error}", path.display())
        }
        _ => format!("{} has no Forebay header", path.display()),
    };
    CliError::failed(what).kept("all data; nothing was written").next(
        "a store with layout = \"none\" has no header: with the server stopped, run `forebay flash \
         info` on its flash tier to see how many blocks are dirty. For any other layout, check \
         that this is the store's device or file",
    )
}

fn release(args: &ReleaseArgs, ctx: &Context) -> Result<(), CliError> {
    let Some(file) = &args.config else {
        let header = release_backing(&args.device, None)?;
        return emit(&args.device, &header, &args.output);
    };
    let config = Config::load(file).map_err(CliError::usage)?;
    let same = |backing: &str| {
        let (one, other) = (Path::new(backing).canonicalize(), args.device.canonicalize());
        Path::new(backing) == args.device || matches!((one, other), (Ok(a), Ok(b)) if a == b)
    };
    let Some(volume) = config.volume.iter().find(|v| same(&v.backing)) else {
        let what = format!(
            "{} is not one of the backing stores in {}",
            args.device.display(),
            file.display()
        );
        return Err(CliError::usage(what).next("use the server's configuration file"));
    };
    let (name, layout) = (volume.name.clone(), volume.layout);
    let engine = Engine::open(&config, EngineOptions::default())?;
    let found = engine.volumes().iter().find(|v| v.name == name);
    let (number, data_bytes) = (found.map(|v| v.volume), found.map_or(0, |v| v.size_bytes));
    engine.invalidate(number.as_slice())?;
    engine.stop(StopMode::Destage, |_| {})?;
    ctx.note(format_args!("the flash tier no longer holds any blocks of volume {name}"));
    if layout != BackingLayout::None {
        let header = release_backing(&args.device, Some(layout))?;
        return emit(&args.device, &header, &args.output);
    }
    let report = Report {
        uuid: None,
        layout: layout.to_string(),
        generation: None,
        dirty: false,
        released: true,
        as_left: None,
        data_bytes,
        flash_uuid: None,
        flash_epoch: None,
        journal: None,
    };
    emit_report(&report, &args.output)
}

fn emit(device: &Path, header: &BackingHeader, output: &DocumentArgs) -> Result<(), CliError> {
    let report = Report {
        uuid: Some(header.uuid.to_string()),
        layout: header.layout.to_string(),
        generation: Some(header.generation),
        dirty: header.dirty,
        released: header.released,
        as_left: is_as_left(device, header)?,
        data_bytes: header.data_bytes,
        flash_uuid: header.flash_uuid.map(|tier| tier.to_string()),
        flash_epoch: Some(header.flash_epoch),
        journal: None,
    };
    emit_report(&report, output)
}

fn emit_report(report: &Report, output: &DocumentArgs) -> Result<(), CliError> {
    output.emit(report, |out: &mut dyn Write| {
        writeln!(out, "uuid          {}", report.uuid.as_deref().unwrap_or("none"))?;
        writeln!(out, "layout        {}", report.layout)?;
        writeln!(out, "data          {}", exact_size(report.data_bytes))?;
        if let Some(generation) = report.generation {
            writeln!(out, "generation    {generation}")?;
        }
        writeln!(out, "dirty         {}", if report.dirty { "yes" } else { "no" })?;
        let contents = match (report.released, report.as_left) {
            (true, _) => "released: its blocks on flash are invalid",
            (false, Some(true)) => "unchanged since Forebay last used the store",
            (false, Some(false)) => "changed since Forebay last used the store",
            (false, None) => "unknown: the store is in use, or the last run did not stop cleanly",
        };
        writeln!(out, "contents      {contents}")?;
        match (&report.flash_uuid, report.flash_epoch) {
            (Some(uuid), Some(epoch)) => writeln!(out, "flash tier    {uuid}, epoch {epoch}"),
            (_, Some(_)) => writeln!(out, "flash tier    none"),
            // Without a header, the store does not record its flash tier.
            (_, None) => Ok(()),
        }
    })
}

/// Formats a size; if that rounds it, adds the number of bytes.
fn exact_size(bytes: u64) -> String {
    let text = Size(bytes).to_string();
    if text.contains('.') { format!("{text} ({bytes} bytes)") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounded_size_is_followed_by_its_bytes() {
        assert_eq!(exact_size(2 << 30), "2 GiB");
        assert_eq!(exact_size((2 << 30) + 512), "2.0 GiB (2147484160 bytes)");
    }
}
