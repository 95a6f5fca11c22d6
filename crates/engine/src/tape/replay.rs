//! Replays a tape on a fresh machine.
//!
//! The machine asserts that its driver keeps the contract; here a tape is the driver. So each
//! record is checked against the contract before it is played: a damaged tape is an error that
//! names the record.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use forebay_block::Volume;
use forebay_cache::{Cache, CacheConfig, StopTarget, VOLUMES_MAX, VolumeConfig};
use forebay_effect::{Effect, MetaBuffer, Place, Segment};

use super::hash::{EffectHash, number};
use super::record::{Record, TapeError, read_array, read_u32};

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
        if let Record::Mark(effects, hash) = record {
            let given = (player.seen.effects, player.seen.hash);
            if given != (effects, hash) {
                let recorded = (effects, hash);
                return Err(TapeError::Diverged { record: player.index, recorded, given });
            }
            replayed.marks += 1;
            continue;
        }
        player.play(record)?;
        replayed.records += player.poll()?;
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

    fn next(&mut self) -> Result<Option<Record>, TapeError> {
        self.index += 1;
        Record::read(&mut self.tape, self.index)
    }

    fn play(&mut self, record: Record) -> Result<(), TapeError> {
        self.check(&record).map_err(|what| TapeError::Damaged(self.index, what))?;
        let cache = &mut self.cache;
        match record {
            Record::Attach(v) => {
                cache.attach(VolumeConfig {
                    size_bytes: v.size_bytes,
                    read_only: v.read_only,
                    priority: v.priority,
                    bypass: v.bypass,
                });
            }
            Record::Start(now, open) => {
                self.started = true;
                cache.start(now, open);
            }
            Record::Request(id, request) => {
                self.requests.insert(id.0);
                cache.handle_request(id, request);
            }
            Record::Completion { now, token, outcome, metadata } => {
                self.under_way.remove(&number(token));
                for (buffer, offset, bytes) in metadata {
                    let place = &mut cache.meta_mut(buffer)[offset as usize..];
                    place[..bytes.len()].copy_from_slice(&bytes);
                }
                cache.handle_completion(now, token, outcome);
            }
            Record::Timeout(now) => cache.handle_timeout(now),
            Record::Destage => cache.destage(),
            Record::RetryStores => cache.retry_stores(),
            Record::PrepareStop => cache.prepare_stop(),
            Record::Stop(destage) => {
                cache.stop(if destage { StopTarget::Stores } else { StopTarget::Flash });
            }
            Record::SetPolicy(policy, acknowledge) => cache.set_policy(policy, acknowledge),
            Record::Seal(volumes) => cache.seal(volumes),
            Record::KeepStamps(volume) => cache.keep_stamps(volume),
            Record::Stamp => cache.stamp(),
            Record::Completed => cache.completed(),
            Record::Stamped(numbers) => cache.stamped(&numbers),
            Record::SetDramBlocks(blocks) => cache.set_dram_blocks(blocks),
            Record::Checksum(..) | Record::Mark(..) => {}
        }
        Ok(())
    }

    /// What the record contains that no driver may do now.
    fn check(&self, record: &Record) -> Result<(), &'static str> {
        let cache = &self.cache;
        let count = cache.volume_count();
        let attached = |volume: Volume| volume.index() < count;
        let fault = match record {
            Record::Attach(_) if self.started || count >= VOLUMES_MAX => {
                "more volumes than the cache supports"
            }
            Record::Attach(v) if v.priority == 0 => "a priority",
            Record::Attach(v) if !v.size_bytes.is_multiple_of(512) => "an invalid volume size",
            Record::KeepStamps(_) | Record::Start(..) if self.started => "a second start",
            Record::Seal(volumes) if volumes.iter().any(|v| !attached(v.volume)) => {
                "a seal of an unknown volume"
            }
            Record::KeepStamps(volume) if !attached(*volume) => "stamps of an unknown volume",
            Record::Request(..) if !cache.has_room() => "more requests than the cache supports",
            Record::Request(id, _) if id.0 == u64::MAX || self.requests.contains(&id.0) => {
                "an invalid request number"
            }
            Record::Completion { token, metadata, .. } => {
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
            Record::Stamped(numbers) if !are_among(cache.stamping(), numbers) => {
                "stamps that were not requested"
            }
            Record::SetDramBlocks(blocks)
                if *blocks < cache.config().shards.into()
                    || *blocks > cache.config().dram_blocks =>
            {
                "an invalid cache size"
            }
            Record::Checksum(..) => "a checksum that was not requested",
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
                    Some(Record::Checksum(of, value)) if of == token => {
                        self.cache.handle_checksum(token, value);
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

/// Whether there is at most one number for each of these volumes (bits), and none for others.
fn are_among(mut volumes: u64, numbers: &[(Volume, u64)]) -> bool {
    numbers.iter().all(|(volume, _)| {
        let bit = 1u64.checked_shl(volume.0).unwrap_or(0);
        let is_one = volumes & bit != 0;
        volumes &= !bit;
        is_one
    })
}
