//! The same cache with one replacement policy after another.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use forebay_analysis::{Meter, Observer, Unit as Counted, parallel};
use forebay_block::Request;
use forebay_config::{Config, ReplacementPolicy, Size};
use forebay_replacement::Kind;
use forebay_report::{Axis, Lines, Percentiles, Report, Section, Table, Unit};
use forebay_results::{CacheResult, ReadWrite, TraceHasher, TraceIdentity};
use forebay_simulate::{Scenario, Simulation, TracedVolume};
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Args, Times, cpu_time, document, measure, names, refused, show};
use crate::context::Context;
use crate::error::CliError;
use crate::format::{count, percent};
use crate::progress::Progress;
use crate::rows::write_parquet;

/// Requests that a simulation gets at a time.
const CHUNK: usize = 1 << 14;

/// Reads a name; for clap's `value_parser`.
pub fn simulated(name: &str) -> Result<ReplacementPolicy, String> {
    if name == "opt" {
        return Err("`opt` knows the future, which a cache does not: `forebay mrc --policy opt` \
                    tells what it would hit"
            .to_owned());
    }
    name.parse::<Kind>().map_err(|error| error.to_string())?;
    name.parse()
}

/// Simulates and tells.
pub fn run(args: &Args, config: &Config, ctx: &Context) -> Result<(), CliError> {
    for (at, policy) in args.policies.iter().enumerate() {
        if args.policies[..at].contains(policy) {
            let error = CliError::usage(format_args!("--policy names {policy} twice"));
            return Err(error.next("name each policy once"));
        }
    }
    let measured = measure(&args.traces, true, ctx)?;
    let requests = measured.requests.unwrap_or_default();
    let (mut hasher, mut times) = (TraceHasher::new(), Times::default());
    for request in &requests {
        hasher.add(request);
        times.add(request.time);
    }
    let compared = Compared {
        args,
        config,
        volumes: measured.volumes,
        requests,
        trace: hasher.identity(names(&args.traces.traces)),
    };
    let total = (args.policies.len() * compared.requests.len()) as u64;
    let progress = ctx.progress("simulating", Counted::Count, Some(total));
    let answers = parallel::map(&args.policies, |&policy| {
        let answer = compared.simulate(policy, &progress, ctx)?;
        Ok::<_, CliError>((policy.name(), answer))
    })?;
    progress.finish();
    times.tell(args, ctx);
    let answers: Vec<(&str, &Answer)> = answers.iter().map(|(name, a)| (*name, a)).collect();
    if let Some(path) = &args.output.parquet {
        write_parquet(path, &show::rows(&answers))?;
    }
    if let Some(path) = &args.output.html {
        report(&compared, &answers).write_html(path)?;
    }
    let policies = answers.iter().map(|&(policy, answer)| {
        let mut whole = serde_json::Map::from_iter([("policy".to_owned(), policy.into())]);
        if let Value::Object(fields) = document(answer)? {
            whole.extend(fields);
        }
        Ok(Value::Object(whole))
    });
    let document = Document {
        config: args.config.config.display().to_string(),
        trace: &compared.trace,
        policies: policies.collect::<Result<_, CliError>>()?,
    };
    args.output.emit(&document, |out| print(&compared, &answers, out))
}

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    config: String,
    trace: &'a TraceIdentity,
    /// Each with its name, as the document of the policy alone.
    policies: Vec<Value>,
}

/// What all simulations have in common.
struct Compared<'a> {
    args: &'a Args,
    config: &'a Config,
    volumes: Vec<TracedVolume>,
    requests: Vec<Request>,
    trace: TraceIdentity,
}

