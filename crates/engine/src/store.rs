//! Backing stores: opens and measures them, and maintains their headers.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use forebay_config::{BackingLayout, Volume};
use forebay_device::StoreSyncs;
use forebay_device::file::{DirectIo, Notice, OpenOptions, Target};
use forebay_device::nbd::Export;
use forebay_effect::Device;
use forebay_flash::{
    Fingerprint, HeaderChange, Seal, StampNumber, StoreHeader, StoreId, StoreStamp, TierId,
};

use crate::backing_header::{AREA_BYTES, BackingHeader, COPY_BYTES, COPY_OFFSETS, HeaderError};
use crate::error::EngineError;
use crate::fingerprint::{StoreNote, VolumeContents, times};
use crate::header_area::HeaderArea;
use crate::options::GiveUp;
use crate::patience::{self, Answers, Progress};
use crate::store_head::{FoundHead, HeadSearch, HeadState, StoreHead};
use crate::store_plan::Plan;
use crate::watch::Watch;

/// An open backing store. Its target is moved to the devices; the header stays here.
#[derive(Debug)]
pub(crate) struct Store {
    pub name: String,
    pub path: PathBuf,
    pub read_only: bool,
    /// Its priority; 1 is the highest.
    pub priority: u8,
    /// Whether its requests may bypass the cache.
    pub bypass: bool,
    /// Exported bytes.
    pub size_bytes: u64,
    /// Taken when the devices are assembled.
    pub target: Option<StoreTarget>,
    pub notices: Vec<Notice>,
    /// What is known of its header.
    pub head: StoreHead,
    /// Accesses the store directly, not through the devices.
    area: HeaderArea,
    /// Where the data begin.
    data_at: u64,
    /// The export, if it is one.
    pub export: Option<Arc<Export>>,
    /// Where the areas of headers of other layouts are that were given up.
    void: Vec<u64>,
    /// What the present start has changed and may have to restore.
    announced: Option<Announced>,
}

/// The store's part among the devices.
#[derive(Debug)]
pub(crate) enum StoreTarget {
    /// A file or block device.
    Local(Target),
    /// These bytes of an export.
    Remote { export: Arc<Export>, offset: u64, size: u64 },
}

/// A header before a start was announced, and when the file was last modified before and after.
#[derive(Debug)]
struct Announced {
    former: StoreHeader,
    times: Option<(SystemTime, SystemTime)>,
}

impl Store {
    /// Opens the store of a volume. Writes nothing, but creates a configured new file.
    ///
    /// # Errors
    /// If it cannot be opened, is too small, or has unexpected contents. While it waits for an NBD server,
    /// `progress` is called about ten times a second, and its error ends the start.
    pub fn open(
        volume: &Volume,
        direct: DirectIo,
        give_up: GiveUp,
        progress: &mut Progress<'_>,
    ) -> Result<Store, EngineError> {
        if volume.backing.contains("://") {
            let volume = volume.clone();
            return patience::wait_for(move || Store::open_export(&volume, give_up), progress);
        }
        let path = PathBuf::from(&volume.backing);
        let overhead = if volume.layout == BackingLayout::None { 0 } else { AREA_BYTES };
        let options = OpenOptions {
            // (In whole blocks of the header's area, so that any size fits.)
            create: volume.size.map(|size| size.bytes().next_multiple_of(4096) + overhead),
            allocate: false,
            read_only: volume.read_only && volume.layout == BackingLayout::None,
            direct,
            path: path.clone(),
        };
        let (target, notices) =
            patience::open_or_name(&options, || format!("volume {}", volume.name))?;
        let total = target.size();
        let (block, new) = (u64::from(target.capabilities().logical_block), target.is_new());
        let plan = Plan::new(volume, total, block)?;
        let target = target.window(plan.data_at, plan.window)?;
        let area_at = plan.area_at;
        let writable = area_at.is_some() || !volume.read_only;
        let file = File::options().read(true).write(writable).open(&path);
        let file = file.map_err(|source| io_error("open", &path, source))?;
        let (area, target) = (HeaderArea::of_file(file), StoreTarget::Local(target));
        let read_only = volume.read_only;
        let search = HeadSearch { volume, plan: &plan, area: &area, total, read_only, give_up };
        let found = search.find(new, || identity(&path))?;
        Ok(Store { notices, ..Store::new(volume, &plan, area, target, found) })
    }

