//! Writes a tape while the machine runs.

use std::io::{self, Write};

use forebay_cache::{Cache, CacheConfig, Call};
use forebay_effect::{Effect, MetaBuffer, Outcome, Place, Segment, Token};

use super::hash::EffectHash;
use super::record::{Metadata, TapeRecord, write_call};

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

    /// Writes a call into the machine, which follows immediately. Before a completion, the bytes that were read are
    /// already in the machine's buffers.
    pub(crate) fn call(&mut self, call: &Call, cache: &mut Cache) {
        let metadata = match *call {
            Call::Completion(_, token, outcome) => self.brought(token, outcome, cache),
            _ => Metadata::new(),
        };
        self.write(|out| write_call(call, &metadata, out));
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

    /// What a device effect that has ended has read into metadata buffers.
    fn brought(&mut self, token: Token, outcome: Outcome, cache: &mut Cache) -> Metadata {
        let expected = self.expected.iter().position(|e| e.0 == token);
        let places = expected.map(|at| self.expected.swap_remove(at).1).unwrap_or_default();
        let bytes = |(buffer, offset, length): (MetaBuffer, u32, u32)| {
            let range = offset as usize..(offset + length) as usize;
            (buffer, offset, cache.meta(buffer)[range].to_vec())
        };
        match outcome {
            Ok(()) => places.into_iter().map(bytes).collect(),
            Err(_) => Metadata::new(),
        }
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
        let mark = TapeRecord::Mark(self.seen.effects, self.seen.hash);
        self.write(|out| mark.write(out));
        self.records = 0;
    }

    fn write(&mut self, record: impl FnOnce(&mut Box<dyn Write + Send>) -> io::Result<()>) {
        if self.error.is_none() {
            self.records += 1;
            self.error = record(&mut self.out).err();
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("seen", &self.seen).finish_non_exhaustive()
    }
}
