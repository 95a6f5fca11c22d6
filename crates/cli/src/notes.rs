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
            format!("{} requests came out of order; they count as simultaneous", count(*n))
        }
        Note::NotSimulated { purchase, reason: None } => {
            format!("{purchase}: only two tiers can be simulated; by formulas")
        }
        Note::NotSimulated { purchase, reason: Some(reason) } => {
            format!("{purchase} cannot be simulated, by formulas: {reason}")
        }
        Note::NotReplayed { purchase, reason } => {
            format!("{purchase} cannot be replayed: {reason}")
        }
        Note::Resumed(path) => format!("{}: taken from --resume", path.display()),
        Note::WithoutData(n) => {
            format!("ignored {} trims and flushes", count(*n))
        }
        Note::WithoutHash(n) => {
            format!("{} block accesses have no hash; nothing equals what they access", count(*n))
        }
        Note::FewSampled(n) => {
            format!("the sample has {} blocks only: it may be far off", count(*n))
        }
        Note::TooSmall { sizes, rate } => too_small(sizes, *rate),
        Note::FlashTooSmall { flash_bytes, reason } => {
            format!("{} of flash is too small in miniature: {reason}", Size(*flash_bytes))
        }
        Note::WithoutTimes => "the trace has no times, so all its requests arrived at once; \
                               --queue-depth 1 or --untimed asks for them one after another"
            .to_owned(),
    }
}

/// Which sizes of memory have too few blocks in the sample.
fn too_small(sizes: &[u64], rate: f64) -> String {
    let names: Vec<String> = sizes.iter().map(|&bytes| Size(bytes).to_string()).collect();
    let why = match rate {
        1.0 => format!("fewer than {BLOCKS_MIN} blocks"),
        _ => format!(
            "{} of it is fewer than {BLOCKS_MIN} blocks; --sample 1 looks at all",
            percent(rate)
        ),
    };
    format!("left out {}: {why}", names.join(", "))
}
