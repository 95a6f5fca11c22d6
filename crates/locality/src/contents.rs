//! Reuse distances of contents: what a cache that keeps equal blocks once could hit.
//!
//! A content-addressed cache holds *contents* in LRU order, and remembers of every block that it has
//! seen which content lies there, also when that content is no longer held. An access is to the content
//! that it reads or writes, and brings it to the top of the stack. A content that no block holds any
//! more, as far as is known, leaves the stack: its place is free.
//!
//! - A **read** hits in a cache of `c` contents if fewer than `c` other distinct contents were
//!   accessed since its own was, **and** the cache knows that the block holds it: because the block's
//!   last access was of this content. A block's first read is a miss even where its content is
//!   held, since only the backing store can tell what it is.
//! - A **write** hits (where the distance measures writes) if its content is held; what the block held
//!   before does not matter.
//! - If a content is not known (a part of a block, or the trace says nothing), a read is of what the block
//!   holds; a write leaves a content there that equals no other. When a later read tells what it is, the block
//!   holds that.
//!
//! Source: Koller 2012, chapter 3. Without overwrites such a cache never hits less than one of sectors of
//! the same size (there for LRU with sector lists that are kept; a test here). With overwrites the
//! curve is an upper bound, and close: a cache that frees a place does not get back what it evicted
//! for want of one. That overwritten contents are freed is ours; without it they would fill the cache.

use std::collections::{BTreeMap, HashMap, HashSet};

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Op, Request, Volume};

use crate::histogram::HistogramBuilder;
use crate::{Distance, LocalityError, Reuse, ReuseStack, Scope, WorkloadHistograms};

/// Block accesses collected before they are measured together.
const BATCH: usize = 1024;

/// Measures the reuse distances of the contents that requests read and write.
///
/// Takes some 170 bytes for each distinct block and content.
///
/// ```
/// use forebay_block::{BlockSize, Flags, Nanos, Op, Request, Volume};
/// use forebay_locality::{ContentLocality, Distance, Scope};
/// let mut contents = ContentLocality::new(BlockSize::KIB_4, Distance::Trd, Scope::Together).unwrap();
/// let read = |block: u64| Request { time: Nanos(0), volume: Volume(0), op: Op::Read,
///                                   flags: Flags::NONE, offset: block * 4096, length: 4096 };
/// // Two blocks with one content: known only when both have been read.
/// for block in [0, 1, 0, 1] {
///     contents.add(&read(block), &[Some(42)]).unwrap();
/// }
/// let histogram = contents.finish().unwrap().all.unwrap();
/// assert_eq!((histogram.hits(Op::Read, 1), histogram.distinct_blocks), (2, 1));
/// ```
#[derive(Clone, Debug)]
pub struct ContentLocality {
    block_size: BlockSize,
    distance: Distance,
    scope: Scope,
    /// Contents by number, in the order of their appearance.
    numbers: HashMap<u128, u64>,
    /// Numbers given so far, those of unknown contents among them.
    next: u64,
    /// The content of each block; unknown ones have numbers of their own.
    blocks: HashMap<BlockAddr, u64>,
    /// The numbers of contents that blocks hold and that are not known.
    unknown: HashSet<u64>,
    all: Option<Stack>,
    volumes: BTreeMap<Volume, Stack>,
}

impl ContentLocality {
    /// Nothing measured yet.
    ///
    /// # Errors
    /// For distances of policies that do not keep every access (those of read-only and of write-only
    /// caches): what such a policy does to a content that other blocks share is not defined.
    pub fn new(
        block_size: BlockSize,
        distance: Distance,
        scope: Scope,
    ) -> Result<Self, LocalityError> {
        use Distance::{PodWriteBack, PodWriteThrough, Trd, Urd};
        if !matches!(distance, Trd | Urd | PodWriteBack | PodWriteThrough) {
            return Err(LocalityError::NoContentDistance);
        }
        Ok(Self {
            block_size,
            distance,
            scope,
            numbers: HashMap::new(),
            next: 0,
            blocks: HashMap::new(),
            unknown: HashSet::new(),
            all: (scope != Scope::PerVolume).then(|| Stack::new(distance)),
            volumes: BTreeMap::new(),
        })
    }

    /// Measures one request, with the contents of the blocks that it touches, in their order; those
    /// beyond the end of `contents` are not known. Trims and flushes are no accesses and change nothing.
    ///
    /// # Errors
    /// If there are more contents than can be ordered; what was measured before stays.
    pub fn add(
        &mut self,
        request: &Request,
        contents: &[Option<u128>],
    ) -> Result<(), LocalityError> {
        if !matches!(request.op, Op::Read | Op::Write | Op::WriteZeroes) {
            return Ok(());
        }
        let (first, count) = request.blocks(self.block_size);
        for i in 0..count {
            let content = contents.get(i as usize).copied().flatten();
            let addr = BlockAddr { volume: request.volume, block: BlockIndex(first.0 + i) };
            self.access(addr, request.op, content)?;
        }
        Ok(())
    }

