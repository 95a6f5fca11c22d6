//! An independent account of what is durable on flash. It is based only on what reached the
//! devices: which operations were submitted, with which bytes, and which of them the devices
//! reported as ended. The watch compares this account with the log's own claims and with the writes
//! to the backing stores:
//!
//! - a header or a superblock claims that batches and superblocks were durable only if they were
//!   when it was submitted;
//! - while one copy of the superblock is written, the other is durable;
//! - a directory is written while nothing else of its region is in flight, and has the entries of
//!   all batches of the region and no others;
//! - with write-back, until the log fails, a version of a sector is durable in the log before it is
//!   written to the backing store and, if the store keeps stamps, a durable stamp there has seen
//!   it;
//! - a stamp claims that records are on the store only if they are durable there;
//! - a superblock frees a region only after stamps have been made of the stores that took over its
//!   records, except for blocks whose newest record is elsewhere and has the same data or newer data as dirty;
//! - while a superblock that a start may find says that nothing bypasses the log on its way to a
//!   store, nothing is zeroed there, and no earlier zeroing may be lost.
//!
//! Each life has its own watch. Everything on the devices when the life begins counts as durable,
//! because a start syncs the flash device before it reads it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use forebay_block::Volume;
use forebay_device::Verb;
use forebay_device::memory::{Happening, PendingIo};
use forebay_effect::Device;
use forebay_flash::format::batch::{BatchEntry, BatchHeader, EntryKind, MOVED};
use forebay_flash::format::directory::{DirectoryHeader, RegionContents};
use forebay_flash::format::region::RegionHeader;
use forebay_flash::format::superblock::Superblock;
use forebay_flash::{
    BatchSequence, BlockKey, Geometry, RegionIndex, RegionSequence, Stamp, StampNumber,
    SuperblockGeneration, TierId,
};
use smallvec::SmallVec;

use crate::oracle::{Value, WriteId};
use crate::sectors::value_of;

const SECTOR: u64 = 512;

/// Sectors of flash (first and count), as written by one operation.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    count: u64,
    operation: u64,
}

/// A batch that was written to flash.
#[derive(Clone, Debug, Default)]
struct Batch {
    parts: Vec<Part>,
    /// Number of payloads in cells that have not been submitted yet.
    cells_missing: u32,
    region: RegionSequence,
    entries: Vec<BatchEntry>,
}

/// A sector that was written to a store that keeps stamps.
#[derive(Clone, Copy, Debug)]
struct Unstamped {
    volume: Volume,
    sector: u64,
    id: WriteId,
    /// The region of the log that holds its data.
    region: RegionSequence,
    /// Whether a stamp was ordered since it was durable on the store.
    ordered: bool,
}

/// The account and the violations; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Watch {
    geometry: Geometry,
    uuid: Option<TierId>,
    /// For each sector, the last operation whose bytes are durable.
    durable: Vec<u64>,
    /// Writes that have ended but are not durable yet, in order; below, how many came before them.
    landed: VecDeque<Part>,
    landed_before: u64,
    /// Syncs in flight: their numbers, and how many landed writes they cover.
    syncs: Vec<(u64, u64)>,
    writing: Vec<Part>,
    batches: BTreeMap<BatchSequence, Batch>,
    /// Batches up to this one were checked to be durable.
    checked: BatchSequence,
    /// Copies of superblocks by generation, with a bit mask of the volumes to whose stores nothing
    /// bypasses the log.
    superblocks: Vec<(SuperblockGeneration, Part, u64)>,
    /// Zeroings of stores that may still be lost: volume, number, and whether they have ended.
    /// Below, syncs in flight: their numbers, and the zeroings that they cover.
    zeroings: Vec<(Volume, u64, bool)>,
    backing_syncs: Vec<(u64, Vec<u64>)>,
    /// For each page of a cell that awaits a payload: its batch and entry.
    expected: HashMap<u64, (BatchSequence, BatchEntry)>,
    /// For each version of a sector of a volume: the batches that contain it.
    versions: HashMap<(Volume, u64, WriteId), SmallVec<[BatchSequence; 2]>>,
    /// Versions of sectors that were written to stores past the log, over newer versions: two writes
    /// were in flight together, and the first reached the store last. (The oracle checks that both
    /// were in flight.)
    overtaken: HashSet<(Volume, u64, WriteId)>,
    /// Earlier versions existed when the life began.
    first_version: WriteId,
    /// Data that was written to stores and is in no stamp yet.
    unstamped: Vec<Unstamped>,
    /// Sectors of the medium that hold something other than what was written (first and end).
    harmed: Vec<(u64, u64)>,
    /// The first violation.
    pub breach: Option<String>,
}

