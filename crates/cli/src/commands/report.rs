//! `forebay report`: what other commands answered with `--json`, on one page.

mod curves;
mod document;
mod partitions;
mod plans;
mod representatives;
mod runs;

use std::path::PathBuf;

use forebay_analysis::consolidate::Document as Consolidation;
use forebay_analysis::curve::policies::Answer as PolicyCurves;
use forebay_analysis::plan::growth::Document as GrowthDocument;
use forebay_analysis::plan::study::Document as StudyDocument;
use forebay_analysis::sample::Document as SampleDocument;
use forebay_report::{Report, Section};
use forebay_trace::TraceInfo;

use super::{consolidate, mrc, plan, sample, trace};
use crate::context::Context;
use crate::error::CliError;
use document::{Document, Kind};

/// Arguments of `forebay report`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf:blocks=20k,requests=200k' -o zipf.parquet
  $ forebay mrc zipf.parquet --json -o mrc.json
  $ forebay plan zipf.parquet --budget 50% --backing SlowHDD --json -o plan.json
  $ forebay report mrc.json plan.json -o report.html")]
pub struct Args {
    /// Documents of `trace info`, `mrc`, `plan`, `partition`, `consolidate`, `sample`,
    /// `representatives`, `simulate`, `replay`, `load` and `ctl status`; LABEL=FILE says what the
    /// pictures call it, otherwise its file name does
    #[arg(value_name = "[LABEL=]FILE", required = true)]
    pub documents: Vec<String>,
    /// The page to write
    #[arg(short, long, value_name = "X.html")]
    pub output: PathBuf,
    /// Its heading
    #[arg(long, value_name = "TEXT", default_value = "Forebay report")]
    pub title: String,
}

/// Reads the documents and writes the page.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    let file = |argument: &String| {
        PathBuf::from(argument.split_once('=').map_or(argument.as_str(), |a| a.1))
    };
    let read: Vec<PathBuf> = args.documents.iter().map(file).collect();
    crate::output::check_files([&args.output], &read)?;
    let (mut curves, mut of_policies, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    // Those of a kind stand together; curves and runs share their pictures.
    let (mut traces, mut plans, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut labels = Vec::new();
    for argument in &args.documents {
        let document = Document::read(argument)?;
        labels.push(document.label.clone());
        match document.kind() {
            Some(Kind::Trace) => traces.push(trace_section(&document)?),
            Some(Kind::Curve) => curves.push(document),
            Some(Kind::PolicyCurves) => {
                let found: PolicyCurves = document.parse("mrc --policy")?;
                let title = format!("Policies: {}", document.label);
                of_policies.push(mrc::policies::section(&found, title));
            }
            Some(Kind::Plan) => plans.extend(plans::sections(&document)),
            Some(Kind::Growth) => {
                let growth: GrowthDocument = document.parse("plan --have")?;
                plans.extend(plan::growth::sections(&growth));
            }
            Some(Kind::Study) => {
                let study: StudyDocument = document.parse("plan --study")?;
                plans.extend(plan::study::sections(&study));
            }
            Some(Kind::Partition) => others.extend(partitions::sections(&document)?),
            Some(Kind::Consolidation) => {
                let found: Consolidation = document.parse("consolidate")?;
                others.extend(consolidate::pictures::sections(&found));
            }
            Some(Kind::Sample) => {
                let found: SampleDocument = document.parse("sample")?;
                let title = format!("How close the sample is: {}", document.label);
                others.extend(sample::pictures::sections(&found, &title));
            }
            Some(Kind::Representatives) => others.push(representatives::section(&document)?),
            Some(Kind::Run) => runs.push(document),
            Some(Kind::PolicyRuns) => runs.extend(document.runs()),
            None => {
                let what = format!("{argument} is no document that a report takes");
                return Err(CliError::usage(what).next(
                    "give what trace info, mrc, plan, partition, consolidate, sample, \
                     representatives, simulate, replay, load or ctl status wrote with --json",
                ));
            }
        }
    }
    let mut report = Report::new(args.title).subtitle(labels.join(", "));
    let curves = curves::sections(&curves).into_iter().collect();
    let runs = runs::sections(&runs);
    for section in [traces, curves, of_policies, plans, others, runs].into_iter().flatten() {
        report = report.section(section);
    }
    report.write_html(&args.output)?;
    ctx.note(format_args!("{} written", args.output.display()));
    Ok(())
}

/// The section of `forebay trace info`, as on its own page.
fn trace_section(document: &Document) -> Result<Section, CliError> {
    let info: TraceInfo = document.parse("trace info")?;
    Ok(trace::info::section(format!("What is in the trace: {}", document.label), &info))
}
