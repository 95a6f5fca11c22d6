//! Shows the progress of an analysis, and the text of its notes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_analysis::curve::SAMPLED_BLOCKS_MIN;
use forebay_analysis::miniature::BLOCKS_MIN;
use forebay_analysis::{Meter, Note, Observer};
use forebay_block::{Nanos, Op};
use forebay_config::Size;
use forebay_trace::{ShadowedNumber, Spec};

use forebay_render::format::{count, counted, percent};
use forebay_report::Unit;

use crate::context::Context;
use crate::progress::Progress;

impl Observer for Context {
    fn stop_flag(&self) -> &Arc<AtomicBool> {
        &self.interrupted
    }

    fn begin(
        &self,
        label: &str,
        unit: forebay_analysis::Unit,
        total: Option<u64>,
    ) -> Box<dyn Meter> {
        Box::new(Progress::start(label, unit, total, None, self.is_quiet()))
    }

    fn note(&self, note: Note) {
        match note {
            // Every pass over the trace produces these.
            Note::Doubt(_)
            | Note::WithoutOperations(_)
            | Note::BadLines(_)
            | Note::OutOfOrder(_)
            | Note::Lull(_)
            | Note::ShadowedNumber(_) => self.note_once(&words(&note)),
            note => Context::note(self, words(&note)),
        }
    }
}

/// Notes on keys that a one-line workload description repeats, which may not have the expected
/// effect.
pub fn repeated_keys(spec: &Spec) -> impl Iterator<Item = String> {
    spec.repeated.iter().map(|key| {
        format!(
            "`{key}` is repeated within a phase; it applies to the whole phase, not to each \
             component"
        )
    })
}

/// The text of a note.
pub fn words(note: &Note) -> String {
    match note {
        Note::Doubt(doubt) => doubt.clone(),
        Note::WithoutOperations(traces) => without_operations(traces),
        Note::BadLines(1) => "skipped 1 bad line or record".to_owned(),
        Note::BadLines(n) => format!("skipped {} bad lines or records", count(*n)),
        Note::OutOfOrder(1) => "1 request was out of time order; it was given the timestamp of \
                                the request before it"
            .to_owned(),
        Note::OutOfOrder(n) => format!(
            "{} requests were out of time order; each was given the timestamp of the request before it",
            count(*n)
        ),
        Note::Lull(time) => format!(
            "the files cover different times, which leaves a gap of {} without requests; to start \
             all files at the same time, use --start-together",
            long(*time)
        ),
        Note::ShadowedNumber(ShadowedNumber { name, other }) => format!(
            "`{name}` selects the volume with this name, not volume number {name}, which is called \
             {other}; to select that volume, use its name"
        ),
        Note::NotSimulated { purchase, reason: None } => {
            format!(
                "{purchase} is evaluated by formula, because a simulation supports at most two \
                 tiers"
            )
        }
        Note::NotSimulated { purchase, reason: Some(reason) } => {
            format!("{purchase} is evaluated by formula because it cannot be simulated: {reason}")
        }
        Note::NotReplayed { purchase, reason } => {
            format!("{purchase} cannot be replayed: {reason}")
        }
        Note::Resumed(path) => format!("{}: using the result in the --resume file", path.display()),
        Note::WithoutData(n) => {
            // These kinds are not counted separately.
            let what = if *n == 1 { "trim or flush" } else { "trims and flushes" };
            format!("ignored {} {what}", count(*n))
        }
        Note::WithoutHash(1) => "1 block access has no hash; its data counts as unique".to_owned(),
        Note::WithoutHash(n) => {
            format!("{} block accesses have no hash; their data counts as unique", count(*n))
        }
        Note::FewSampled(n) => {
            let blocks = counted(*n, "block");
            format!("the sample has only {blocks}, so the result may be inaccurate")
        }
        Note::FewSampledOf(volumes) => format!(
            "the sample has fewer than {SAMPLED_BLOCKS_MIN} blocks of {}, so {} may be inaccurate",
            named(volumes),
            if volumes.len() == 1 { "its curve" } else { "their curves" }
        ),
        Note::NotSampled(volumes) => format!(
            "the sample has no blocks of {}, so there is no curve for {}; raise --sample",
            named(volumes),
            if volumes.len() == 1 { "it" } else { "them" }
        ),
        Note::OpNotSampled { op, accesses, volumes } => {
            let kind = if *op == Op::Read { "read" } else { "write" };
            let of =
                if volumes.is_empty() { String::new() } else { format!(" of {}", named(volumes)) };
            let all = match accesses {
                1 => format!("the only {kind} counts as a miss"),
                _ => format!("all {} count as misses", counted(*accesses, kind)),
            };
            format!("the sample has no {kind}s{of}: {all}; raise --sample")
        }
        Note::TooSmall { sizes, rate } => too_small(sizes, *rate),
        Note::FlashTooSmall { flash_bytes, reason } => {
            let size = Size(*flash_bytes);
            format!("a flash tier of {size} is too small to simulate in miniature: {reason}")
        }
        Note::WithoutTimes => "the trace has no timestamps, so all its requests arrive at the \
                               same time; to run them one after another, use --queue-depth 1 or \
                               --untimed"
            .to_owned(),
    }
}

