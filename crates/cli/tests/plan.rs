//! `forebay plan` as users run it.

use std::path::PathBuf;

use crate::common::{self, forebay};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    common::json("plan", args)
}

fn refusal(args: &[&str]) -> String {
    common::refusal("plan", args)
}

/// Two loops over 3 MiB and 12 MiB, each read eight times, and writes to blocks that are used
/// again, in one hour.
fn trace(dir: &tempfile::TempDir) -> String {
    let mut csv = String::new();
    let mut row = |second: u64, op: &str, mib: u64| {
        let time = 128_166_372_003_061_629 + second * 10_000_000;
        csv += &format!("{time},host,0,{op},{},{},100\n", mib << 20, 1 << 20);
    };
    for round in 0..8 {
        for n in 0..15 {
            row(round * 450 + n * 30, "Read", if n % 3 == 0 { 40 + n / 3 % 3 } else { n });
            if n % 5 == 0 {
                row(round * 450 + n * 30, "Write", n);
            }
        }
    }
    let path = dir.path().join("trace.csv");
    std::fs::write(&path, csv).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn every_combination_is_answered_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let answer = json(&[&trace(&dir), "--budget", "0.05"]);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 17);
    for choice in choices {
        assert!(choice["cost_usd"].as_f64().unwrap() <= 0.05);
        let latency = choice["mean_latency_us"].as_f64().unwrap();
        assert!(latency <= choice["baseline"]["mean_latency_us"].as_f64().unwrap());
        let second = choice["tiers"][1]["bytes"].as_u64().unwrap();
        let class = choice["class"].as_str().unwrap();
        assert_eq!(class == "single", second == 0, "{choice}");
        assert_eq!(choice["hit_ratio"].as_array().unwrap().len(), 2);
        assert!(choice["flash_bytes_written_per_day"].is_number());
        assert!(choice["drive_writes_per_day"].is_number());
        let [p99, p999] =
            ["p99_latency_us", "p999_latency_us"].map(|key| choice[key].as_f64().unwrap());
        assert!(0.0 < p99 && p99 <= p999, "{choice}");
    }
    assert_eq!(answer["baseline"], choices[0]["baseline"]);
    assert!(answer["evaluations"].as_u64().unwrap() > 17);
}

#[test]
fn cydonia_is_between_the_single_tier_and_exhaustive_search() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    for policy in ["write-through", "write-back"] {
        let with = |method| {
            let args = [&trace, "--budget", "40%", "--method", method, "--policy", policy];
            let how = ["--backing", "SlowHDD", "--tiers", "FastDRAM,SlowSSD", "--wear-max", "none"];
            json(&[&args[..], &how].concat())
        };
        let (few, all) = (with("cydonia"), with("exhaustive"));
        let us = |answer: &Value| answer["choices"][0]["mean_latency_us"].as_f64().unwrap();
        assert!(us(&all) <= us(&few) * (1.0 + 1e-9));
        assert!(us(&few) <= few["baseline"]["mean_latency_us"].as_f64().unwrap() * (1.0 + 1e-9));
        assert!(few["evaluations"].as_u64().unwrap() <= 10);
    }
}

