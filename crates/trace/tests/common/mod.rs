//! Random requests with everything that a trace may record about them.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod fixtures;

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_trace::Record;
use proptest::{collection::vec, option, prelude::*};

/// A [`Record`] that owns its hashes.
#[derive(Clone, Debug)]
pub struct Owned {
    pub request: Request,
    pub latency: Option<u64>,
    pub result: Option<u8>,
    pub hashes: Vec<u8>,
}

impl Owned {
    pub fn record(&self) -> Record<'_> {
        Record {
            request: self.request,
            latency: self.latency.map(Nanos),
            result: self.result,
            gap: self.result.map(|r| Nanos(u64::from(r) * 3)),
            hashes: &self.hashes,
        }
    }
}

/// Up to `n` requests to 5 volumes, in order of time, from 0.
pub fn records(n: usize) -> impl Strategy<Value = Vec<Owned>> {
    vec(owned(), 0..n).prop_map(|mut records| {
        let mut time = 0;
        for (i, r) in records.iter_mut().enumerate() {
            time += if i == 0 { 0 } else { r.request.time.0 };
            r.request.time.0 = time;
        }
        records
    })
}

fn owned() -> impl Strategy<Value = Owned> {
    let request = (any::<u32>(), 0u32..5, 0u8..5, any::<u8>(), 0u64..i64::MAX as u64, any::<u32>());
    (request, option::of(any::<u64>()), option::of(any::<u8>()), vec(any::<u8>(), 0..40)).prop_map(
        |((gap, volume, op, flags, offset, length), latency, result, hashes)| Owned {
            request: Request {
                time: Nanos(gap.into()),
                volume: Volume(volume),
                op: Op::from_u8(op).unwrap(),
                flags: Flags(flags),
                offset: offset - offset.min(length.into()),
                length: length.into(),
            },
            latency,
            result,
            hashes,
        },
    )
}
