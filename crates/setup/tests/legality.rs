//! Goal: every combination of policies either runs, or is refused by the configuration with the
//! reason, and one function decides which: `Combination::check`.
//!
//! Method: all combinations of relation, write policy, acknowledgement, layout, admission and
//! replacement on flash, each as a configuration file. The replacement policies of memory, which
//! work with everything, take turns.

use forebay_cache::{Acknowledge, Cache, Combination, FlashCombination, Relation, Written};
use forebay_config::{Config, FlashReplacement};
use forebay_replacement::{AdmissionKind, Kind};

const POLICIES: [&str; 5] =
    ["write-through", "read-only", "write-around", "write-only", "write-back"];
const REPLACEMENTS: [Option<&str>; 14] = [
    None,
    Some("fifo"),
    Some("second-chance"),
    Some("frequency"),
    Some("lru"),
    Some("clock"),
    Some("sieve"),
    Some("s3-fifo"),
    Some("2q"),
    Some("arc"),
    Some("lfu"),
    Some("w-tinylfu"),
    Some("random"),
    Some("hr-lru"),
];

/// A combination, in the terms of the configuration.
#[derive(Clone, Copy, Debug)]
struct Words {
    relation: Relation,
    policy: &'static str,
    acknowledge: Option<&'static str>,
    layout: Option<&'static str>,
    admission: AdmissionKind,
    replacement: Option<&'static str>,
    memory: Kind,
}

fn all() -> impl Iterator<Item = Words> {
    let mut turn = 0;
    let with = move |relation, policy, acknowledge, layout: Option<&'static str>| {
        let mut words = Vec::new();
        for &admission in AdmissionKind::ALL {
            for replacement in REPLACEMENTS {
                if layout.is_none() && (admission, replacement) != (AdmissionKind::Always, None) {
                    continue;
                }
                turn += 1;
                let memory = Kind::ALL[turn % Kind::ALL.len()];
                words.push(Words {
                    relation,
                    policy,
                    acknowledge,
                    layout,
                    admission,
                    replacement,
                    memory,
                });
            }
        }
        words
    };
    let mut with = with;
    let mut words = Vec::new();
    for relation in Relation::ALL {
        for policy in POLICIES {
            for acknowledge in [None, Some("dram"), Some("flash")] {
                for layout in [None, Some("log"), Some("slots")] {
                    words.extend(with(relation, policy, acknowledge, layout));
                }
            }
        }
    }
    words.into_iter()
}

fn text(w: &Words) -> String {
    let acknowledge = w.acknowledge.map_or(String::new(), |a| format!("acknowledge = '{a}'\n"));
    let replacement = w.replacement.map_or(String::new(), |r| format!("replacement = '{r}'\n"));
    let flash = w.layout.map_or(String::new(), |layout| {
        format!("[flash]\npath = '/x'\nsize = '16MiB'\nlayout = '{layout}'\n{replacement}")
    });
    format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = '{}'\nrelation = '{}'\n{acknowledge}{flash}\
         [admission]\npolicy = '{}'\n[replacement]\npolicy = '{}'\n",
        w.policy, w.relation, w.admission, w.memory
    )
}

/// Why the configuration is invalid whatever the cache supports: part of the message about a key
/// that has no meaning there.
fn misplaced(w: &Words) -> Option<&'static str> {
    if w.replacement == Some("hr-lru") && w.layout.is_some() {
        return Some("hr-lru");
    }
    let keeps_dirty = matches!(w.policy, "write-back" | "write-only");
    if w.acknowledge.is_some() && !keeps_dirty {
        return Some("has no effect with write_policy");
    }
    if w.acknowledge == Some("flash") && w.layout.is_none() {
        return Some("needs a [flash] section");
    }
    let of_log = matches!(w.replacement, None | Some("fifo" | "second-chance" | "frequency"));
    match w.layout {
        Some("log") if !of_log => Some("needs layout = \"slots\""),
        Some("slots") if matches!(w.replacement, Some("second-chance" | "frequency")) => {
            Some("needs layout = \"log\"")
        }
        _ => None,
    }
}

fn combination(w: &Words) -> Combination {
    let policy = match w.policy {
        "write-through" => forebay_cache::WritePolicy::WRITE_THROUGH,
        "write-only" => forebay_cache::WritePolicy::WRITE_ONLY,
        "write-back" => forebay_cache::WritePolicy::WRITE_BACK,
        _ => forebay_cache::WritePolicy::READ_ONLY,
    };
    let by_default = policy.write_back && w.layout.is_some();
    let acknowledge = match w.acknowledge {
        Some("flash") => Acknowledge::Flash,
        None if by_default => Acknowledge::Flash,
        _ => Acknowledge::Dram,
    };
    let flash = w.layout.map(|layout| FlashCombination {
        slots: layout == "slots",
        admission: w.admission,
        written: Written::Ask,
    });
    Combination { relation: w.relation, policy, acknowledge, flash }
}

#[test]
fn every_combination_of_policies_runs_or_is_refused_with_the_reason() {
    let (mut legal, mut refused, mut built) = ([0; Relation::ALL.len()], 0, 0);
    for words in all() {
        let text = text(&words);
        let config = Config::from_toml(&text).map_err(|e| e.to_string());
        let flash = words.layout.map(|_| 16 << 20);
        let machine =
            config.and_then(|c| forebay_setup::cache_config(&c, flash).map_err(|e| e.to_string()));
        let combination = combination(&words);
        match (misplaced(&words), combination.check(), machine) {
            (None, Ok(()), Ok(machine)) => {
                assert_eq!(Combination::from_config(&machine), combination, "{text}");
                let relation = Relation::ALL.iter().position(|&r| r == words.relation);
                legal[relation.expect("one of all")] += 1;
                if words.replacement.is_none() {
                    Cache::new(machine);
                    built += 1;
                }
            }
            (Some(key), _, Err(why)) => assert!(why.contains(key), "{text}\n{why}"),
            (None, Err(reason), Err(why)) => {
                refused += 1;
                // The configuration names its keys, or gives the cache's reason.
                let keys = ["admission.policy", "flash.layout", "cache.relation"];
                let named = keys.iter().any(|key| why.contains(key));
                assert!(named || why.contains(reason), "{text}\n{why}");
            }
            (misplaced, check, machine) => {
                panic!("{text}\n{misplaced:?}\n{check:?}\n{:?}", machine.err())
            }
        }
    }
    assert!(legal.iter().all(|&n| n > 0) && refused > 1000, "{legal:?}, {refused} refused");
    assert!(built > 300, "{built}");
    // Every policy of the registry was among them.
    let known: Vec<_> = REPLACEMENTS.into_iter().flatten().collect();
    let slots = Kind::ALL.iter().filter(|k| k.orders(forebay_replacement::Tier::Slots));
    for kind in slots {
        assert!(known.contains(&kind.name()), "{kind} is not among the replacements");
        assert!(kind.name().parse::<FlashReplacement>().is_ok());
    }
}