    /// Opens an export of an NBD server.
    fn open_export(volume: &Volume, give_up: GiveUp) -> Result<Store, EngineError> {
        let export = Arc::new(Export::open(&volume.backing, volume.read_only)?);
        let block = u64::from(export.logical_block());
        let plan = Plan::new(volume, export.size(), block)?;
        let Plan { area_at, data_at: offset, window: size, .. } = plan;
        let (area, remote) = (
            HeaderArea::of_export(export.clone()),
            StoreTarget::Remote { export: export.clone(), offset, size },
        );
        let (name, path) = (|| volume.name.clone(), || PathBuf::from(&volume.backing));
        if area_at.is_some() && !export.is_read_only() && !export.can_flush() {
            return Err(EngineError::HeaderWithoutFlush { volume: name(), path: path() });
        }
        let (total, read_only) = (export.size(), volume.read_only || export.is_read_only());
        let search = HeadSearch { volume, plan: &plan, area: &area, total, read_only, give_up };
        // Without a header, an address is all that is known of it.
        let mut found = search.find(false, || Ok(identity_of(&volume.backing)))?;
        if export.is_read_only() {
            found.head = match found.head {
                StoreHead::Kept { state: HeadState::New, .. } => {
                    return Err(EngineError::NoHeader { volume: name(), path: path() });
                }
                StoreHead::Kept { header, .. } if header.dirty => {
                    return Err(EngineError::DirtyReadOnly { volume: name(), path: path() });
                }
                StoreHead::Kept { header, .. } => StoreHead::Foreign(header),
                head => head,
            };
        }
        let store = Store::new(volume, &plan, area, remote, found);
        Ok(Store { read_only, export: Some(export), ..store })
    }

    fn new(
        volume: &Volume,
        plan: &Plan,
        area: HeaderArea,
        target: StoreTarget,
        FoundHead { head, void }: FoundHead,
    ) -> Store {
        Store {
            name: volume.name.clone(),
            path: PathBuf::from(&volume.backing),
            read_only: volume.read_only,
            priority: volume.priority as u8,
            bypass: volume.bypass,
            size_bytes: plan.size_bytes,
            target: Some(target),
            notices: Vec::new(),
            head,
            area,
            data_at: plan.data_at,
            export: None,
            void,
            announced: None,
        }
    }

    /// From now on `watch` is notified of writes to the header, as writes to `device`.
    pub fn watch(&mut self, watch: &Arc<dyn Watch>, device: Device) {
        self.area.watch(watch.clone(), device);
    }

    /// The syncs of the header.
    pub fn syncs(&self) -> &Arc<StoreSyncs> {
        self.area.syncs()
    }

    /// When it last answered.
    pub fn answers(&self) -> &Arc<Answers> {
        self.area.answers()
    }

