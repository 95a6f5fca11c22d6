//! `forebay ctl`: talks to a running server.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use forebay_config::{Acknowledge, Address, Config, Size, TimeSpan, WritePolicy};
use forebay_results::LatencyTotal;
use forebay_serve::control::{ClientError, Reply, Token, ask, encoded};
use serde::Deserialize;
use serde_json::Value;

use crate::context::Context;
use crate::error::CliError;
use crate::write_files::write_stdout;
use forebay_render::format::{count, percent};

/// Arguments of `forebay ctl`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    #[command(subcommand)]
    pub action: Action,
}

/// Which server.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    /// The server's control address: unix:PATH or tcp:IP:PORT
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    pub control: Option<Address>,
    /// The server's configuration file, which names the control address and the token file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The file with the server's token, required for tcp:IP:PORT [default: the file that the
    /// configuration names, or /run/forebay/control.token]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Arguments of what takes a restart.
#[derive(clap::Args, Clone, Debug)]
pub struct RestartArgs {
    /// The volume
    #[arg(value_name = "VOLUME")]
    pub volume: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// A server, and the token that authorises requests to it.
struct Server {
    address: Address,
    token: Option<Token>,
    /// Whether the command line names the server, instead of relying on the default address.
    named: bool,
}

/// What to do.
#[derive(clap::Subcommand, Debug)]
pub enum Action {
    /// Print the cache's state and counters as JSON; `forebay ctl top` prints a short table
    #[command(after_help = EXAMPLE_STATUS)]
    Status {
        #[command(flatten)]
        server: ServerArgs,
        /// Print JSON (the default)
        #[arg(long)]
        json: bool,
    },
    /// Repeatedly print the current activity of each volume
    #[command(after_help = EXAMPLE_TOP)]
    Top {
        #[command(flatten)]
        server: ServerArgs,
        /// Interval between updates
        #[arg(long, value_name = "T", default_value = "2s")]
        every: TimeSpan,
        /// Exit after printing N times
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Destage all currently dirty blocks to the backing stores
    #[command(after_help = EXAMPLE_DESTAGE)]
    Destage(ServerArgs),
    /// Destage dirty data while requests continue; once nothing is dirty, hold requests back so
    /// that you can take a snapshot of the backing stores
    #[command(after_help = EXAMPLE_QUIESCE)]
    Quiesce {
        #[command(flatten)]
        server: ServerArgs,
        /// Resume requests automatically after this time; 0s sets no time limit
        #[arg(long = "for", value_name = "T", default_value = "10min", conflicts_with = "resume")]
        limit: TimeSpan,
        /// Resume requests; the exit status is 1 if there was no quiesce to end, for example because
        /// it had reached its time limit
        #[arg(long)]
        resume: bool,
    },
    /// Retry failed backing stores now, and resume requests that `quiesce` holds back
    #[command(after_help = EXAMPLE_RESUME)]
    Resume(ServerArgs),
    /// Stop the server, and wait until it has closed its devices
    #[command(after_help = EXAMPLE_STOP)]
    Stop {
        #[command(flatten)]
        server: ServerArgs,
        /// Leave dirty data on flash, regardless of the configuration
        #[arg(long)]
        keep_dirty: bool,
        /// Destage dirty data to the backing stores, regardless of the configuration
        #[arg(long, conflicts_with = "keep_dirty")]
        destage: bool,
        /// Destage dirty data to the backing stores, then release the stores: their cached blocks
        /// become invalid, so other programs can write to the stores
        #[arg(long, conflicts_with_all = ["keep_dirty", "destage"])]
        release: bool,
        /// Return immediately, without waiting for the server to stop
        #[arg(long)]
        no_wait: bool,
    },
    /// Drop a volume's cached blocks; use this when another program has changed the volume's
    /// backing store. Dirty blocks are destaged first, while clients wait
    #[command(after_help = EXAMPLE_INVALIDATE)]
    Invalidate {
        #[command(flatten)]
        server: ServerArgs,
        /// The volume's name
        volume: String,
    },
    /// Add a volume (not supported on a running server; see `forebay ctl attach --help`)
    #[command(after_help = EXAMPLE_RESTART)]
    Attach(RestartArgs),
    /// Remove a volume (not supported on a running server; see `forebay ctl detach --help`)
    #[command(after_help = EXAMPLE_RESTART)]
    Detach(RestartArgs),
    /// Change the amount of memory for cached blocks, up to the amount at startup
    #[command(after_help = EXAMPLE_RESIZE)]
    Resize {
        #[command(flatten)]
        server: ServerArgs,
        /// Amount of memory for cached blocks
        #[arg(long, value_name = "SIZE")]
        dram: Size,
    },
    /// Change the write policy once nothing is dirty; writes wait while the last blocks are destaged
    #[command(after_help = EXAMPLE_SET)]
    Set {
        #[command(flatten)]
        server: ServerArgs,
        /// write-through, read-only, write-around, write-only or write-back
        #[arg(long, value_name = "POLICY")]
        write_policy: WritePolicy,
        /// With write-back: where data must be (flash or dram) before a write is acknowledged. A
        /// server without flash supports only dram [default: the current setting if there is one,
        /// otherwise the configured one]
        #[arg(long, value_name = "WHEN")]
        acknowledge: Option<Acknowledge>,
    },
}

const EXAMPLE: &str = "Example, with a server running:
  $ forebay ctl status --control unix:control.sock
  $ forebay ctl top --count 1 --config forebay.toml";

const EXAMPLE_STATUS: &str = "Example, with a server running:
  $ forebay ctl status --control unix:control.sock";

const EXAMPLE_TOP: &str =
    "All columns except `dirty` cover the last interval, or the time since the server restarted.
`hits` includes delayed hits. A dash means that there were no requests.
p50 and p99 are accurate to within 13 % between 1 us and 10 s.

Example, with a server running:
  $ forebay ctl top --every 500ms --count 2 --config forebay.toml";

const EXAMPLE_DESTAGE: &str = "Example, with a server running:
  $ forebay ctl destage --config forebay.toml";

const EXAMPLE_QUIESCE: &str = "Example, with a server running:
  $ forebay ctl quiesce --config forebay.toml
  $ cp disk.img snapshot.img
  $ forebay ctl quiesce --resume --config forebay.toml";

const EXAMPLE_RESUME: &str =
    "Example, with a server running, after you have freed space on a store:
  $ forebay ctl resume --config forebay.toml";

const EXAMPLE_STOP: &str = "Example, with a server running:
  $ forebay ctl stop --keep-dirty --config forebay.toml";

const EXAMPLE_INVALIDATE: &str =
    "Example: while a server is running, another program zeroes the first MiB of the volume:
  $ forebay ctl quiesce --config forebay.toml
  $ dd if=/dev/zero of=disk.img bs=1M seek=1 count=1 conv=notrunc
  $ forebay ctl invalidate vm1 --config forebay.toml
  $ forebay ctl quiesce --resume --config forebay.toml";

const EXAMPLE_RESTART: &str = "Example: to add or remove a volume while a server is running:
  $ forebay ctl stop --destage --config forebay.toml

Then edit the [[volume]] tables in the configuration file, and start the server again.";

const EXAMPLE_RESIZE: &str = "Example, with a server running:
  $ forebay ctl resize --dram 16MiB --config forebay.toml";

const EXAMPLE_SET: &str = "Example, with a server running:
  $ forebay ctl set --write-policy write-through --config forebay.toml

The change lasts until the server stops; after a restart, the server uses the configuration file.";

/// Sends the request and prints the reply.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    match (&args.action, continues(&args.action)) {
        (Action::Top { .. }, _) => ctx.stop_without_words(),
        (_, Some(words)) => ctx.end_at_first_signal_saying(words),
        (_, None) => ctx.end_at_first_signal(),
    }
    match args.action {
        Action::Status { server, .. } => status(&server),
        Action::Top { server, every, count } => top(&server, every, count, ctx),
        Action::Destage(server) => {
            post(&server, "/destage")?;
            ctx.note("all blocks that were dirty have been destaged");
            Ok(())
        }
        Action::Quiesce { server, limit, resume: false } => {
            let seconds = limit.0.0 as f64 / 1e9;
            post(&server, &format!("/quiesce?for={seconds}"))?;
            let until = match limit.0.0 {
                0 => String::new(),
                _ => format!(", for at most {limit}"),
            };
            ctx.note(format_args!(
                "clients are paused until `forebay ctl quiesce --resume`{until}"
            ));
            Ok(())
        }
        Action::Quiesce { server, resume: true, .. } => end_quiesce(&server),
        Action::Resume(server) => {
            post(&server, "/resume")?;
            ctx.note("failed backing stores are being retried; client requests are not paused");
            Ok(())
        }
        Action::Invalidate { server, volume } => {
            post(&server, &format!("/invalidate?volume={}", encoded(&volume)))?;
            ctx.note(format_args!(
                "destaged the dirty blocks of {volume}, and dropped all its cached blocks"
            ));
            Ok(())
        }
        Action::Stop { server, keep_dirty, destage, release, no_wait } => {
            let dirty = match () {
                () if keep_dirty => "&dirty=keep",
                () if destage => "&dirty=destage",
                () if release => "&dirty=release",
                () => "",
            };
            if keep_dirty && let Some(words) = already_destages(&server.server()?) {
                ctx.note(words);
            }
            post(&server, &format!("/stop?wait={}{dirty}", u8::from(!no_wait)))
        }
        Action::Attach(args) => post(&args.server, "/attach"),
        Action::Detach(args) => post(&args.server, "/detach"),
        Action::Resize { server, dram } => post(&server, &format!("/resize?dram={}", dram.bytes())),
        Action::Set { server, write_policy, acknowledge } => {
            let mut query = format!("/set?write_policy={write_policy}");
            if let Some(acknowledge) = acknowledge {
                query += &format!("&acknowledge={acknowledge}");
            }
            post(&server, &query)
        }
    }
}