/// Formats a time that may span many years.
fn long(time: Nanos) -> String {
    let years = time.as_secs_f64() / (365.25 * 86_400.0);
    if years < 2.0 { Unit::Seconds.show(time.as_secs_f64()) } else { format!("{years:.0} years") }
}

/// Says which traces do not tell reads from writes; if there are several, names only the first.
fn without_operations(traces: &[String]) -> String {
    match traces {
        [first, _, ..] => format!(
            "{first} and {} do not distinguish reads from writes, so all requests count as reads",
            counted(traces.len() as u64 - 1, "other trace")
        ),
        _ => format!(
            "{} does not distinguish reads from writes, so all requests count as reads",
            traces.concat()
        ),
    }
}

/// Lists volumes; if there are several, names only the first.
fn named(volumes: &[String]) -> String {
    match volumes {
        [first, _, ..] => {
            format!("{first} and {}", counted(volumes.len() as u64 - 1, "other volume"))
        }
        _ => volumes.concat(),
    }
}

/// Says which memory sizes have too few blocks in the sample.
fn too_small(sizes: &[u64], rate: f64) -> String {
    let names: Vec<String> = sizes.iter().map(|&bytes| Size(bytes).to_string()).collect();
    let why = match rate {
        1.0 => format!("fewer than {BLOCKS_MIN} blocks fit"),
        _ => format!(
            "in a sample of {}, fewer than {BLOCKS_MIN} blocks fit; --sample 1 uses all blocks",
            percent(rate)
        ),
    };
    format!("omitted {}: {why}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_without_operations_are_named_in_one_sentence() {
        let said = |names: &[&str]| {
            words(&Note::WithoutOperations(names.iter().map(|&name| name.to_owned()).collect()))
        };
        let says = "a does not distinguish reads from writes, so all requests count as reads";
        assert_eq!(said(&["a"]), says);
        let says = "a and 1 other trace do not distinguish reads from writes, so all requests \
                    count as reads";
        assert_eq!(said(&["a", "b"]), says);
        assert!(said(&["a", "b", "c"]).starts_with("a and 2 other traces do not distinguish "));
    }

    #[test]
    fn what_is_not_in_the_sample_is_named_and_counted() {
        let volumes = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let said = |op, accesses, names| {
            words(&Note::OpNotSampled { op, accesses, volumes: volumes(names) })
        };
        let all = "the sample has no writes: all 40 writes count as misses; raise --sample";
        assert_eq!(said(Op::Write, 40, &[]), all);
        let one = "the sample has no reads of a: the only read counts as a miss; raise --sample";
        assert_eq!(said(Op::Read, 1, &["a"]), one);
        let none = words(&Note::NotSampled(volumes(&["a", "b", "c"])));
        assert!(
            none.starts_with("the sample has no blocks of a and 2 other volumes, so"),
            "{none}"
        );
        let few = words(&Note::FewSampledOf(volumes(&["a"])));
        let says = "the sample has fewer than 256 blocks of a, so its curve may be inaccurate";
        assert_eq!(few, says);
    }

    #[test]
    fn one_is_not_said_to_be_several() {
        for note in [Note::BadLines, Note::OutOfOrder, Note::WithoutHash, Note::FewSampled] {
            let [one, two] = [1, 2].map(|n| words(&note(n)));
            let plural = ["lines", "requests", "accesses", "blocks"];
            assert!(plural.iter().any(|word| two.contains(word)), "{two}");
            assert!(!plural.iter().any(|word| one.contains(word)), "{one}");
        }
    }
}
