//! Opening an engine: every check before anything is written, and everything that may fail before the
//! headers announce the start. Whatever ends a start after that drops its [`Announcement`], which
//! takes the headers back.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_block::Volume;
use forebay_cache::{Cache, CacheConfig, FlashConfig, Open, VOLUMES_MAX, VolumeConfig};
use forebay_config::Config;
use forebay_device::file::{self, Target};
use forebay_device::nbd::NbdDevices;
use forebay_device::{
    Arena, Devices, Doorbell, Executor, Holes, JointSyncs, Layer, Pauses, RealDevices, Shaped,
    uring,
};
use forebay_effect::Device;
use forebay_flash::format::superblock::Superblock;
use forebay_flash::{Binding, FIRST_EPOCH, Geometry, LogError, SEAL_BYTES, StoreId, TierId};
use forebay_model::Model;
use forebay_setup::{available_memory, check_bookkeeping, check_dram, check_machine, count_blocks};

use crate::announcement::Announcement;
use crate::backing_header::BackingHeader;
use crate::clock::Clock;
use crate::core::Core;
use crate::devices::AnyDevices;
use crate::error::{EngineError, TierMismatch};
use crate::flash_device::OpenFlashDevice;
use crate::notice::EngineNotice;
use crate::options::{EngineOptions, VolumeDescription};
use crate::patience::Progress;
use crate::queries::AllocationQueries;
use crate::recognise::Found;
use crate::roles;
use crate::shared::Shared;
use crate::store::{Store, StoreTarget, random_uuid};
use crate::tape::Recorder;
use crate::translate::cache_config;
use crate::watch::Watched;

/// Memory beyond that of the frames, so that replies can be sent from the frames themselves: this
/// much can be lent at a time. It is touched only where lent memory is written.
const LENT_BYTES_MAX: u32 = 8 << 20;

/// The result of [`open`]; the machine is not started yet.
pub(crate) struct Opened {
    pub shared: Shared,
    pub announcement: Announcement,
    /// In the order of the configuration.
    pub volumes: Vec<VolumeDescription>,
    pub notices: Vec<EngineNotice>,
    pub flash_path: Option<PathBuf>,
    pub start: Open,
}

/// How the flash tier must be started, and the number of each volume.
struct Decision {
    start: Open,
    numbers: Vec<Volume>,
}

/// Opens the devices in the configuration. `progress` may end a wait for a server.
pub(crate) fn open(
    config: &Config,
    options: &EngineOptions,
    progress: &mut Progress<'_>,
) -> Result<Opened, EngineError> {
    let mut missing = Vec::new();
    let opened = open_all(config, options, &mut missing, progress);
    opened.map_err(|error| explained(error, missing, config))
}

/// The error, with those of the missing files that may be its reason.
fn explained(error: EngineError, mut missing: Vec<PathBuf>, config: &Config) -> EngineError {
    let flash = config.flash.as_ref().map(|tier| &tier.path);
    let all = config.volume.len() + usize::from(flash.is_some());
    let nothing_was_there = missing.len() == all;
    missing.retain(|path| match error {
        // The tier that holds the data may be the one that is missing.
        EngineError::DirtyElsewhere { .. } => Some(path) == flash,
        // A store that was created just now belongs to no tier.
        EngineError::Bound { .. } | EngineError::Foreign { .. } => Some(path) != flash,
        _ => false,
    });
    match missing.is_empty() || nothing_was_there {
        true => error,
        false => EngineError::Missing { error: Box::new(error), missing },
    }
}

fn open_all(
    config: &Config,
    options: &EngineOptions,
    missing: &mut Vec<PathBuf>,
    progress: &mut Progress<'_>,
) -> Result<Opened, EngineError> {
    let devices = open_devices(config, options, missing, progress)?;
    let checked = check(config, options, devices, progress)?;
    let made = Made::new(options, &checked)?;
    let committed = commit(checked, options, missing)?;
    Ok(assemble(options, committed, made))
}

/// The stores, in the order of the configuration, and the flash tier.
struct OpenDevices {
    stores: Vec<Store>,
    flash: Option<OpenFlashDevice>,
}

