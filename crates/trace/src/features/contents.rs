//! Counts how many of the blocks read and written have equal contents.

use std::collections::HashMap;

use forebay_block::{BlockSize, Op, Request, Volume};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::by_op::ByOp;
use crate::{BlockContents, Record};

/// What lies in the blocks of a trace that carries content hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ContentUse {
    /// Block accesses with known content.
    pub accesses: ByOp<u64>,
    /// Distinct contents.
    pub distinct: ByOp<u64>,
    /// Writes of content that was read or written before, at any address.
    pub rewritten: u64,
    /// Blocks whose content is known at the end of the trace; the content of trimmed blocks is unknown.
    pub blocks_at_end: u64,
    /// Number of distinct contents of those blocks.
    pub contents_at_end: u64,
}

/// Counts contents. Takes about 130 bytes of memory for each distinct block and content.
#[derive(Default)]
pub(super) struct ContentCounter {
    counts: ContentUse,
    seen: HashMap<u128, Seen>,
    blocks: HashMap<(Volume, u64), u128>,
    scratch: Vec<Option<u128>>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    read: bool,
    written: bool,
    /// Number of blocks that now hold this content.
    blocks: u32,
}

impl ContentCounter {
    pub fn add(&mut self, record: &Record<'_>, contents: &BlockContents, block_bytes: u64) {
        let request = record.request;
        if request.op == Op::Trim {
            return self.forget(&request, contents.block_size());
        }
        let mut of_blocks = std::mem::take(&mut self.scratch);
        contents.fill(record, &mut of_blocks);
        let first = request.offset / block_bytes;
        for (block, content) in (first..).zip(&of_blocks) {
            self.access((request.volume, block), request.op != Op::Read, *content);
        }
        self.scratch = of_blocks;
    }

    /// Forgets the contents of the blocks that a trim touches: they are unknown afterwards.
    fn forget(&mut self, trim: &Request, block_size: BlockSize) {
        let (first, count) = trim.blocks(block_size);
        let range = first.0..first.0 + count;
        if count <= self.blocks.len() as u64 {
            for block in range {
                let content = self.blocks.remove(&(trim.volume, block));
                self.gone(content);
            }
            return;
        }
        let is_trimmed =
            |key: &(Volume, u64), _: &mut u128| key.0 == trim.volume && range.contains(&key.1);
        let trimmed: Vec<u128> =
            self.blocks.extract_if(is_trimmed).map(|(_, content)| content).collect();
        trimmed.into_iter().for_each(|content| self.gone(Some(content)));
    }

    /// Counts that one block no longer holds this content.
    fn gone(&mut self, content: Option<u128>) {
        if let Some(seen) = content.and_then(|content| self.seen.get_mut(&content)) {
            seen.blocks -= 1;
            self.counts.contents_at_end -= u64::from(seen.blocks == 0);
        }
    }

    fn access(&mut self, block: (Volume, u64), write: bool, content: Option<u128>) {
        let before = match content {
            Some(content) => self.blocks.insert(block, content),
            // A read without known content, such as of part of a block, changes nothing.
            None if !write => return,
            None => self.blocks.remove(&block),
        };
        self.gone(before);
        let Some(content) = content else { return };
        let (accesses, distinct) = (&mut self.counts.accesses, &mut self.counts.distinct);
        let seen = self.seen.entry(content).or_default();
        distinct.all += u64::from(!seen.read && !seen.written);
        accesses.all += 1;
        if write {
            self.counts.rewritten += u64::from(seen.read || seen.written);
            distinct.write += u64::from(!seen.written);
            accesses.write += 1;
            seen.written = true;
        } else {
            distinct.read += u64::from(!seen.read);
            accesses.read += 1;
            seen.read = true;
        }
        self.counts.contents_at_end += u64::from(seen.blocks == 0);
        seen.blocks += 1;
    }

    pub fn finish(self) -> ContentUse {
        ContentUse { blocks_at_end: self.blocks.len() as u64, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HashInfo;
    use forebay_block::{Flags, Nanos};

    #[test]
    fn what_is_trimmed_is_not_there_at_the_end() {
        let info = HashInfo { algorithm: "md5".into(), unit_bytes: 4096, digest_bytes: 16 };
        let contents = BlockContents::new(&info, BlockSize::KIB_4).unwrap();
        let request = |op, volume, offset, length| Request {
            time: Nanos(0),
            volume: Volume(volume),
            op,
            flags: Flags::NONE,
            offset,
            length,
        };
        let hashes: Vec<u8> = (1..=8u128).flat_map(u128::to_be_bytes).collect();
        // The trims cover blocks 2 and 3, the same blocks in part, and everything.
        for (offset, length, left) in [(8192, 8192, 6), (9000, 4000, 6), (0, 1 << 50, 0)] {
            let mut counter = ContentCounter::default();
            for volume in [0, 1] {
                let write = request(Op::Write, volume, 0, 8 * 4096);
                counter.add(&Record { hashes: &hashes, ..write.into() }, &contents, 4096);
            }
            counter.add(&request(Op::Trim, 1, offset, length).into(), &contents, 4096);
            let counts = counter.finish();
            let at_end = (counts.blocks_at_end, counts.contents_at_end);
            assert_eq!(at_end, (8 + left, 8), "{offset} + {length}");
        }
    }

    #[test]
    fn what_is_overwritten_or_becomes_unknown_is_not_there_at_the_end() {
        let mut counter = ContentCounter::default();
        for (block, write, content) in [
            (1, true, Some(7)),
            (2, true, Some(7)),
            (3, false, Some(8)),
            (1, true, Some(9)), // block 2 still holds 7
            (3, true, None),    // 8 is gone
            (4, false, Some(9)),
            (4, false, None), // part of the block
            (5, true, Some(8)),
        ] {
            counter.access((Volume(0), block), write, content);
        }
        let counts = counter.finish();
        assert_eq!(counts.accesses, ByOp { read: 2, write: 4, all: 6 });
        assert_eq!(counts.distinct, ByOp { read: 2, write: 3, all: 3 });
        assert_eq!(counts.rewritten, 2);
        assert_eq!((counts.blocks_at_end, counts.contents_at_end), (4, 3));
    }
}