/// What to say to a user who wants to keep dirty data on flash, if a stop that destages has begun.
fn already_destages(server: &Server) -> Option<String> {
    // Whatever is wrong with the server, the request itself will say so.
    let status = server.status().ok().filter(|status| status["state"] == "stopping")?;
    let begun = status["dirty"].as_str().filter(|&begun| begun != "keep")?;
    let pid = &status["pid"];
    Some(format!(
        "the server is already stopping with --{begun}, so it destages its dirty data; with a \
         flash tier, `kill {pid}` leaves the remaining dirty data on flash"
    ))
}

/// What the server does with a request after a signal has ended this command, and how to end that;
/// `None` if the request changes nothing, or takes effect at once.
fn continues(action: &Action) -> Option<String> {
    Some(match action {
        Action::Destage(_) => "the server keeps destaging; to end this, stop the server".to_owned(),
        Action::Quiesce { resume: false, .. } => {
            "the server keeps destaging, then pauses clients. To end this, run `forebay ctl \
             quiesce --resume`"
                .to_owned()
        }
        Action::Invalidate { volume, .. } => format!(
            "the server keeps destaging, then drops the cached blocks of {volume}. To prevent \
             this, stop the server"
        ),
        Action::Set { write_policy, .. } => format!(
            "the server still changes the write policy to {write_policy} once nothing is dirty. To \
             undo this, restore the previous policy with `forebay ctl set`"
        ),
        Action::Stop { no_wait: false, .. } => {
            "the server is still stopping; only this command has ended".to_owned()
        }
        Action::Quiesce { resume: true, .. } => "the server ends the quiesce anyway".to_owned(),
        Action::Resume(_) => {
            "the server ends any quiesce and retries failed stores anyway".to_owned()
        }
        _ => return None,
    })
}

