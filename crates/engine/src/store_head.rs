//! What a process knows of the header of a store: where it is, what it says, and whether it is there.

use std::path::PathBuf;

use forebay_config::{BackingLayout, Volume};
use forebay_flash::{HeaderChange, StoreId};

use crate::backing_header::{AREA_BYTES, BackingHeader, HeaderError};
use crate::error::EngineError;
use crate::former_header::search;
use crate::header_area::HeaderArea;
use crate::options::GiveUp;
use crate::store::{find_header, io_error, random_uuid};
use crate::store_plan::{Plan, area_offsets};

/// The header of a store, as far as this process knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreHead {
    /// The layout has none. The store has the identity of its device, its file or its address.
    None(StoreId),
    /// Only others can write it.
    Foreign(BackingHeader),
    /// This process writes it.
    Kept {
        header: BackingHeader,
        /// Where its area is.
        at: u64,
        state: HeadState,
    },
}

/// Whether the store has the header that this process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeadState {
    /// The header is new, and was never written.
    New,
    /// The store has it.
    OnStore,
    /// A write has failed, so the store may have a later one.
    Uncertain,
}

impl StoreHead {
    /// Identifies the store to the flash tier.
    pub fn id(&self) -> StoreId {
        match self {
            StoreHead::None(id) => *id,
            StoreHead::Foreign(header) | StoreHead::Kept { header, .. } => header.uuid,
        }
    }

    /// The header, on the store or new.
    pub fn header(&self) -> Option<&BackingHeader> {
        match self {
            StoreHead::None(_) => None,
            StoreHead::Foreign(header) | StoreHead::Kept { header, .. } => Some(header),
        }
    }

    /// The header, if this process writes it.
    pub fn kept(&self) -> Option<&BackingHeader> {
        match self {
            StoreHead::None(_) | StoreHead::Foreign(_) => None,
            StoreHead::Kept { header, .. } => Some(header),
        }
    }

    /// The header, if the store has one.
    pub fn on_store(&self) -> Option<&BackingHeader> {
        match self {
            StoreHead::None(_) | StoreHead::Kept { state: HeadState::New, .. } => None,
            StoreHead::Foreign(header) | StoreHead::Kept { header, .. } => Some(header),
        }
    }

    /// The header, if the store has one and this process writes it.
    pub fn kept_on_store(&self) -> Option<&BackingHeader> {
        self.kept().filter(|_| self.on_store().is_some())
    }

    /// A start has found out whether the store is an older copy of itself.
    pub fn take_for_older(&mut self, older: bool) {
        match self {
            StoreHead::None(_) => {}
            StoreHead::Foreign(header) | StoreHead::Kept { header, .. } => {
                header.state.take_for_older(older);
            }
        }
    }

    /// Gives the store another identity, with its next header.
    pub fn renew(&mut self, new: StoreId) {
        match self {
            StoreHead::None(id) => *id = new,
            StoreHead::Foreign(header) | StoreHead::Kept { header, .. } => header.uuid = new,
        }
    }

    /// Writes the header after this change, durably; nothing, if this process does not write it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, change: &HeaderChange, area: &HeaderArea) -> std::io::Result<()> {
        let StoreHead::Kept { header, at, state } = self else { return Ok(()) };
        let next = header.after(change);
        if let Err(error) = area.write(&next.encode(), *at + next.offset_in_area()) {
            header.state.not_written(&next.state);
            if *state == HeadState::OnStore {
                *state = HeadState::Uncertain;
            }
            return Err(error);
        }
        (*header, *state) = (next, HeadState::OnStore);
        Ok(())
    }

    /// Makes this change without a write, if the store says already what it would say then. Returns whether it does.
    pub fn change_unwritten(&mut self, change: &HeaderChange) -> bool {
        let StoreHead::Kept { header, state: HeadState::OnStore, .. } = self else { return false };
        let Some(next) = header.state.after_unwritten(change) else { return false };
        header.state = next;
        true
    }
}

