//! No command line or configuration causes a panic.
//!
//! Goal: for any combination of documented options and any values, a command does its work or
//! refuses with a message. It never panics, in any thread, and it stops when it is asked to.
//! Method: options come from clap's description of the command line, and keys from the declaration
//! of the configuration, so the test covers new ones automatically. Values are usual, extreme or
//! wrong for the type of the option. Commands run in this process on small traces, some of them
//! unusual. `FUZZ_SECONDS` sets the duration (default 20). Cases are a fixed sequence; a failure
//! names its seed, and `FUZZ_SEED` runs only that case.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use forebay_analysis::Observer;
use forebay_config::{Key, Nested, sections};

use forebay_cli::{Cli, Context, description, run};

/// Commands that need only files. Commands that are a server, or talk to one, are left out.
const COMMANDS: [&[&str]; 17] = [
    &["simulate"],
    &["mrc"],
    &["plan"],
    &["partition"],
    &["consolidate"],
    &["sample"],
    &["trace", "info"],
    &["trace", "convert"],
    &["trace", "synth"],
    &["replay"],
    &["load"],
    &["report"],
    &["flash", "info"],
    &["flash", "check"],
    &["backing", "info"],
    &["simulate"],
    &["plan"],
];
/// Options that need a server or a device, or write megabytes; used in few cases.
const RARE: [&str; 5] = ["html", "parquet", "target", "connections", "intervals"];
/// A command that runs longer than this is asked to stop.
const PATIENCE: Duration = Duration::from_millis(300);
/// Maximum time to stop, on a busy machine.
const STOPPING: Duration = Duration::from_secs(30);

#[test]
fn no_options_and_no_configuration_lead_to_a_panic() {
    let told = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = told("FUZZ_SECONDS").unwrap_or(20);
    let panics = note_panics();
    let (dir, ctx) = (tempfile::tempdir().unwrap(), Context::new(true));
    let watch = Watch::new(Arc::clone(ctx.stop_flag()));
    write_traces(dir.path());
    // For each command, the number of cases that did their work and that were refused.
    let mut cases: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let started = Instant::now();
    for seed in told("FUZZ_SEED").unwrap_or(0).. {
        let words = Case { random: Random(seed), dir: dir.path() }.words();
        let line = words.join(" ");
        if told("FUZZ_SEED").is_some() {
            let config = std::fs::read_to_string(dir.path().join("config.toml"));
            println!("seed {seed}: {line}\n{}", config.unwrap_or_default());
        }
        if let Ok(cli) = Cli::try_parse_from(&words) {
            watch.begin(&format!("seed {seed}: {line}"));
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run(cli.command, &ctx).map_err(|error| error.to_string())
            }));
            watch.end();
            let seen = std::mem::take(&mut *panics.lock().unwrap());
            if caught.is_err() || !seen.is_empty() {
                let config = std::fs::read_to_string(dir.path().join("config.toml"));
                let config = config.unwrap_or_default();
                panic!("FUZZ_SEED={seed}: {line}\n{config}\n{}", seen.join("\n"));
            }
            let command = words[2..].iter().take(2).filter(|w| !w.starts_with(['-', '/']));
            let command = command.map(String::as_str).collect::<Vec<_>>().join(" ");
            let refused = usize::from(!matches!(caught, Ok(Ok(()))));
            cases.entry(command).or_default()[refused] += 1;
        }
        clean(dir.path());
        if started.elapsed() >= Duration::from_secs(seconds) || told("FUZZ_SEED").is_some() {
            break;
        }
    }
    let sum = |which: usize| cases.values().map(|counts| counts[which]).sum::<u64>();
    println!("{} command lines did their work, {} were refused: {cases:?}", sum(0), sum(1));
    // On any machine, enough cases must get past the checks of arguments.
    assert!(told("FUZZ_SEED").is_some() || sum(0) > seconds, "{cases:?}");
}

/// Records the panics of all threads except those of other tests.
fn note_panics() -> Arc<Mutex<Vec<String>>> {
    let panics = Arc::new(Mutex::new(Vec::new()));
    let (noted, before) = (Arc::clone(&panics), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        noted.lock().unwrap().push(info.to_string());
        before(info);
    }));
    panics
}

/// Asks commands that take long to stop, and aborts the test if they do not.
struct Watch {
    at_work: Arc<Mutex<Option<(Instant, String)>>>,
    flag: Arc<AtomicBool>,
}

