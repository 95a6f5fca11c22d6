//! Random power cuts, kills and restarts.

use forebay_adversary::run::{Plan, run};
use forebay_adversary::scenario::{Limits, draw};
use forebay_device::choices::{Choices, Seeded};

fn seeds(limits: Limits, plan: Plan, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut choices = Seeded::new(seed);
        let scenario = draw(&mut choices, limits);
        let _ = choices.choose(2);
        if let Err(e) = run(&scenario, plan, &mut choices) {
            panic!("seed {seed}: {e}\n{scenario:#?}");
        }
    }
}

#[test]
fn a_cache_without_flash_keeps_a_disks_promises() {
    let limits = Limits { flash: Some(false), ..Limits::default() };
    seeds(limits, Plan::CUTS, 0..3000);
}

#[test]
fn a_write_back_cache_over_flash_keeps_a_disks_promises() {
    let limits = Limits { flash: Some(true), write_back: Some(true), ..Limits::default() };
    seeds(limits, Plan::CUTS, 0..3000);
}

#[test]
fn a_write_through_cache_over_flash_keeps_a_disks_promises() {
    let limits = Limits { flash: Some(true), write_back: Some(false), ..Limits::default() };
    seeds(limits, Plan::CUTS, 0..3000);
}