impl ServerArgs {
    fn server(&self) -> Result<Server, CliError> {
        let config = match &self.config {
            Some(file) => Config::load(file).map_err(CliError::usage)?.serve,
            None => Config::default().serve,
        };
        let address = self.control.clone().unwrap_or(config.control);
        let file = self.token_file.clone().unwrap_or(config.control_token_file);
        let token = match address {
            Address::Unix(_) => None,
            Address::Tcp(_) => Some(Token::read(&file)?),
        };
        let named = self.control.is_some() || self.config.is_some();
        Ok(Server { address, token, named })
    }
}

impl Server {
    fn ask(&self, method: &str, path: &str) -> Result<Reply, CliError> {
        let reply = ask(&self.address, self.token.as_ref(), method, path).map_err(|error| {
            let nobody = matches!(error, ClientError::Connect { .. }) && !self.named;
            match (CliError::from(error), nobody) {
                (error, true) => {
                    error.next("specify the server with --config FILE or --control ADDRESS")
                }
                (error, false) => error,
            }
        });
        good(reply?)
    }

    fn status(&self) -> Result<Value, CliError> {
        Ok(serde_json::from_str(&self.ask("GET", "/status")?.body)?)
    }

    /// The status, including each volume's latencies since the server started.
    fn status_with_latencies(&self) -> Result<Value, CliError> {
        Ok(serde_json::from_str(&self.ask("GET", "/status?answered")?.body)?)
    }
}

