//! A document that another command wrote with `--json`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::error::OverviewError;

/// A document and its label.
pub struct Document {
    pub label: String,
    pub value: Value,
}

/// The kinds of documents, in the order in which the page shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
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

impl Document {
    /// Parses the document as the type that `command` writes.
    pub fn parse<T: serde::de::DeserializeOwned>(&self, command: &str) -> Result<T, OverviewError> {
        T::deserialize(&self.value).map_err(|error| self.incomplete(command, error))
    }

    /// Parses a field of a part of the document as the type that `command` writes.
    pub fn parse_field<T: serde::de::DeserializeOwned>(
        &self,
        part: &Value,
        field: &str,
        command: &str,
    ) -> Result<T, OverviewError> {
        let there = part.get(field).unwrap_or(&Value::Null);
        T::deserialize(there)
            .map_err(|error| self.incomplete(command, format_args!("`{field}`: {error}")))
    }

    fn incomplete(&self, command: &str, error: impl std::fmt::Display) -> OverviewError {
        OverviewError::Incomplete {
            label: self.label.clone(),
            command: command.to_owned(),
            error: error.to_string(),
        }
    }

    /// Reads `LABEL=FILE` or `FILE`.
    pub fn read(argument: &str) -> Result<Document, OverviewError> {
        let labelled = argument.split_once('=').filter(|_| !Path::new(argument).exists());
        let (label, path) = match labelled {
            Some((label, path)) => (label.to_string(), Path::new(path)),
            None => {
                let path = Path::new(argument);
                let stem = path.file_stem().unwrap_or(path.as_os_str());
                (stem.to_string_lossy().into_owned(), path)
            }
        };
        let bytes = std::fs::read(path)
            .map_err(|error| OverviewError::Read { path: path.to_owned(), error })?;
        let value = serde_json::from_slice(&bytes)
            .map_err(|error| OverviewError::NotJson { path: path.to_owned(), error })?;
        Ok(Document { label, value })
    }

    /// The runs that the document compares, each with its policy in the label.
    pub fn runs(self) -> Vec<Document> {
        elements(&self.value, "policies")
            .map(|run| Document {
                label: format!("{}, {}", self.label, text(run, "policy")),
                value: run.clone(),
            })
            .collect()
    }

    /// The kind of the document, determined by the fields that only this kind has.
    pub fn kind(&self) -> Option<Kind> {
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

    /// The number at a JSON pointer; NaN if there is none.
    pub fn number(&self, pointer: &str) -> f64 {
        number(&self.value, pointer)
    }
}

/// Numbers labels that occur more than once, because charts distinguish bars and curves by their
/// labels.
pub fn make_labels_distinct(documents: &mut [Document]) {
    let mut taken = BTreeSet::new();
    for document in documents {
        let numbered = (2..).map(|n| format!("{} ({n})", document.label));
        let own = std::iter::once(document.label.clone());
        let free = own.chain(numbered).find(|label| !taken.contains(label));
        document.label = free.expect("there are more numbers than documents");
        taken.insert(document.label.clone());
    }
}

/// The number at a JSON pointer; NaN if there is none.
pub fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The text in a field; empty if there is none.
pub fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_string()
}

/// The elements of an array; none if there is no array.
pub fn elements<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub fn kind(value: Value) -> Option<Kind> {
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
    fn equal_labels_are_numbered() {
        let labelled = |label: &str| Document { label: label.into(), value: json!({}) };
        let mut documents = ["run", "run", "run (2)", "other", "run"].map(labelled);
        make_labels_distinct(&mut documents);
        let labels = documents.each_ref().map(|document| document.label.as_str());
        assert_eq!(labels, ["run", "run (2)", "run (2) (2)", "other", "run (3)"]);
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