#[test]
fn money_for_a_cache_that_is_there_goes_where_it_does_more() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let with = |have, budget, more: &[&str]| {
        json(&[&[&trace, "--have", have, "--budget", budget][..], more].concat())
    };
    // The loops need 18 MiB. In addition to 4 MiB, 2 cents buy less memory than flash.
    let answer = with("4MiB", "0.02", &[]);
    let of = |answer: &Value, second: &str, backing: &str| -> Value {
        let all = answer["growth"].as_array().unwrap().clone();
        let is = |g: &Value| {
            g["add"]["tiers"][0]["device"] == "FastDRAM"
                && g["add"]["tiers"][1]["device"] == second
                && g["now"]["backing"] == backing
        };
        all.into_iter().find(is).unwrap()
    };
    let disk = of(&answer, "SlowSSD", "SlowHDD");
    assert_eq!(disk["better"], "add", "{disk}");
    assert_eq!(disk["now"]["tiers"][0]["bytes"], 4 << 20);
    assert!(disk["price_ratio"].as_f64() > disk["price_ratio_needed"].as_f64());
    // MediumSSD is never worthwhile in front of SlowSSD.
    let devices = ["--tiers", "FastDRAM,MediumSSD", "--backing", "SlowSSD"];
    let never = of(&with("4MiB", "0.02", &devices), "MediumSSD", "SlowSSD");
    assert_eq!((&never["better"], &never["price_ratio_needed"]), (&"grow".into(), &Value::Null));
    let full = with("20MiB", "1", &[]);
    assert!(full["growth"].as_array().unwrap().iter().all(|g| g["better"] == "neither"));

    let (html, rows) = (dir.path().join("g.html"), dir.path().join("g.parquet"));
    let files = ["--html", html.to_str().unwrap(), "--parquet", rows.to_str().unwrap()];
    let asked = ["plan", &trace, "--have", "4MiB", "--budget", "0.02,50%", "--backing", "SlowHDD"];
    let output = forebay(&[&asked[..], &files].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("4 MiB FastDRAM: add"), "{text}");
    assert!(std::fs::read_to_string(html).unwrap().contains("best split"));
    assert!(rows.exists());

    let message = refusal(&[&trace, "--have", "10KiB", "--budget", "1"]);
    assert!(message.contains("less than 1 MiB"), "{message}");
    let message = refusal(&[&trace, "--have", "4MiB", "--budget", "0.000001"]);
    assert!(message.contains("buys no tier"), "{message}");
    let three = ["--tiers", "FastDRAM,SlowDRAM,SlowSSD", "--have", "4MiB", "--budget", "1"];
    let message = refusal(&[&[&trace[..], "--backing", "SlowHDD"], &three[..]].concat());
    assert!(message.contains("two devices"), "{message}");
}

#[test]
fn metadata_is_charged_as_said() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let with = |more: &[&str]| {
        let args = [&trace, "--budget", "0.02", "--tiers", "FastDRAM,SlowSSD", "--backing"];
        json(&[&args[..], &["SlowHDD", "--wear-max", "none"], more].concat())
    };
    let (paper, same, ours) =
        (with(&[]), with(&["--metadata", "31"]), with(&["--metadata", "76,48"]));
    assert_eq!(paper["choices"], same["choices"]);
    assert_eq!(paper["metadata_bytes_per_block"], serde_json::json!([31, 31]));
    assert_eq!(ours["metadata_bytes_per_block"], serde_json::json!([76, 48]));
    let choice = &ours["choices"][0];
    let mib = |tier: usize| choice["tiers"][tier]["bytes"].as_f64().unwrap() / 1_048_576.0;
    let dram = |bytes: f64| bytes * 120.0 / 16e9;
    let usd = mib(0) * dram(1_048_576.0 + 256.0 * 76.0)
        + mib(1) * (1_048_576.0 * 132.0 / 480e9 + dram(256.0 * 48.0));
    assert!((choice["cost_usd"].as_f64().unwrap() - usd).abs() < 1e-12, "{choice} is not {usd}");
    let message = refusal(&[&trace, "--budget", "1", "--metadata", "76,x"]);
    assert!(message.contains("one for each tier"), "{message}");
}

