//! Plays a tape to a fresh machine.

use std::io::Read;

use forebay_cache::{Cache, CacheConfig, VolumeConfig};
use forebay_effect::Effect;

use super::hash::EffectHash;
use super::record::{Record, TapeError, read_array, read_u32};

/// What a replay that did not diverge has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Records played.
    pub records: u64,
    /// Effects that the machine gave.
    pub effects: u64,
    /// Marks on the tape that were confirmed.
    pub marks: u64,
}

/// Plays the tape to a new cache with these parameters.
///
/// # Errors
/// If the tape cannot be read, was recorded with other parameters, or the machine's effects are
/// not those recorded.
pub fn replay(tape: impl Read, config: CacheConfig) -> Result<Replayed, TapeError> {
    let mut tape = std::io::BufReader::new(tape);
    read_head(&mut tape, &config)?;
    let mut player =
        Player { tape, cache: Cache::new(config), seen: EffectHash::default(), index: 0 };
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
}

impl<R: Read> Player<R> {
    fn next(&mut self) -> Result<Option<Record>, TapeError> {
        self.index += 1;
        Record::read(&mut self.tape, self.index)
    }

    fn play(&mut self, record: Record) -> Result<(), TapeError> {
        let cache = &mut self.cache;
        match record {
            Record::Attach(v) => {
                if v.priority == 0 {
                    return Err(TapeError::Damaged(self.index, "a priority"));
                }
                cache.attach(VolumeConfig {
                    size_bytes: v.size_bytes,
                    read_only: v.read_only,
                    priority: v.priority,
                    bypass: v.bypass,
                });
            }
            Record::Start(now, open) => cache.start(now, open),
            Record::Request { now, id, volume, op, flags, offset, length } => {
                if !cache.has_room() {
                    return Err(TapeError::Damaged(self.index, "more requests than fit"));
                }
                cache.handle_request(now, id, volume, op, flags, offset, length);
            }
            Record::Completion { now, token, outcome, metadata } => {
                for (buffer, offset, bytes) in metadata {
                    let place = cache.meta_mut(buffer).get_mut(offset as usize..);
                    let place = place.and_then(|p| p.get_mut(..bytes.len()));
                    let damaged = TapeError::Damaged(self.index, "metadata out of place");
                    place.ok_or(damaged)?.copy_from_slice(&bytes);
                }
                cache.handle_completion(now, token, outcome);
            }
            Record::Timeout(now) => cache.handle_timeout(now),
            Record::Destage => cache.destage(),
            Record::RetryStores => cache.retry_stores(),
            Record::PrepareStop => cache.prepare_stop(),
            Record::Stop(destage) => cache.stop(destage),
            Record::SetPolicy(policy, acknowledge) => cache.set_policy(policy, acknowledge),
            Record::Seal(volumes) => cache.seal(volumes),
            Record::KeepStamps(volume) => {
                if volume.0 as usize >= cache.volume_count() {
                    return Err(TapeError::Damaged(self.index, "stamps of no volume"));
                }
                cache.keep_stamps(volume);
            }
            Record::Stamp => cache.stamp(),
            Record::Completed => cache.completed(),
            Record::Stamped(numbers) => {
                let attached =
                    |n: &(forebay_block::Volume, u64)| (n.0.0 as usize) < cache.volume_count();
                if !cache.is_stamping() || !numbers.iter().all(attached) {
                    return Err(TapeError::Damaged(self.index, "stamps that nobody ordered"));
                }
                cache.stamped(&numbers);
            }
            Record::SetDramBlocks(blocks) => {
                let (shards, most) = (cache.config().shards, cache.config().dram_blocks);
                if blocks < shards.into() || blocks > most {
                    return Err(TapeError::Damaged(self.index, "a size that does not fit"));
                }
                cache.set_dram_blocks(blocks);
            }
            Record::Checksum(..) => {
                return Err(TapeError::Damaged(self.index, "a checksum nobody asked for"));
            }
            Record::Mark(..) => {}
        }
        Ok(())
    }

    /// Takes all effects; returns the number of checksums taken from the tape for them.
    fn poll(&mut self) -> Result<u64, TapeError> {
        let (mut segments, mut checksums) = (Vec::new(), 0);
        while let Some(effect) = self.cache.poll_effect(&mut segments) {
            self.seen.add(&effect, &segments);
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