impl Compared<'_> {
    fn simulate(
        &self,
        policy: ReplacementPolicy,
        progress: &Progress,
        ctx: &Context,
    ) -> Result<Answer, CliError> {
        let mut config = self.config.clone();
        if config.replacement.policy != policy {
            // (The parameters are those of the configured policy.)
            config.replacement.policy = policy;
            config.replacement.parameters.clear();
        }
        let defaults = self.args.defaults();
        let scenario = Scenario::new(&config, &self.volumes, &defaults).map_err(refused)?;
        let mut simulation = Simulation::new(&scenario, &self.args.options()).map_err(refused)?;
        simulation.stop_when(Arc::clone(ctx.stop_flag()));
        let (started, cpu) = (Instant::now(), cpu_time());
        for requests in self.requests.chunks(CHUNK) {
            ctx.check()?;
            simulation.add_all(requests.iter().copied())?;
            progress.inc(requests.len() as u64);
        }
        Ok(Answer {
            result: simulation.finish()?,
            config: self.args.config.config.display().to_string(),
            trace: self.trace.clone(),
            cpu_s: (cpu_time() - cpu).as_secs_f64(),
            wall_s: started.elapsed().as_secs_f64(),
        })
    }

    fn facts(&self) -> Vec<(String, String)> {
        let facts = [
            ("requests", count(self.requests.len() as u64)),
            ("pacing", self.args.options().pacing.name().to_owned()),
            ("cache", self.args.config.config.display().to_string()),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

fn print(
    compared: &Compared,
    answers: &[(&str, &Answer)],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    for (name, value) in compared.facts() {
        writeln!(out, "{name:<20} {value}")?;
    }
    writeln!(out, "\n{}", table(answers).to_text().trim_end())
}

/// A row for each policy.
fn table(answers: &[(&str, &Answer)]) -> Table {
    let is_timed = answers.iter().all(|(_, answer)| show::is_timed(answer));
    let has_flash = answers.iter().any(|(_, answer)| answer.result.flash.is_some());
    let share = |cache: &CacheResult, n: ReadWrite| {
        let hits = cache.hits.tier1 + cache.hits.tier2 + cache.hits.delayed;
        percent(n.sum() as f64 / (hits + cache.misses).sum().max(1) as f64)
    };
    let size = |bytes: u64| Size(bytes).to_string();
    let rows = answers.iter().map(|(policy, answer)| {
        (policy, &answer.result, answer.result.run.cache.unwrap_or_default())
    });
    Table::of(rows)
        .column("policy", |(policy, ..)| (**policy).to_owned())
        .number("hit ratio", |(.., cache)| percent(cache.hit_ratio))
        .number_if(has_flash, "in memory", |(.., cache)| share(cache, cache.hits.tier1))
        .number_if(has_flash, "on flash", |(.., cache)| share(cache, cache.hits.tier2))
        .number_if(has_flash, "written to flash", |(.., cache)| size(cache.tier2_bytes_written))
        .number("read from backing", |(.., cache)| size(cache.backing.read_bytes))
        .number("written to backing", |(.., cache)| size(cache.backing.write_bytes))
        .number_if(is_timed, "mean latency", |(_, r, _)| {
            Unit::Micros.show(r.run.latency_us.all.mean)
        })
        .number_if(is_timed, "p99", |(_, r, _)| Unit::Micros.show(r.run.latency_us.all.p99))
        .number_if(is_timed, "requests/s", |(_, r, _)| count(r.throughput.requests_per_s as u64))
        .table()
}

fn report(compared: &Compared, answers: &[(&str, &Answer)]) -> Report {
    let mut section = Section::new("Policies")
        .facts(compared.facts())
        .table(table(answers))
        .figure(hits_over_time(answers).figure().caption(
            "The share of block accesses that the cache answers itself, with each policy.",
        ));
    if answers.iter().all(|(_, answer)| show::is_timed(answer)) {
        for (title, pick) in [("Latency of reads", true), ("Latency of writes", false)] {
            let latency = |answer: &Answer| {
                let latency = &answer.result.run.latency_us;
                if pick { latency.read } else { latency.write }
            };
            if answers.iter().any(|(_, answer)| latency(answer).max > 0.0) {
                let figure = answers.iter().fold(Percentiles::new(title), |figure, (name, a)| {
                    figure.series(*name, latency(a).quantiles())
                });
                section = section.figure(figure.figure());
            }
        }
    }
    Report::new("Replacement policies simulated")
        .subtitle(compared.trace.name.clone())
        .section(section)
}

fn hits_over_time(answers: &[(&str, &Answer)]) -> Lines {
    let lines = Lines::new("Hit ratio over time").x(Axis::new("time", Unit::Seconds)).y(Axis::new(
        "share of block accesses",
        Unit::Fraction,
    )
    .from_zero());
    answers.iter().fold(lines, |lines, (policy, answer)| {
        let rows = || answer.result.rows.iter();
        let hits = |hits: &forebay_results::Hits| {
            (hits.tier1.sum() + hits.tier2.sum() + hits.delayed.sum()) as f64
        };
        lines.line(
            *policy,
            rows().map(|row| (row.start_s + row.end_s) / 2.0),
            rows().map(|row| hits(&row.hits) / (hits(&row.hits) + row.misses.sum() as f64)),
        )
    })
}