/// Opens the devices; `missing` receives the files that are created for that.
fn open_devices(
    config: &Config,
    options: &EngineOptions,
    missing: &mut Vec<PathBuf>,
    progress: &mut Progress<'_>,
) -> Result<OpenDevices, EngineError> {
    if config.volume.is_empty() || config.volume.len() > VOLUMES_MAX {
        let configured = config.volume.len();
        return Err(EngineError::Volumes { configured, most: VOLUMES_MAX });
    }
    // Bad words are refused before any device is opened; what memory cannot hold, first of all.
    check_dram(config)?;
    cache_config(config, None)?;
    let (mut stores, mut flash) = (Vec::new(), None);
    for volume in &config.volume {
        let store = Store::open(volume, options.direct, options.give_up(), progress);
        let store = store.map_err(|error| roles::explained(error, volume))?;
        if let Some(StoreTarget::Local(target)) = &store.target {
            missing.extend(target.is_new().then(|| store.path.clone()));
        }
        stores.push(store);
    }
    if let Some(tier) = &config.flash {
        let tier = OpenFlashDevice::open(tier, options.direct)?;
        if let Some(target) = &tier.target {
            missing.extend(target.is_new().then(|| tier.path.clone()));
        }
        flash = Some(tier);
    }
    Ok(OpenDevices { stores, flash })
}

/// The devices after all checks. Nothing has been written.
struct Checked {
    /// By volume number.
    stores: Vec<Store>,
    rest: StartParts,
}

/// What a start needs besides the stores.
struct StartParts {
    /// Including values that it took from the flash tier.
    config: Config,
    machine: CacheConfig,
    flash: Option<OpenFlashDevice>,
    start: Open,
    /// In the order of the configuration.
    volumes: Vec<VolumeDescription>,
    notices: Vec<EngineNotice>,
}

/// All checks that may refuse a start. It only reads.
fn check(
    config: &Config,
    options: &EngineOptions,
    OpenDevices { mut stores, mut flash }: OpenDevices,
    progress: &mut Progress<'_>,
) -> Result<Checked, EngineError> {
    roles::check_roles(&stores, flash.as_mut(), options)?;
    let mut notices = Vec::new();
    let completed = flash.as_ref().map(|tier| tier.complete(config, options.format)).transpose()?;
    let config = completed.unwrap_or_else(|| config.clone());
    let mut machine = cache_config(&config, flash.as_ref().map(|f| f.bytes))?;
    check_bookkeeping(&machine)?;
    if let (Some(tier), Some(flash), Some(uuid)) =
        (&mut flash, &machine.flash, awaits_first_epoch(&stores))
        && tier.may_be_torn_format(&flash.geometry, stores.len(), uuid, options.format)
    {
        tier.found = Found::Blank;
    }
    tell_twins_apart(&mut stores, flash.is_some(), options)?;
    let decision = decide(options, &mut flash, &stores, progress)?;
    mark_older(&mut stores, &decision, flash.as_ref());
    if let (Open::Recover { .. }, Some(tier), Some(flash)) =
        (&decision.start, &flash, &mut machine.flash)
        && let Found::Tier(superblock) = &tier.found
    {
        let device_bytes = tier.target.as_ref().map_or(tier.bytes, Target::size);
        let configured = flash.geometry;
        take_geometry(flash, superblock, &tier.path, device_bytes)?;
        notices.extend(kept_from_format(&config, &configured, &flash.geometry, &tier.path));
        check_machine(&machine)?;
        check_bookkeeping(&machine)?;
    }
    let wanted = u64::from(machine.frames()) * machine.block_size.bytes();
    if let Some(available) = available_memory().filter(|&available| wanted > available) {
        notices.push(EngineNotice::Memory { wanted, available });
    }
    if !options.format
        && let (Open::Format { .. }, Some(tier)) = (&decision.start, &flash)
    {
        notices.extend(former_tiers(&stores, &tier.path));
    }
    let Decision { start, numbers } = decision;
    let stores = by_number(stores, &numbers);
    let volumes = describe(&config, &stores, &numbers);
    if let Open::Recover { changed, .. } = &start {
        notices.extend(changed.iter().map(|&volume| {
            let store = &stores[volume.index()];
            let released = store.head.header().is_some_and(|header| header.released);
            EngineNotice::Changed { volume: store.name.clone(), path: store.path.clone(), released }
        }));
    }
    Ok(Checked { stores, rest: StartParts { config, machine, flash, start, volumes, notices } })
}

