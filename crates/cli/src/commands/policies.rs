//! `forebay policies [NAME]...`.

use forebay_replacement::{AdmissionKind, Kind, Parameters, Policy, Positions, Replacement};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::write_files::write_stdout;

/// Arguments of `forebay policies`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay policies
  $ forebay policies arc s3-fifo --json
  $ forebay policies --admission")]
pub struct Args {
    /// List only these policies
    #[arg(value_name = "NAME", value_parser = known)]
    names: Vec<Kind>,
    /// List the admission policies instead of the replacement policies
    #[arg(long, conflicts_with = "names")]
    admission: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

fn known(name: &str) -> Result<Kind, forebay_replacement::UnknownKind> {
    name.parse()
}

/// Number of blocks of the cache in which the memory use of a policy is measured.
const BLOCKS: u32 = 1 << 16;

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Policies")]
pub(crate) struct Document {
    /// All policies, or those named on the command line.
    policies: Vec<Described>,
}

/// What `--admission --json` prints.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AdmissionDocument {
    /// The admission policies.
    admission: Vec<Admission>,
}

#[derive(Serialize, JsonSchema)]
struct Admission {
    /// Name of the policy in `[admission] policy`.
    name: &'static str,
    /// Which blocks the policy admits.
    idea: &'static str,
    /// The publication that describes the policy.
    source: &'static str,
    /// The `[admission]` keys that the policy uses.
    keys: Vec<&'static str>,
}

#[derive(Serialize, JsonSchema)]
struct Described {
    /// Name of the policy in the configuration.
    name: &'static str,
    /// Tiers that the policy can manage: `dram` is memory, `slots` is flash in the slots layout.
    tiers: Vec<&'static str>,
    /// Bytes of memory that the policy uses per block, measured with a cache of 65,536 blocks.
    bytes_per_block: f64,
    /// Which blocks the policy evicts.
    idea: &'static str,
    /// Workloads on which the policy performs badly.
    weakness: &'static str,
    /// The publication that describes the policy.
    source: &'static str,
    /// The policy's parameters.
    parameters: Vec<Parameter>,
}

#[derive(Serialize, JsonSchema)]
struct Parameter {
    /// Name of the parameter in `[replacement] parameters`.
    name: &'static str,
    /// Default value.
    default: u32,
    /// The smallest allowed value.
    min: u32,
    /// The largest allowed value.
    max: u32,
    /// Unit of the value.
    unit: &'static str,
    /// What the parameter does.
    meaning: &'static str,
}

/// Prints the policies.
pub fn run(args: Args, _ctx: &Context) -> Result<(), CliError> {
    if args.admission {
        return admission(args.json);
    }
    let mut kinds = args.names;
    if kinds.is_empty() {
        kinds = Kind::ALL.to_vec();
    }
    let document = Document { policies: kinds.into_iter().map(describe).collect() };
    let mut bytes = Vec::new();
    if args.json {
        serde_json::to_writer_pretty(&mut bytes, &document)?;
        bytes.push(b'\n');
    } else {
        bytes = text(&document).into_bytes();
    }
    write_stdout(&bytes)
}

fn describe(kind: Kind) -> Described {
    let about = kind.about();
    let parameter = |p: &forebay_replacement::Parameter| Parameter {
        name: p.name,
        default: p.default,
        min: p.min,
        max: p.max,
        unit: p.unit,
        meaning: p.meaning,
    };
    let parameters = Parameters::new(kind);
    let policy = Replacement::new(BLOCKS, BLOCKS, &parameters);
    let positions = Positions::new(&parameters, BLOCKS);
    let bytes = policy.metadata_bytes() + positions.map_or(0, |p| p.memory_bytes());
    let bytes_per_block = bytes as f64 / f64::from(BLOCKS);
    Described {
        name: kind.name(),
        tiers: about.tiers.iter().map(|tier| tier.name()).collect(),
        bytes_per_block: (bytes_per_block * 10.0).round() / 10.0,
        idea: kind.idea(),
        weakness: about.weakness,
        source: about.source,
        parameters: about.parameters.iter().map(parameter).collect(),
    }
}

fn admission(json: bool) -> Result<(), CliError> {
    let described = |&kind: &AdmissionKind| Admission {
        name: kind.name(),
        idea: kind.idea(),
        source: kind.source(),
        keys: kind.parameters().iter().map(|p| p.name).collect(),
    };
    let document =
        AdmissionDocument { admission: AdmissionKind::ALL.iter().map(described).collect() };
    if json {
        let mut bytes = serde_json::to_vec_pretty(&document)?;
        bytes.push(b'\n');
        return write_stdout(&bytes);
    }
    let mut text = String::from("admission policy  keys of [admission]\n");
    for Admission { name, idea, source, keys } in &document.admission {
        let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
        text += &format!("{name:<17} {keys}\n");
        text += &wrapped(idea);
        text += &wrapped(&format!("Source: {source}."));
    }
    write_stdout(text.as_bytes())
}

fn text(document: &Document) -> String {
    let mut text = String::from("policy         tiers        bytes/block\n");
    for policy in &document.policies {
        let Described { name, tiers, bytes_per_block, idea, weakness, source, .. } = policy;
        let tiers = tiers.join(", ");
        text += &format!("{name:<14} {tiers:<12} {bytes_per_block:>11.1}\n");
        text += &wrapped(&format!("{idea} It {weakness}."));
        text += &wrapped(&format!("Source: {source}."));
        for p in &policy.parameters {
            let Parameter { name, default, min, max, unit, meaning } = p;
            text +=
                &wrapped(&format!("{name} = {default}, from {min} to {max} {unit}: {meaning}."));
        }
    }
    text += "\ntiers: the tiers that the policy can manage; `slots` is flash in the slots layout. The log\n\
             layout reclaims its regions in the order in which they were written, whatever the policy.\n\
             bytes/block: the memory that the policy uses per block of the tier, including ghosts,\n\
             sketches and hit ratios.\n";
    text
}

/// Wraps text into lines of at most 96 characters, indented by four.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::from("   "));
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > 96 {
            lines += &line;
            lines.push('\n');
            line = String::from("     ");
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}