/// Finds the header of a store that is being opened. Only reads.
pub(crate) struct HeadSearch<'a> {
    pub volume: &'a Volume,
    pub plan: &'a Plan,
    pub area: &'a HeaderArea,
    /// Bytes of the store.
    pub total: u64,
    pub read_only: bool,
    pub give_up: GiveUp,
}

/// The result of a [`HeadSearch`].
pub(crate) struct FoundHead {
    pub head: StoreHead,
    /// Where the areas of headers of other layouts are that were given up.
    pub void: Vec<u64>,
}

impl HeadSearch<'_> {
    /// Finds the header, or makes a new one; a store of the layout without headers gets this identity. What was
    /// `created` just now has no former header.
    ///
    /// # Errors
    /// If the store cannot be read, or has unexpected contents.
    pub fn find(
        &self,
        created: bool,
        identity: impl FnOnce() -> Result<StoreId, EngineError>,
    ) -> Result<FoundHead, EngineError> {
        let mut void = self.check_elsewhere()?;
        if !created {
            void.extend(self.check_end()?);
        }
        let head = match self.plan.area_at {
            Some(at) => self.open_header(at)?,
            None => StoreHead::None(identity()?),
        };
        Ok(FoundHead { head, void })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(&self.volume.backing)
    }

    fn read(&self, at: u64) -> Result<Vec<u8>, EngineError> {
        self.area.read(at).map_err(|source| io_error("read", &self.path(), source))
    }

    /// Whether the user gives up a header that is in the way.
    fn gives_up(&self, dirty: bool) -> bool {
        self.give_up.headers && (!dirty || self.give_up.dirty) && !self.read_only
    }

    /// Looks for a header where this layout has none: its data would be served unchanged, from the
    /// wrong place, or older than they should be. Returns where the areas of those are that are given up.
    fn check_elsewhere(&self) -> Result<Vec<u64>, EngineError> {
        let own = self.plan.area_at;
        // A store with a header at its place is what it says; what is elsewhere is its data.
        if let Some(at) = own
            && matches!(find_header(&self.read(at)?), Ok(Some(_)))
        {
            return Ok(Vec::new());
        }
        let mut void = Vec::new();
        for at in area_offsets(self.total).into_iter().filter(|&at| Some(at) != own) {
            let (found, dirty) = match find_header(&self.read(at)?) {
                Ok(Some(header)) => (header.layout.to_string(), header.dirty),
                Err(error) if error.is_of_whole_copy() => {
                    self.refuse_unless(self.give_up.covers(error) && !self.read_only, error)?;
                    void.push(at);
                    continue;
                }
                _ => continue,
            };
            if !self.gives_up(dirty) {
                return Err(EngineError::OtherLayout {
                    volume: self.volume.name.clone(),
                    path: self.path(),
                    found,
                    wanted: self.volume.layout.to_string(),
                    dirty,
                });
            }
            void.push(at);
        }
        Ok(void)
    }

    /// Checks whether a store without a header at its end has, or may have, a header at its former
    /// end. Returns where the area of one is that is given up.
    fn check_end(&self) -> Result<Option<u64>, EngineError> {
        let tail = self.volume.layout == BackingLayout::Tail;
        let Some(own) = self.plan.area_at.filter(|_| tail) else { return Ok(None) };
        let here = find_header(&self.read(own)?);
        // (It is judged as the header of the store.)
        if matches!(here, Ok(Some(_))) || here.is_err_and(|error| error.is_of_whole_copy()) {
            return Ok(None);
        }
        let (volume, path) = (self.volume.name.clone(), self.path());
        let searched = search(self.area, self.total, self.plan.size_bytes, own);
        let searched = searched.map_err(|source| io_error("read", &path, source))?;
        match searched.found {
            Some((at, header)) => {
                let dirty = header.dirty;
                if !self.gives_up(dirty) {
                    let was = at + AREA_BYTES;
                    return Err(EngineError::Grown {
                        volume,
                        path,
                        at,
                        was,
                        is: self.total,
                        dirty,
                    });
                }
                Ok(Some(at))
            }
            // (What is at the end and is no header, says more.)
            None if here.is_err() || searched.blank || self.give_up.headers => Ok(None),
            None => Err(EngineError::NoTail { volume, path }),
        }
    }

    /// The header in the area of the layout, or a new one.
    fn open_header(&self, at: u64) -> Result<StoreHead, EngineError> {
        let (header, state) = match find_header(&self.read(at)?) {
            Ok(Some(header)) => (header, HeadState::OnStore),
            Ok(None) => (self.new_header()?, HeadState::New),
            Err(error) => {
                self.refuse_unless(self.give_up.covers(error), error)?;
                (self.new_header()?, HeadState::New)
            }
        };
        if header.layout != self.volume.layout {
            return Err(EngineError::Layout {
                volume: self.volume.name.clone(),
                path: self.path(),
                found: header.layout.to_string(),
                wanted: self.volume.layout.to_string(),
            });
        }
        Ok(StoreHead::Kept { header, at, state })
    }

    /// Refuses a header that cannot be used, unless it is given up.
    fn refuse_unless(&self, given_up: bool, error: HeaderError) -> Result<(), EngineError> {
        let (volume, path) = (self.volume.name.clone(), self.path());
        if given_up { Ok(()) } else { Err(EngineError::Header { volume, path, error }) }
    }

    fn new_header(&self) -> Result<BackingHeader, EngineError> {
        let id = StoreId::new(random_uuid()?);
        Ok(BackingHeader::new(self.volume.layout, id, self.plan.size_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flash::{Stamp, StampNumber};
    use std::fs::File;

    #[test]
    fn a_header_that_may_be_another_one_is_written_even_if_nothing_changes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 * AREA_BYTES).unwrap();
        let writable = HeaderArea::of_file(file.reopen().unwrap());
        let refusing = HeaderArea::of_file(File::open(file.path()).unwrap());
        let id = StoreId::new([7; 16]);
        let header = BackingHeader::new(BackingLayout::Offset, id, AREA_BYTES);
        let mut head = StoreHead::Kept { header, at: 0, state: HeadState::New };
        let (noted, instead, dirty, released) = (StampNumber::NONE, None, true, false);
        let open = HeaderChange::Open { tier: None, epoch: 0, noted, instead, dirty, released };
        let (fingerprint, data_bytes, stamp) = (None, AREA_BYTES, Stamp::default());
        let leave = HeaderChange::Leave { whole: false, released, fingerprint, data_bytes, stamp };
        let withdraw = HeaderChange::Withdraw { dirty };

        head.write(&open, &refusing).unwrap_err();
        assert_eq!((head.id(), head.header(), head.on_store()), (id, head.kept(), None));
        head.write(&open, &writable).unwrap();
        assert_eq!(head.kept_on_store(), head.header());
        assert!(head.change_unwritten(&withdraw), "it says so");

        head.write(&leave, &refusing).unwrap_err();
        assert_eq!(head.kept_on_store(), head.header(), "it has one of the two");
        assert!(!head.change_unwritten(&withdraw), "the other says otherwise");
        head.write(&withdraw, &writable).unwrap();
        assert!(head.change_unwritten(&withdraw));
    }

    #[test]
    fn a_header_of_others_is_never_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refusing = HeaderArea::of_file(File::open(file.path()).unwrap());
        let header = BackingHeader::new(BackingLayout::Tail, StoreId::new([7; 16]), AREA_BYTES);
        let mut head = StoreHead::Foreign(header);
        head.write(&HeaderChange::MarkDirty, &refusing).unwrap();
        let (seen, kept) = (head.on_store(), head.kept());
        assert_eq!((seen, kept, head), (Some(&header), None, StoreHead::Foreign(header)));
        assert!(!head.change_unwritten(&HeaderChange::MarkDirty));
    }
}