/// Notices about a new flash tier, one for each tier with which stores were last served: its path
/// may be mistyped. A tier whose formatting was cut short has served nothing.
fn former_tiers(stores: &[Store], path: &Path) -> Vec<EngineNotice> {
    let unborn = awaits_first_epoch(stores);
    let mut notices: Vec<EngineNotice> = Vec::new();
    for store in stores {
        let header = store.head.kept_on_store().filter(|header| !header.released && !header.dirty);
        let tier = header.and_then(|h| h.flash_uuid).filter(|&tier| Some(tier) != unborn);
        let Some(tier) = tier else { continue };
        let known = notices.iter_mut().find_map(|notice| match notice {
            EngineNotice::NewTier { former, volumes, .. } if *former == tier => Some(volumes),
            _ => None,
        });
        match known {
            Some(volumes) => volumes.push(store.name.clone()),
            None => notices.push(EngineNotice::NewTier {
                path: path.to_owned(),
                former: tier,
                volumes: vec![store.name.clone()],
            }),
        }
    }
    notices
}

/// The stores in the order of their volumes' numbers.
fn by_number(stores: Vec<Store>, numbers: &[Volume]) -> Vec<Store> {
    let mut slots: Vec<Option<Store>> = Vec::new();
    slots.resize_with(numbers.len(), || None);
    for (store, &number) in stores.into_iter().zip(numbers) {
        slots[number.index()] = Some(store);
    }
    slots.into_iter().flatten().collect()
}

/// The tier is used as it was formatted: refuses settings that cannot change and a device that has
/// become too small.
fn take_geometry(
    flash: &mut FlashConfig,
    superblock: &Superblock,
    path: &Path,
    device_bytes: u64,
) -> Result<(), EngineError> {
    let (stored, expected) = (superblock.layout, flash.geometry.layout().number());
    if stored != expected {
        let error = LogError::OtherLayout { stored, expected };
        return Err(EngineError::Flash { path: path.to_owned(), error });
    }
    if superblock.block_size != flash.geometry.block_size {
        return Err(EngineError::BlockSize {
            path: path.to_owned(),
            found: superblock.block_size,
            wanted: flash.geometry.block_size,
        });
    }
    let geometry = flash.geometry.as_stored(superblock);
    flash.geometry =
        geometry.map_err(|error| EngineError::Flash { path: path.to_owned(), error })?;
    count_blocks(flash)?;
    let needed = flash.geometry.device_bytes();
    if needed > device_bytes {
        return Err(EngineError::FlashCut { path: path.to_owned(), size: device_bytes, needed });
    }
    Ok(())
}

/// The settings of the configuration that differ from what the tier was formatted with: the
/// geometry `configured` is that of a new tier, and the other one is in use.
fn kept_from_format(
    config: &Config,
    configured: &Geometry,
    formatted: &Geometry,
    path: &Path,
) -> Vec<EngineNotice> {
    let region_bytes = |g: &Geometry| u64::from(g.region_pages) * u64::from(g.page_size);
    // A smaller difference is a matter of rounding.
    let sizes = [formatted, configured].map(Geometry::device_bytes);
    let resized = sizes[0].abs_diff(sizes[1]) > region_bytes(formatted);
    // (Without a configured size, regions depend on the size of the tier.)
    let sets_regions = config.flash.as_ref().is_some_and(|flash| flash.region_size.is_some());
    let settings = [
        ("size", resized, sizes),
        ("page_size", true, [formatted, configured].map(|g| g.page_size.into())),
        ("region_size", sets_regions, [formatted, configured].map(region_bytes)),
        ("activity_extent", true, [formatted, configured].map(|g| g.extent_bytes)),
    ];
    let differing = settings.into_iter().filter(|&(_, counts, [old, new])| counts && old != new);
    let notices = differing.map(|(key, _, [formatted, configured])| EngineNotice::Formatted {
        path: path.to_owned(),
        key,
        formatted,
        configured,
    });
    notices.collect()
}

