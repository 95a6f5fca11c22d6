//! Cuts the power at every instant of a journal, in several ways, and judges what is left.
//!
//! The journal is replayed onto `forebay_device::memory`, whose fault model decides what a cut
//! leaves of writes that no sync covers: any subset, torn at 512 B, with garbage.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use forebay_block::Volume;
use forebay_device::choices::{Choices, Seeded, Tape};
use forebay_device::memory::{CutStyle, DeviceOptions, MemoryDevices};
use forebay_device::{Devices, Io, IoTag, MemorySlice, Verb};
use forebay_effect::Device;
use forebay_engine::EngineError;
use forebay_engine::backing_header::{BackingHeader, COPY_BYTES, COPY_OFFSETS, HeaderError};
use forebay_engine::watch::{Operation, Part};

use crate::journal::{Event, Journal, Mark};
use crate::model::Model;
use crate::world::{
    BLOCK, FLASH_BYTES, Files, HEADER_AREA, Images, STORE_BYTES, VOLUME_BYTES, blocks, on_store,
    version_of,
};

/// One in so many starts after a cut is itself cut at every instant.
const NESTED_ONE_IN: u64 = 40;

/// Cuts at every instant: of the writes that are not durable, each device in turn keeps all (0) or
/// none (1), or the first of them tears each, with garbage where it begins (5).
const FIXED: [[u64; 3]; 5] = [[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0], [5, 0, 0]];

/// What was met; a test says what it must have met.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Instants at which the power was cut.
    pub instants: u64,
    /// Different states that cuts left.
    pub states: u64,
    /// States that cuts left with a header that says dirty.
    pub dirty: u64,
    /// Starts that were cut in turn.
    pub nested: u64,
    /// Instants after a stop that destaged.
    pub stopped: u64,
}

/// A run to be judged.
#[derive(Clone)]
pub struct Case<'a> {
    pub name: &'a str,
    /// What the files held before.
    pub images: &'a Images,
    pub events: &'a [Event],
    /// What the client expects before.
    pub model: Model,
    /// Cuts drawn at random at each instant, in addition to those that keep all or nothing of a device.
    pub seeds: u64,
    /// The run formats over another tier: where it was cut short, it is to be done again.
    pub formats: bool,
    /// The write policies under which the next starts are made, in turn.
    pub policies: &'a [&'a str],
}

/// Cuts everywhere. Returns what was met, and the files as they are in the end.
///
/// # Panics
/// If something that was promised does not hold.
pub fn judge(case: &Case<'_>) -> (Tally, Images) {
    let mut judge = Judge {
        files: Files::new(),
        seen: HashSet::new(),
        seen_stores: HashSet::new(),
        choices: Seeded::new(case.events.len() as u64),
        tally: Tally::default(),
    };
    let end = judge.walk(case, true);
    (judge.tally, end)
}

struct Judge {
    files: Files,
    seen: HashSet<(Vec<u32>, usize)>,
    /// States of the stores alone that were seen.
    seen_stores: HashSet<(Vec<u32>, usize)>,
    choices: Seeded,
    tally: Tally,
}

impl Judge {
    fn walk(&mut self, case: &Case<'_>, nest: bool) -> Images {
        let mut replay = Replay::new(case.images);
        let mut model = case.model.clone();
        let (mut marks, mut after) = (0, MemoryDevices::new(0));
        let mut synced = [0, 1].map(|volume| newest(case.images, volume).ok().flatten());
        for (instant, event) in case.events.iter().enumerate() {
            match event {
                Event::Mark(mark) => {
                    model.note(mark);
                    marks += 1;
                }
                event => {
                    model.stopped = false;
                    replay.feed(event);
                }
            }
            if !replay.is_news(event) {
                continue;
            }
            self.tally.instants += 1;
            if let Some(volume) = replay.header_synced(event) {
                synced[volume] = newest(&replay.contents(), volume).ok().flatten();
            }
            // A write that was acknowledged and that no store has yet is on flash only.
            let flash_only = model.lacking(&replay.contents());
            let fixed = FIXED.map(|choices| Tape::new(choices.into()));
            let seeded = (0..case.seeds).map(|seed| Seeded::new(seed << 32 | instant as u64));
            let ways = fixed.into_iter().map(|c| Box::new(c) as Box<dyn Choices>);
            let ways = ways.chain(seeded.map(|c| Box::new(c) as Box<dyn Choices>));
            for (way, mut choices) in ways.enumerate() {
                replay.devices.survivors_into(&mut after, CutStyle::Any, &mut *choices);
                let left: Vec<&[u8]> = contents(&after, case.images.len());
                let sums: Vec<u32> = left.iter().map(|image| crc32c::crc32c(image)).collect();
                let new_stores = self.seen_stores.insert((sums[..2].to_vec(), marks));
                if !self.seen.insert((sums, marks)) {
                    continue;
                }
                let place = format!("{}, instant {instant}, way {way}", case.name);
                let left = left.into_iter().map(<[u8]>::to_vec).collect();
                let cut = Cut { place, case, synced: &synced, left, new_stores, model: &model };
                self.examine(&cut, flash_only, nest);
            }
        }
        replay.contents().into_iter().map(<[u8]>::to_vec).collect()
    }

