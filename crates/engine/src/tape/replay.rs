//! Replays a tape on a fresh machine.
//!
//! The machine asserts that its driver keeps the contract; here a tape is the driver. So each
//! record is checked against the contract before it is played: a damaged tape is an error that
//! names the record.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use forebay_block::Volume;
use forebay_cache::{Cache, CacheConfig, Call, Order, StampReport, VOLUMES_MAX};
use forebay_effect::{Effect, MetaBuffer, Place, Segment};

use super::hash::{EffectHash, number};
use super::record::{Metadata, TapeError, TapeRecord, read_array, read_u32};

/// The results of a replay that did not diverge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Records played.
    pub records: u64,
    /// Effects that the machine gave.
    pub effects: u64,
    /// Marks on the tape that were confirmed.
    pub marks: u64,
}

/// Replays the tape on a new cache with these parameters.
///
/// # Errors
/// If the tape cannot be read, was recorded with other parameters, or the machine's effects differ
/// from those recorded.
pub fn replay(tape: impl Read, config: CacheConfig) -> Result<Replayed, TapeError> {
    let mut tape = std::io::BufReader::new(tape);
    read_head(&mut tape, &config)?;
    let mut player = Player::new(tape, Cache::new(config));
    let mut replayed = Replayed::default();
    while let Some(record) = player.next()? {
        replayed.records += 1;
        match record {
            TapeRecord::Mark(effects, hash) => {
                let (recorded, given) = ((effects, hash), (player.seen.effects, player.seen.hash));
                if given != recorded {
                    return Err(TapeError::Diverged { record: player.index, recorded, given });
                }
                replayed.marks += 1;
            }
            TapeRecord::Call(call, metadata) => {
                player.play(call, metadata)?;
                replayed.records += player.poll()?;
            }
        }
    }
    replayed.effects = player.seen.effects;
    Ok(replayed)
}

fn read_head(tape: &mut impl Read, config: &CacheConfig) -> Result<(), TapeError> {
    let (magic, version) = (read_array(tape)?, u16::from_le_bytes(read_array(tape)?));
    if magic != super::MAGIC || version != super::VERSION {
        return Err(TapeError::NotATape);
    }
    let length = u64::from(read_u32(tape)?);
    let mut recorded = String::new();
    tape.take(length).read_to_string(&mut recorded)?;
    let given = format!("{config:?}");
    if recorded != given {
        return Err(TapeError::Parameters { recorded, given });
    }
    Ok(())
}

struct Player<R> {
    tape: R,
    cache: Cache,
    seen: EffectHash,
    index: u64,
    /// Whether the cache has been started.
    started: bool,
    /// Requests without a reply.
    requests: BTreeSet<u64>,
    /// Device effects without a completion, with what each reads into metadata buffers.
    under_way: BTreeMap<u64, Vec<(MetaBuffer, u32, u32)>>,
}

impl<R: Read> Player<R> {
    fn new(tape: R, cache: Cache) -> Self {
        Player {
            tape,
            cache,
            seen: EffectHash::default(),
            index: 0,
            started: false,
            requests: BTreeSet::new(),
            under_way: BTreeMap::new(),
        }
    }

    fn next(&mut self) -> Result<Option<TapeRecord>, TapeError> {
        self.index += 1;
        TapeRecord::read(&mut self.tape, self.index)
    }

    fn play(&mut self, call: Call, metadata: Metadata) -> Result<(), TapeError> {
        self.check(&call, &metadata).map_err(|what| TapeError::Damaged(self.index, what))?;
        match &call {
            Call::Start(..) => self.started = true,
            Call::Request(id, _) => _ = self.requests.insert(id.0),
            Call::Completion(_, token, _) => _ = self.under_way.remove(&number(*token)),
            _ => {}
        }
        for (buffer, offset, bytes) in metadata {
            let place = &mut self.cache.meta_mut(buffer)[offset as usize..];
            place[..bytes.len()].copy_from_slice(&bytes);
        }
        call.apply(&mut self.cache);
        Ok(())
    }

