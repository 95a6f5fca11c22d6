//! Drives the cache by hand: a read that misses, its fetch from the backing store, and a hit.
//!
//! The cache does no I/O. It answers each call with effects, and this program carries them out
//! on two arrays: a "disk" and the memory of the cache. `cargo run -p forebay-cache --example
//! sans_io`

#![allow(clippy::print_stdout)] // a program, not the library

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{Cache, CacheConfig, Open, VolumeConfig};
use forebay_effect::{Effect, Place, RequestId};
use forebay_flash::TierId;

const BLOCK: usize = 4096;

/// Reads one block through the cache. Returns its bytes and the number of reads of the disk.
fn read(cache: &mut Cache, frames: &mut [[u8; BLOCK]], disk: &[u8], id: u64) -> (Vec<u8>, u32) {
    let (mut buffer, mut disk_reads, mut segments) = (vec![0; BLOCK], 0, Vec::new());
    let (now, length) = (Nanos(id), BLOCK as u64);
    let request = Request::new(now, Volume(0), Op::Read, 0, length);
    cache.handle_request(RequestId(id), request);
    while let Some(effect) = cache.poll_effect(&mut segments) {
        match effect {
            // From the disk into a frame. A real driver starts the read here and hands in its
            // completion later, with other calls in between.
            Effect::Read { token, offset, .. } => {
                let Place::Frame { frame, .. } = segments[0].place else { unreachable!() };
                frames[frame.0 as usize].copy_from_slice(&disk[offset as usize..][..BLOCK]);
                disk_reads += 1;
                cache.handle_completion(now, token, Ok(()));
            }
            // At the start, so that what came before is durable; the array always is.
            Effect::Sync { token, .. } => cache.handle_completion(now, token, Ok(())),
            // From a frame into the buffer of the request.
            Effect::Copy { from: Place::Frame { frame, .. }, .. } => {
                buffer.copy_from_slice(&frames[frame.0 as usize]);
            }
            Effect::Reply { result, .. } => result.expect("the disk never fails"),
            other => unreachable!("one whole block is read, nothing is written: {other:?}"),
        }
    }
    (buffer, disk_reads)
}

/// Runs the example.
pub fn main() {
    let config = CacheConfig::dram_only(16);
    let mut frames = vec![[0; BLOCK]; config.frames() as usize];
    let disk = vec![7; 64 * BLOCK];
    let mut cache = Cache::new(config);
    cache.attach(VolumeConfig::new(disk.len() as u64));
    cache.start(Nanos(0), Open::Format { uuid: TierId::new([1; 16]), bindings: Vec::new() });

    assert_eq!(read(&mut cache, &mut frames, &disk, 1), (vec![7; BLOCK], 1), "a miss");
    assert_eq!(read(&mut cache, &mut frames, &disk, 2), (vec![7; BLOCK], 0), "a hit");
    let hits = cache.volume_stats(Volume(0)).expect("it is attached").read_hits;
    println!("{} hit, {} miss", hits.tier1, hits.miss);
}