impl Watch {
    /// Creates the watch of a life with flash of this geometry; the first write of the life has the
    /// number `first_version`.
    pub fn new(geometry: Geometry, first_version: WriteId) -> Watch {
        Watch {
            durable: vec![0; (geometry.device_bytes() / SECTOR) as usize],
            geometry,
            uuid: None,
            landed: VecDeque::new(),
            landed_before: 0,
            syncs: Vec::new(),
            writing: Vec::new(),
            batches: BTreeMap::new(),
            checked: BatchSequence::NONE,
            superblocks: Vec::new(),
            zeroings: Vec::new(),
            backing_syncs: Vec::new(),
            expected: HashMap::new(),
            versions: HashMap::new(),
            overtaken: HashSet::new(),
            first_version,
            unstamped: Vec::new(),
            harmed: Vec::new(),
            breach: None,
        }
    }

    /// Records an event on the flash device.
    pub fn see_flash(&mut self, happening: &Happening) {
        match happening {
            Happening::Submitted { io, data } => match io.verb {
                Verb::Write => self.submitted(io, data),
                Verb::Sync => {
                    let covers = self.landed_before + self.landed.len() as u64;
                    self.syncs.push((io.number, covers));
                }
                Verb::Read | Verb::WriteZeroes { .. } => {}
            },
            Happening::Completed { io, done } => self.completed(io, *done),
            Happening::Harmed { offset, length, .. } => {
                let first = offset / SECTOR;
                self.harmed.push((first, (offset + length).div_ceil(SECTOR)));
            }
        }
    }

    /// Whether the medium has changed any data on flash.
    pub fn is_harmed(&self) -> bool {
        !self.harmed.is_empty()
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        self.breach.get_or_insert_with(what);
    }

    // ---- completions ----

    fn completed(&mut self, io: &PendingIo, done: Option<u64>) {
        let operation = io.number + 1;
        match io.verb {
            Verb::Write => {
                self.writing.retain(|w| w.operation != operation);
                let count = done.unwrap_or(0) / SECTOR;
                if count > 0 {
                    let first = io.offset / SECTOR;
                    self.landed.push_back(Part { first, count, operation });
                }
            }
            Verb::Sync => {
                let Some(at) = self.syncs.iter().position(|s| s.0 == io.number) else { return };
                let (_, covers) = self.syncs.swap_remove(at);
                if done.is_none() {
                    return;
                }
                while self.landed_before < covers
                    && let Some(part) = self.landed.pop_front()
                {
                    self.landed_before += 1;
                    for s in &mut self.durable[part.first as usize..][..part.count as usize] {
                        *s = (*s).max(part.operation);
                    }
                }
            }
            Verb::Read | Verb::WriteZeroes { .. } => {}
        }
    }

    fn is_durable(&self, part: &Part) -> bool {
        let sectors = &self.durable[part.first as usize..][..part.count as usize];
        sectors.iter().all(|&operation| operation >= part.operation)
    }

    fn is_batch_durable(&self, batch: &Batch) -> bool {
        batch.cells_missing == 0 && batch.parts.iter().all(|p| self.is_durable(p))
    }

    // ---- submissions ----