    /// One state that a cut left.
    fn examine(&mut self, cut: &Cut<'_>, flash_only: Option<(u32, u64)>, nest: bool) {
        let Cut { place, case, model, left, .. } = cut;
        self.tally.states += 1;
        let has_flash = case.images.len() > 2;
        let headers: Vec<_> = (0..2).map(|volume| cut.header(volume)).collect();
        let dirty = |h: &BackingHeader| h.dirty && (!has_flash || h.flash_uuid.is_some());
        let any_dirty = headers.iter().flatten().any(dirty);
        self.tally.dirty += u64::from(any_dirty);
        let is_dirty = |volume: u32| headers[volume as usize].as_ref().is_some_and(dirty);
        if let Some(block) = flash_only {
            assert!(is_dirty(block.0), "{place}: {block:?} is on flash only, and the header clean");
        }
        for block in blocks().filter(|block| !is_dirty(block.0)) {
            let fault = model.fault(block, on_store(left, block));
            assert_eq!(fault, None, "{place}: on the store alone, whose header is clean");
        }
        if model.serving {
            let opening = headers.iter().flatten().any(|header| header.opening);
            assert!(!opening, "{place}: an older flash tier would be taken for this one");
        }
        if model.stopped {
            self.tally.stopped += 1;
            assert!(!any_dirty, "{place}: dirty after a clean stop");
            assert_eq!(model.fault_on_stores(left), None, "{place}: after a clean stop");
        }
        let policy = case.policies[(self.tally.states % case.policies.len() as u64) as usize];
        if has_flash && cut.new_stores {
            self.start_without_flash(cut, policy, any_dirty);
        }
        self.start(cut, policy, has_flash, nest);
    }

    /// With an empty device in the place of the flash tier, a start is refused exactly if the
    /// store says that it is not the whole truth.
    fn start_without_flash(&self, cut: &Cut<'_>, policy: &str, any_dirty: bool) {
        let mut images = cut.left.clone();
        images[2].fill(0);
        self.files.put(&images);
        let journal = Arc::new(Journal::default());
        match self.files.start(policy, true, &journal, false) {
            Err(EngineError::DirtyElsewhere { .. }) if any_dirty => {}
            Err(error) => panic!("{}: without flash: {error}", cut.place),
            Ok(_) if any_dirty => panic!("{}: started without its flash tier", cut.place),
            Ok(run) => {
                for (block, bytes) in run.read_all() {
                    let fault = cut.model.fault(block, &bytes);
                    assert_eq!(fault, None, "{}: without flash", cut.place);
                }
                run.kill();
            }
        }
    }

    /// With everything in its place, a start succeeds and serves what was flushed; after the
    /// stop the stores alone hold what was read. Some such runs are cut in turn.
    fn start(&mut self, cut: &Cut<'_>, policy: &str, has_flash: bool, nest: bool) {
        let place = &cut.place;
        self.files.put(&cut.left);
        let journal = Arc::new(Journal::default());
        let mut run = self.files.start(policy, has_flash, &journal, false);
        if let (Err(EngineError::Bound { .. }), true) = (&run, cut.case.formats) {
            run = self.files.start(policy, has_flash, &journal, true);
        }
        let run = run.unwrap_or_else(|error| panic!("{place}: the next start: {error}"));
        let read = run.read_all();
        for (&block, bytes) in &read {
            assert_eq!(cut.model.fault(block, bytes), None, "{place}: after the next start");
            let version = version_of(block, &bytes[..512]).unwrap_or_default();
            if version_of(block, bytes) == Some(version) {
                journal.mark(Mark::Read(block, version));
            }
        }
        run.stop()
            .unwrap_or_else(|error| panic!("{place}: the stop after the next start: {error}"));
        let end = self.files.get(has_flash);
        for (block, bytes) in read {
            assert!(
                on_store(&end, block) == bytes.as_slice(),
                "{place}: {block:?} is not what was read"
            );
        }
        for volume in 0..2 {
            let header = newest(&end, volume).unwrap().unwrap();
            assert!(!header.dirty && !header.opening, "{place}: {header:?} after a clean stop");
        }
        if nest && self.choices.choose(NESTED_ONE_IN) == 0 {
            self.tally.nested += 1;
            let mut model = cut.model.clone();
            model.cut();
            let name = format!("{place} ({policy}), then");
            let (images, events, policies) = (&cut.left, &journal.take()[..], cut.case.policies);
            let case = Case { name: &name, images, events, model, policies, ..cut.case.clone() };
            let replayed = self.walk(&case, false);
            assert!(replayed == end, "{place}: the journal is not what the files got");
        }
    }
}

