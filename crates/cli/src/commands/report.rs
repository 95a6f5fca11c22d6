//! `forebay report`: what other commands answered with `--json`, on one page.

mod curves;
mod partitions;
mod plans;
mod representatives;
mod runs;

use std::path::{Path, PathBuf};

use forebay_analysis::consolidate::Document as Consolidation;
use forebay_analysis::curve::policies::Answer as PolicyCurves;
use forebay_analysis::plan::growth::Document as GrowthDocument;
use forebay_analysis::plan::study::Document as StudyDocument;
use forebay_analysis::sample::Document as SampleDocument;
use forebay_report::{Report, Section};
use forebay_trace::TraceInfo;
use serde_json::Value;

use super::{consolidate, mrc, plan, sample, trace};
use crate::context::Context;
use crate::error::CliError;

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

/// A document and what to call it.
struct Document {
    label: String,
    value: Value,
}

/// What kinds of documents there are, in the order in which the page shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// `forebay trace info`.
    Trace,
    /// `forebay mrc`.
    Curve,
    /// `forebay mrc --policy`.
    PolicyCurves,
    /// `forebay plan`.
    Plan,
    /// `forebay plan --have`.
    Growth,
    /// `forebay plan --study`.
    Study,
    /// `forebay partition`.
    Partition,
    /// `forebay consolidate`.
    Consolidation,
    /// `forebay sample`.
    Sample,
    /// `forebay representatives`.
    Representatives,
    /// A run of a workload: `simulate`, `replay`, `load`, `ctl status`.
    Run,
    /// `forebay simulate --policy`: a run with each policy.
    PolicyRuns,
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

impl Document {
    /// What a command wrote, as it writes it.
    fn parse<T: serde::de::DeserializeOwned>(&self, command: &str) -> Result<T, CliError> {
        T::deserialize(&self.value).map_err(|error| self.incomplete(command, error))
    }

    /// A field of a part of it, likewise.
    fn parse_field<T: serde::de::DeserializeOwned>(
        &self,
        part: &Value,
        field: &str,
        command: &str,
    ) -> Result<T, CliError> {
        let there = part.get(field).unwrap_or(&Value::Null);
        T::deserialize(there)
            .map_err(|error| self.incomplete(command, format_args!("`{field}`: {error}")))
    }

    fn incomplete(&self, command: &str, error: impl std::fmt::Display) -> CliError {
        let what = format!("{} is no whole document of {command} ({error})", self.label);
        CliError::usage(what).next("write it again with --json and this version")
    }

    /// Reads `LABEL=FILE` or `FILE`.
    fn read(argument: &str) -> Result<Document, CliError> {
        let labelled = argument.split_once('=').filter(|_| !Path::new(argument).exists());
        let (label, path) = match labelled {
            Some((label, path)) => (label.to_string(), Path::new(path)),
            None => {
                let path = Path::new(argument);
                let stem = path.file_stem().unwrap_or(path.as_os_str());
                (stem.to_string_lossy().into_owned(), path)
            }
        };
        let bytes = std::fs::read(path).map_err(|e| CliError::file("cannot read", path, e))?;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            let what = format!("{} is no JSON document ({error})", path.display());
            CliError::usage(what).next("give what a command wrote with --json -o FILE")
        })?;
        Ok(Document { label, value })
    }

    /// The runs that are compared in it, each with its policy in the label.
    fn runs(self) -> Vec<Document> {
        elements(&self.value, "policies")
            .map(|run| Document {
                label: format!("{}, {}", self.label, text(run, "policy")),
                value: run.clone(),
            })
            .collect()
    }

    /// What it is, by the fields that only its kind has.
    fn kind(&self) -> Option<Kind> {
        let has = |field: &str| self.value.get(field).is_some();
        if has("points") && has("block_size") {
            Some(Kind::Curve)
        } else if has("policies") && has("distinct_blocks") {
            Some(Kind::PolicyCurves)
        } else if has("policies") && has("trace") {
            Some(Kind::PolicyRuns)
        } else if has("choices") {
            Some(Kind::Plan)
        } else if has("growth") {
            Some(Kind::Growth)
        } else if has("scaled_budgets") {
            Some(Kind::Study)
        } else if has("trace_requests") && has("features") {
            Some(Kind::Sample)
        } else if has("clusters") && has("elbow") {
            Some(Kind::Representatives)
        } else if has("footprint_blocks") && has("per_volume") {
            Some(Kind::Trace)
        } else if has("unallocated") && has("volumes") {
            Some(Kind::Partition)
        } else if has("simulated_isolation_blocks") && has("workloads") {
            Some(Kind::Consolidation)
        } else if has("latency_us") && has("requests") {
            Some(Kind::Run)
        } else {
            None
        }
    }

    /// The number at a JSON pointer; not a number where there is none.
    fn number(&self, pointer: &str) -> f64 {
        number(&self.value, pointer)
    }
}

/// The number at a JSON pointer; not a number where there is none.
fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The text in a field; empty where there is none.
fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_string()
}

/// The elements of an array; none where there is none.
fn elements<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind(value: Value) -> Option<Kind> {
        Document { label: String::new(), value }.kind()
    }

    #[test]
    fn documents_are_known_by_their_fields() {
        assert_eq!(kind(json!({"points": [], "block_size": 4096})), Some(Kind::Curve));
        let policies = json!({"policies": [], "distinct_blocks": 1, "block_size": 4096});
        assert_eq!(kind(policies), Some(Kind::PolicyCurves));
        assert_eq!(kind(json!({"policies": [], "trace": {}})), Some(Kind::PolicyRuns));
        assert_eq!(kind(json!({"policies": []})), None, "a list of what there is");
        assert_eq!(kind(json!({"choices": [], "block_size": 4096})), Some(Kind::Plan));
        let partition = json!({"unallocated": {}, "volumes": [], "requests": 1});
        assert_eq!(kind(partition), Some(Kind::Partition));
        let consolidation = json!({"simulated_isolation_blocks": 1, "workloads": []});
        assert_eq!(kind(consolidation), Some(Kind::Consolidation));
        let info = json!({"footprint_blocks": {}, "per_volume": [], "requests": 1});
        assert_eq!(kind(info), Some(Kind::Trace));
        assert_eq!(kind(json!({"growth": [], "block_size": 4096})), Some(Kind::Growth));
        assert_eq!(kind(json!({"scaled_budgets": [], "traces": []})), Some(Kind::Study));
        let sample = json!({"trace_requests": 9, "features": {}, "requests": 1});
        assert_eq!(kind(sample), Some(Kind::Sample));
        let groups = json!({"clusters": [], "elbow": [], "points": []});
        assert_eq!(kind(groups), Some(Kind::Representatives));
        assert_eq!(kind(json!({"latency_us": {}, "requests": 1})), Some(Kind::Run));
        assert_eq!(kind(json!({"requests": 1})), None);
    }

    #[test]
    fn a_label_stands_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(&path, "{}").unwrap();
        let plain = path.to_str().unwrap();
        assert_eq!(Document::read(plain).unwrap().label, "a");
        assert_eq!(Document::read(&format!("two tiers={plain}")).unwrap().label, "two tiers");
        let error = Document::read("x=/nonexistent/b.json").err().unwrap().to_string();
        assert!(error.contains("/nonexistent/b.json"), "{error}");
    }
}