    fn submitted(&mut self, io: &PendingIo, data: &[u8]) {
        let page_size = u64::from(self.geometry.page_size);
        let (first, count) = (io.offset / SECTOR, io.length / SECTOR);
        let write = Part { first, count, operation: io.number + 1 };
        self.writing.push(write);
        let page = io.offset / page_size;
        if page < u64::from(self.geometry.first_region_page()) {
            self.superblock_submitted(page, data, write);
        } else if page < self.geometry.first_cell_page() {
            self.batch_submitted(page as u32, data, write);
        } else {
            self.cells_submitted(page, data, write);
        }
    }

    fn superblock_submitted(&mut self, page: u64, data: &[u8], write: Part) {
        let Ok(superblock) = Superblock::decode(data) else { return };
        self.uuid = Some(superblock.uuid);
        let own = page / u64::from(self.geometry.superblock_pages);
        let sectors = u64::from(self.geometry.superblock_pages * self.geometry.page_size) / SECTOR;
        let other = (1 - own) * sectors..(2 - own) * sectors;
        let open = |p: &&Part| p.first < other.end && other.start < p.first + p.count;
        let unsettled = self.writing.iter().chain(&self.landed).find(open).is_some();
        let generation = superblock.generation;
        if unsettled {
            self.say(|| {
                format!("superblock {generation} is written before its other copy is durable")
            });
        }
        self.check_claims("a superblock", superblock.synced, SuperblockGeneration::NONE);
        self.check_freed(superblock.tail_region);
        let logged = superblock.bindings.iter().filter(|b| b.logged != StampNumber::NONE);
        let logged = logged.fold(0, |all, b| all | 1_u64.checked_shl(b.volume.0).unwrap_or(0));
        let lost = self.zeroings.iter().find(|z| logged >> z.0.0 & 1 == 1);
        if let Some(&(volume, number, _)) = lost {
            self.say(|| {
                format!(
                    "superblock {generation} says that nothing is written to volume {} past the \
                     log, but operation {number}, a zeroing, is not durable there",
                    volume.0
                )
            });
        }
        self.superblocks.push((generation, write, logged));
    }

    /// All regions before `tail` are freed: no data that is in no stamp may be in them alone.
    fn check_freed(&mut self, tail: RegionSequence) {
        let mut unstamped = std::mem::take(&mut self.unstamped);
        unstamped.retain_mut(|u| {
            if u.region >= tail {
                return true;
            }
            match self.region_that_holds(u) {
                Some(region) if region >= tail => u.region = region,
                Some(region) => self.say(|| {
                    format!(
                        "region {region} is freed, but no stamp says that volume {} holds write {} \
                         of sector {}",
                        u.volume.0, u.id, u.sector
                    )
                }),
                None => return false,
            }
            true
        });
        self.unstamped = unstamped;
    }

    /// The region with the record from which a start would have this sector, or a newer version; `None` if a newer
    /// tombstone says that the store has it.
    fn region_that_holds(&self, u: &Unstamped) -> Option<RegionSequence> {
        let sectors = self.block_sectors();
        let key = BlockKey::new(u.volume, u.sector / sectors);
        let granule = u.sector % sectors * SECTOR / u64::from(self.geometry.granule_bytes());
        for batch in self.batches.values().rev() {
            let Some(entry) = batch.entries.iter().rfind(|entry| entry.key == key) else {
                continue;
            };
            if entry.kind == EntryKind::Tombstone {
                return None;
            }
            // What is newer than a record replaces it as a whole.
            if !entry.dirty.contains(granule as u32) {
                break;
            }
            if self.is_batch_durable(batch) {
                return Some(batch.region);
            }
        }
        Some(u.region)
    }

