//! Arguments that several commands share.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use forebay_analysis::Traces;
use forebay_block::BlockSize;
use forebay_config::{Config, Size, TimeSpan};
use forebay_plan::JudgedBy;
use forebay_trace::{Align, OpenOptions, split_names};

use crate::error::CliError;

/// Names of volumes, separated by commas.
#[derive(Clone, Debug)]
pub struct VolumeNames(Vec<String>);

impl FromStr for VolumeNames {
    type Err = Infallible;

    fn from_str(list: &str) -> Result<Self, Infallible> {
        Ok(Self(split_names(list)))
    }
}

/// Which traces to read, and how.
#[derive(clap::Args, Clone, Debug)]
pub struct TraceArgs {
    /// Trace files in any supported format; several files are merged by time
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Format of the files [default: detected from their content]
    #[arg(long, value_name = "NAME", help_heading = "Reading")]
    pub format: Option<String>,
    /// Read only these volumes, given by name or, if no volume has this name, by number. In a name, write
    /// a comma as \,
    #[arg(long, value_name = "VOLUME,...", help_heading = "Reading")]
    pub volumes: Vec<VolumeNames>,
    /// Read only the first N requests
    #[arg(long, value_name = "N", help_heading = "Reading")]
    pub limit: Option<u64>,
    /// Start all files at the same time, even if their timestamps are calendar dates
    #[arg(long, help_heading = "Reading")]
    pub start_together: bool,
    /// Skip unreadable lines and report how many there were, instead of stopping at the first one
    #[arg(long, help_heading = "Reading")]
    pub skip_bad_lines: bool,
    /// For samples: compute request times from the recorded gaps instead of the timestamps. The
    /// sample then has the request rate of the whole trace
    #[arg(long, help_heading = "Reading")]
    pub follow_gaps: bool,
}

impl TraceArgs {
    /// The traces, and how to open them.
    pub fn source(&self) -> Traces {
        let options = OpenOptions {
            format: self.format.clone(),
            skip_bad_lines: self.skip_bad_lines,
            volumes: self.volumes.iter().flat_map(|names| names.0.clone()).collect(),
            align: if self.start_together { Align::Start } else { Align::Auto },
            limit: self.limit,
            follow_gaps: self.follow_gaps,
            ..OpenOptions::default()
        };
        Traces { files: self.traces.clone(), options }
    }

    /// Like [`source`](Self::source), but keeps write-zeroes requests of more than 4 GiB, for
    /// commands that do not process each block.
    pub fn recorded(&self) -> Traces {
        let Traces { files, options } = self.source();
        Traces { files, options: OpenOptions { keep_long_zeroing: true, ..options } }
    }

    /// The file names, for messages.
    pub fn names(&self) -> String {
        self.source().names()
    }

    /// Refuses standard input and pipes, for commands that read their traces more than once.
    ///
    /// # Errors
    /// If a trace is standard input or a pipe; the message appends `why` to "... can be read only
    /// once".
    pub fn check_rereadable(&self, why: &str) -> Result<(), CliError> {
        if self.source().can_be_read_only_once() {
            let what =
                format_args!("a trace from standard input or a pipe can be read only once{why}");
            return Err(CliError::usage(what).next("write it to a file first"));
        }
        Ok(())
    }
}

/// Which configuration file to use.
#[derive(clap::Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Reads a configuration file; every error in it is bad usage (exit status 2).
pub fn load_config(file: &Path) -> Result<Config, CliError> {
    Config::load(file).map_err(|error| {
        let unreadable = error.is_unreadable();
        let error = CliError::usage(error).kept("nothing was opened or written");
        match unreadable {
            true => error.next("check the file name"),
            false => error.next("docs/configuration.md lists every key"),
        }
    })
}

/// The files and devices that a configuration names; results must not overwrite them.
pub fn files_of(config: &Config) -> Vec<PathBuf> {
    let flash = config.flash.iter().map(|flash| flash.path.clone());
    flash.chain(config.volume.iter().map(|volume| PathBuf::from(&volume.backing))).collect()
}