#[test]
fn several_budgets_give_a_plan_each_and_percentages_are_of_all_data_in_dram() {
    let dir = tempfile::tempdir().unwrap();
    let answer = json(&[&trace(&dir), "--budget", "50%,0.02", "--sweep", "5", "--pareto"]);
    let full = answer["full_cost_usd"].as_f64().unwrap();
    let plans = answer["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 2);
    assert!((answer["budget_usd"].as_f64().unwrap() - full / 2.0).abs() < 1e-12);
    assert_eq!(plans[1]["budget_usd"], 0.02);
    assert_eq!(answer["sweep"].as_array().unwrap().len(), 5);
    let pareto = answer["pareto"].as_array().unwrap();
    assert!(!pareto.is_empty());
    for key in ["mean_latency_us", "p99_latency_us", "drive_writes_per_day", "cost_usd"] {
        assert!(pareto.iter().all(|row| row[key].is_number()), "{key}");
    }
}

#[test]
fn pictures_and_rows_are_written_beside_the_text() {
    let dir = tempfile::tempdir().unwrap();
    let (html, parquet) = (dir.path().join("x.html"), dir.path().join("x.parquet"));
    let output = forebay(&[
        "plan",
        &trace(&dir),
        "--budget",
        "0.05",
        "--html",
        html.to_str().unwrap(),
        "--parquet",
        parquet.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("In front of SlowHDD:") && text.contains("FastDRAM"), "{text}");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Plan against budget") && !page.contains("//cdn."));
    assert!(std::fs::metadata(parquet).unwrap().len() > 0);
}

#[test]
fn three_tiers_and_a_catalogue_of_ones_own_are_planned() {
    let dir = tempfile::tempdir().unwrap();
    let devices = dir.path().join("devices.toml");
    let printed = forebay(&["plan", "--print-devices"]);
    assert!(printed.status.success());
    let own = String::from_utf8(printed.stdout).unwrap().replace("FastSSD", "OurSSD");
    std::fs::write(&devices, own).unwrap();
    let (trace, devices) = (trace(&dir), devices.to_str().unwrap());
    let tiers = ["--tiers", "FastDRAM,SlowDRAM,OurSSD", "--backing", "SlowHDD"];
    let answer = json(&[&[&trace, "--budget", "0.06", "--devices", devices], &tiers[..]].concat());
    assert_eq!(answer["choices"].as_array().unwrap().len(), 1);
    assert_eq!(answer["choices"][0]["tiers"][2]["device"], "OurSSD");
}

#[test]
fn three_tiers_go_all_the_way_from_the_catalogue_to_the_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let devices = dir.path().join("devices.toml");
    let printed = String::from_utf8(forebay(&["plan", "--print-devices"]).stdout).unwrap();
    let (devices_only, _) = printed.split_once("\n[[combination]]").unwrap();
    let three = "\n[[combination]]\ntiers = ['FastDRAM', 'SlowDRAM', 'SlowSSD']\n\
                 backing = ['FastHDD', 'SlowHDD']\n";
    std::fs::write(&devices, format!("{devices_only}{three}")).unwrap();
    let trace = trace(&dir);
    let (html, parquet) = (dir.path().join("x.html"), dir.path().join("x.parquet"));
    let devices = devices.to_str().unwrap();
    let given = ["--devices", devices, "--budget", "0.06", "--pareto", "--wear-max", "none"];
    let with = |more: &[&str]| json(&[&[&trace[..]], &given[..], more].concat());
    let files = ["--html", html.to_str().unwrap(), "--parquet", parquet.to_str().unwrap()];
    let answer = with(&files);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    for choice in choices {
        assert_eq!(choice["hit_ratio"].as_array().unwrap().len(), 3);
        assert_eq!(answer["metadata_bytes_per_block"].as_array().unwrap().len(), 3);
        // Three tiers are never slower than two of them.
        let us = choice["mean_latency_us"].as_f64().unwrap();
        for two in ["FastDRAM,SlowDRAM", "FastDRAM,SlowSSD"] {
            let backing = choice["backing"].as_str().unwrap();
            let two = with(&["--tiers", two, "--backing", backing]);
            assert!(us <= two["choices"][0]["mean_latency_us"].as_f64().unwrap() * (1.0 + 1e-9));
        }
    }
    let full = |row: &Value| {
        let tiers = row["tiers"].as_array().unwrap();
        tiers.len() == 3 && tiers.iter().all(|t| t["bytes"].as_u64().unwrap() > 0)
    };
    assert!(answer["pareto"].as_array().unwrap().iter().any(full));
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Plan against budget: FastDRAM + SlowDRAM + SlowSSD"));
    let arguments = [&["plan", &trace, "--sweep", "3"], &given[..]].concat();
    let text = String::from_utf8(forebay(&arguments).stdout).unwrap();
    assert!(text.contains("By budget") && text.contains("MiB SlowDRAM + "), "{text}");
    // Options that support only two tiers are refused before the trace is read.
    let refused = [&["/nonexistent", "--method", "cydonia"], &given[..]].concat();
    let message = refusal(&refused);
    assert!(
        message.contains("one combination has 3") && message.contains("exhaustive"),
        "{message}"
    );
}

#[test]
fn the_shortlist_is_simulated_and_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let budget = [&trace[..], "--budget", "30%", "--backing", "SlowHDD", "--wear-max", "none"];
    let analytic = json(&budget);
    let how = ["--evaluate", "simulate", "--shortlist", "2"];
    let answer = json(&[&budget[..], &how].concat());
    assert_eq!(answer["evaluate"], "simulate");
    let simulations = answer["simulations"].as_u64().unwrap();
    assert!((2..=6).contains(&simulations), "{simulations}");
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), analytic["choices"].as_array().unwrap().len());
    let by: Vec<&str> = choices.iter().map(|c| c["judged_by"].as_str().unwrap()).collect();
    assert_eq!((&by[..2], by[2]), (&["simulate"; 2][..], "analytic"));
    assert_eq!(answer["baseline"]["judged_by"], "simulate");
    for choice in &choices[..2] {
        let us = |name: &str| choice[name].as_f64().unwrap();
        assert!(us("mean_latency_us") > 0.0 && us("analytic_latency_us") > 0.0);
        // One tier in memory is the LRU of the formulas. A log this small differs too much from
        // their tier 2.
        let single = &choice["baseline"];
        let us = |name: &str| single[name].as_f64().unwrap();
        let ratio = us("mean_latency_us") / us("analytic_latency_us");
        assert!((0.99..1.01).contains(&ratio), "{single}");
        let hits: f64 =
            choice["hit_ratio"].as_array().unwrap().iter().map(|h| h.as_f64().unwrap()).sum();
        assert!(hits > 0.0 && hits <= 1.0, "{choice}");
    }
    assert!(choices[0]["mean_latency_us"].as_f64() <= choices[1]["mean_latency_us"].as_f64());
    let output = forebay(&[&["plan"], &budget[..], &how].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the first 2 choices simulated, marked *"), "{text}");
    // Each line marks the mean, the 99th percentile, and the mean of the single tier of the same
    // cost.
    let marked = text.lines().filter(|line| line.matches("s * ").count() == 3);
    assert_eq!(marked.count(), 2, "{text}");
}