    fn batch_submitted(&mut self, page: u32, data: &[u8], write: Part) {
        let Some(uuid) = self.uuid else { return };
        let page_size = self.geometry.page_size as usize;
        let mut entries = Vec::new();
        let mut at = 0;
        if let Ok(region) = RegionHeader::decode(&data[..page_size.min(data.len())], uuid, page) {
            self.check_claims("a region's header", region.synced, region.generation);
            at = 1;
        }
        let Some(bytes) = data.get(at * page_size..(at + 1) * page_size) else { return };
        let number = page + at as u32;
        let header = BatchHeader::decode(bytes, uuid, number, &self.geometry, &mut entries);
        // The remainder of a write that ended early may begin anywhere.
        let Ok(header) = header else { return self.directory_submitted(page, data, write, uuid) };
        self.check_claims("a batch's header", header.synced, header.generation);
        if self.batches.contains_key(&header.sequence) {
            // A retry of the same write.
            return;
        }
        let region = header.region_sequence;
        let mut batch =
            Batch { parts: vec![write], cells_missing: 0, region, entries: entries.clone() };
        for entry in entries.iter().filter(|e| e.kind == EntryKind::Data) {
            if !self.geometry.has_slots() {
                let from = (at + usize::from(entry.offset)) * page_size;
                self.note_versions(header.sequence, entry, data.get(from..).unwrap_or_default());
            } else if entry.offset != MOVED {
                let cell = u64::from(entry.cell) * u64::from(self.geometry.block_pages());
                let page = self.geometry.first_cell_page() + cell;
                self.expected.insert(page, (header.sequence, *entry));
                batch.cells_missing += 1;
            }
        }
        self.batches.insert(header.sequence, batch);
    }

    fn directory_submitted(&mut self, page: u32, data: &[u8], write: Part, uuid: TierId) {
        let mut contents = RegionContents::default();
        let decoded = DirectoryHeader::decode(data, uuid, page, &self.geometry, &mut contents);
        let Ok(d) = decoded else { return };
        let region = d.region_sequence.region(self.geometry.regions);
        let sectors = u64::from(self.geometry.page_size) / SECTOR;
        let start = u64::from(self.geometry.region_start(region)) * sectors;
        let end = start + u64::from(self.geometry.region_pages) * sectors;
        let mut writing = self.writing.iter().filter(|w| w.operation != write.operation);
        if writing.any(|w| w.first < end && start < w.first + w.count) {
            self.say(|| format!("the directory of region {region} is written before its batches"));
        }
        let own = self.batches.iter().filter(|(_, b)| b.region == d.region_sequence);
        let listed = contents.each(&self.geometry).map(|(_, _, entries)| entries);
        let listed = (0..).map(|n| d.first_batch + n).zip(listed);
        if !own.map(|(&sequence, b)| (sequence, &b.entries[..])).eq(listed) {
            self.say(|| format!("the directory of region {region} is not that of its batches"));
        }
    }

    fn cells_submitted(&mut self, page: u64, data: &[u8], write: Part) {
        let page_size = self.geometry.page_size as usize;
        let sectors = page_size as u64 / SECTOR;
        for n in 0..data.len().div_ceil(page_size) {
            let Some((sequence, entry)) = self.expected.remove(&(page + n as u64)) else {
                continue;
            };
            let payload = &data[n * page_size..];
            self.note_versions(sequence, &entry, payload);
            let count = u64::from(self.geometry.payload_pages(entry.valid)) * sectors;
            let part = Part { first: write.first + n as u64 * sectors, count, ..write };
            if let Some(batch) = self.batches.get_mut(&sequence) {
                batch.parts.push(part);
                batch.cells_missing -= 1;
            }
        }
    }

    fn block_sectors(&self) -> u64 {
        u64::from(self.geometry.block_size) / SECTOR
    }

    /// Records which versions of which sectors a payload contains.
    fn note_versions(&mut self, sequence: BatchSequence, entry: &BatchEntry, payload: &[u8]) {
        let granule = self.geometry.granule_bytes() as usize;
        let block_sectors = self.block_sectors();
        let granules = (0..16).filter(|&g| entry.valid.contains(g));
        for (g, bytes) in granules.zip(payload.chunks_exact(granule)) {
            let at = entry.key.block().0 * block_sectors + u64::from(g) * granule as u64 / SECTOR;
            for (n, sector) in bytes.chunks_exact(SECTOR as usize).enumerate() {
                let (volume, at) = (entry.key.volume(), at + n as u64);
                if let Value::Write(id) = value_of(sector, volume.0, at)
                    && id >= self.first_version
                {
                    self.versions.entry((volume, at, id)).or_default().push(sequence);
                }
            }
        }
    }