    /// Writes the header, durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_header(&mut self, change: &HeaderChange) -> Result<(), EngineError> {
        let written = self.head.write(change, &self.area);
        written.map_err(|source| io_error("write the header of", &self.path, source))
    }

    /// Writes the header, which says how the store is left, durably, and the times of the file. Returns what a note of
    /// it says, if the contents have this fingerprint.
    ///
    /// # Errors
    /// If one of them cannot be written.
    pub fn leave(
        &mut self,
        change: &HeaderChange,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Option<StoreNote>, EngineError> {
        self.write_header(change)?;
        let Some(fingerprint) = fingerprint else { return Ok(None) };
        self.sync_times()?;
        Ok(Some(StoreNote { size: self.size_bytes, fingerprint, times: self.times()? }))
    }

    /// Takes back what the header says of how a quiesce left the store, durably. Writes nothing if it says no such
    /// thing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn withdraw_note(&mut self, dirty: bool) -> Result<(), EngineError> {
        let change = HeaderChange::Withdraw { dirty };
        if self.head.change_unwritten(&change) {
            return Ok(());
        }
        self.write_header(&change)
    }

    /// Writes the header for a start, which may be [retracted](Store::retract).
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn announce(&mut self, change: &HeaderChange) -> Result<(), EngineError> {
        let former = self.head.kept_on_store().map(|h| h.state);
        let before = self.modified()?;
        let written = self.write_header(change);
        let after = self.modified();
        // (A write that fails may have reached the store.)
        let times = before.zip(after.as_ref().ok().copied().flatten());
        self.announced = former.map(|former| Announced { former, times });
        written.and(after.map(drop))
    }

    /// The start that was announced has ended before it changed anything else: header and times
    /// say again how the store was left. If the times cannot be set, the header keeps saying that
    /// they do not count.
    ///
    /// # Errors
    /// If the header cannot be written, or the times cannot be read.
    pub fn retract(&mut self) -> Result<(), EngineError> {
        let Some(Announced { former, times }) = self.announced.take() else {
            return Ok(());
        };
        // (The times stay if somebody else has written meanwhile.)
        let now = self.modified()?;
        let before = times.filter(|&(_, after)| Some(after) == now).map(|(before, _)| before);
        let restore = |area: &HeaderArea| before.map_or(Ok(()), |time| area.set_modified(time));
        if restore(&self.area).is_err() {
            return Ok(());
        }
        self.write_header(&HeaderChange::Retract { former })?;
        restore(&self.area).map_err(|source| io_error("set the times of", &self.path, source))?;
        self.sync_times()
    }

    fn modified(&self) -> Result<Option<SystemTime>, EngineError> {
        self.area.modified().map_err(|source| io_error("inspect", &self.path, source))
    }

    /// Whether the store keeps a stamp: it has a writable header.
    pub fn keeps_stamps(&self) -> bool {
        self.head.kept().is_some()
    }

    /// The number of the newest stamp, if the store keeps stamps and has one.
    pub fn stamp_number(&self) -> StampNumber {
        self.head.kept().map_or(StampNumber::NONE, |header| header.stamp_number)
    }

    /// The stamp of the store as this volume, for a start with this flash tier, if it keeps one.
    pub fn stamp(&self, volume: forebay_block::Volume, tier: TierId) -> Option<StoreStamp> {
        let known = self.head.kept_on_store();
        Some(known.filter(|h| h.flash_uuid == Some(tier))?.store_stamp(volume))
    }

    /// The contents of the first `size` bytes of the volume.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn contents(&self, size: u64) -> Result<VolumeContents, EngineError> {
        let read = VolumeContents::read(&self.area, self.data_at, size);
        read.map_err(|source| io_error("read", &self.path, source))
    }

    /// Like [`contents`](Store::contents), but `progress` may end the wait for an NBD server.
    fn contents_watched(
        &self,
        size: u64,
        progress: &mut Progress<'_>,
    ) -> Result<VolumeContents, EngineError> {
        let Some(export) = self.export.clone() else { return self.contents(size) };
        let (start, path) = (self.data_at, self.path.clone());
        let read = move || {
            let read = VolumeContents::read(&HeaderArea::of_export(export), start, size);
            read.map_err(|source| io_error("read", &path, source))
        };
        patience::wait_for(read, progress)
    }

    /// Makes the times of the file durable.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn sync_times(&self) -> Result<(), EngineError> {
        self.area.sync_times().map_err(|source| io_error("sync", &self.path, source))
    }

    /// A number for the times of a file; 0 if it has no meaningful times. Instead of them, a header
    /// that only others can write says how often they have done so.
    ///
    /// # Errors
    /// If the system does not return them.
    pub fn times(&self) -> Result<u64, EngineError> {
        let metadata = self.area.metadata();
        let metadata = metadata.map_err(|source| io_error("inspect", &self.path, source))?;
        let updates = match &self.head {
            StoreHead::Foreign(header) => header.update + 1,
            StoreHead::None(_) | StoreHead::Kept { .. } => 0,
        };
        Ok(metadata.as_ref().map_or(updates, times))
    }

    /// Whether the store differs from what was noted of it earlier in this run, as far as a note shows;
    /// `times`: the times of a file count.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn differs(&self, note: &StoreNote, times: bool) -> Result<bool, EngineError> {
        if times && note.times != self.times()? {
            return Ok(true);
        }
        if self.is_cut(note.size) {
            return Ok(true);
        }
        // The system may have cached what it read for the note.
        self.area.forget_cached().map_err(|source| io_error("read", &self.path, source))?;
        Ok(!self.contents(note.size)?.are_as(note.fingerprint))
    }

    /// Whether others have written to the store, or it was released to others, since Forebay left
    /// it, as far as its header and the flash tier's `seal` show.
    ///
    /// # Errors
    /// If it cannot be read. While it waits for an NBD server, `progress` is called about ten times a second, and its
    /// error ends the start.
    pub fn is_changed(
        &self,
        seal: &Seal,
        progress: &mut Progress<'_>,
    ) -> Result<bool, EngineError> {
        let header = self.head.on_store();
        if header.is_some_and(|h| h.released) {
            return Ok(true);
        }
        let noted = header.and_then(|h| Some((h.fingerprint?, h.data_bytes)));
        let sealed = StoreNote::unseal(seal);
        // An opening that was cut short has written the header, and with it changed the times.
        if let Some(StoreNote { times: 1.., .. }) = sealed
            && !header.is_some_and(|h| h.opening && self.keeps_stamps())
            && sealed.map(|left| left.times) != Some(self.times()?)
        {
            return Ok(true);
        }
        for (then, size) in
            noted.into_iter().chain(sealed.map(|left| (left.fingerprint, left.size)))
        {
            if self.is_cut(size) || !self.contents_watched(size, progress)?.are_as(then) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a volume that had this size is not whole any more. (What a file lacks counts as unreadable, which a
    /// fingerprint shows. An NBD server would refuse the read.)
    fn is_cut(&self, size: u64) -> bool {
        let end = self.data_at.saturating_add(size);
        self.export.as_ref().is_some_and(|export| end > export.size())
    }

    /// Overwrites the given-up headers of other layouts.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn void_elsewhere(&mut self) -> Result<(), EngineError> {
        for at in std::mem::take(&mut self.void) {
            for copy in COPY_OFFSETS {
                let voided = self.area.write(&[0; COPY_BYTES], at + copy);
                voided.map_err(|e| io_error("invalidate the header of", &self.path, e))?;
            }
        }
        Ok(())
    }

    /// Gives the store a new identity, different from the one it was copied from, with its next
    /// header.
    ///
    /// # Errors
    /// If the system returns no random numbers.
    pub fn renew_identity(&mut self) -> Result<(), EngineError> {
        self.head.renew(StoreId::new(random_uuid()?));
        Ok(())
    }
}

/// 16 random bytes.
pub(crate) fn random_uuid() -> Result<[u8; 16], EngineError> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|e| {
        EngineError::System("get random numbers", std::io::Error::other(e.to_string()))
    })?;
    // Version 4, variant 1 (RFC 9562).
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    Ok(uuid)
}

