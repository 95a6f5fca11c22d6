//! The flash device: opens it, and recognises its contents before anything is written to it.

use std::fs::File;
use std::path::PathBuf;

use forebay_config::{Config, Flash, FlashLayout, Size};
use forebay_device::file::{DirectIo, Notice, OpenOptions, Target};
use forebay_flash::format::superblock::Superblock;
use forebay_flash::{Binding, Geometry, Layout, LogError, RecoveryReport, TierId};

use crate::backing_header::{BackingHeader, EpochError};
use crate::check::check_flash;
use crate::error::{EngineError, UncountedReason};
use crate::patience;
use crate::recognise::{DeviceStart, Found};
use crate::store::{Store, io_error};

/// An open flash device.
#[derive(Debug)]
pub(crate) struct OpenFlashDevice {
    pub path: PathBuf,
    /// Usable bytes.
    pub bytes: u64,
    pub found: Found,
    pub target: Option<Target>,
    pub notices: Vec<Notice>,
    /// The end of its contents; 0 if there are none. Only the start of the device was read.
    used_bytes: usize,
    first_sector: [u8; 512],
    options: OpenOptions,
    /// The places of headers of the store that the device was, which was given up.
    pub void: Vec<u64>,
}

impl OpenFlashDevice {
    /// Opens the device. Writes nothing, but creates a missing file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(flash: &Flash, direct: DirectIo) -> Result<OpenFlashDevice, EngineError> {
        let options = OpenOptions {
            path: flash.path.clone(),
            create: flash.size.map(|size| size.bytes()),
            allocate: true,
            read_only: false,
            direct,
        };
        let (target, notices) = patience::open_or_name(&options, || "the flash tier".to_owned())?;
        let bytes = flash.size.map_or(target.size(), |size| size.bytes().min(target.size()));
        // Whole logical blocks are usable, of the size in the configuration as of the file's.
        let block = u64::from(target.capabilities().logical_block);
        let whole = |bytes: u64| bytes - bytes % block;
        if let Some(size) = flash.size.filter(|size| whole(size.bytes()) > target.size()) {
            return Err(EngineError::FlashTooSmall {
                path: flash.path.clone(),
                size: target.size(),
                needed: size.bytes(),
            });
        }
        // What is read next must not be undone by a power cut: the stores are about to refer to it.
        let synced = File::open(&flash.path).and_then(|file| file.sync_data());
        synced.map_err(|source| io_error("sync", &flash.path, source))?;
        let start = DeviceStart::read(&flash.path)?;
        let (found, used_bytes) = (start.recognise(), start.used_bytes());
        let first_sector = start.first_sector();
        let path = flash.path.clone();
        Ok(OpenFlashDevice {
            path,
            bytes,
            found,
            target: Some(target),
            notices,
            used_bytes,
            first_sector,
            options,
            void: Vec::new(),
        })
    }

    /// The configuration, with layout and page size filled in if it leaves them open: from the tier
    /// or, if `format` makes a new one, suitable for the device.
    ///
    /// # Errors
    /// If the configured page size is one that the device cannot write.
    pub fn complete(&self, config: &Config, format: bool) -> Result<Config, EngineError> {
        let mut config = config.clone();
        let Some(flash) = &mut config.flash else { return Ok(config) };
        let found = match &self.found {
            Found::Tier(superblock) if !format => Some(superblock),
            _ => None,
        };
        let least = self.target.as_ref().map_or(1, |target| target.capabilities().logical_block);
        if flash.page_size.is_some_and(|page| page.bytes() < u64::from(least)) {
            return Err(EngineError::PageSize { path: self.path.clone(), least });
        }
        let layout = found.and_then(|superblock| match Layout::from_number(superblock.layout)? {
            Layout::Log => Some(FlashLayout::Log),
            Layout::Slots => Some(FlashLayout::Slots),
            _ => None,
        });
        let adopts = flash.layout.is_none().then_some(layout).flatten();
        flash.layout = flash.layout.or(layout);
        let page = match (found, &self.target) {
            (Some(superblock), _) => Some(superblock.page_size),
            // (Larger sectors are those of the log layout, too, which has pages of 4 KiB at least.)
            (None, Some(target)) if target.sector() > 512 => Some(target.sector().max(4096)),
            (None, _) => None,
        };
        flash.page_size = flash.page_size.or(page.map(|bytes| Size(bytes.into())));
        match adopts {
            Some(layout) => self.check_adopted(layout, config),
            None => Ok(config),
        }
    }

    /// The configuration, if its keys fit the layout that it has adopted from the tier: until then, they
    /// were judged by the layout of a new tier.
    fn check_adopted(&self, layout: FlashLayout, config: Config) -> Result<Config, EngineError> {
        let mut given = config.clone();
        if let Some(flash) = &mut given.flash {
            flash.layout = None;
        }
        let before = given.check().err().unwrap_or_default();
        let mut problems = config.check().err().unwrap_or_default();
        problems.retain(|problem| !before.contains(problem));
        if problems.is_empty() {
            return Ok(config);
        }
        let (path, layout) = (self.path.clone(), layout.to_string());
        Err(EngineError::AdoptedLayout { path, layout, problems })
    }

    /// Whether this may be the result of a power cut during the very first write of the tier `uuid`
    /// of this geometry and this many volumes, which the headers of the stores await. It may have left garbage in
    /// each sector; an intact first sector names that tier. If it is to be `formatted` again, what else was
    /// on the device does not matter.
    pub fn may_be_torn_format(
        &self,
        geometry: &Geometry,
        volumes: usize,
        uuid: TierId,
        formatted: bool,
    ) -> bool {
        let written = Superblock::first_bytes(geometry.page_size, volumes);
        let fits = formatted || self.used_bytes <= written;
        match &self.found {
            Found::Foreign => fits,
            Found::Unusable(LogError::SuperblockDamaged) => {
                fits && Superblock::begins_as_of(&self.first_sector, uuid)
            }
            _ => false,
        }
    }

    /// Reads the whole tier and counts its dirty blocks.
    ///
    /// # Errors
    /// If it cannot be read, or another process has locked it meanwhile. If it may have had more of
    /// them ([`EngineError::Uncounted`]): it is damaged or an older copy of itself, and a store does
    /// not say that it is complete.
    pub fn dirty_blocks(&mut self, stores: &[Store]) -> Result<u64, EngineError> {
        // The check opens the device itself; ours is exclusive.
        self.target = None;
        let report = check_flash(&self.path)?;
        self.target = Some(patience::open(&self.options)?.0);
        let Found::Tier(superblock) = &self.found else { return Ok(report.dirty_blocks) };
        let is_whole = |binding: &Binding| {
            let mut of_it = stores.iter().filter(|store| store.head.id() == binding.uuid);
            of_it.any(|store| {
                let header = store.head.on_store();
                header.is_some_and(|h| !h.dirty && h.flash_uuid == Some(superblock.uuid))
            })
        };
        if report.dirty_blocks > 0 || superblock.bindings.iter().all(is_whole) {
            return Ok(report.dirty_blocks);
        }
        let headers = || stores.iter().filter_map(|store| store.head.on_store());
        let why = if let Some(error) = report.failure {
            UncountedReason::Unread(error)
        } else if !report.recovery.damage.is_by_name() {
            UncountedReason::Damaged
        } else if headers().any(|header| self.is_older_than_known(header, &report.recovery)) {
            UncountedReason::OlderCopy
        } else {
            return Ok(0);
        };
        Err(EngineError::Uncounted { path: self.path.clone(), why })
    }

    /// Whether a store has seen more of this tier than it now holds.
    fn is_older_than_known(&self, header: &BackingHeader, recovery: &RecoveryReport) -> bool {
        let Found::Tier(superblock) = &self.found else { return false };
        header.flash_uuid == Some(superblock.uuid)
            && (matches!(header.check_epoch(superblock.epoch), Err(EpochError::FlashOlder { .. }))
                || header.stamp.generation > superblock.generation
                || header.stamp.seen > recovery.newest_batch)
    }
}
