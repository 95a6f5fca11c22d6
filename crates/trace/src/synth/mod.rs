//! Synthetic workloads, described in a line or a TOML file. A description and a seed always give
//! the same requests.
//!
//! A workload is a sequence of **phases**; a phase mixes **components** by weight and has an
//! arrival process; a component is a pattern of addresses with its shares of writes, its sizes
//! and its volume. The reference is `docs/trace-formats.md`; the terms are those of [`Spec`].
//!
//! Random numbers come from ChaCha8 (a stream for each component), and all arithmetic on them is
//! our own or `libm`'s, so that a seed gives the same trace on every machine and in every later
//! version.

mod address;
mod arrival;
mod component;
mod generate;
mod inline;
mod random;
mod spec;
mod zipf;

pub use generate::Synth;
pub use spec::{Arrival, Component, Pattern, Phase, SizeShare, Spec, ZoneShare};