    /// Checks the claim that batches up to `synced`, and a superblock of `generation`, were
    /// durable.
    fn check_claims(&mut self, who: &str, synced: BatchSequence, generation: SuperblockGeneration) {
        if synced > self.checked {
            let wrong = (self.batches.range(self.checked.next()..=synced))
                .find(|(_, batch)| !self.is_batch_durable(batch))
                .map(|(&sequence, _)| sequence);
            if let Some(sequence) = wrong {
                self.say(|| {
                    format!("{who} says that batch {sequence} was durable, but it was not")
                });
            }
            self.checked = synced;
        }
        let mut copies = self.superblocks.iter().filter(|s| s.0 == generation).peekable();
        if copies.peek().is_some() && !copies.any(|s| self.is_durable(&s.1)) {
            self.say(|| {
                format!("{who} says that superblock {generation} was durable, but it was not")
            });
        }
    }

    /// Records a write to the backing store of a volume with write-back. `held`: the current
    /// contents of the store there. `past`: whether data that was never given to flash may be
    /// written.
    pub fn see_backing_write(
        &mut self,
        io: &PendingIo,
        data: &[u8],
        held: &[u8],
        seen: Option<BatchSequence>,
        (past, noted): (bool, bool),
    ) {
        let Device::Backing(volume) = io.device else { return };
        let sectors = data.chunks_exact(SECTOR as usize).zip(held.chunks_exact(SECTOR as usize));
        for (n, (sector, held)) in sectors.enumerate() {
            let at = io.offset / SECTOR + n as u64;
            let Value::Write(id) = value_of(sector, volume.0, at) else { continue };
            // The other parts of a logical block are rewritten unchanged.
            if id < self.first_version || sector == held {
                continue;
            }
            let batches = self.versions.get(&(volume, at, id));
            let batches = batches.map_or(&[][..], SmallVec::as_slice);
            if past && batches.is_empty() {
                if noted {
                    self.check_passing(volume);
                }
                if matches!(value_of(held, volume.0, at), Value::Write(newer) if newer > id) {
                    self.overtaken.insert((volume, at, id));
                }
                continue;
            }
            let durable =
                |n: &BatchSequence| self.batches.get(n).is_some_and(|b| self.is_batch_durable(b));
            if !batches.iter().any(durable) {
                let logged = if batches.is_empty() { "not" } else { "not durable" };
                self.say(|| {
                    format!(
                        "write {id} of sector {at} of volume {} goes to the backing store, but in \
                         the log it is {logged}",
                        volume.0
                    )
                });
                return;
            }
            let Some(seen) = seen else { continue };
            if !batches.iter().any(|&n| n <= seen) {
                let first = batches.first().copied().unwrap_or_default();
                self.say(|| {
                    format!(
                        "write {id} of sector {at} of volume {} goes to the backing store from batch \
                         {first}; its stamp has seen {seen}",
                        volume.0
                    )
                });
                return;
            }
            let newest = batches.iter().max().and_then(|n| self.batches.get(n));
            if let (Some(batch), 0) = (newest, self.geometry.slots) {
                let (sector, region) = (at, batch.region);
                self.unstamped.push(Unstamped { volume, sector, id, region, ordered: false });
            }
        }
    }