pub(crate) fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> EngineError {
    // Errors of an export begin with its address, which the message has already.
    let text = source.to_string();
    let source = match text.strip_prefix(&format!("{}: ", path.display())) {
        Some(rest) => std::io::Error::new(source.kind(), rest),
        None => source,
    };
    EngineError::Io { action, path: path.to_owned(), source }
}

/// The header in these bytes of an area.
pub(crate) fn find_header(area: &[u8]) -> Result<Option<BackingHeader>, HeaderError> {
    let copies = COPY_OFFSETS.map(|at| {
        let at = at as usize;
        area.get(at..at + COPY_BYTES).unwrap_or(&[])
    });
    BackingHeader::newest(copies, BackingHeader::is_blank(area))
}

/// The identity of an export without a header: its address.
fn identity_of(address: &str) -> StoreId {
    StoreId::new(xxhash_rust::xxh3::xxh3_128(address.as_bytes()).to_le_bytes())
}

/// The identity of a store without a header: its device, or its file.
fn identity(path: &Path) -> Result<StoreId, EngineError> {
    let metadata = std::fs::metadata(path).map_err(|source| io_error("inspect", path, source))?;
    let (first, second) = match metadata.rdev() {
        0 => (metadata.dev(), metadata.ino()),
        device => (u64::MAX, device),
    };
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&first.to_le_bytes());
    uuid[8..].copy_from_slice(&second.to_le_bytes());
    Ok(StoreId::new(uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_an_address_once() {
        let path = Path::new("nbd://san/v");
        let source = std::io::Error::other("nbd://san/v: the server closed the connection");
        let said = io_error("write the header of", path, source).to_string();
        assert_eq!(
            said,
            "cannot write the header of nbd://san/v: the server closed the connection"
        );
    }
}