fn status(server: &ServerArgs) -> Result<(), CliError> {
    let mut text = serde_json::to_string_pretty(&server.server()?.status()?)?;
    text.push('\n');
    write_stdout(text.as_bytes())
}

fn post(server: &ServerArgs, path: &str) -> Result<(), CliError> {
    write_stdout(server.server()?.ask("POST", path)?.body.as_bytes())
}

/// Ends a quiesce. Fails if there was none, so that a script does not trust a copy of stores that clients have changed.
fn end_quiesce(server: &ServerArgs) -> Result<(), CliError> {
    let reply = server.server()?.ask("POST", "/resume")?;
    write_stdout(reply.body.as_bytes())?;
    let answer: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    if answer["ended"] == false {
        let error = CliError::failed(
            "there was no quiesce to end: it had reached its time limit, another command had \
             ended it, or none had begun",
        );
        return Err(error.next(
            "if you have copied the backing stores, run `forebay ctl quiesce` and copy them again: \
             clients may have changed them meanwhile",
        ));
    }
    Ok(())
}

fn good(reply: Reply) -> Result<Reply, CliError> {
    if (200..300).contains(&reply.code) {
        return Ok(reply);
    }
    let parsed: Option<Value> = serde_json::from_str(&reply.body).ok();
    let message = parsed.as_ref().and_then(|v| v["error"].as_str()).unwrap_or(&reply.body);
    let what = if reply.code == 500 { "could not execute the command" } else { "refused" };
    Err(CliError::failed(format_args!("the server {what}: {message}")))
}

fn top(
    server: &ServerArgs,
    every: TimeSpan,
    times: Option<u64>,
    ctx: &Context,
) -> Result<(), CliError> {
    let server = server.server()?;
    let every = Duration::from_nanos(every.nanos().0).max(Duration::from_millis(100));
    let mut before = server.status_with_latencies()?;
    for _ in 0..times.unwrap_or(u64::MAX) {
        let mut left = every;
        while left > Duration::ZERO && !ctx.interrupted() {
            let step = left.min(Duration::from_millis(100));
            std::thread::sleep(step);
            left -= step;
        }
        if ctx.interrupted() {
            return Ok(());
        }
        let now = server.status_with_latencies()?;
        write_stdout(difference(&before, &now).as_bytes())?;
        before = now;
    }
    Ok(())
}

/// One line per volume: the activity between two statuses.
fn difference(before: &Value, now: &Value) -> String {
    if let Some(recovering) = now.get("recovering") {
        let number = |key: &str| count(number(recovering, &[key]) as u64);
        return format!(
            "recovering: {} of {} regions, {} records\n",
            number("regions_done"),
            number("regions"),
            number("records")
        );
    }
    // After a restart, the server's counters start at 0, so nothing is subtracted.
    let same =
        before["pid"] == now["pid"] && number(before, &["uptime_s"]) <= number(now, &["uptime_s"]);
    let before = if same { before } else { &Value::Null };
    let seconds = number(now, &["uptime_s"]) - number(before, &["uptime_s"]);
    let mut text = format!(
        "{:<20} {:>8} {:>8} {:>7} {:>10} {:>10} {:>8}\n",
        "volume", "reads/s", "writes/s", "hits", "p50 us", "p99 us", "dirty"
    );
    let none = Vec::new();
    let volumes = now["volumes"].as_array().unwrap_or(&none);
    for (n, volume) in volumes.iter().enumerate() {
        let old = &before["volumes"][n];
        let change = |path: &[&str]| number(volume, path) - number(old, path);
        let rate = |path: &[&str]| count((change(path) / seconds.max(1e-9)) as u64);
        // (A delayed hit waits for data that another request is fetching.)
        let hits: f64 = ["tier1", "tier2", "delayed"]
            .iter()
            .flat_map(|tier| ["read", "write"].map(|kind| change(&["hits", tier, kind])))
            .sum();
        let misses = change(&["misses", "read"]) + change(&["misses", "write"]);
        let latency = answered(volume).since(&answered(old));
        let percentile = |quantile| {
            latency.quantile_us(quantile).map_or_else(|| "-".into(), |us| format!("{us:.1}"))
        };
        let share = if hits + misses > 0.0 { percent(hits / (hits + misses)) } else { "-".into() };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:<20} {:>8} {:>8} {:>7} {:>10} {:>10} {:>8}",
            volume["volume"].as_str().unwrap_or("?"),
            rate(&["reads"]),
            rate(&["writes"]),
            share,
            percentile(0.5),
            percentile(0.99),
            count(number(volume, &["dirty_blocks"]) as u64),
        );
    }
    text
}