    fn access(
        &mut self,
        addr: BlockAddr,
        op: Op,
        content: Option<u128>,
    ) -> Result<(), LocalityError> {
        let fresh = self.next;
        let before = self.blocks.get(&addr).copied();
        // What the block holds anyway, if this is a read, whatever it is.
        let held = before.filter(|_| op == Op::Read);
        let revealed = held.filter(|number| content.is_some() && self.unknown.contains(number));
        let number = match content {
            Some(content) => *self.numbers.entry(content).or_insert(revealed.unwrap_or(fresh)),
            None => held.unwrap_or(fresh),
        };
        if number == fresh {
            self.next += 1;
            if content.is_none() {
                self.unknown.insert(fresh);
            }
        }
        if let Some(before) = before.filter(|_| content.is_some() || op != Op::Read) {
            // It has got a name, or is gone.
            self.unknown.remove(&before);
        }
        self.blocks.insert(addr, number);
        let measured = revealed.unwrap_or(number);
        let known = op != Op::Read || before == Some(measured);
        let access = Access { op, measured, known, number, before };
        if let Some(all) = &mut self.all {
            all.access(access)?;
        }
        if self.scope != Scope::Together {
            let distance = self.distance;
            let own = self.volumes.entry(addr.volume).or_insert_with(|| Stack::new(distance));
            own.access(access)?;
        }
        Ok(())
    }

    /// The histograms of all requests added. Their `distinct_blocks` are distinct contents.
    ///
    /// # Errors
    /// As [`ContentLocality::add`].
    pub fn finish(self) -> Result<WorkloadHistograms, LocalityError> {
        let finish = |mut stack: Stack| {
            stack.measure()?;
            let contents = stack.stack.blocks_known() - stack.named;
            Ok(stack.counts.finish(contents))
        };
        let all = self.all.map(finish).transpose()?;
        let volumes = self.volumes.into_iter();
        let volumes = volumes.map(|(volume, own)| Ok((volume, finish(own)?)));
        Ok(WorkloadHistograms { all, volumes: volumes.collect::<Result<_, _>>()? })
    }
}

/// An access to a block, by numbers of contents.
#[derive(Clone, Copy, Debug)]
struct Access {
    op: Op,
    /// The content whose distance counts: another one than `number` if the block holds what was not known
    /// until now, and other blocks hold it.
    measured: u64,
    /// Whether the cache knows, before it reads the block, that it holds that.
    known: bool,
    number: u64,
    /// What the block held before, if it was met.
    before: Option<u64>,
}

/// A stack of contents with the batch that comes next.
#[derive(Clone, Debug)]
struct Stack {
    /// Whether writes are measured.
    measures_writes: bool,
    /// A read takes a content in and is measured, a write drops it, whatever the requests are.
    stack: ReuseStack,
    counts: HistogramBuilder,
    /// Contents that turned out to be others that were known already.
    named: u64,
    /// How many blocks hold each content that one holds.
    holders: HashMap<u64, u32>,
    contents: Vec<u64>,
    ops: Vec<Op>,
    /// What to count for each: the operation, and whether the cache knows what it is to; nothing
    /// for contents that leave.
    counted: Vec<Option<(Op, bool)>>,
    reuses: Vec<Reuse>,
}

impl Stack {
    fn new(distance: Distance) -> Self {
        Self {
            measures_writes: distance.measures_writes(),
            stack: ReuseStack::new(Distance::PodReadOnly),
            counts: HistogramBuilder::new(),
            named: 0,
            holders: HashMap::new(),
            contents: Vec::new(),
            ops: Vec::new(),
            counted: Vec::new(),
            reuses: Vec::new(),
        }
    }

    fn access(&mut self, access: Access) -> Result<(), LocalityError> {
        let Access { op, measured, known, number, before } = access;
        self.push(measured, Op::Read, Some((op, known)));
        if number != measured {
            self.named += 1;
            self.push(number, Op::Read, None);
        }
        if before != Some(number) {
            *self.holders.entry(number).or_insert(0) += 1;
            if let Some(before) = before.filter(|content| self.release(*content)) {
                self.push(before, Op::Write, None);
            }
        }
        if self.contents.len() >= BATCH { self.measure() } else { Ok(()) }
    }

    /// One block less holds a content; whether none is left.
    fn release(&mut self, content: u64) -> bool {
        let Some(holders) = self.holders.get_mut(&content) else { return false };
        *holders -= 1;
        let none = *holders == 0;
        if none {
            self.holders.remove(&content);
        }
        none
    }

    fn push(&mut self, content: u64, op: Op, counted: Option<(Op, bool)>) {
        self.contents.push(content);
        self.ops.push(op);
        self.counted.push(counted);
    }

    fn measure(&mut self) -> Result<(), LocalityError> {
        let result = self.stack.access_batch(&self.contents, &self.ops, &mut self.reuses);
        for (counted, &reuse) in self.counted.iter().zip(&self.reuses) {
            let Some((op, known)) = *counted else { continue };
            let reuse = match op {
                Op::Read if !known => Reuse::COLD,
                Op::Read => reuse,
                _ if self.measures_writes => reuse,
                _ => Reuse::UNMEASURED,
            };
            self.counts.add(op, reuse);
        }
        self.contents.clear();
        self.ops.clear();
        self.counted.clear();
        self.reuses.clear();
        result
    }
}
