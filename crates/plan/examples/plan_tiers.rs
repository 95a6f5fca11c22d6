//! Plans cache tiers from Rust: measures a workload, then asks what to buy for it.
//!
//! `cargo run -p forebay-plan --example plan_tiers`

#![allow(clippy::print_stdout)] // a program, not the library

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_plan::{
    Budget, Catalogue, PlanError, PlanOptions, ProfileBuilder, ProfileOptions, plan,
};

/// Runs the example.
pub fn main() -> Result<(), PlanError> {
    // The workload: 400,000 reads of 4 KiB from 1 GiB, some blocks far more often than others.
    // (`forebay-trace` reads traces of real workloads.)
    let mut profile = ProfileBuilder::new(ProfileOptions::default())?;
    let (volume, op, flags, length) = (Volume(0), Op::Read, Flags::NONE, 4096);
    let mut random = 1u64;
    for n in 0..400_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = (random >> 40) as f64 / (1u64 << 24) as f64;
        let offset = (share.powi(4) * 262_144.0) as u64 * length;
        profile.add(&Request { time: Nanos(n * 50_000), volume, op, flags, offset, length })?;
    }
    let profile = profile.finish()?;

    // Plan for a slow hard disk. The budget is a fifth of what it would cost to hold everything in
    // DRAM.
    let catalogue = Catalogue::default();
    let mut combinations = catalogue.combinations().to_vec();
    combinations.retain(|combination| combination.backing == "SlowHDD");
    let options = PlanOptions { duration: profile.duration(), ..PlanOptions::default() };
    let budget_usd = Budget::Fraction(0.2).usd(&profile, &catalogue, &options.cost);
    let plan = plan(&profile, &catalogue, &combinations, budget_usd, &options)?;

    let best = &plan.choices[0].purchase;
    for tier in best.tiers.iter().filter(|tier| tier.bytes > 0) {
        println!("{} MiB of {}", tier.bytes >> 20, tier.device);
    }
    println!("${:.2}, mean latency {:.0} us", best.cost_usd, best.mean_latency_us);
    assert!(best.mean_latency_us <= plan.baseline.mean_latency_us, "no worse than one tier");
    Ok(())
}
