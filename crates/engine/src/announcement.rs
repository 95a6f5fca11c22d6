//! A start that the headers of the stores announce, before the machine begins it.
//!
//! Before the flash tier begins its next epoch, every store notes that epoch and the tier: a tier
//! that is about to be formatted must be found bound to the stores after a power cut. The notes
//! change the times of files, so a start that ends before its epoch takes them back, whatever ends
//! it: an [`Announcement`] that is dropped does so unless the machine has [begun](Announcement::begin).

use std::sync::Arc;

use forebay_block::Volume;
use forebay_cache::Open;
use forebay_flash::{FIRST_EPOCH, HeaderChange};

use crate::backing_stores::BackingStores;
use crate::error::EngineError;
use crate::flash_device::OpenFlashDevice;
use crate::recognise::Found;
use crate::store::Store;

/// Stores whose headers announce a start. No other thread may write their headers until the machine begins.
#[must_use]
pub(crate) struct Announcement {
    stores: Arc<BackingStores>,
    begun: bool,
}

impl Announcement {
    /// Writes the headers of the stores, which are in the order of their volumes' numbers. An error
    /// leaves them as they were.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn write(
        stores: Vec<Store>,
        start: &Open,
        flash: Option<&OpenFlashDevice>,
    ) -> Result<Announcement, EngineError> {
        let announcement =
            Announcement { stores: Arc::new(BackingStores::new(stores)), begun: false };
        let (tier, epoch) = match (start, flash.map(|f| &f.found)) {
            (Open::Recover { .. }, Some(Found::Tier(superblock))) => {
                (superblock.uuid, superblock.next_epoch())
            }
            (Open::Format { uuid, .. }, _) => (*uuid, FIRST_EPOCH),
            (Open::Recover { .. }, _) => return Ok(announcement),
        };
        for (volume, store) in announcement.stores.lock_all().iter_mut() {
            let keeps_fingerprint = keeps_fingerprint(start, volume);
            store.announce(&HeaderChange::Announce { tier, epoch, keeps_fingerprint })?;
        }
        Ok(announcement)
    }

    /// The stores.
    pub fn stores(&self) -> Arc<BackingStores> {
        self.stores.clone()
    }

    /// The machine begins to start: from now on it says what becomes of the epoch.
    pub fn begin(mut self) {
        self.begun = true;
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if !self.begun {
            self.stores.retract();
        }
    }
}