    /// Records that a zeroing or a sync of a store is submitted or has ended. `noted`: whether
    /// flash must say that writes may bypass the log.
    pub fn see_backing_zeroes(&mut self, happening: &Happening, noted: bool) {
        let (io, ended) = match happening {
            Happening::Submitted { io, .. } => (io, None),
            Happening::Completed { io, done } => (io, Some(*done)),
            Happening::Harmed { .. } => return,
        };
        let Device::Backing(volume) = io.device else { return };
        match (io.verb == Verb::Sync, ended) {
            (true, None) => {
                let ended = self.zeroings.iter().filter(|z| z.0 == volume && z.2);
                self.backing_syncs.push((io.number, ended.map(|z| z.1).collect()));
            }
            (true, Some(done)) => {
                let at = self.backing_syncs.iter().position(|s| s.0 == io.number);
                let Some((_, covers)) = at.map(|at| self.backing_syncs.swap_remove(at)) else {
                    return;
                };
                self.zeroings.retain(|z| done.is_none() || !covers.contains(&z.1));
            }
            (false, None) => {
                self.zeroings.push((volume, io.number, false));
                if noted {
                    self.check_passing(volume);
                }
            }
            (false, Some(_)) => {
                let mut zeroings = self.zeroings.iter_mut();
                zeroings.find(|z| z.1 == io.number).into_iter().for_each(|z| z.2 = true);
            }
        }
    }

    fn check_passing(&mut self, volume: Volume) {
        let durable = self.superblocks.iter().filter(|s| self.is_durable(&s.1));
        let Some(newest) = durable.map(|s| s.0).max() else { return };
        let mut found = self.superblocks.iter().filter(|s| s.0 >= newest);
        if let Some(&(generation, ..)) = found.find(|s| s.2 >> volume.0 & 1 == 1) {
            self.say(|| {
                format!(
                    "volume {} is written past the log, but superblock {generation} says that \
                     nothing is",
                    volume.0
                )
            });
        }
    }

    // ---- stamps ----

    /// The newest batch of this life that is durable together with all batches before it, if there
    /// is one. (Payloads in cells are not checked: the same data may be there from before.)
    pub fn newest_durable(&self) -> Option<BatchSequence> {
        let mut newest: Option<BatchSequence> = None;
        for (&sequence, batch) in &self.batches {
            let durable = batch.parts.first().is_some_and(|header| self.is_durable(header));
            if newest.is_some_and(|n| n.next() != sequence) || !durable {
                break;
            }
            newest = Some(sequence);
        }
        newest
    }

    /// Checks a stamp that is ordered for a volume whose store durably holds `image`: everything
    /// that it calls complete must be there.
    pub fn see_order(&mut self, volume: Volume, stamp: Stamp, image: &[u8]) {
        for written in self.unstamped.iter_mut().filter(|u| u.volume == volume) {
            let held = &image[(written.sector * SECTOR) as usize..][..SECTOR as usize];
            let older = matches!(
                value_of(held, volume.0, written.sector),
                Value::Write(older) if older < written.id
            );
            written.ordered |= !older;
        }
        if self.geometry.has_slots() {
            return;
        }
        let (granule, sectors) = (u64::from(self.geometry.granule_bytes()), self.block_sectors());
        let mut newest = HashMap::new();
        for (&sequence, batch) in &self.batches {
            newest.extend(batch.entries.iter().map(|e| (e.key, (sequence, e.dirty & e.valid))));
        }
        let owed = |&(v, at, id): &(Volume, u64, WriteId), batches: &[BatchSequence]| {
            let key = BlockKey::new(v, at / sectors);
            let &(last, dirty) = newest.get(&key)?;
            let is_dirty = dirty.contains((at % sectors * SECTOR / granule) as u32);
            let counts = v == volume && is_dirty && last <= stamp.complete;
            (counts && batches.contains(&last)).then_some((at, (last, id)))
        };
        let complete = self.versions.iter().filter_map(|(key, batches)| owed(key, batches));
        let complete: BTreeMap<u64, (BatchSequence, WriteId)> = complete.collect();
        for (at, (last, id)) in complete {
            let held = &image[(at * SECTOR) as usize..][..SECTOR as usize];
            if let Value::Write(older) = value_of(held, volume.0, at)
                && older < id
                && !self.overtaken.contains(&(volume, at, older))
            {
                return self.say(|| {
                    format!(
                        "a stamp calls volume {} complete to batch {}, and sector {at} has write \
                         {older}, where batch {last} has write {id}",
                        volume.0, stamp.complete
                    )
                });
            }
        }
    }