impl Watch {
    fn new(flag: Arc<AtomicBool>) -> Watch {
        let at_work = Arc::new(Mutex::new(None::<(Instant, String)>));
        let (seen, stop) = (Arc::clone(&at_work), Arc::clone(&flag));
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(20));
                let Some((since, what)) = &*seen.lock().unwrap() else { continue };
                if since.elapsed() > PATIENCE {
                    stop.store(true, Ordering::SeqCst);
                }
                if since.elapsed() > PATIENCE + STOPPING {
                    // Do not use a macro: its output is captured until the test ends.
                    let text = format!("asked to stop, it goes on for {STOPPING:?}: {what}\n");
                    let _ = std::io::stderr().write_all(text.as_bytes());
                    std::process::abort();
                }
            }
        });
        Watch { at_work, flag }
    }

    fn begin(&self, what: &str) {
        *self.at_work.lock().unwrap() = Some((Instant::now(), what.to_owned()));
    }

    fn end(&self) {
        *self.at_work.lock().unwrap() = None;
        self.flag.store(false, Ordering::SeqCst);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True once in `n` cases.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const TRACES: [&str; 7] =
    ["plain.csv", "odd.csv", "one.csv", "many.csv", "timeless.lis", "msr.csv", "ops.iolog"];

/// Writes small traces: an ordinary one, one with odd offsets and sizes, one with one request, one
/// with many volumes, one without timestamps, and one with trims and flushes.
fn write_traces(dir: &Path) {
    let mut random = Random(7);
    let head = "time_ns,volume,op,offset,length\n";
    let (mut plain, mut odd, mut many) = (head.to_owned(), head.to_owned(), head.to_owned());
    let (mut timeless, mut msr) = (String::new(), String::new());
    let mut ops = "fio version 2 iolog\n/dev/a add\n/dev/a open\n".to_owned();
    let ends = [0_u64, 1, 511, 512, 4095, 1 << 30, 1 << 43, (1 << 60) - 4096];
    let lengths = [0, 1, 511, 512, 4096, 65_536, 1 << 20, 1 << 24];
    for n in 0..120_u64 {
        let op = random.pick(&["read", "write"]);
        let block = random.next() % 40;
        let _ = writeln!(plain, "{},a,{op},{},4096", n * 1000, block * 4096);
        let (end, length) = (ends[random.below(ends.len())], lengths[random.below(lengths.len())]);
        let all = random.pick(&["read", "write", "trim", "flush", "zeroes"]);
        let _ = writeln!(odd, "{},b,{all},{end},{length}", n / 10 * 1_000_000_000_000);
        let _ = writeln!(many, "{n},v{},{op},{},8192", n % 9, block * 8192);
        let _ = writeln!(timeless, "{block} {} 0 {n}", 1 + n % 3);
        let _ = writeln!(msr, "{},web,0,{op},{},{length},5", 1 << 60 | n, block * 512);
        let trim = random.pick(&["read", "write", "trim"]);
        let _ = writeln!(ops, "/dev/a {trim} {} 4096", block * 4096);
    }
    let one = format!("{head}0,a,write,0,512\n");
    for (name, text) in TRACES.iter().zip([plain, odd, one, many, timeless, msr, ops]) {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

/// Removes the files that a case has created.
fn clean(dir: &Path) {
    for entry in dir.read_dir().unwrap().flatten() {
        if !TRACES.iter().any(|name| entry.file_name() == *name) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

const SIZES: [&str; 20] = [
    "0",
    "1",
    "511",
    "512",
    "4095",
    "4KiB",
    "8KiB",
    "64KiB",
    "256KiB",
    "1MiB",
    "16MiB",
    "100MiB",
    "1GB",
    "1.5GiB",
    "3TiB",
    "8TiB",
    "1PiB",
    "16383PiB",
    "18446744073709551615",
    "-1",
];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "100",
    "1000",
    "65536",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "-1",
    "x",
];
const REALS: [&str; 13] = [
    "0", "1", "0.5", "0.1", "0.01", "1e-9", "1e-300", "0.99999", "2", "100", "1e300", "inf", "nan",
];
const TIMES: [&str; 10] =
    ["0s", "1ns", "1us", "1ms", "0.5s", "1s", "5min", "1h", "18446744073s", "x"];
const DEVICES: [&str; 9] =
    ["FastDRAM", "SlowDRAM", "FastSSD", "SlowSSD", "SlowHDD", "hdd-7200", "nvme", "none", "floppy"];
const FORMATS: [&str; 10] = [
    "csv",
    "arc",
    "msr",
    "iolog",
    "oracleGeneral:block=512",
    "lcs",
    "parquet",
    "blkparse",
    "csv:unit=0",
    "x:y=z",
];
const POLICIES: [&str; 7] =
    ["lru", "arc,2q,lfu", "s3-fifo,w-tinylfu,sieve,opt", "opt", "lru,lru", "hr-lru", ","];
const TO: [&str; 8] = [
    "csv",
    "parquet",
    "iolog",
    "oracleGeneral",
    "oracleGeneral:block=4096",
    "oracleGeneral:block=0",
    "oracleGeneral:block=18446744073709551615",
    "x",
];
const SPECS: [&str; 9] = [
    "zipf:blocks=100,requests=500",
    "uniform:blocks=1,requests=1,write=1",
    "sequential:blocks=7,requests=100 + zipf:blocks=50,theta=0",
    "zoned:blocks=100,requests=200,zones=0.9@0.1",
    "zoned:blocks=100,requests=200,zones=0.5@0.5",
    "zipf:blocks=18446744073709551615,requests=10",
    "zipf:blocks=100,requests=300,rate=1000,arrival=poisson,write=0.5,size=1",
    "loop:blocks=10,requests=100,theta=-1",
    "uniform:blocks=0,requests=0",
];
/// Most of these name the first volume of `plain.csv` and `one.csv`; one names a volume of
/// `many.csv`.
const OUTAGES: [&str; 13] = [
    "a=dead",
    "a=dead@0s..1us",
    "a=dead@10us..50us",
    "a=full",
    "a=full@1us..5h",
    "a=dead@1us..18446744073s",
    "a=slow:1",
    "a=slow:100@5us..",
    "a=slow:1e6",
    "v1=dead@1ns..20ns",
    "v1=full@18446744073s..",
    "x=dead",
    "a=slow:nan@1s",
];

/// One command line and its files.
struct Case<'a> {
    random: Random,
    dir: &'a Path,
}

impl Case<'_> {
    fn words(&mut self) -> Vec<String> {
        let path = COMMANDS[self.random.below(COMMANDS.len())];
        let mut command = description();
        for name in path {
            command = command.find_subcommand(name).expect("a command").clone();
        }
        let mut words: Vec<String> = vec!["forebay".into(), "-q".into()];
        words.extend(path.iter().map(|&word| word.to_owned()));
        self.write_config();
        let likely = 2 + self.random.below(6);
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            if ["help", "version", "quiet", "write", "format_devices"].contains(&id) {
                continue;
            }
            let needed = argument.is_required_set() || ["output", "config"].contains(&id);
            let rare = if RARE.contains(&id) { 40 } else { likely };
            if !needed && !self.random.one_in(rare) {
                continue;
            }
            let takes = argument.get_action().takes_values();
            let value = if takes { self.value(argument) } else { String::new() };
            match argument.get_long() {
                Some(long) if takes => words.push(format!("--{long}={value}")),
                Some(long) => words.push(format!("--{long}")),
                None => words.push(value),
            }
        }
        words
    }

    fn value(&mut self, argument: &clap::Arg) -> String {
        let choices = argument.get_possible_values();
        if !choices.is_empty() {
            return choices[self.random.below(choices.len())].get_name().to_owned();
        }
        let random = &mut self.random;
        let file = |name: &str| self.dir.join(name).display().to_string();
        let name = argument.get_value_names().and_then(|names| names.first());
        match (argument.get_id().as_str(), name.map_or("", |name| name.as_str())) {
            ("config", _) => file("config.toml"),
            ("output", _) => {
                let end = random.pick(&["parquet", "csv", "html", "iolog", "bin", "json"]);
                file(&format!("out.{end}"))
            }
            ("format", _) => random.pick(&FORMATS).into(),
            ("to", _) => random.pick(&TO).into(),
            ("policies", _) => random.pick(&POLICIES).into(),
            ("target", _) => file("target.img"),
            ("create", _) => random.pick(&["0", "1", "512", "1MiB", "64MiB"]).into(),
            ("jobs", _) => random.pick(&["0", "1", "3"]).into(),
            (_, "TRACE") => file(random.pick(&TRACES)),
            (_, "FILE") => file(random.pick(&["a.out", "b.out", "plain.csv", "config.toml"])),
            (_, "DEVICE") if argument.get_long().is_none() => file("flash.img"),
            (_, "SPEC") => random.pick(&SPECS).into(),
            (_, "USD,...") => {
                random.pick(&["0", "0.001", "0.01,1", "5%", "100%,1%", "1e300", "-1", "nan"]).into()
            }
            (_, "VOLUME,...") => random.pick(&["0", "a", "v1,v2", "64", "-1", ""]).into(),
            (_, "NAME=VOLUME,...") => random.pick(&["x=v1,v2", "x=", "=", "x=a", "v1=v1"]).into(),
            (_, "VOLUME=TIME") => random.pick(&["a=1ms", "v1=0s", "x=1s", "v1"]).into(),
            (_, "VOLUME=FAULT") => random.pick(&OUTAGES).into(),
            (_, "N|none|TIME") => random.pick(&["none", "0", "1", "100", "1ns", "5s"]).into(),
            (_, "BYTES,...") => random.pick(&["0", "31", "76,48", "1,2,3,4", "-1", "1e9"]).into(),
            (_, "BITS,...") => random.pick(&["0", "4", "4,5,6", "30", "63", "64", "-1"]).into(),
            (_, name) if name.starts_with("DEVICE") => {
                let more = if random.one_in(3) { "," } else { "" };
                match more {
                    "," => format!("{},{}", random.pick(&DEVICES), random.pick(&DEVICES)),
                    _ => random.pick(&DEVICES).into(),
                }
            }
            (_, name) if name.starts_with("SIZE") => random.pick(&SIZES).into(),
            (_, "RATE" | "FRACTION" | "RATIO") => random.pick(&REALS).into(),
            (_, "T" | "TIME") => random.pick(&TIMES).into(),
            _ => match random.one_in(4) {
                true => random.pick(&REALS).into(),
                false => random.pick(&NUMBERS).into(),
            },
        }
    }

    /// Writes a configuration of random keys. It usually has only one or two sections, so that it
    /// is seldom refused.
    fn write_config(&mut self) {
        let mut text = String::new();
        let likely = 3 + self.random.below(12);
        for section in sections() {
            let times = match (section.name, section.nested) {
                ("cache", _) => 1,
                ("flash", _) => 1 - usize::from(self.random.one_in(3)),
                ("volume", _) => self.random.below(4),
                _ => usize::from(self.random.one_in(8)),
            };
            for n in 0..times {
                let _ = match section.nested {
                    Nested::Tables(_) => writeln!(text, "[[{}]]", section.name),
                    Nested::Named(_) => writeln!(text, "[{}.s{n}]", section.name),
                    Nested::Table(_) | Nested::None => writeln!(text, "[{}]", section.name),
                };
                for key in section.nested.table().iter().flat_map(|table| table.keys) {
                    let usual = ["backing", "block_size", "dram"].contains(&key.name)
                        || (section.name == "flash" && key.name == "size");
                    if key.required() || usual || self.random.one_in(likely) {
                        self.write_key(&mut text, section.name, key, n);
                    }
                }
            }
        }
        std::fs::write(self.dir.join("config.toml"), text).unwrap();
    }

    fn write_key(&mut self, text: &mut String, section: &str, key: &Key, n: usize) {
        let random = &mut self.random;
        let choices: Vec<&str> = key.choices.iter().map(|c| c.name).collect();
        let quoted = |text: &str| format!("{text:?}");
        let value = match (key.name, key.word) {
            _ if !choices.is_empty() => quoted(random.pick(&choices)),
            ("name", _) => quoted(&format!("{}{n}", random.pick(&["a", "v", "x"]))),
            ("path" | "backing", _) => {
                quoted(&self.dir.join(format!("{}{n}.img", key.name)).display().to_string())
            }
            ("shape" | "device", _) => quoted(random.pick(&["s0", "nvme", "SlowHDD", "san"])),
            ("block_size", _) => {
                quoted(random.pick(&["4KiB", "4KiB", "8KiB", "16KiB", "32KiB", "64KiB"]))
            }
            ("page_size", _) => quoted(random.pick(&["4KiB", "8KiB", "16KiB", "64KiB"])),
            ("dram", _) => quoted(random.pick(&["256KiB", "1MiB", "4MiB", "65MiB", "513KiB"])),
            // Terabytes of flash would need gigabytes of metadata, which would really be allocated.
            ("size", _) if section == "flash" || random.one_in(2) => {
                quoted(random.pick(&["1MiB", "8MiB", "64MiB", "100MiB", "1GiB", "513", "0"]))
            }
            ("percentiles", _) => random.pick(&["[]", "[[50.0, '1ms'], [99.0, '2ms']]"]).into(),
            (_, "true or false") => random.pick(&["true", "false"]).into(),
            (_, "whole number") => random.pick(&NUMBERS).into(),
            (_, "number") => random.pick(&REALS).into(),
            (_, "size") => quoted(random.pick(&SIZES)),
            (_, "time") => quoted(random.pick(&TIMES)),
            _ => return,
        };
        let _ = writeln!(text, "{} = {value}", key.name);
    }
}
