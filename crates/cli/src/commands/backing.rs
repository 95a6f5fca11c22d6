//! `forebay backing`: looks at a backing store offline.

use std::io::Write;
use std::path::PathBuf;

use forebay_engine::inspect_backing;
use serde::Serialize;

use super::flash::hex;
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

pub(super) const EXAMPLE: &str = "Example, with the server stopped:
  $ forebay backing info disk.img";

const EXAMPLE_RECOVER: &str = "Example, with the server stopped:
  $ forebay backing recover disk.img";

/// What to do with a backing store.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Its header: whose it is, and whether it is the whole truth
    #[command(after_help = EXAMPLE)]
    Info(Args),
    /// Replay its journal, if it has one
    #[command(after_help = EXAMPLE_RECOVER)]
    Recover(Args),
}

/// Arguments of both.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device or file
    pub device: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is reported.
#[derive(Serialize)]
struct Report {
    uuid: String,
    layout: String,
    generation: u64,
    dirty: bool,
    data_bytes: u64,
    flash_uuid: Option<String>,
    flash_epoch: u64,
    journal: Option<()>,
}

/// Runs one of them.
pub fn run(command: Command, ctx: &Context) -> Result<(), CliError> {
    let (args, recover) = match command {
        Command::Info(args) => (args, false),
        Command::Recover(args) => (args, true),
    };
    let header = inspect_backing(&args.device)?;
    if recover && header.dirty {
        let what = format!("{} has no journal to replay", args.device.display());
        return Err(CliError::failed(what)
            .kept("everything: its newest data is on its flash tier")
            .next("serve it with that tier, or run `forebay flash recover`"));
    }
    if recover {
        ctx.note("there is no journal to replay, and nothing is dirty");
    }
    let report = Report {
        uuid: hex(&header.uuid),
        layout: header.layout.to_string(),
        generation: header.generation,
        dirty: header.dirty,
        data_bytes: header.data_bytes,
        flash_uuid: (header.flash_uuid != [0; 16]).then(|| hex(&header.flash_uuid)),
        flash_epoch: header.flash_epoch,
        journal: None,
    };
    args.output.emit(&report, |out: &mut dyn Write| {
        writeln!(out, "uuid          {}", report.uuid)?;
        writeln!(out, "layout        {}", report.layout)?;
        writeln!(out, "data          {} bytes", report.data_bytes)?;
        writeln!(out, "generation    {}", report.generation)?;
        writeln!(out, "dirty         {}", if report.dirty { "yes" } else { "no" })?;
        match &report.flash_uuid {
            Some(uuid) => writeln!(out, "flash tier    {uuid}, epoch {}", report.flash_epoch),
            None => writeln!(out, "flash tier    none"),
        }
    })
}
