//! The example runs, and its assertions hold.

#[path = "../examples/plan_tiers.rs"]
mod plan_tiers;

#[test]
fn tiers_are_planned_from_rust() {
    plan_tiers::main().unwrap();
}
