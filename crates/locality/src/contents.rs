//! Reuse distances of contents: the hits of a cache that stores equal blocks once.
//!
//! A content-addressed cache holds *contents* in LRU order. It also remembers the content of every
//! block that it has seen, even when it no longer holds that content. An access refers to the
//! content that it reads or writes, and moves that content to the top of the stack. A content that,
//! as far as is known, no block has any longer leaves the stack and frees its place.
//!
//! - A **read** hits in a cache of `c` contents if fewer than `c` other distinct contents were
//!   accessed since its own content was, **and** the cache knows that the block has this content,
//!   because the last access to the block had it. The first read of a block is a miss even if its
//!   content is held, since only the backing store knows what the content is.
//! - A **write** hits (where the distance measures writes) if its content is held, whatever the
//!   block contained before.
//! - If the content of an access is unknown (it covers part of a block, or the trace does not
//!   record contents), a read is taken to read the present content of the block, and a write to
//!   leave a content that equals no other. If a later read reveals the content, the block has that
//!   content from then on.
//!
//! Source: Koller 2012, chapter 3. Without overwrites such a cache never has fewer hits than a
//! sector cache of the same size (shown there for LRU with sector lists that are kept; tested
//! here). With overwrites the curve is an upper bound, and a close one: a real cache that frees a
//! place does not get back the content that it evicted for lack of one. Freeing overwritten
//! contents is our addition; without it they would fill the cache.

use std::collections::{BTreeMap, HashMap, HashSet};

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Op, Request, Volume};

use crate::histogram::HistogramBuilder;
use crate::{Distance, LocalityError, Reuse, ReuseStack, Scope, WorkloadHistograms};

/// Number of accesses collected before they are measured together.
const BATCH: usize = 1024;

/// Measures the reuse distances of the contents that requests read and write.
///
/// Takes about 170 bytes of memory for each distinct block and content.
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
    /// The number of each known content; numbers are assigned in order of appearance.
    numbers: HashMap<u128, u64>,
    /// The next number: how many have been assigned, to known and unknown contents.
    next: u64,
    /// The number of each block's content; each unknown content has a number of its own.
    blocks: HashMap<BlockAddr, u64>,
    /// The numbers of unknown contents that blocks hold.
    unknown: HashSet<u64>,
    all: Option<Stack>,
    volumes: BTreeMap<Volume, Stack>,
}

impl ContentLocality {
    /// Creates an empty measurement.
    ///
    /// # Errors
    /// If the distance is of a policy that does not keep every accessed block (read-only and
    /// write-only caches): what such a policy does to a content that other blocks share is
    /// undefined.
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

    /// Measures one request. `contents` holds the contents of the blocks that it touches, in order;
    /// blocks beyond its end have unknown contents. Trims and flushes do not count as accesses and
    /// change nothing.
    ///
    /// # Errors
    /// If there are more contents than can be ordered; the measurements so far are kept.
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
        // The present content of the block, known or not, if this is a read.
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
            // The block's previous content is now known or overwritten.
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

    /// Returns the histograms of all requests added. Their `distinct_blocks` count distinct
    /// contents.
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

/// An access to a block, with contents given by number.
#[derive(Clone, Copy, Debug)]
struct Access {
    op: Op,
    /// The content whose distance counts. It differs from `number` if the block had an unknown
    /// content that this read reveals to be one known already.
    measured: u64,
    /// Whether the cache knows, before it reads the block, that the block has this content.
    known: bool,
    number: u64,
    /// The block's previous content, if the block was accessed before.
    before: Option<u64>,
}

/// A stack of contents, and the batch to be measured next.
#[derive(Clone, Debug)]
struct Stack {
    /// Whether writes are measured.
    measures_writes: bool,
    /// A read-only stack driven by operations of our own: a read accesses a content and measures
    /// its distance, a write drops it, whatever the operation of the request.
    stack: ReuseStack,
    counts: HistogramBuilder,
    /// Number of unknown contents that turned out to equal a known one.
    named: u64,
    /// Number of blocks that have each content, for contents that at least one block has.
    holders: HashMap<u64, u32>,
    contents: Vec<u64>,
    ops: Vec<Op>,
    /// For each entry, the operation of the access and whether the cache knows the block's content;
    /// `None` for entries that are not counted.
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

    /// Records that one block fewer has `content`. Returns whether no block is left.
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