    /// Why no driver may make this call now.
    fn check(&self, call: &Call, metadata: &Metadata) -> Result<(), &'static str> {
        let cache = &self.cache;
        let count = cache.volume_count();
        let attached = |volume: Volume| volume.index() < count;
        let fault = match call {
            Call::Attach(_) if self.started || count >= VOLUMES_MAX => {
                "more volumes than the cache supports"
            }
            Call::Attach(v) if v.priority == 0 => "a priority",
            Call::Attach(v) if !v.size_bytes.is_multiple_of(512) => "an invalid volume size",
            Call::KeepStamps(_) | Call::Start(..) if self.started => "a second start",
            Call::Order(_, Order::Seal(volumes)) if volumes.iter().any(|v| !attached(v.volume)) => {
                "a seal of an unknown volume"
            }
            Call::KeepStamps(volume) if !attached(*volume) => "stamps of an unknown volume",
            Call::Request(..) if !cache.has_room() => "more requests than the cache supports",
            Call::Request(id, _) if id.0 == u64::MAX || self.requests.contains(&id.0) => {
                "an invalid request number"
            }
            Call::Completion(_, token, _) => {
                let Some(reads) = self.under_way.get(&number(*token)) else {
                    return Err("the completion of an operation that is not in flight");
                };
                let brought = |(buffer, offset, bytes): &(MetaBuffer, u32, Vec<u8>)| {
                    reads.contains(&(*buffer, *offset, bytes.len() as u32))
                };
                if metadata.iter().all(brought) {
                    return Ok(());
                }
                "unexpected metadata"
            }
            Call::Stamped(_, reports) if !are_among(cache.stamping(), reports) => {
                "stamps that were not requested"
            }
            Call::Order(_, Order::SetDramBlocks(blocks))
                if *blocks < cache.config().shards.into()
                    || *blocks > cache.config().dram_blocks =>
            {
                "an invalid cache size"
            }
            Call::Checksum(..) => "a checksum that was not requested",
            _ => return Ok(()),
        };
        Err(fault)
    }

    /// Takes all effects; returns the number of checksums taken from the tape for them.
    fn poll(&mut self) -> Result<u64, TapeError> {
        let (mut segments, mut checksums) = (Vec::new(), 0);
        while let Some(effect) = self.cache.poll_effect(&mut segments) {
            self.seen.add(&effect, &segments);
            match effect {
                Effect::Reply { request, .. } => {
                    self.requests.remove(&request.0);
                }
                Effect::Read { token, .. } => {
                    let meta = |s: &Segment| match s.place {
                        Place::Meta { buffer, offset } => Some((buffer, offset, s.length)),
                        _ => None,
                    };
                    self.under_way
                        .insert(number(token), segments.iter().filter_map(meta).collect());
                }
                Effect::Write { token, .. }
                | Effect::WriteZeroes { token, .. }
                | Effect::Sync { token, .. } => {
                    self.under_way.insert(number(token), Vec::new());
                }
                _ => {}
            }
            if let Effect::Checksum { token, .. } = effect {
                match self.next()? {
                    Some(TapeRecord::Call(answer @ Call::Checksum(of, _), _)) if of == token => {
                        answer.apply(&mut self.cache);
                    }
                    _ => return Err(TapeError::Damaged(self.index, "a checksum is missing")),
                }
                checksums += 1;
            }
        }
        while self.cache.poll_notice().is_some() {}
        Ok(checksums)
    }
}

/// Whether there is at most one report for each of these volumes (bits), and none for others.
fn are_among(mut volumes: u64, reports: &[StampReport]) -> bool {
    reports.iter().all(|StampReport { volume, .. }| {
        let bit = 1u64.checked_shl(volume.0).unwrap_or(0);
        let is_one = volumes & bit != 0;
        volumes &= !bit;
        is_one
    })
}