#[test]
fn a_plan_knows_what_the_configured_cache_writes_to_flash() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.parquet").to_str().unwrap().to_owned();
    let spec = "zipf:blocks=20k,requests=60k,theta=0.9,rate=20";
    assert!(forebay(&["trace", "synth", spec, "-o", &trace]).status.success());
    let file = |name: &str, lines: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let always = file("always.toml", "[flash]\npath = '/x'\nlayout = 'log'\n");
    let nhit = "[flash]\npath = '/x'\nlayout = 'log'\n[admission]\npolicy = 'nhit'\nhits = 3\n";
    let nhit = file("nhit.toml", nhit);
    let tiers = ["--tiers", "FastDRAM,SlowSSD", "--backing", "SlowHDD", "--budget", "10%"];
    let asked = |config: &str| {
        let how = ["--evaluate", "simulate", "--config", config, "--wear-max", "30"];
        json(&[&[&trace[..]], &tiers[..], &how].concat())
    };
    let (all, some) = (asked(&always), asked(&nhit));
    let share = |answer: &Value| answer["flash_writes"].as_f64().unwrap();
    // A block that is promoted from flash keeps its copy there, and is not written a second time.
    assert!((0.3..0.7).contains(&share(&all)), "{all}");
    assert!(share(&some) < 0.6 * share(&all), "{} {}", share(&some), share(&all));
    let first = |answer: &Value, key: &str| answer["choices"][0][key].as_f64().unwrap();
    assert_eq!(some["choices"][0]["judged_by"], "simulate");
    for answer in [&all, &some] {
        assert!(first(answer, "endurance_used") <= 30.0 * 1.25, "{answer}");
    }
    let flash = |answer: &Value| answer["choices"][0]["tiers"][1]["bytes"].as_u64().unwrap();
    assert!(flash(&some) > 0, "{some}");
    // A relation that the write policy does not support is reported with the reason, and evaluated
    // by formula.
    let etica = file(
        "etica.toml",
        "[cache]\nrelation = 'etica-npe'\n[flash]\npath = '/x'\nlayout = 'log'\n",
    );
    let how = ["--evaluate", "simulate", "--config", &etica, "--wear-max", "none"];
    let run = forebay(&[&["plan", &trace[..]], &tiers[..], &how].concat());
    let says = String::from_utf8_lossy(&run.stderr);
    assert!(
        says.contains("is evaluated by formula because it cannot be simulated")
            && says.contains("acknowledge"),
        "{says}"
    );
    let back = [&[&trace[..]], &tiers[..], &how, &["--policy", "write-back"]].concat();
    assert_eq!(json(&back)["choices"][0]["judged_by"], "simulate");
    let refused =
        [&[&trace[..]], &tiers[..], &["--config", &nhit, "--evaluate", "analytic"]].concat();
    assert!(refusal(&refused).contains("--config needs --evaluate simulate or replay"));
    let refused = [&[&trace[..]], &tiers[..], &["--config", &nhit, "--have", "1MiB"]].concat();
    assert!(refusal(&refused).contains("cannot be combined with --have or --study"));
    let refused =
        [&[&trace[..]], &tiers[..], &["--config", &nhit, "--evaluate", "simulate", "--write"]]
            .concat();
    assert!(refusal(&refused).contains("--write needs --evaluate replay"));
}

