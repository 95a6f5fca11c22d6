//! `forebay simulate`: runs the cache in virtual time.

use forebay_analysis::simulation::Question;
use forebay_config::{ReplacementPolicy, TimeSpan};
use forebay_render::simulation::{Compared, Simulated};
use forebay_replacement::Kind;
use forebay_simulate::{AssumeFlush, Defaults, Interval, Options, Outage, Pacing};

use crate::args::{ConfigArgs, TraceArgs, check_unique, files_of, load_config, positive};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// Arguments of `forebay simulate`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ printf '[cache]\\ndram = \"64MiB\"\\n' > cache.toml
  $ forebay trace synth zipf -o zipf.parquet
  $ forebay simulate zipf.parquet --config cache.toml --queue-depth 16
  $ forebay simulate zipf.parquet --config cache.toml --untimed --policy lru,arc
  $ forebay trace synth 'zipf:volume=a,requests=9k + zipf:volume=b' -o a.parquet
  $ forebay simulate a.parquet --config cache.toml --outage a=dead@0.1s..0.5s")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Compare these replacement policies instead of using the configured one; `forebay policies`
    /// lists all policies. This keeps all requests of the trace in memory, at 40 bytes each
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = simulated)]
    pub policies: Vec<ReplacementPolicy>,
    /// Add flushes, which traces seldom contain, to each volume: a flush after every N writes, or a
    /// flush TIME after the first unflushed write
    #[arg(long, value_name = "N|none|TIME", default_value = "none", value_parser = assume_flush)]
    pub assume_flush: AssumeFlush,
    /// Ignore the trace's timestamps and keep N requests in flight
    #[arg(long, value_name = "N", group = "pacing", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue_depth: Option<u32>,
    /// Replay at N times the recorded speed
    #[arg(long, value_name = "N", group = "pacing", default_value = "1", value_parser = positive)]
    pub rate: f64,
    /// Run one request at a time, and wait for all background work before running the next one
    #[arg(long, group = "pacing")]
    pub quiesce: bool,
    /// Compute only hits and traffic, without simulating time; this is the fastest mode
    #[arg(long, group = "pacing")]
    pub untimed: bool,
    /// The memory device of tier 1; `none` adds no latency
    #[arg(long, value_name = "DEVICE", default_value = "FastDRAM", help_heading = "Devices")]
    pub memory: String,
    /// The device of the flash tier, unless the configuration sets its `shape`
    #[arg(long, value_name = "DEVICE", default_value = "nvme", help_heading = "Devices")]
    pub flash_device: String,
    /// The backing device of volumes that have no `shape`
    #[arg(long, value_name = "DEVICE", default_value = "hdd-7200", help_heading = "Devices")]
    pub backing_device: String,
    /// Make a backing store fail: VOLUME=dead, VOLUME=full or VOLUME=slow:TIMES. Append @FROM.. or
    /// @FROM..UNTIL to make it fail during only part of the run (repeatable)
    #[arg(long = "outage", value_name = "VOLUME=FAULT", help_heading = "Devices")]
    pub outages: Vec<Outage>,
    /// Seed for the devices' random numbers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Devices")]
    pub seed: u64,
    /// Time per row of --parquet and per point of --html [default: each row has 1,024 requests, or
    /// more if there would be more than 512 rows]
    #[arg(long, value_name = "TIME")]
    pub interval: Option<TimeSpan>,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Args {
    fn options(&self) -> Options {
        let pacing = match self.queue_depth {
            Some(queue_depth) => Pacing::ClosedLoop { queue_depth },
            None if self.quiesce => Pacing::Quiesced,
            None if self.untimed => Pacing::Untimed,
            None => Pacing::OpenLoop { rate: self.rate },
        };
        let interval = self.interval.map_or(Interval::Adaptive, |t| Interval::Time(t.nanos()));
        let (assume_flush, seed, outages) = (self.assume_flush, self.seed, self.outages.clone());
        Options { pacing, assume_flush, interval, seed, outages }
    }

    /// The devices to use where the configuration names none.
    fn defaults(&self) -> Defaults {
        Defaults {
            memory: self.memory.clone(),
            flash: self.flash_device.clone(),
            backing: self.backing_device.clone(),
        }
    }
}

/// Simulates and prints the result.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    let config = load_config(&args.config.config)?;
    let named = files_of(&config);
    args.output.check(args.traces.traces.iter().chain([&args.config.config]).chain(&named))?;
    let question = Question {
        traces: args.traces.recorded(),
        config,
        config_name: args.config.config.display().to_string(),
        defaults: args.defaults(),
        options: args.options(),
    };
    if args.policies.is_empty() {
        return args.output.give(&Simulated { answer: &question.ask(ctx)? });
    }
    check_unique(&args.policies)?;
    args.output.give(&Compared { comparison: &question.compare(&args.policies, ctx)? })
}

/// Parses the name of a policy.
fn simulated(name: &str) -> Result<ReplacementPolicy, String> {
    if name == "opt" {
        return Err("`opt` knows the future, so no real cache can run it; `forebay mrc --policy \
                    opt` shows its hits"
            .to_owned());
    }
    name.parse::<Kind>().map_err(|error| error.to_string())?;
    name.parse()
}

/// Parses `none`, a number of writes, or a time.
fn assume_flush(text: &str) -> Result<AssumeFlush, String> {
    if text == "none" {
        return Ok(AssumeFlush::None);
    }
    if let Ok(writes) = text.parse::<u64>() {
        let flush = AssumeFlush::EveryWrites(writes);
        return if writes > 0 { Ok(flush) } else { Err("use a number above 0".to_owned()) };
    }
    match text.parse::<TimeSpan>() {
        Ok(time) if time.nanos().0 > 0 => Ok(AssumeFlush::Every(time.nanos())),
        Ok(_) => Err("use a time greater than 0".to_owned()),
        Err(_) => Err("use none, a number of writes, or a time such as 5s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Nanos;

    #[test]
    fn flushes_are_assumed_by_count_by_time_or_not_at_all() {
        assert_eq!(assume_flush("none"), Ok(AssumeFlush::None));
        assert_eq!(assume_flush("100"), Ok(AssumeFlush::EveryWrites(100)));
        assert_eq!(assume_flush("5s"), Ok(AssumeFlush::Every(Nanos(5_000_000_000))));
        for text in ["0", "0s", "-1", "often", ""] {
            assert!(assume_flush(text).is_err(), "{text}");
        }
    }
}
