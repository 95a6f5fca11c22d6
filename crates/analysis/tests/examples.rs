//! Runs the examples, which assert their own claims.

#![allow(clippy::duplicate_mod, reason = "each example is a program of its own")]

#[path = "../examples/consolidate.rs"]
mod consolidate;
#[path = "../examples/curve.rs"]
mod curve;
#[path = "../examples/growth.rs"]
mod growth;
#[path = "../examples/miniature.rs"]
mod miniature;
#[path = "../examples/partition.rs"]
mod partition;
#[path = "../examples/plan.rs"]
mod plan;
#[path = "../examples/sample.rs"]
mod sample;
#[path = "../examples/study.rs"]
mod study;

#[test]
fn the_example_consolidate_runs() {
    consolidate::main().unwrap();
}

#[test]
fn the_example_curve_runs() {
    curve::main().unwrap();
}

#[test]
fn the_example_growth_runs() {
    growth::main().unwrap();
}

#[test]
fn the_example_miniature_runs() {
    miniature::main().unwrap();
}

#[test]
fn the_example_partition_runs() {
    partition::main().unwrap();
}

#[test]
fn the_example_plan_runs() {
    plan::main().unwrap();
}

#[test]
fn the_example_sample_runs() {
    sample::main().unwrap();
}

#[test]
fn the_example_study_runs() {
    study::main().unwrap();
}