#[test]
fn a_plan_with_a_configuration_predicts_what_that_cache_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (trace, named, sized) = (at("t.parquet"), at("named.toml"), at("sized.toml"));
    let spec = "zipf:blocks=60k,requests=200k,theta=0.9,write=0.25,rate=100";
    assert!(forebay(&["trace", "synth", spec, "-o", &trace]).status.success());
    let tiers = ["--tiers", "FastDRAM,SlowSSD", "--backing", "SlowHDD", "--wear-max", "none"];
    let caches = [
        ("log", "always", "lru"),
        ("log", "nhit", "lru"),
        ("slots", "always", "s3-fifo"),
        ("slots", "smq", "lru"),
    ];
    let hits = |document: &Value| {
        let tiers = document["hit_ratio"].as_array().unwrap();
        tiers.iter().map(|tier| tier.as_f64().unwrap()).sum::<f64>()
    };
    let ideal = json(&[&[&trace, "--budget", "30%"][..], &tiers].concat());
    let mut differs = 0;
    for (layout, admission, replacement) in caches {
        let cache = |dram: u64, flash: u64| {
            format!(
                "[replacement]\npolicy = '{replacement}'\n[cache]\nwrite_policy = 'write-through'\n\
                 dram = '{dram}'\n[flash]\npath = '/x'\nlayout = '{layout}'\nsize = '{flash}'\n\
                 [admission]\npolicy = '{admission}'\n"
            )
        };
        std::fs::write(&named, cache(1 << 20, 64 << 20)).unwrap();
        let how = ["--budget", "30%", "--config", &named, "--shortlist", "1"];
        let plan = json(&[&[&trace[..]], &how[..], &tiers].concat());
        let choice = &plan["choices"][0];
        assert_eq!(choice["judged_by"], "simulate");
        let bytes = |tier: usize| choice["tiers"][tier]["bytes"].as_u64().unwrap();
        std::fs::write(&sized, cache(bytes(0), bytes(1))).unwrap();
        let simulate = forebay(&["simulate", &trace, "--config", &sized, "--json"]);
        assert!(simulate.status.success(), "{simulate:?}");
        let kept: Value = serde_json::from_slice(&simulate.stdout).unwrap();
        let (predicted, kept) = (hits(choice), kept["hit_ratio"].as_f64().unwrap());
        assert!((predicted / kept - 1.0).abs() < 0.02, "{layout}, {admission}: {predicted} {kept}");
        differs += i32::from((hits(&ideal["choices"][0]) / kept - 1.0).abs() > 0.02);
    }
    // Otherwise the formulas would be accurate enough.
    assert!(differs > 1, "{differs} of these caches keep less than the formulas say");
}