/// Whether the header keeps what says that others have used the store, until the tier knows.
fn keeps_fingerprint(start: &Open, volume: Volume) -> bool {
    match start {
        Open::Recover { changed, drop_clean, .. } => *drop_clean || changed.contains(&volume),
        Open::Format { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, SystemTime};

    use forebay_config::Config;
    use forebay_device::DeviceError;
    use forebay_device::file::DirectIo;
    use forebay_effect::Device;
    use forebay_flash::TierId;

    use crate::inspection::inspect_backing;
    use crate::options::GiveUp;
    use crate::watch::{Operation, Watch};

    /// Refuses the writes to headers from this one on.
    #[derive(Debug)]
    struct Refuse(AtomicU32);

    impl Watch for Refuse {
        fn begin(&self, _: Operation) -> Result<u64, DeviceError> {
            let left = self.0.load(Ordering::Relaxed);
            self.0.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 0 { Err(DeviceError::Gone) } else { Ok(0) }
        }

        fn end(&self, _: u64, _: bool) {}
    }

    /// Refuses the sync of the first write to a header, so that the write lands and fails.
    #[derive(Debug, Default)]
    struct RefuseSync(AtomicU32);

    impl Watch for RefuseSync {
        fn begin(&self, _: Operation) -> Result<u64, DeviceError> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            if number == 1 { Err(DeviceError::Gone) } else { Ok(0) }
        }

        fn end(&self, _: u64, _: bool) {}
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];

    /// Three stores, in files of their own.
    fn open(directory: &Path) -> Vec<Store> {
        let volume = |name: &&str| {
            let path = directory.join(name);
            format!("[[volume]]\nname = '{name}'\nbacking = '{}'\nsize = '1MiB'\n", path.display())
        };
        let text: String = NAMES.iter().map(volume).collect();
        let config = Config::from_toml(&format!("[cache]\ndram = '4MiB'\n{text}")).unwrap();
        let give_up = GiveUp { headers: false, dirty: false };
        let go_on = || ControlFlow::Continue(());
        let open = |volume| Store::open(volume, DirectIo::Never, give_up, &mut { go_on }).unwrap();
        config.volume.iter().map(open).collect()
    }

    /// Three stores with headers that say how an earlier run left them, long ago.
    fn left(directory: &Path) -> Vec<Store> {
        let mut stores = open(directory);
        for (store, tier) in stores.iter_mut().zip([[7; 16], [8; 16], [7; 16]]) {
            store.write_header(&open_change(TierId::new(tier), 4)).unwrap();
            if let Some(crate::store::StoreTarget::Local(target)) = &mut store.target {
                target.keep();
            }
        }
        drop(stores);
        for name in NAMES {
            let file = std::fs::File::options().write(true).open(directory.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
        }
        open(directory)
    }

    fn open_change(tier: TierId, epoch: u64) -> HeaderChange {
        let tier = Some(tier);
        let (noted, instead, released) = (forebay_flash::StampNumber(5), None, false);
        HeaderChange::Open { tier, epoch, noted, instead, dirty: true, released }
    }

    /// The headers but for the number of their last update, and when the files were last modified.
    fn found(directory: &Path) -> Vec<(String, SystemTime)> {
        let one = |name: &&str| {
            let path = directory.join(name);
            let header = inspect_backing(&path).unwrap();
            let fields = forebay_flash::HeaderFields { update: 0, ..*header.state };
            let modified = path.metadata().unwrap().modified().unwrap();
            (format!("{fields:?}"), modified)
        };
        NAMES.iter().map(one).collect()
    }

    const FORMAT: Open = Open::Format { uuid: TierId::new([7; 16]), bindings: Vec::new() };

    #[test]
    fn a_start_that_ends_before_the_machine_begins_leaves_headers_and_times() {
        let directory = tempfile::tempdir().unwrap();
        let stores = left(directory.path());
        let before = found(directory.path());
        let announcement = Announcement::write(stores, &FORMAT, None).unwrap();
        for ((_, store), name) in announcement.stores().lock_all().iter().zip(NAMES) {
            let header = inspect_backing(&directory.path().join(name)).unwrap();
            assert!(header.opening && header.flash_epoch == FIRST_EPOCH, "{name}: {header:?}");
            let known = store.head.header().expect("it has a header");
            assert_eq!((known.uuid, *known.state), (header.uuid, *header.state), "{name}");
        }
        assert_ne!(found(directory.path()), before);
        drop(announcement);
        assert_eq!(found(directory.path()), before);
    }

    #[test]
    fn a_start_that_the_machine_has_begun_stays_announced() {
        let directory = tempfile::tempdir().unwrap();
        let announcement = Announcement::write(left(directory.path()), &FORMAT, None).unwrap();
        let announced = found(directory.path());
        let stores = announcement.stores();
        announcement.begin();
        assert_eq!(found(directory.path()), announced);
        // The machine may still find that it cannot start.
        stores.retract();
        assert_ne!(found(directory.path()), announced);
    }

    #[test]
    fn a_header_that_cannot_be_written_takes_the_others_back() {
        for failing in 0..NAMES.len() {
            let directory = tempfile::tempdir().unwrap();
            let mut stores = left(directory.path());
            let before = found(directory.path());
            let refuse: Arc<dyn Watch> = Arc::new(Refuse(AtomicU32::new(0)));
            stores[failing].watch(&refuse, Device::Backing(Volume(failing as u32)));
            let error = Announcement::write(stores, &FORMAT, None).err().expect("one write fails");
            assert!(matches!(error, EngineError::Io { .. }), "{error}");
            assert_eq!(found(directory.path()), before, "store {failing}");
        }
    }

    #[test]
    fn a_header_whose_write_fails_after_it_has_landed_is_taken_back_too() {
        let directory = tempfile::tempdir().unwrap();
        let mut stores = left(directory.path());
        let headers = || found(directory.path()).into_iter().map(|(header, _)| header);
        let before: Vec<String> = headers().collect();
        let refuse: Arc<dyn Watch> = Arc::new(RefuseSync::default());
        stores[1].watch(&refuse, Device::Backing(Volume(1)));
        Announcement::write(stores, &FORMAT, None).err().expect("one sync fails");
        assert_eq!(headers().collect::<Vec<_>>(), before);
    }

    #[test]
    fn without_a_flash_tier_nothing_is_announced() {
        let directory = tempfile::tempdir().unwrap();
        let stores = left(directory.path());
        let before = found(directory.path());
        drop(Announcement::write(stores, &Open::RECOVER, None).unwrap());
        assert_eq!(found(directory.path()), before);
    }
}
