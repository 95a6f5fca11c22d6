//! Shows the `--json` documents of other commands on one page.

mod curves;
mod document;
mod error;
mod partitions;
mod plans;
mod representatives;
mod runs;

use forebay_analysis::consolidate::Document as Consolidation;
use forebay_analysis::curve::policies::Answer as PolicyCurves;
use forebay_analysis::plan::growth::Document as GrowthDocument;
use forebay_analysis::plan::study::Document as StudyDocument;
use forebay_analysis::sample::Document as SampleDocument;
use forebay_report::Report;
use forebay_trace::TraceInfo;

use crate::{consolidate, plan, policy_curves, sample, trace};
use document::{Document, Kind};
pub use error::OverviewError;

/// Creates one page of documents, each given as `FILE` or `LABEL=FILE`.
///
/// # Errors
/// If a file cannot be read, or is not a document that the page can show.
pub fn page(arguments: &[String], title: impl Into<String>) -> Result<Report, OverviewError> {
    let (mut curves, mut of_policies, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    // Documents of a kind are shown together; curves and runs share their charts.
    let (mut traces, mut plans, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut documents: Vec<Document> =
        arguments.iter().map(|argument| Document::read(argument)).collect::<Result<_, _>>()?;
    document::make_labels_distinct(&mut documents);
    let labels: Vec<String> = documents.iter().map(|document| document.label.clone()).collect();
    for (document, argument) in documents.into_iter().zip(arguments) {
        match document.kind() {
            Some(Kind::Trace) => {
                let info: TraceInfo = document.parse("trace info")?;
                let title = format!("Trace contents: {}", document.label);
                traces.push(trace::section(title, &info));
            }
            Some(Kind::Curve) => curves.push(document),
            Some(Kind::PolicyCurves) => {
                let found: PolicyCurves = document.parse("mrc --policy")?;
                let title = format!("Policies: {}", document.label);
                of_policies.push(policy_curves::section(&found, title));
            }
            Some(Kind::Plan) => plans.extend(plans::sections(&document)),
            Some(Kind::Growth) => {
                let growth: GrowthDocument = document.parse("plan --have")?;
                let sections = plan::growth_sections(&growth);
                plans.extend(sections.into_iter().map(|section| section.labelled(&document.label)));
            }
            Some(Kind::Study) => {
                let study: StudyDocument = document.parse("plan --study")?;
                let sections = plan::study_sections(&study);
                plans.extend(sections.into_iter().map(|section| section.labelled(&document.label)));
            }
            Some(Kind::Partition) => others.extend(partitions::sections(&document)?),
            Some(Kind::Consolidation) => {
                let found: Consolidation = document.parse("consolidate")?;
                others.extend(consolidate::sections(&found));
            }
            Some(Kind::Sample) => {
                let found: SampleDocument = document.parse("sample")?;
                let title = format!("How closely the sample matches the trace: {}", document.label);
                others.extend(sample::sections(&found, &title));
            }
            Some(Kind::Representatives) => others.push(representatives::section(&document)?),
            Some(Kind::Run) => runs.push(document),
            Some(Kind::PolicyRuns) => runs.extend(document.runs()),
            None => return Err(OverviewError::Unknown(argument.clone())),
        }
    }
    let mut report = Report::new(title).subtitle(labels.join(", "));
    let curves = curves::sections(&curves).into_iter().collect();
    document::make_labels_distinct(&mut runs);
    let runs = runs::sections(&runs);
    for section in [traces, curves, of_policies, plans, others, runs].into_iter().flatten() {
        report = report.section(section);
    }
    Ok(report)
}