#[test]
fn flash_that_would_wear_out_is_left_out_by_name_and_the_front_and_the_sweep_agree() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let asked =
        [&trace[..], "--budget", "0.1", "--backing", "SlowHDD", "--pareto", "--sweep", "40"];
    for limit in ["1", "none"] {
        let answer = json(&[&asked[..], &["--wear-max", limit]].concat());
        let list = |key: &str| answer[key].as_array().unwrap().clone();
        let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
        let worn =
            |choice: &Value| choice["endurance_used"].as_f64().is_some_and(|used| used > 1.0);
        assert_eq!(list("choices").iter().any(worn), limit == "none");
        assert_eq!(list("choices").iter().any(|c| c["wears_out"].is_object()), limit == "1");
        assert_eq!(answer["pareto_is_exact"], true);
        let front = list("pareto");
        assert!(front.iter().all(|p| number(p, "cost_usd") <= 0.1 + 1e-9));
        let mut compared = 0;
        for swept in list("sweep").iter().filter(|s| number(s, "budget_usd") <= 0.1) {
            let choices = swept["choices"].as_array().unwrap();
            let best =
                choices.iter().map(|c| number(c, "mean_latency_us")).fold(f64::MAX, f64::min);
            let within =
                |p: &&Value| number(p, "cost_usd") <= number(swept, "budget_usd") * 1.000_001;
            let front = front.iter().filter(within).map(|p| number(p, "mean_latency_us"));
            assert!(front.fold(f64::MAX, f64::min) <= best * 1.000_001, "{limit}: {swept}");
            compared += 1;
        }
        assert!(compared > 5, "{compared}");
    }
    let text = forebay(&["plan", &trace, "--budget", "0.02", "--backing", "SlowHDD"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("Rejected: ") && text.contains("tier 1 alone, at most this cost"),
        "{text}"
    );
    assert!(text.contains("ideal LRU"), "{text}");
}

#[test]
fn a_first_tier_of_flash_is_worn_by_what_the_simulation_writes_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let devices = ["--tiers", "FastSSD,SlowSSD", "--backing", "SlowHDD", "--wear-max", "none"];
    let asked = [&[&trace[..], "--budget", "0.02"], &devices[..]].concat();
    let [formulas, simulated] =
        [&[][..], &["--evaluate", "simulate"]].map(|how| json(&[&asked[..], how].concat()));
    // One tier is the LRU of the formulas, so the amount written to it is the same.
    let single = |answer: &Value, key: &str| answer["baseline"][key].as_f64().unwrap();
    for key in ["flash_bytes_written_per_day", "drive_writes_per_day", "endurance_used"] {
        let [formulas, simulated] = [&formulas, &simulated].map(|answer| single(answer, key));
        assert!(formulas > 0.0 && (simulated / formulas - 1.0).abs() < 0.01, "{key}: {simulated}");
    }
    assert_eq!(simulated["baseline"]["judged_by"], "simulate");
}

