//! Identifies the requests of a run.

use std::hash::Hasher as _;

use forebay_block::Request;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use twox_hash::xxhash3_64::Hasher;

/// A sequence of requests, identified by name and content. A simulated and a real run of the same
/// workload have the same identity.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TraceIdentity {
    /// A readable name: the files, or the description of a synthetic workload.
    pub name: String,
    /// Number of hashed requests.
    pub requests: u64,
    /// XXH3-64 hash of all requests, as 16 hexadecimal digits. It is the same for every format of the trace,
    /// in simulations and in replays.
    pub xxh3: String,
}

/// Hashes requests in order. The hash distinguishes workloads, but does not protect against malice.
#[derive(Clone)]
pub struct TraceHasher {
    hasher: Hasher,
    /// Requests that are not hashed yet: hashing many at once is faster.
    pending: Vec<u8>,
    requests: u64,
}

/// Number of bytes to hash for each request.
const REQUEST_BYTES: usize = 30;
/// Number of bytes to hash at a time.
const PENDING_BYTES: usize = 128 * REQUEST_BYTES;

impl TraceHasher {
    /// Creates a hasher without requests.
    pub fn new() -> TraceHasher {
        let pending = Vec::with_capacity(PENDING_BYTES);
        TraceHasher { hasher: Hasher::new(), pending, requests: 0 }
    }

    /// Adds a request: its time, offset and length as little-endian 64-bit numbers, its volume as a
    /// 32-bit number, and its operation and flags as bytes.
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..8].copy_from_slice(&request.time.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&request.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&request.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&request.volume.0.to_le_bytes());
        bytes[28] = request.op as u8;
        bytes[29] = request.flags.0;
        self.pending.extend_from_slice(&bytes);
        self.requests += 1;
        if self.pending.len() == PENDING_BYTES {
            self.hasher.write(&self.pending);
            self.pending.clear();
        }
    }

    /// The identity of the requests added so far.
    pub fn identity(&self, name: impl Into<String>) -> TraceIdentity {
        let mut hasher = self.hasher.clone();
        hasher.write(&self.pending);
        let hash = hasher.finish();
        TraceIdentity { name: name.into(), requests: self.requests, xxh3: format!("{hash:016x}") }
    }
}

impl Default for TraceHasher {
    fn default() -> Self {
        TraceHasher::new()
    }
}

impl std::fmt::Debug for TraceHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceHasher").field("requests", &self.requests).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Nanos, Op, Volume};

    const REQUEST: Request = Request {
        time: Nanos(1),
        volume: Volume(2),
        op: Op::Write,
        flags: Flags::NONE,
        offset: 3,
        length: 4,
    };

    fn hash(requests: &[Request]) -> String {
        let mut hasher = TraceHasher::new();
        requests.iter().for_each(|r| hasher.add(r));
        hasher.identity("x").xxh3
    }

    #[test]
    fn every_field_and_the_order_of_requests_count() {
        let others = [
            Request { time: Nanos(2), ..REQUEST },
            Request { volume: Volume(3), ..REQUEST },
            Request { op: Op::Read, ..REQUEST },
            Request { flags: Flags::FUA, ..REQUEST },
            Request { offset: 4, ..REQUEST },
            Request { length: 5, ..REQUEST },
        ];
        for other in others {
            assert_ne!(hash(&[REQUEST]), hash(&[other]));
            assert_ne!(hash(&[REQUEST, other]), hash(&[other, REQUEST]));
        }
        assert_eq!(hash(&others), hash(&others));
    }

    #[test]
    fn the_hash_of_known_requests_stays_what_it_is() {
        // Stored results are compared by this hash, so it must not change. The hash of no bytes is
        // the value published for XXH3-64.
        assert_eq!(hash(&[]), "2d06800538d394c2");
        let mut hasher = Hasher::new();
        for n in 0..1000 {
            let requests: Vec<Request> =
                (0..n).map(|offset| Request { offset, ..REQUEST }).collect();
            if n % 99 < 2 || n % 128 < 2 {
                assert_eq!(hash(&requests), format!("{:016x}", hasher.finish()), "{n} requests");
            }
            let mut bytes = Vec::new();
            bytes.extend(1u64.to_le_bytes());
            bytes.extend(n.to_le_bytes());
            bytes.extend(4u64.to_le_bytes());
            bytes.extend(2u32.to_le_bytes());
            bytes.extend([Op::Write as u8, 0]);
            hasher.write(&bytes);
        }
        assert_eq!(hash(&[REQUEST]).len(), 16);
    }
}