/// The latencies of a volume's requests since the server started; none during startup.
fn answered(volume: &Value) -> LatencyTotal {
    LatencyTotal::deserialize(&volume["answered"]).unwrap_or_default()
}

fn number(value: &Value, path: &[&str]) -> f64 {
    path.iter().fold(value, |value, key| &value[*key]).as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use forebay_block::Nanos;
    use forebay_results::LatencyHistogram;

    use super::*;

    #[test]
    fn top_shows_what_happened_in_between() {
        let mut latencies = LatencyHistogram::coarse();
        let status =
            |uptime: f64, reads: u64, hits: u64, misses: u64, latencies: &LatencyHistogram| {
                serde_json::json!({"uptime_s": uptime, "volumes": [{
                    "volume": "vm1", "reads": reads, "writes": 0, "dirty_blocks": 3,
                    "hits": {"tier1": {"read": hits, "write": 0}, "tier2": {"read": 0, "write": 0}},
                    "misses": {"read": misses, "write": 0},
                    "answered": latencies.total(),
                }]})
            };
        (0..1000).for_each(|_| latencies.record(Nanos::from_micros(9000)));
        let before = status(1.0, 100, 50, 50, &latencies);
        (0..90).for_each(|_| latencies.record(Nanos::from_micros(20)));
        (0..10).for_each(|_| latencies.record(Nanos::from_micros(800)));
        let now = status(3.0, 300, 200, 100, &latencies);
        let words = |text: &str| -> Vec<String> {
            text.lines().nth(1).unwrap().split_whitespace().map(str::to_owned).collect()
        };
        let line = words(&difference(&before, &now));
        assert_eq!(line[..4], ["vm1", "100", "0", "75.0"], "{line:?}");
        for (word, us) in [(&line[line.len() - 3], 20.0), (&line[line.len() - 2], 800.0)] {
            let is: f64 = word.parse().unwrap();
            assert!((is / us - 1.0).abs() < 0.13, "{line:?}");
        }
        let line = words(&difference(&now, &now));
        assert_eq!(line[3..], ["-", "-", "-", "3"], "nothing happened");

        let mut delayed = now.clone();
        delayed["volumes"][0]["hits"]["delayed"] = serde_json::json!({"read": 25, "write": 25});
        let line = words(&difference(&before, &delayed));
        assert_eq!(line[3], "80.0", "of 250 accesses, 150 hit at once and 50 waited for a fetch");
    }

    #[test]
    fn top_shows_of_a_server_that_has_started_since_what_it_has_done() {
        let latencies = LatencyHistogram::coarse();
        let status = |pid: u32, uptime: f64, reads: u64| {
            serde_json::json!({"pid": pid, "uptime_s": uptime, "volumes": [{
                "volume": "vm1", "reads": reads, "writes": 0, "dirty_blocks": 0,
                "answered": latencies.total(),
            }]})
        };
        let reads_per_s = |before: &Value, now: &Value| {
            let text = difference(before, now);
            text.lines().nth(1).unwrap().split_whitespace().nth(1).unwrap().to_owned()
        };
        let before = status(7, 100.0, 5000);
        assert_eq!(reads_per_s(&before, &status(7, 102.0, 5100)), "50");
        assert_eq!(reads_per_s(&before, &status(8, 2.0, 200)), "100", "another process");
        assert_eq!(reads_per_s(&before, &status(8, 200.0, 8000)), "40", "it has run for longer");
        assert_eq!(
            reads_per_s(&before, &status(7, 2.0, 200)),
            "100",
            "as in a container: always process 7"
        );
    }
}