/// The system resources for a machine. They are obtained before anything is written.
struct Made {
    bell: Arc<Doorbell>,
    devices: RealDevices,
    arena: Arena,
    tape: Option<Recorder>,
    notice: Option<file::Notice>,
    /// Where the stores have holes, by volume number.
    holes: Vec<Option<Arc<dyn Holes>>>,
}

impl Made {
    fn new(
        options: &EngineOptions,
        Checked { stores, rest: StartParts { machine, .. } }: &Checked,
    ) -> Result<Made, EngineError> {
        let system = |what| move |e| EngineError::System(what, e);
        let bell = Arc::new(Doorbell::new().map_err(system("create an eventfd"))?);
        let made = RealDevices::new(options.backend, uring::Options::default(), bell.clone());
        let (devices, notice) = made.map_err(system("set up device I/O"))?;
        let block_bytes = machine.block_size.bytes() as u32;
        let spare = (LENT_BYTES_MAX / block_bytes).min(machine.frames());
        let arena = Arena::lending(machine.frames(), block_bytes, options.huge_pages, spare)?;
        let tape = options.tape.as_deref().map(|path| begin_tape(path, machine)).transpose()?;
        let holes = stores.iter().map(|store| match &store.target {
            Some(StoreTarget::Local(target)) => target.holes(),
            Some(StoreTarget::Remote { export, offset, .. }) => Ok(export.holes(*offset)),
            None => Ok(None),
        });
        let holes = holes.collect::<Result<_, _>>();
        let holes = holes.map_err(system("duplicate a file descriptor"))?;
        Ok(Made { bell, devices, arena, tape, notice, holes })
    }
}

/// The checked devices, with the headers of their stores written.
struct Committed {
    announcement: Announcement,
    rest: StartParts,
}

/// The first writes: created files stay, and the stores' headers say that the flash tier is about
/// to begin an epoch.
fn commit(
    Checked { mut stores, mut rest }: Checked,
    options: &EngineOptions,
    missing: &mut Vec<PathBuf>,
) -> Result<Committed, EngineError> {
    if let Some(watch) = &options.watch {
        for (number, store) in stores.iter_mut().enumerate() {
            store.watch(watch, Device::Backing(Volume(number as u32)));
        }
    }
    // (Until here it goes with its target.)
    missing.clear();
    let of_stores = stores.iter_mut().filter_map(|store| match &mut store.target {
        Some(StoreTarget::Local(target)) => Some(target),
        _ => None,
    });
    of_stores
        .chain(rest.flash.iter_mut().filter_map(|tier| tier.target.as_mut()))
        .for_each(Target::keep);
    stores.iter_mut().try_for_each(Store::void_elsewhere)?;
    rest.flash.iter_mut().try_for_each(OpenFlashDevice::void_headers)?;
    let announcement = Announcement::write(stores, &rest.start, rest.flash.as_ref())?;
    Ok(Committed { announcement, rest })
}