/// A cut, and what is known at that instant.
struct Cut<'a> {
    place: String,
    case: &'a Case<'a>,
    /// The newest headers that the engine was told are durable.
    synced: &'a [Option<BackingHeader>; 2],
    left: Images,
    /// The stores were not like this at a cut before.
    new_stores: bool,
    model: &'a Model,
}

impl Cut<'_> {
    /// The newest header of a volume. What was synced is never lost, nor older.
    fn header(&self, volume: usize) -> Option<BackingHeader> {
        let place = &self.place;
        match (newest(&self.left, volume), self.synced[volume]) {
            (Ok(Some(left)), Some(synced)) => {
                assert!(left.update >= synced.update, "{place}: an older header: {left:?}");
                Some(left)
            }
            (left, Some(synced)) => panic!("{place}: {left:?} instead of {synced:?}"),
            (left, None) => left.ok().flatten(),
        }
    }
}

/// The newest header of a volume, if there is one.
fn newest<T: AsRef<[u8]>>(
    images: &[T],
    volume: usize,
) -> Result<Option<BackingHeader>, HeaderError> {
    let start = if volume == 0 { 0 } else { STORE_BYTES - HEADER_AREA };
    let area = &images[volume].as_ref()[start..start + HEADER_AREA];
    let copies = COPY_OFFSETS.map(|at| &area[at as usize..at as usize + COPY_BYTES]);
    BackingHeader::newest(copies, BackingHeader::is_blank(area))
}

/// The devices as the journal moves them.
struct Replay {
    devices: MemoryDevices,
    /// The number of each operation under way, here and there, and its bytes.
    under_way: Vec<(u64, u64, Vec<u8>)>,
    /// The numbers of all syncs so far, with what they were for.
    syncs: HashMap<u64, (Device, Part)>,
    count: usize,
}

impl Replay {
    fn new(images: &Images) -> Replay {
        let mut devices = MemoryDevices::new(0);
        for (index, image) in images.iter().enumerate() {
            let size = if index < 2 { STORE_BYTES } else { FLASH_BYTES } as u64;
            devices.add_image(device(index), DeviceOptions::sized(size), image.clone());
        }
        Replay { devices, under_way: Vec::new(), syncs: HashMap::new(), count: images.len() }
    }

    fn feed(&mut self, event: &Event) {
        match event {
            Event::Begin { number, operation } => {
                let Operation { device, verb, part, offset, length, bytes } = operation;
                let own = *device != Device::Backing(Volume(0)) || *part == Part::Header;
                let shift = if own || *verb == Verb::Sync { 0 } else { HEADER_AREA as u64 };
                let mut bytes = bytes.clone();
                let slice = MemorySlice { pointer: bytes.as_mut_ptr(), length: bytes.len() };
                let memory = if *verb == Verb::Write { &[slice][..] } else { &[] };
                let (tag, offset) = (IoTag(*number), offset + shift);
                self.under_way.push((*number, self.devices.operations(), bytes));
                let (device, verb, length) = (*device, *verb, *length);
                if verb == Verb::Sync {
                    self.syncs.insert(*number, (device, *part));
                }
                // SAFETY: the bytes are kept until the operation has ended.
                unsafe { self.devices.submit(Io { tag, device, verb, offset, length, memory }) };
            }
            Event::End { number } => {
                let at = self.under_way.iter().position(|o| o.0 == *number).unwrap();
                let (_, there, _bytes) = self.under_way.remove(at);
                let mut pending = (0..).map_while(|index| self.devices.pending_io(index));
                let index = pending.position(|io| io.number == there).unwrap();
                self.devices.complete(index);
            }
            Event::Mark(_) => {}
        }
    }

    /// Whether a cut at this event may leave what one at the event before could not, or is to be
    /// judged otherwise. What has begun may have happened already; its end changes nothing.
    fn is_news(&self, event: &Event) -> bool {
        match event {
            Event::Begin { operation, .. } => operation.verb != Verb::Sync,
            Event::End { number } => self.syncs.contains_key(number),
            Event::Mark(mark) => {
                !matches!(mark, Mark::Issued(..) | Mark::FlushBegins(_) | Mark::Read(..))
            }
        }
    }

    /// The volume whose header's sync has ended with this event.
    fn header_synced(&self, event: &Event) -> Option<usize> {
        let Event::End { number } = event else { return None };
        match self.syncs.get(number)? {
            (Device::Backing(volume), Part::Header) => Some(volume.0 as usize),
            _ => None,
        }
    }

    /// What reads see.
    fn contents(&self) -> Vec<&[u8]> {
        contents(&self.devices, self.count)
    }
}

fn contents(devices: &MemoryDevices, count: usize) -> Vec<&[u8]> {
    (0..count).map(|index| devices.contents(device(index))).collect()
}

fn device(index: usize) -> Device {
    if index < 2 { Device::Backing(Volume(index as u32)) } else { Device::Flash }
}

// The layouts of the two stores are what `Replay::feed` and `newest` take them to be.
const _: () = assert!(STORE_BYTES == HEADER_AREA + VOLUME_BYTES && VOLUME_BYTES >= 12 * BLOCK);