    /// Records that the ordered stamp is durable.
    pub fn see_stamp(&mut self, volume: Volume) {
        self.unstamped.retain(|u| u.volume != volume || !u.ordered);
    }

    // ---- undetectable damage ----

    /// Whether the damage by the medium may be undetectable if the power is cut now and leaves
    /// `image` on flash, without the bytes in `wiped`. This is so if the damage affects the newest
    /// batches or the newest superblock, and no surviving data records that they were durable: the
    /// log then looks as if it had ended before them.
    pub fn is_untold(&self, image: &[u8], wiped: Range<usize>) -> bool {
        let (known, generation) = self.known_in(image);
        let wiped = (wiped.start as u64 / SECTOR, wiped.end as u64 / SECTOR);
        let is_harmed = |p: &Part| {
            let harmed = self.harmed.iter().chain([&wiped]);
            harmed.into_iter().any(|&(from, to)| p.first < to && from < p.first + p.count)
        };
        let newest = self.superblocks.iter().filter(|s| self.is_durable(&s.1)).map(|s| s.0).max();
        if newest.is_some_and(|newest| newest > generation) {
            return true;
        }
        let mut batches = self.batches.iter();
        if batches.any(|(&sequence, b)| sequence > known && b.parts.iter().any(is_harmed)) {
            return true;
        }
        // The data from before this life: its batches end where those of this life begin.
        let before =
            self.batches.keys().next().map_or(BatchSequence::MAX, |first| first.previous());
        before > known
    }

    /// The newest batch and the newest superblock that surviving data records as durable.
    fn known_in(&self, image: &[u8]) -> (BatchSequence, SuperblockGeneration) {
        let (mut known, mut generation) = (BatchSequence::NONE, SuperblockGeneration::NONE);
        let Some(uuid) = self.uuid else { return (known, generation) };
        let g = &self.geometry;
        let page_size = g.page_size as usize;
        let sectors = page_size as u64 / SECTOR;
        let whole = |page: u64, pages: u64| {
            let (from, to) = (page * sectors, (page + pages) * sectors);
            !self.harmed.iter().any(|&(start, end)| start < to && from < end)
        };
        let superblock_pages = u64::from(g.superblock_pages);
        for copy in 0..2 {
            let bytes = &image[(copy * superblock_pages) as usize * page_size..];
            if let (true, Ok(s)) =
                (whole(copy * superblock_pages, superblock_pages), Superblock::decode(bytes))
            {
                (known, generation) = (known.max(s.synced), generation.max(s.generation));
            }
        }
        let mut entries = Vec::new();
        for region in RegionIndex::all(g.regions) {
            let start = g.region_start(region);
            let page = |n: u32| {
                let bytes = &image[(start + n) as usize * page_size..][..page_size];
                whole(u64::from(start + n), 1).then_some(bytes)
            };
            let mut batch =
                |n: u32| BatchHeader::decode(page(n)?, uuid, start + n, g, &mut entries).ok();
            let header = page(0).and_then(|bytes| RegionHeader::decode(bytes, uuid, start).ok());
            // The first two pages determine the region's sequence number; batches with another one
            // are ignored.
            let sequences = [header.map(|h| h.sequence), batch(1).map(|h| h.region_sequence)];
            let Some(sequence) = sequences.into_iter().flatten().max() else { continue };
            if let Some(h) = header {
                (known, generation) = (known.max(h.synced), generation.max(h.generation));
            }
            for h in (1..g.region_pages).filter_map(&mut batch) {
                if h.region_sequence == sequence {
                    (known, generation) = (known.max(h.synced), generation.max(h.generation));
                }
            }
        }
        (known, generation)
    }
}