#[test]
fn what_cannot_be_done_is_refused_before_the_trace_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let devices = dir.path().join("devices.toml");
    std::fs::write(&devices, "[[device]]\nname = \"a\"\nprize_usd = 1\n").unwrap();
    let devices = devices.to_str().unwrap();
    let own = dir.path().join("own.toml");
    let printed = String::from_utf8(forebay(&["plan", "--print-devices"]).stdout).unwrap();
    std::fs::write(&own, printed.split_once("\n[[combination]]").unwrap().0).unwrap();
    let own = own.to_str().unwrap();
    let cases: [(&[&str], &str); 17] = [
        (&["--budget", "5", "--tiers", "FastDRAM,SlowSSD"], "no backing store"),
        (&["--budget", "5", "--devices", own], "no backing store"),
        (&["--budget", "5", "--wear-max", "0"], "rated endurance"),
        (&["--budget", "0.001"], "buys no tier"),
        (&["--budget", "ten"], "not a budget"),
        (&["--budget", "-5"], "budget"),
        (&["--budget", "5", "--evaluate", "replay"], "--config"),
        (&["--budget", "5", "--backing", "SlowHHD"], "`SlowHDD`"),
        (&["--budget", "5", "--devices", devices], "line 3: unknown key `prize_usd`"),
        (&["--budget", "5", "--tiers", "FastDRAM", "--backing", "FastDRAM"], "no combination"),
        (&["--budget", "5", "--sweep", "100000000000"], "use a number from 1 to 1000"),
        (&["--budget", "5", "--resume", "x"], "--resume needs --study"),
        (&["--budget", "5", "--evaluations", "9"], "--evaluations needs --method cydonia"),
        (&["--budget", "5", "--finalists", "9"], "--shortlist needs --evaluate simulate"),
        (
            &["--budget", "5", "--finalists", "9", "--evaluate", "simulate", "--method", "cydonia"],
            "--method exhaustive",
        ),
        (
            &["--budget", "5", "--config", devices, "--evaluate", "analytic"],
            "--config needs --evaluate simulate or replay",
        ),
        (&[], "--budget"),
    ];
    for (args, part) in cases {
        let said = refusal(&[&["no-such-trace.csv"], args].concat());
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn a_real_trace_gains_from_a_second_tier() {
    let traces = std::env::var("FOREBAY_TRACES").map_or_else(
        |_| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces")),
        PathBuf::from,
    );
    let trace = traces.join("cloudphysics/cloudPhysicsIO.vscsi");
    if !trace.exists() {
        println!("skipped: {} is not there", trace.display());
        return;
    }
    let trace = trace.to_str().unwrap();
    let asked = [trace, "--budget", "25%", "--backing", "SlowHDD", "--policy", "write-back"];
    let answer = json(&[&asked[..], &["--wear-max", "none"]].concat());
    assert_eq!((&answer["requests"], &answer["accesses"]), (&113_872.into(), &1_141_869.into()));
    let best = &answer["choices"][0];
    assert_eq!(best["class"], "pyramidal");
    assert!(best["latency_reduction"].as_f64().unwrap() > 0.5);
}

/// In the formulas, the disk writes back blocks that leave the memory, and no request waits for
/// that.
#[test]
fn a_mean_above_the_99th_percentile_is_explained() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/sqlite-shop.parquet");
    let said = |policy: &str| {
        let arguments = ["plan", trace, "--budget", "20%", "--backing", "FastHDD"];
        let output = forebay(&[&arguments[..], &["--policy", policy]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = said("write-back");
    assert!(text.contains("it includes the write-backs of evicted blocks"), "{text}");
    assert!(!said("write-through").contains("exceed the p99"));
}

#[test]
fn tiers_in_the_wrong_order_and_metadata_of_no_tier_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(&dir);
    let asked = [&trace, "--budget", "50%", "--backing", "SlowHDD"];
    let said = refusal(&[&asked[..], &["--tiers", "SlowSSD,FastDRAM"]].concat());
    assert!(said.contains("SlowSSD before FastDRAM") && said.contains("fastest"), "{said}");
    let said = refusal(&[&asked[..], &["--metadata", "1,2,3"]].concat());
    assert!(said.contains("3 numbers for at most 2 tiers"), "{said}");
    json(&[&asked[..], &["--metadata", "1,2"]].concat());
    let three = ["--metadata", "1,2,3", "--tiers", "FastDRAM,SlowDRAM,SlowSSD"];
    json(&[&asked[..], &three, &["--wear-max", "none"]].concat());
}

#[test]
fn a_baseline_costs_no_more_than_its_choice_and_notes_come_once() {
    let dir = tempfile::tempdir().unwrap();
    let answer = json(&[&trace(&dir), "--budget", "500%", "--wear-max", "none"]);
    for choice in answer["choices"].as_array().unwrap() {
        let [bought, single] =
            [choice, &choice["baseline"]].map(|p| p["cost_usd"].as_f64().unwrap());
        assert!(single <= bought * (1.0 + 1e-9), "{choice}");
        assert!(choice["whole_budget"].is_null(), "{choice}");
    }
    let late = dir.path().join("late.csv");
    let mut csv = "time_us,op,offset,length\n9,r,0,4096\n".to_owned();
    (0..2048).for_each(|n| csv += &format!("{},r,{},1048576\n", n * 2, (n % 8) << 20));
    std::fs::write(&late, csv).unwrap();
    let asked = ["plan", late.to_str().unwrap(), "--budget", "50%", "--backing", "SlowHDD"];
    let output = forebay(&[&asked[..], &["--evaluate", "simulate", "--shortlist", "1"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("out of time order").count(), 1, "{said}");
}
