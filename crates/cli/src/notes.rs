//! The words for what the analysis notes.

use forebay_analysis::Note;
use forebay_analysis::miniature::BLOCKS_MIN;
use forebay_config::Size;

use forebay_render::format::{count, percent};

/// A note as the user reads it.
pub fn words(note: &Note) -> String {
    match note {
        Note::Doubt(doubt) => doubt.clone(),
        Note::BadLines(n) => format!("skipped {} bad lines or records", count(*n)),
        Note::OutOfOrder(n) => {
            let n = count(*n);
            format!(
                "{n} requests were out of time order; each was given the time of the request \
                 before it"
            )
        }
        Note::NotSimulated { purchase, reason: None } => {
            format!("{purchase} is evaluated by formula, because only two tiers can be simulated")
        }
        Note::NotSimulated { purchase, reason: Some(reason) } => {
            format!("{purchase} is evaluated by formula because it cannot be simulated: {reason}")
        }
        Note::NotReplayed { purchase, reason } => {
            format!("{purchase} cannot be replayed: {reason}")
        }
        Note::Resumed(path) => format!("{}: using the result in the --resume file", path.display()),
        Note::WithoutData(n) => {
            format!("ignored {} trims and flushes", count(*n))
        }
        Note::WithoutHash(n) => {
            format!("{} block accesses have no hash; their data counts as unique", count(*n))
        }
        Note::FewSampled(n) => {
            format!("the sample has only {} blocks, so the result may be inaccurate", count(*n))
        }
        Note::TooSmall { sizes, rate } => too_small(sizes, *rate),
        Note::FlashTooSmall { flash_bytes, reason } => {
            let size = Size(*flash_bytes);
            format!("a flash tier of {size} is too small to simulate in miniature: {reason}")
        }
        Note::WithoutTimes => "the trace has no times, so all its requests arrive at the same \
                               time; give --queue-depth 1 or --untimed to run them one after \
                               another"
            .to_owned(),
    }
}

/// Which sizes of memory have too few blocks in the sample.
fn too_small(sizes: &[u64], rate: f64) -> String {
    let names: Vec<String> = sizes.iter().map(|&bytes| Size(bytes).to_string()).collect();
    let why = match rate {
        1.0 => format!("fewer than {BLOCKS_MIN} blocks fit"),
        _ => format!(
            "in a sample of {}, fewer than {BLOCKS_MIN} blocks fit; --sample 1 uses all blocks",
            percent(rate)
        ),
    };
    format!("left out {}: {why}", names.join(", "))
}