/// Assembles the engine. Nothing here can fail.
fn assemble(
    options: &EngineOptions,
    Committed { announcement, rest }: Committed,
    made: Made,
) -> Opened {
    let StartParts { config, machine, mut flash, start, volumes, mut notices } = rest;
    let Made { bell, devices, arena, tape, notice, holes } = made;
    let mut devices = NbdDevices::new(devices, bell.clone());
    notices.extend(notice.map(EngineNotice::from));
    let stores = announcement.stores();
    for (volume, store) in stores.lock_all().iter_mut() {
        notices.extend(store.notices.drain(..).map(EngineNotice::from));
        let device = Device::Backing(volume);
        match store.target.take() {
            Some(StoreTarget::Local(target)) => devices.inner_mut().add(device, target),
            Some(StoreTarget::Remote { export, offset, size }) => {
                devices.add(device, export, offset, size);
            }
            None => {}
        }
    }
    if let Some(tier) = &mut flash {
        notices.extend(tier.notices.drain(..).map(EngineNotice::from));
        if let Some(target) = tier.target.take() {
            devices.inner_mut().add(Device::Flash, target);
        }
    }
    let mut devices = shape(&config, devices, &volumes);
    if let Some(watch) = &options.watch {
        devices = AnyDevices::new(Watched::new(devices, watch.clone()));
    }
    let mut devices = JointSyncs::new(Pauses::new(devices));
    for (volume, store) in stores.lock_all().iter() {
        devices.join(Device::Backing(volume), store.syncs().clone());
    }
    let mut executor = Executor::new(AnyDevices::new(devices), arena);
    executor.measure();
    let flash_path = flash.map(|f| f.path);
    let mut core = Core::new(executor, Cache::new(machine), tape);
    for (volume, store) in stores.lock_all().iter() {
        let Store { size_bytes, read_only, priority, bypass, .. } = **store;
        core.attach(VolumeConfig { size_bytes, read_only, priority, bypass });
        if flash_path.is_some() && store.keeps_stamps() && !options.one_at_a_time {
            core.keep_stamps(volume);
        }
    }
    let shared = Shared::new(core, Clock::start(), bell, AllocationQueries::new(holes));
    Opened { shared, announcement, volumes, notices, flash_path, start }
}

fn describe(config: &Config, stores: &[Store], numbers: &[Volume]) -> Vec<VolumeDescription> {
    let describe = |(volume, &number): (&forebay_config::Volume, &Volume)| VolumeDescription {
        name: volume.name.clone(),
        volume: number,
        size_bytes: stores[number.index()].size_bytes,
        read_only: stores[number.index()].read_only,
    };
    config.volume.iter().zip(numbers).map(describe).collect()
}

/// Slows devices down as configured.
fn shape(
    config: &Config,
    devices: NbdDevices<RealDevices>,
    volumes: &[VolumeDescription],
) -> AnyDevices {
    let backings = config.volume.iter().zip(volumes);
    let backings = backings.map(|(v, of)| (v.shape.as_ref(), Device::Backing(of.volume)));
    let flash = config.flash.as_ref().map(|f| (f.shape.as_ref(), Device::Flash));
    let named: Vec<_> =
        backings.chain(flash).filter_map(|(name, device)| Some((name?, device))).collect();
    if named.is_empty() {
        return AnyDevices::new(devices);
    }
    let mut shaped = Shaped::new(devices);
    for (name, device) in named {
        // The configuration was checked: there is a device of that name.
        let profile = forebay_setup::device_profile(config, name);
        let capacity = shaped.capabilities(device).map_or(0, |c| c.size);
        let seed = config.shape.get(name).map_or(0, |shape| shape.seed);
        shaped.set_model(device, profile.map(|p| Model::new(&p, capacity, seed)));
    }
    AnyDevices::new(shaped)
}

