//! A driver for the log over an in-memory device with a volatile write cache: a power cut keeps any
//! subset of the sectors that were not synced.
#![allow(dead_code)]

use forebay_block::Volume;
use forebay_effect::{Device, Effect, Frame, IoError, Outcome, Owner, Place, Segment, Token};
use forebay_flash::{
    AnswerKind, Append, BlockKey, Event, Geometry, Granules, Log, MarkAnswer, Options, Position,
    Record, Start, StartEvent, TierId,
};

/// A small deterministic generator (splitmix64).
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const SECTOR: usize = 512;

/// A device with a volatile write cache.
#[derive(Clone)]
pub struct Flash {
    /// The contents after a power cut that loses everything not synced.
    pub durable: Vec<u8>,
    /// The contents that reads return now.
    pub current: Vec<u8>,
    /// Completed writes that are not durable yet: (completed at, offset, bytes).
    volatile: Vec<(u64, usize, Vec<u8>)>,
    clock: u64,
}

impl Flash {
    pub fn new(bytes: u64) -> Flash {
        let bytes = vec![0xEE; bytes as usize];
        Flash { durable: bytes.clone(), current: bytes, volatile: Vec::new(), clock: 0 }
    }
    fn write(&mut self, offset: usize, bytes: Vec<u8>) {
        self.current[offset..offset + bytes.len()].copy_from_slice(&bytes);
        self.clock += 1;
        self.volatile.push((self.clock, offset, bytes));
    }
    fn sync(&mut self, through: u64) {
        let durable = &mut self.durable;
        self.volatile.retain(|(at, offset, bytes)| {
            if *at <= through {
                durable[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            *at > through
        });
        // Writes that are still volatile cover what has become durable.
    }
    /// The device after a power cut that treats each volatile write, and each write in flight, as
    /// its digit in `fates` says, least significant digit first: 0 lost, 1 whole, 2 torn with
    /// garbage in the second half, 3 torn with garbage in the first half.
    pub fn cut_by(&mut self, mut fates: u64, under_way: Vec<(usize, Vec<u8>)>) {
        let mut writes: Vec<_> = self.volatile.drain(..).map(|(_, o, b)| (o, b)).collect();
        writes.extend(under_way);
        for (offset, bytes) in writes {
            let here = &mut self.durable[offset..offset + bytes.len()];
            let half = bytes.len() / 2;
            let fate = fates % 4;
            if fate != 0 {
                here.copy_from_slice(&bytes);
            }
            match fate {
                2 => here[half..].fill(0xA5),
                3 => here[..half].fill(0xA5),
                _ => {}
            }
            fates /= 4;
        }
        self.current.clone_from(&self.durable);
    }
    /// Loses a random part of the volatile writes and of the writes in flight.
    fn cut(&mut self, rng: &mut Rng, under_way: Vec<(usize, Vec<u8>)>) {
        let mut writes: Vec<_> = self.volatile.drain(..).map(|(_, o, b)| (o, b)).collect();
        writes.extend(under_way);
        let mood = rng.below(5);
        for (offset, bytes) in writes {
            let whole = rng.one_in(2);
            for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                let keep = match mood {
                    0 => false,
                    1 => true,
                    2 => whole,
                    3 => rng.one_in(2),
                    _ => !rng.one_in(8),
                };
                let at = offset + n * SECTOR;
                if keep {
                    self.durable[at..at + sector.len()].copy_from_slice(sector);
                } else if rng.one_in(64) && mood != 0 {
                    // A torn sector holds garbage.
                    let garbage = rng.next() as u8;
                    self.durable[at..at + sector.len()].fill(garbage);
                }
            }
        }
        self.current.clone_from(&self.durable);
    }
}

enum Pending {
    Read { offset: usize, segments: Vec<Segment> },
    Write { offset: usize, bytes: Vec<u8> },
    Sync { through: u64 },
}

/// A log, its device, and the DRAM frames.
pub struct Rig {
    pub log: Log,
    pub flash: Flash,
    pub frames: Vec<Vec<u8>>,
    pending: Vec<(Token, Pending)>,
    pub geometry: Geometry,
    pub options: Options,
    /// The number of writes and syncs that still succeed before one fails.
    pub fail_after: Option<u64>,
    /// Every write since the start (offset, length), and syncs as (u64::MAX, 0), in the order of
    /// completion.
    pub history: Vec<(u64, usize)>,
    /// Every read (offset, length).
    pub reads: Vec<(u64, usize)>,
    /// Reads of these byte offsets fail.
    pub unreadable: Vec<u64>,
}

/// Four regions of ten pages, batches of up to four entries.
pub fn tiny() -> Geometry {
    Geometry {
        block_size: 4096,
        page_size: 4096,
        region_pages: 10,
        regions: 4,
        slots: 0,
        directory_pages: 0,
        superblock_pages: 1,
        extent_bytes: 4 * 4096,
        batch_pages_max: 5,
        batch_entries_max: 4,
        inflight_batches_max: 2,
        active_extents_max: 2,
    }
}

pub fn options() -> Options {
    Options { frames: 8, reserve_regions: 1, ..Options::default() }
}

impl Rig {
    pub fn new(geometry: Geometry, options: Options, flash: Flash) -> Rig {
        let frames = vec![vec![0; geometry.block_size as usize]; options.frames as usize];
        Rig {
            log: Log::new(geometry, options),
            flash,
            frames,
            pending: Vec::new(),
            geometry,
            options,
            fail_after: None,
            history: Vec::new(),
            reads: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// A freshly formatted log, ready.
    pub fn formatted(geometry: Geometry, options: Options) -> Rig {
        let mut rig = Rig::new(geometry, options, Flash::new(geometry.device_bytes()));
        rig.log
            .start(Start::Format { uuid: TierId::new(*b"0123456789abcdef"), bindings: Vec::new() });
        let events = rig.settle();
        assert!(matches!(events[..], [Event::Start(StartEvent::Ready(_))]), "{events:?}");
        rig
    }

    /// This device under a new log.
    pub fn restart(&self, how: Start) -> Rig {
        let mut rig = Rig::new(self.geometry, self.options, self.flash.clone());
        rig.log.start(how);
        rig
    }

    /// Polls every effect: immediate ones are executed, device effects wait for `complete`.
    pub fn poll(&mut self) {
        let mut segments = Vec::new();
        while let Some(effect) = self.log.poll_effect(&mut segments) {
            match effect {
                Effect::Checksum { token, seed } => {
                    assert_eq!(token.owner, Owner::Log);
                    let crc = crc32c::crc32c_append(seed, &self.gather(&segments));
                    self.log.handle_checksum(token.index, crc);
                }
                Effect::Write { token, device: Device::Flash, offset, length } => {
                    let bytes = self.gather(&segments);
                    assert_eq!(bytes.len(), length as usize);
                    let offset = offset as usize;
                    assert!(offset + bytes.len() <= self.flash.current.len());
                    self.pending.push((token, Pending::Write { offset, bytes }));
                }
                Effect::Read { token, device: Device::Flash, offset, length } => {
                    assert_eq!(segments.iter().map(|s| s.length).sum::<u32>(), length);
                    let segments = segments.clone();
                    self.pending.push((token, Pending::Read { offset: offset as usize, segments }));
                }
                Effect::Sync { token, device: Device::Flash } => {
                    let through = self.flash.clock;
                    self.pending.push((token, Pending::Sync { through }));
                }
                other => panic!("unexpected effect {other:?}"),
            }
        }
    }

    fn gather(&mut self, segments: &[Segment]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for s in segments {
            let n = s.length as usize;
            match s.place {
                Place::Frame { frame, offset } => {
                    let at = offset as usize;
                    bytes.extend_from_slice(&self.frames[frame.0 as usize][at..at + n]);
                }
                Place::Meta { buffer, offset } => {
                    let at = offset as usize;
                    bytes.extend_from_slice(&self.log.meta(buffer)[at..at + n]);
                }
                Place::Void => bytes.resize(bytes.len() + n, 0),
                Place::Request { .. } => panic!("the log names no requests"),
            }
        }
        bytes
    }

    /// Number of device effects in flight.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Completes the `n`th device effect in flight.
    pub fn complete(&mut self, n: usize) {
        let (token, pending) = self.pending.remove(n);
        let modifies = !matches!(pending, Pending::Read { .. });
        if modifies && let Some(left) = &mut self.fail_after {
            if *left == 0 {
                self.log.handle_completion(token.index, Err(IoError::Device));
                return self.poll();
            }
            *left -= 1;
        }
        match pending {
            Pending::Read { mut offset, segments } => {
                self.reads.push((offset as u64, segments.iter().map(|s| s.length as usize).sum()));
                let end = offset as u64 + segments.iter().map(|s| u64::from(s.length)).sum::<u64>();
                if self.unreadable.iter().any(|bad| (offset as u64..end).contains(bad)) {
                    self.log.handle_completion(token.index, Err(IoError::Device));
                    return self.poll();
                }
                for s in segments {
                    let Place::Meta { buffer, offset: at } = s.place else {
                        panic!("the log reads into its own buffers")
                    };
                    let (at, n) = (at as usize, s.length as usize);
                    let from = &self.flash.current[offset..offset + n];
                    self.log.meta_mut(buffer)[at..at + n].copy_from_slice(from);
                    offset += n;
                }
            }
            Pending::Write { offset, bytes } => {
                self.history.push((offset as u64, bytes.len()));
                self.flash.write(offset, bytes);
            }
            Pending::Sync { through } => {
                self.history.push((u64::MAX, 0));
                self.flash.sync(through);
            }
        }
        self.log.handle_completion(token.index, Ok(()));
        self.poll();
    }

    /// Completes everything and returns the events. Freed regions are forgotten at once.
    pub fn settle(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.poll();
        loop {
            while let Some(event) = self.log.poll_event() {
                if let Event::RegionFreed { region } = event {
                    self.log.region_forgotten(region);
                }
                events.push(event);
            }
            self.poll();
            if self.pending.is_empty() {
                return events;
            }
            self.complete(0);
        }
    }

    /// Cuts the power; returns the device as the cut leaves it.
    pub fn cut(mut self, rng: &mut Rng) -> Flash {
        let under_way = self.writes_under_way();
        self.flash.cut(rng, under_way);
        self.flash
    }

    /// Cuts the power, with the given fate for each write that is not durable yet (see
    /// [`Flash::cut_by`]).
    pub fn cut_by(&self, fates: u64) -> Flash {
        let mut flash = self.flash.clone();
        flash.cut_by(fates, self.writes_under_way());
        flash
    }

    /// Number of writes that a cut now could keep, lose or tear.
    pub fn at_risk(&self) -> u32 {
        let writes = self.pending.iter().filter(|p| matches!(p.1, Pending::Write { .. }));
        (writes.count() + self.flash.volatile.len()) as u32
    }

    fn writes_under_way(&self) -> Vec<(usize, Vec<u8>)> {
        let write = |p: &Pending| match p {
            Pending::Write { offset, bytes } => Some((*offset, bytes.clone())),
            _ => None,
        };
        self.pending.iter().filter_map(|(_, p)| write(p)).collect()
    }

    /// The process dies, but the device keeps its power: writes in flight may or may not have
    /// happened.
    pub fn kill(mut self, rng: &mut Rng) -> Flash {
        for (_, p) in self.pending.drain(..) {
            if let Pending::Write { offset, bytes } = p
                && rng.one_in(2)
            {
                self.flash.write(offset, bytes);
            }
        }
        self.flash
    }

    /// Puts the content for (key, version) into a frame.
    pub fn fill(&mut self, frame: u32, key: BlockKey, version: u64) {
        content(key, version, &mut self.frames[frame as usize]);
    }

    /// Fills a frame and appends it whole and dirty; the frame is the ticket's.
    pub fn append(&mut self, ticket: u64, key: BlockKey, version: u64, urgent: bool) {
        let frame = Frame((ticket % u64::from(self.options.frames)) as u32);
        self.fill(frame.0, key, version);
        let valid = self.geometry.all_granules();
        self.log.append(Append { ticket, key, valid, dirty: valid, frame, urgent });
        self.poll();
    }

    /// Appends a carried record of a region being reclaimed.
    pub fn carry(&mut self, ticket: u64, key: BlockKey, version: u64) {
        let frame = Frame((ticket % u64::from(self.options.frames)) as u32);
        self.fill(frame.0, key, version);
        let valid = self.geometry.all_granules();
        self.log.carry(Append { ticket, key, valid, dirty: valid, frame, urgent: true });
        self.log.close_carried();
    }

    /// Reinserts a clean record.
    pub fn reinsert(&mut self, ticket: u64, key: BlockKey, version: u64) {
        let frame = Frame((ticket % u64::from(self.options.frames)) as u32);
        self.fill(frame.0, key, version);
        let valid = self.geometry.all_granules();
        self.log.reinsert(Append {
            ticket,
            key,
            valid,
            dirty: Granules::EMPTY,
            frame,
            urgent: true,
        });
        self.log.close_carried();
    }

    /// Reads a record's payload; `None` if its checksum fails.
    pub fn read(
        &self,
        key: BlockKey,
        p: Position,
        valid: Granules,
        checksum: u32,
    ) -> Option<Vec<u8>> {
        let at = self.log.byte_offset(p) as usize;
        let bytes = &self.flash.current[at..at + self.log.payload_bytes(valid) as usize];
        let crc = crc32c::crc32c_append(self.log.payload_seed(key, p), bytes);
        (crc == checksum).then(|| bytes.to_vec())
    }

    /// The version of a record found by recovery; panics unless the payload is that of its
    /// block.
    pub fn version(&self, r: &Record) -> u64 {
        let bytes =
            self.read(r.key, r.position, r.valid, r.checksum).expect("the payload verifies");
        let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
        let mut whole = vec![0; self.geometry.block_size as usize];
        content(r.key, version, &mut whole);
        let g = self.geometry.granule_bytes() as usize;
        let compact: Vec<u8> = (0..16)
            .filter(|&n| r.valid.contains(n as u32))
            .flat_map(|n| whole[n * g..(n + 1) * g].to_vec())
            .collect();
        assert_eq!(bytes, compact, "the payload is that of block {} version {version}", r.key);
        version
    }
}

/// The content of a block at a version. Every granule names its block and version.
pub fn content(key: BlockKey, version: u64, out: &mut [u8]) {
    for (n, granule) in out.chunks_mut(256).enumerate() {
        let mut rng = Rng(key.0 ^ version << 20 ^ n as u64);
        for word in granule.chunks_mut(8) {
            word.copy_from_slice(&rng.next().to_le_bytes());
        }
        granule[..8].copy_from_slice(&key.0.to_le_bytes());
        granule[8..16].copy_from_slice(&version.to_le_bytes());
    }
}

pub fn key(block: u64) -> BlockKey {
    BlockKey::new(Volume(1), block)
}

/// The event for a marked extent.
pub fn marked(ticket: u64) -> Event {
    Event::Mark { ticket, answer: MarkAnswer::Active(Ok(())) }
}

/// The event for an extent that gets no mark.
pub fn unmarked(ticket: u64) -> Event {
    Event::Mark { ticket, answer: MarkAnswer::Unmarked }
}

/// The event that answers a request to the log.
pub fn answer(ticket: u64, kind: AnswerKind, result: Outcome) -> Event {
    Event::Answer { ticket, kind, result }
}

/// The event for a tombstone of the block that recovery has found.
pub fn tombstone(key: BlockKey) -> Event {
    Event::Start(StartEvent::RecoveredTombstone { key })
}