/// Parses `--evaluate`, which accepts the `known` values, each with its help text; for clap's
/// `value_parser`.
pub fn judged_by<const N: usize>(
    known: [(JudgedBy, &'static str); N],
) -> impl TypedValueParser<Value = JudgedBy> {
    let values = known.map(|(judge, help)| PossibleValue::new(judge.name()).help(help));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<JudgedBy>())
}

/// Refuses `--policy` if it names a policy twice.
pub fn check_unique<T: PartialEq + std::fmt::Display>(policies: &[T]) -> Result<(), CliError> {
    let twice = |&(at, policy): &(usize, &T)| policies[..at].contains(policy);
    match policies.iter().enumerate().find(twice) {
        None => Ok(()),
        Some((_, policy)) => {
            let error = CliError::usage(format_args!("--policy lists {policy} twice"));
            Err(error.next("name each policy once"))
        }
    }
}

/// Parses a block size such as `4KiB`; for clap's `value_parser`.
pub fn block_size(text: &str) -> Result<BlockSize, String> {
    let size: Size = text.parse().map_err(|e: forebay_config::UnitError| e.to_string())?;
    BlockSize::new(size.bytes()).map_err(|e| e.to_string())
}

/// Parses a number or a percentage: `0.05` or `5%`.
fn number(text: &str) -> Option<f64> {
    let percent = text.strip_suffix('%').map(|percent| percent.parse().map(|p: f64| p / 100.0));
    percent.unwrap_or_else(|| text.parse()).ok().filter(|number| number.is_finite())
}

/// Parses a fraction above 0 and at most 1, such as a sampling rate; for clap's `value_parser`.
pub fn rate(text: &str) -> Result<f64, String> {
    number(text).filter(|&rate| rate > 0.0 && rate <= 1.0).ok_or_else(|| {
        format!("`{text}` is not a rate: use a fraction above 0 and at most 1, such as 0.05 or 5%")
    })
}

/// Parses a fraction from 0 to 1; for clap's `value_parser`.
pub fn fraction(text: &str) -> Result<f64, String> {
    number(text).filter(|fraction| (0.0..=1.0).contains(fraction)).ok_or_else(|| {
        format!("`{text}` is not a fraction: use a number from 0 to 1, such as 0.05 or 5%")
    })
}

/// Parses the time that one row of results covers; for clap's `value_parser`.
pub fn interval(text: &str) -> Result<TimeSpan, String> {
    let time: TimeSpan = text.parse().map_err(|e: forebay_config::UnitError| e.to_string())?;
    match time.nanos().0 {
        0 => Err("the time per row must be greater than 0".to_owned()),
        _ => Ok(time),
    }
}

/// Parses a number above 0, such as a speed; for clap's `value_parser`.
pub fn positive(text: &str) -> Result<f64, String> {
    let positive = number(text).filter(|&number| number > 0.0);
    positive.ok_or_else(|| format!("`{text}` is not a number above 0"))
}

/// Parses a number of 0 or more; for clap's `value_parser`.
pub fn ratio(text: &str) -> Result<f64, String> {
    number(text).filter(|&ratio| ratio >= 0.0).ok_or_else(|| {
        format!("`{text}` is not a ratio: use a number of 0 or more, such as 0.5 or 50%")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_configuration_is_bad_usage_and_names_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[cache]\ndarm = '1GiB'\n").unwrap();
        let error = load_config(file.path()).unwrap_err();
        assert_eq!(error.exit_code(), std::process::ExitCode::from(2));
        let text = error.to_string();
        assert!(text.contains(":2: cache.darm") && text.contains("`dram`"), "{text}");
    }

    #[test]
    fn every_rate_fraction_and_ratio_may_be_a_percentage() {
        for read in [rate, fraction, positive, ratio] {
            for (text, means) in [("5%", 0.05), ("100%", 1.0), ("12.5%", 0.125), ("0.3", 0.3)] {
                assert_eq!(read(text), Ok(means), "{text}");
            }
        }
        assert_eq!((fraction("0%"), ratio("0"), ratio("250%")), (Ok(0.0), Ok(0.0), Ok(2.5)));
        assert!(fraction("101%").is_err() && positive("0%").is_err() && ratio("-1%").is_err());
        assert!(positive("inf").is_err() && ratio("inf%").is_err());
    }

    #[test]
    fn block_sizes_and_rates_outside_their_range_are_refused() {
        assert_eq!(block_size("4KiB").unwrap(), BlockSize::KIB_4);
        for text in ["4000", "3KiB", "2MiB", "", "4K"] {
            assert!(block_size(text).is_err(), "{text}");
        }
        assert_eq!(rate("0.01"), Ok(0.01));
        for text in ["0", "0%", "1.1", "101%", "-0.5", "nan", "%", "5 %%", "x", ""] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