/// Decides whether to format or to recover, and in which order volumes are attached.
fn decide(
    options: &EngineOptions,
    flash: &mut Option<OpenFlashDevice>,
    stores: &[Store],
    progress: &mut Progress<'_>,
) -> Result<Decision, EngineError> {
    let in_order = || (0..stores.len() as u32).map(Volume).collect();
    let Some(tier) = flash else {
        nothing_elsewhere(stores, None, options)?;
        return Ok(Decision { start: Open::RECOVER, numbers: in_order() });
    };
    let path = tier.path.clone();
    let mut here = None;
    match &tier.found {
        Found::Blank => {}
        Found::Foreign if options.format => {}
        Found::Foreign => return Err(EngineError::NotFlash { path }),
        // What cannot be read may well hold dirty data.
        Found::Unusable(_) if options.format && options.discard_dirty_data => {}
        Found::Unusable(error) => {
            return Err(EngineError::Flash { path, error: error.clone() });
        }
        Found::Tier(superblock) => {
            here = Some(superblock.uuid);
            let numbers = numbers(superblock, stores);
            if !options.format {
                // Even a tier that owes nothing is somebody's cache.
                let bound = |mismatch| EngineError::Bound { path, mismatch };
                return recover(superblock, stores, numbers.map_err(bound)?, options, progress);
            }
            if !options.discard_dirty_data {
                match (tier.dirty_blocks(stores)?, numbers) {
                    (0, _) => {}
                    (blocks, Ok(_)) => return Err(EngineError::DirtyFlash { path, blocks }),
                    (_, Err(mismatch)) => return Err(EngineError::Foreign { path, mismatch }),
                }
            }
        }
    }
    nothing_elsewhere(stores, here, options)?;
    let binding = |(index, store): (usize, &Store)| {
        let generation = store.head.header().map_or(0, |h| h.generation);
        Binding::new(Volume(index as u32), store.head.id(), generation)
    };
    let bindings = stores.iter().enumerate().map(binding).collect();
    let start = Open::Format { uuid: TierId::new(random_uuid()?), bindings };
    Ok(Decision { start, numbers: in_order() })
}

/// Recovers a tier that belongs to the stores, whose volumes have these numbers.
fn recover(
    superblock: &Superblock,
    stores: &[Store],
    numbers: Vec<Volume>,
    options: &EngineOptions,
    progress: &mut Progress<'_>,
) -> Result<Decision, EngineError> {
    check_epochs(superblock, stores)?;
    let stamps = stores.iter().zip(&numbers);
    let stamps = stamps.filter_map(|(store, &n)| store.stamp(n, superblock.uuid));
    // (An older flash tier is never accepted: it would put older data over newer data.)
    let start = Open::Recover {
        changed: changed(superblock, stores, &numbers, options, progress)?,
        drop_clean: options.drop_clean,
        stores: stamps.collect(),
    };
    Ok(Decision { start, numbers })
}

/// Stores with the same identity, because one was copied, or has two addresses: refused, or given different
/// identities from now on. Stores without a header, and stores that nobody writes to, have identities only for a flash
/// tier.
fn tell_twins_apart(
    stores: &mut [Store],
    has_flash: bool,
    options: &EngineOptions,
) -> Result<(), EngineError> {
    for n in 1..stores.len() {
        let (before, rest) = stores.split_at_mut(n);
        let has_header = rest[0].head.header().is_some();
        let is_twin = |store: &&Store| {
            // Without flash, copies that nobody writes to stay as they are.
            let matters = has_flash || has_header && !(store.read_only && rest[0].read_only);
            store.head.id() == rest[0].head.id() && matters
        };
        let Some(twin) = before.iter().find(is_twin) else { continue };
        if !options.format || !has_header {
            return Err(EngineError::Twins { one: twin.name.clone(), other: rest[0].name.clone() });
        }
        rest[0].renew_identity()?;
    }
    Ok(())
}

/// The flash tier that the stores' last opening began to format, without getting further, so that
/// no tier holds dirty data for them.
fn awaits_first_epoch(stores: &[Store]) -> Option<TierId> {
    // (One that cannot be written never awaits a tier.)
    let headers = || stores.iter().filter_map(|store| store.head.kept());
    let uuid = headers().next()?.flash_uuid?;
    let awaits = |h: &BackingHeader| {
        h.opening && h.flash_epoch == FIRST_EPOCH && !h.dirty && h.flash_uuid == Some(uuid)
    };
    headers().all(awaits).then_some(uuid)
}

/// Refuses stores whose newest data may be on a flash tier other than `here`.
fn nothing_elsewhere(
    stores: &[Store],
    here: Option<TierId>,
    options: &EngineOptions,
) -> Result<(), EngineError> {
    let elsewhere = |store: &&Store| {
        let header = store.head.header().filter(|h| h.dirty && h.flash_uuid.is_some());
        header.is_some_and(|h| h.flash_uuid != here)
    };
    match stores.iter().find(elsewhere) {
        Some(store) if !options.discard_dirty_data => Err(EngineError::DirtyElsewhere {
            volume: store.name.clone(),
            path: store.path.clone(),
        }),
        _ => Ok(()),
    }
}

