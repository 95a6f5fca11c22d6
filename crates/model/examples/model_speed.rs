//! Measures the speed of the models: `cargo run --release -p forebay-model --example model_speed`.

#![allow(clippy::print_stdout)] // a program, not the library

use std::time::Instant;

use forebay_block::{Nanos, Op};
use forebay_model::{Access, Model, Profile};

fn main() {
    for name in Profile::NAMES {
        let Some(profile) = Profile::named(name) else { continue };
        let mut model = Model::new(&profile, 1 << 40, 1);
        let (mut now, n) = (Nanos(0), 5_000_000u64);
        let start = Instant::now();
        for i in 0..n {
            let offset = (i.wrapping_mul(2_654_435_761) % (1 << 28)) * 4096;
            let op = if i % 3 == 0 { Op::Write } else { Op::Read };
            // After every eighth operation, the next one waits until it has ended.
            let end = model.complete(now, Access { op, offset, length: 4096 });
            now = if i % 8 == 0 { end } else { now };
        }
        let rate = n as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{name}: {rate:.1} M operations/s, {:.0} s of virtual time", now.as_secs_f64());
    }
}
