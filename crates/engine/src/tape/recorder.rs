//! Writes a tape while the machine runs.

use std::io::{self, Write};

use forebay_block::Nanos;
use forebay_cache::{Cache, CacheConfig};
use forebay_effect::{Effect, MetaBuffer, Outcome, Place, Segment, Token};

use super::hash::EffectHash;
use super::record::Record;

/// Records between marks: the precision with which a divergence can be located.
const MARK_RECORDS: u64 = 256;

/// Metadata places that a read in progress will fill: buffer, first byte, bytes.
type Expected = Vec<(MetaBuffer, u32, u32)>;

/// Writes a tape. After an error it writes nothing more and keeps the error.
pub struct Recorder {
    out: Box<dyn Write + Send>,
    seen: EffectHash,
    records: u64,
    expected: Vec<(Token, Expected)>,
    error: Option<io::Error>,
}

impl Recorder {
    /// Begins a tape of a cache with these parameters.
    ///
    /// # Errors
    /// If the first bytes cannot be written.
    pub fn new(mut out: Box<dyn Write + Send>, config: &CacheConfig) -> io::Result<Recorder> {
        let parameters = format!("{config:?}");
        out.write_all(&super::MAGIC)?;
        out.write_all(&super::VERSION.to_le_bytes())?;
        out.write_all(&(parameters.len() as u32).to_le_bytes())?;
        out.write_all(parameters.as_bytes())?;
        let seen = EffectHash::default();
        Ok(Recorder { out, seen, records: 0, expected: Vec::new(), error: None })
    }

    /// Writes a call into the machine, which follows immediately.
    pub fn record(&mut self, record: &Record) {
        if self.error.is_none() {
            self.error = self.try_record(record).err();
        }
    }

    /// Notes an effect of the machine.
    pub(crate) fn effect(&mut self, effect: &Effect, segments: &[Segment]) {
        self.seen.add(effect, segments);
        if let Effect::Read { token, .. } = effect {
            let metadata = segments.iter().filter_map(|segment| match segment.place {
                Place::Meta { buffer, offset } => Some((buffer, offset, segment.length)),
                _ => None,
            });
            let expected: Expected = metadata.collect();
            if !expected.is_empty() {
                self.expected.push((*token, expected));
            }
        }
    }

    /// Writes the end of a device effect, whose bytes are already in the machine's buffers.
    pub(crate) fn completion(
        &mut self,
        now: Nanos,
        token: Token,
        outcome: Outcome,
        cache: &mut Cache,
    ) {
        let expected = self.expected.iter().position(|e| e.0 == token);
        let places = expected.map(|at| self.expected.swap_remove(at).1).unwrap_or_default();
        let bytes = |(buffer, offset, length): (MetaBuffer, u32, u32)| {
            let range = offset as usize..(offset + length) as usize;
            (buffer, offset, cache.meta(buffer)[range].to_vec())
        };
        let metadata = match outcome {
            Ok(()) => places.into_iter().map(bytes).collect(),
            Err(_) => Vec::new(),
        };
        self.record(&Record::Completion { now, token, outcome, metadata });
    }

    pub(crate) fn checksum(&mut self, token: Token, value: u32) {
        self.record(&Record::Checksum(token, value));
    }

    /// Ends the tape.
    ///
    /// # Errors
    /// The first error of writing; the tape is complete up to there.
    pub fn finish(mut self) -> io::Result<()> {
        self.mark();
        self.error.map_or_else(|| self.out.flush(), Err)
    }

    /// Between calls, when no effect is waiting: from time to time, writes a mark.
    pub(crate) fn pause(&mut self) {
        if self.records >= MARK_RECORDS {
            self.mark();
        }
    }

    fn mark(&mut self) {
        self.record(&Record::Mark(self.seen.effects, self.seen.hash));
        self.records = 0;
    }

    fn try_record(&mut self, record: &Record) -> io::Result<()> {
        self.records += 1;
        record.write(&mut self.out)
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("seen", &self.seen).finish_non_exhaustive()
    }
}