/// Refuses a flash tier or a store that is an older copy of itself.
fn check_epochs(superblock: &Superblock, stores: &[Store]) -> Result<(), EngineError> {
    for store in stores {
        let ours = store.head.kept().filter(|h| h.flash_uuid == Some(superblock.uuid));
        if let Some(Err(error)) = ours.map(|h| h.check_epoch(superblock.epoch)) {
            return Err(EngineError::Epoch { volume: store.name.clone(), error });
        }
    }
    Ok(())
}

/// The numbers of volumes whose stores others have used since this tier was sealed. This is not
/// checked if the user drops everything anyway.
fn changed(
    superblock: &Superblock,
    stores: &[Store],
    numbers: &[Volume],
    options: &EngineOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Volume>, EngineError> {
    let mut changed = Vec::new();
    if options.drop_clean {
        return Ok(changed);
    }
    for (store, &number) in stores.iter().zip(numbers) {
        let mut bindings = superblock.bindings.iter();
        let bound = bindings.find(|b| b.volume == number);
        let seal = bound.map_or([0; SEAL_BYTES], |b| b.seal);
        // What looks otherwise because it is older is reported as that.
        if !is_older(store, number, superblock) && store.is_changed(&seal, progress)? {
            changed.push(number);
        }
    }
    Ok(changed)
}

/// Marks the stores that are older copies than those that the flash tier knows. A start that accepts
/// them changes nothing about that before it [opens](forebay_flash::HeaderChange::Open) them: if it is cut
/// short, the next one finds them as they were.
fn mark_older(stores: &mut [Store], decision: &Decision, flash: Option<&OpenFlashDevice>) {
    let (Open::Recover { .. }, Some(Found::Tier(superblock))) =
        (&decision.start, flash.map(|f| &f.found))
    else {
        return;
    };
    for (store, &number) in stores.iter_mut().zip(&decision.numbers) {
        let older = is_older(store, number, superblock);
        store.head.take_for_older(older);
    }
}

/// Whether the store, as this volume, is an older copy than the one that the flash tier knows.
fn is_older(store: &Store, number: Volume, superblock: &Superblock) -> bool {
    let stamp = store.stamp(number, superblock.uuid);
    stamp.is_some_and(|stamp| stamp.is_older(&superblock.bindings))
}

/// The number of each store in the flash tier's table, or the mismatch.
fn numbers(superblock: &Superblock, stores: &[Store]) -> Result<Vec<Volume>, TierMismatch> {
    let bound: BTreeMap<StoreId, Volume> =
        superblock.bindings.iter().map(|b| (b.uuid, b.volume)).collect();
    let mut numbers = Vec::new();
    for store in stores {
        // (A header that cannot be written says nothing of this tier.)
        let known = store.head.kept_on_store().filter(|h| h.generation > 0);
        let foreign = known.is_some_and(|h| h.flash_uuid != Some(superblock.uuid));
        match bound.get(&store.head.id()) {
            Some(&number) if !foreign && number.index() < stores.len() => numbers.push(number),
            Some(_) => {
                return Err(TierMismatch::UsedWithAnother { volume: store.name.clone() });
            }
            None => return Err(TierMismatch::NotBound { volume: store.name.clone() }),
        }
    }
    if bound.len() != stores.len() {
        return Err(TierMismatch::Count { bound: bound.len(), configured: stores.len() });
    }
    Ok(numbers)
}

fn begin_tape(path: &Path, machine: &CacheConfig) -> Result<Recorder, EngineError> {
    let io = |source| EngineError::Io { action: "write", path: path.to_owned(), source };
    // It shows what clients do, and so is for this user only, whatever the umask.
    let mut options = std::fs::File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.map_err(io)?;
    let out = std::io::BufWriter::with_capacity(1 << 20, file);
    Recorder::new(Box::new(out), machine).map_err(io)
}
