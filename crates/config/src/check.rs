//! Checks that reject well-formed but invalid configurations.

use std::collections::BTreeMap;

use forebay_block::{BlockSize, Nanos, SECTOR_BYTES};
use forebay_model::Profile;
use forebay_replacement::AdmissionKind;

use crate::config::SHARDS_MAX;
use crate::error::{ConfigError, Problem};
use crate::sections::{
    Acknowledge, AdmissionPolicy, Distribution, Etica, Flash, FlashLayout, OnStop, Relation, Shape,
    Volume, Written,
};
use crate::{Address, Config, Size};

/// Supported block sizes, in bytes.
const BLOCK_BYTES: core::ops::RangeInclusive<u64> = 4 << 10..=64 << 10;
/// With fewer blocks, there is no room for the requests in flight.
const DRAM_BLOCKS_MIN: u64 = 64;
/// Supported sizes of a region of the flash log, in bytes.
const REGION_BYTES: core::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;
/// Supported sizes of a flash page, in bytes.
const PAGE_BYTES: core::ops::RangeInclusive<u64> = 512..=64 << 10;
/// Maximum size of a batch in bytes: batches are encoded in memory.
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// A log needs regions to write to, to reclaim, and to keep in reserve.
const REGIONS_MIN: u64 = 4;
/// A quarter of the request memory must hold a request of 32 MiB.
const REQUEST_MEMORY_MIN: u64 = 136 << 20;
/// Request memory per connection: half of it is the connection's share, which must hold a handshake
/// with the longest options.
const CONNECTION_MEMORY_MIN: u64 = 192 << 10;
/// Priorities of volumes; 1 is the highest.
const PRIORITIES: core::ops::RangeInclusive<u32> = 1..=255;
/// Maximum length of a name in the NBD protocol.
const NAME_BYTES_MAX: usize = 4096;

impl Config {
    /// Checks what cannot be checked for each key alone: ranges, and keys that contradict each
    /// other.
    ///
    /// Loading a file includes this check; call it for configurations that were built in memory.
    ///
    /// # Errors
    /// Returns all problems that were found; they have no line numbers.
    pub fn check(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::default();
        cache(self, &mut problems);
        if let Some(flash) = &self.flash {
            check_flash(self, flash, &mut problems);
        }
        volumes(self, &mut problems);
        serve(self, &mut problems);
        policies(self, &mut problems);
        for (name, shape) in &self.shape {
            check_shape(&format!("shape.{name}"), shape, &mut problems);
        }
        if problems.0.is_empty() { Ok(()) } else { Err(problems.0) }
    }

    /// Returns this configuration if [`check`](Self::check) finds no problems.
    ///
    /// # Errors
    /// Returns the problems.
    pub fn checked(self) -> Result<Config, ConfigError> {
        match self.check() {
            Ok(()) => Ok(self),
            Err(problems) => Err(ConfigError { file: None, problems }),
        }
    }

    /// Checks that there is something to serve: a server needs volumes, a simulation does not.
    ///
    /// # Errors
    /// If there is no volume.
    pub fn check_volumes(&self) -> Result<(), ConfigError> {
        if self.volume.is_empty() {
            let message =
                "there is nothing to serve: add a [[volume]] with a `name` and a `backing`";
            return Err(ConfigError { file: None, problems: vec![Problem::new("", message)] });
        }
        Ok(())
    }
}

#[derive(Default)]
struct Problems(Vec<Problem>);

/// Maximum size of a volume in bytes: the maximum size of a file leaves room for a header and more.
const VOLUME_BYTES_MAX: u64 = 1 << 62;

impl Problems {
    fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem::new(key, message));
    }
    fn unless(&mut self, good: bool, key: &str, message: impl Into<String>) {
        if !good {
            self.add(key, message);
        }
    }
}

fn cache(config: &Config, problems: &mut Problems) {
    let cache = &config.cache;
    let bytes = cache.block_size.bytes();
    if BlockSize::new(bytes).is_err() || !BLOCK_BYTES.contains(&bytes) {
        let message = format!(
            "{} is not a valid block size: use a power of two from 4KiB to 64KiB",
            Size(bytes)
        );
        problems.add("cache.block_size", message);
    } else {
        let least = Size(DRAM_BLOCKS_MIN * bytes);
        let enough = cache.dram >= least;
        let message = format!("{} is too small: the minimum is {least}", cache.dram);
        problems.unless(enough, "cache.dram", message);
        let most = Size(u64::from(u32::MAX) * bytes);
        let message = format!("{} is too large: the maximum is {most}", cache.dram);
        problems.unless(cache.dram <= most, "cache.dram", message);
    }
    if let Some(acknowledge) = cache.acknowledge {
        if let Some(why) = cache.write_policy.refuses_acknowledge() {
            let message = format!("{why}; remove the key, or use \"write-back\"");
            problems.add("cache.acknowledge", message);
        }
        if acknowledge == Acknowledge::Flash && config.flash.is_none() {
            let message = "\"flash\" needs a [flash] section; without one, use \"dram\"";
            problems.add("cache.acknowledge", message);
        }
    }
}

fn check_flash(config: &Config, flash: &Flash, problems: &mut Problems) {
    let block = config.cache.block_size.bytes();
    if flash.path.as_os_str().is_empty() {
        problems.add("flash.path", "is empty: specify a device or a file");
    }
    let page = flash.page_size.map_or(*PAGE_BYTES.start(), Size::bytes);
    let page_good = page.is_power_of_two() && PAGE_BYTES.contains(&page);
    problems.unless(page_good, "flash.page_size", "must be a power of two from 512 bytes to 64KiB");
    let region = flash.region_size.map(Size::bytes);
    let least = region.unwrap_or(*REGION_BYTES.start()).saturating_mul(REGIONS_MIN);
    if let Some(size) = flash.size.filter(|size| size.bytes() < least) {
        let message = format!("{size} is too small: the minimum is {}", Size(least));
        problems.add("flash.size", message);
    }
    let batch = flash.batch_size.bytes();
    if batch < block || batch > BATCH_BYTES_MAX {
        problems.add("flash.batch_size", "must be at least one block and at most 64MiB");
    }
    if let Some(region) = region {
        let large = 4 * block.max(page);
        if !region.is_power_of_two() || !REGION_BYTES.contains(&region) || region < large {
            let message = "must be a power of two from 64KiB to 1GiB, and at least four blocks";
            problems.add("flash.region_size", message);
        } else if batch > region {
            problems.add("flash.batch_size", "must be at most one region");
        }
    }
    for (key, value, most) in [
        ("flash.regions_reserved", flash.regions_reserved, 1 << 16),
        ("flash.batches_in_flight", flash.batches_in_flight.unwrap_or(1), 255),
        ("flash.activity_extents", flash.activity_extents, extents_max(page)),
    ] {
        problems.unless((1..=most).contains(&value), key, format!("must be from 1 to {most}"));
    }
    let most = if flash.layout() == FlashLayout::Slots { 31 } else { 255 };
    let message = format!("must be from 1 to {most}");
    problems.unless((1..=most).contains(&flash.promote_after), "flash.promote_after", message);
    let dirty = flash.promote_dirty_after.is_none_or(|after| (1..=31).contains(&after));
    problems.unless(dirty, "flash.promote_dirty_after", "must be from 1 to 31");
    if let Some(line) = flash.line_size.map(Size::bytes) {
        let good = line.is_power_of_two() && (block..=LINE_MAX).contains(&line);
        problems.unless(
            good,
            "flash.line_size",
            "must be a power of two from the block size to \
                                                  1MiB",
        );
        let lines = matches!(config.cache.relation, Relation::Layered | Relation::Dual);
        let message = "applies only to the relations layered and dual: set cache.relation";
        problems.unless(lines, "flash.line_size", message);
    }
    check_replacement(flash, problems);
    let extent = flash.activity_extent.bytes();
    if !extent.is_power_of_two() || !(1 << 20..=1 << 30).contains(&extent) {
        problems.add("flash.activity_extent", "must be a power of two from 1MiB to 1GiB");
    }
    shape_name(config, "flash.shape", flash.shape.as_deref(), problems);
}

/// Checks the replacement on flash, which depends on the layout.
fn check_replacement(flash: &Flash, problems: &mut Problems) {
    let slots = flash.layout() == FlashLayout::Slots;
    let message = "applies only to the slots layout";
    problems.unless(slots || !flash.give_up_copies, "flash.give_up_copies", message);
    let unset = flash.promote_dirty_after.is_none();
    problems.unless(slots || unset, "flash.promote_dirty_after", message);
    let replacement = flash.replacement;
    if slots && replacement.is_some_and(|r| r.cells().is_none()) {
        let message = "needs layout = \"log\": for the slots layout, choose a policy that `forebay \
                       policies` lists";
        return problems.add("flash.replacement", message);
    }
    if !slots && replacement.is_some_and(|r| !r.is_of_log()) {
        let message = "needs layout = \"slots\": the log layout reclaims its regions in the order in which they \
                       were written, and supports only \"fifo\", \"second-chance\", \"frequency\" and \"popularity\"";
        return problems.add("flash.replacement", message);
    }
    let none = flash.replacement_parameters.is_empty();
    let message = "applies only to the slots layout";
    problems.unless(slots || none, "flash.replacement_parameters", message);
    if slots && let Err((name, error)) = flash.cells() {
        problems.add(format!("flash.replacement_parameters.{name}"), error.to_string());
    }
}

/// Maximum size of a line in bytes: a line lies within one stripe of the cache.
const LINE_MAX: u64 = 1 << 20;

/// The number of active extents that fit in a superblock of 16 pages that also lists 64 volumes.
fn extents_max(page: u64) -> u32 {
    (page / 4096 * 7000).clamp(7000, 1 << 15) as u32
}

fn volumes(config: &Config, problems: &mut Problems) {
    let mut names = BTreeMap::new();
    let mut stores = BTreeMap::new();
    for (i, volume) in config.volume.iter().enumerate() {
        let key = |name: &str| format!("volume.{i}.{name}");
        check_volume(volume, &key, problems);
        if let Some(first) = names.insert(volume.name.as_str(), i) {
            let message = format!("`{}` is also the name of volume.{first}", volume.name);
            problems.add(key("name"), message);
        }
        if let Some(first) = stores.insert(volume.backing.as_str(), i) {
            let other = &config.volume[first].name;
            let message = format!(
                "{} is already the backing store of volume.{first}, `{other}`: each volume needs \
                 its own store",
                volume.backing
            );
            problems.add(key("backing"), message);
        }
        if config.flash.as_ref().is_some_and(|f| f.path.as_os_str() == volume.backing.as_str()) {
            let message = format!("{} is also the flash tier", volume.backing);
            problems.add(key("backing"), message);
        }
        shape_name(config, &key("shape"), volume.shape.as_deref(), problems);
    }
}

fn check_volume(volume: &Volume, key: &dyn Fn(&str) -> String, problems: &mut Problems) {
    let name = &volume.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message =
            format!("must be 1 to {NAME_BYTES_MAX} bytes long and contain no control characters");
        problems.add(key("name"), message);
    }
    if volume.backing.is_empty() {
        problems.add(key("backing"), "is empty: specify a device or a file");
    }
    let remote = ["nbd://", "nbd+unix://"].iter().any(|scheme| volume.backing.starts_with(scheme));
    // `nbd:` alone is the beginning of a mistyped address, not of a file name.
    let meant = volume.backing.contains("://") || volume.backing.starts_with("nbd:");
    if meant && !remote {
        let message = "is not a kind of address that Forebay supports: use nbd://HOST/EXPORT, \
                       nbd+unix:///EXPORT?socket=PATH, a device or a file";
        problems.add(key("backing"), message);
    }
    if let Some(size) = volume.size {
        let whole = size.bytes() > 0 && size.bytes().is_multiple_of(SECTOR_BYTES);
        problems.unless(
            whole,
            &key("size"),
            match size.bytes() < 1 << 20 && size.bytes() > 0 {
                true => format!(
                    "{size} is not a whole number of 512-byte sectors; a size without a unit is in \
                     bytes, so you may mean \"{}MiB\"",
                    size.bytes()
                ),
                false => format!("{size} is not a whole number of 512-byte sectors"),
            },
        );
        let most = Size(VOLUME_BYTES_MAX);
        let message = format!("{size} is too large: the maximum is {most}");
        problems.unless(size <= most, &key("size"), message);
    }
}

fn serve(config: &Config, problems: &mut Problems) {
    let serve = &config.serve;
    if !serve.nbd.is_local() {
        let message = format!(
            "{} can be reached from other hosts without encryption: use a Unix socket or 127.0.0.1",
            serve.nbd
        );
        problems.add("serve.nbd", message);
    }
    if !serve.control.is_local() {
        let message = format!(
            "{} can be reached from other hosts without encryption: use a Unix socket or 127.0.0.1",
            serve.control
        );
        problems.add("serve.control", message);
    }
    let clash =
        serve.nbd == serve.control && !matches!(serve.nbd, Address::Tcp(a) if a.port() == 0);
    problems.unless(
        !clash,
        "serve.control",
        format!("{} is also the address of serve.nbd", serve.control),
    );
    for (key, value) in [
        ("serve.connections", Some(serve.connections)),
        ("serve.volume_connections", serve.volume_connections),
    ] {
        problems.unless(value != Some(0), key, "must be at least 1");
    }
    let idle = "must be more than 0; omit the key for no limit";
    for (key, value, message) in [
        ("serve.idle_timeout", serve.idle_timeout, idle),
        ("serve.handshake_timeout", Some(serve.handshake_timeout), "must be more than 0"),
        ("serve.stall_timeout", Some(serve.stall_timeout), "must be more than 0"),
    ] {
        problems.unless(value.is_none_or(|time| time.0 > Nanos(0)), key, message);
    }
    let least = REQUEST_MEMORY_MIN.max(u64::from(serve.connections) * CONNECTION_MEMORY_MIN);
    if serve.request_memory.bytes() < least {
        let message = format!(
            "{} is too small for {} connections: the minimum is {}",
            serve.request_memory,
            serve.connections,
            Size(least)
        );
        problems.add("serve.request_memory", message);
    }
    let token = !serve.control_token_file.as_os_str().is_empty();
    problems.unless(token, "serve.control_token_file", "is empty: specify a file");
}

/// Minimum interval between stamps. Each stamp needs a sync, so more frequent stamps would slow the
/// store down.
const STAMP_EVERY_MIN: Nanos = Nanos(10_000_000);

fn policies(config: &Config, problems: &mut Problems) {
    for (key, why) in config.admission.parameters().err().unwrap_or_default() {
        problems.add(format!("admission.{key}"), why);
    }
    let admits_all = config.admission.policy == AdmissionPolicy(AdmissionKind::Always);
    let flash = config.flash.is_some();
    let needs_flash = "chooses which blocks enter flash, but there is no [flash] section";
    problems.unless(admits_all || flash, "admission.policy", needs_flash);
    for (key, least) in [("reads", config.bypass.reads), ("writes", config.bypass.writes)] {
        let key = format!("bypass.{key}");
        let least = least.is_none_or(|least| least.bytes() > 0);
        problems.unless(least, &key, "must be more than 0; omit the key to disable the bypass");
    }
    let block = config.cache.block_size.bytes();
    let dirty = config.bypass.dirty.is_none_or(|dirty| dirty.bytes() >= block);
    problems.unless(
        dirty,
        "bypass.dirty",
        "must be at least one block; omit the key to disable the bypass",
    );
    let dirty = config.bypass.dirty.is_none() || config.cache.write_policy.keeps_dirty_data();
    problems.unless(dirty, "bypass.dirty", "applies only to write policies that keep dirty data");
    let lines = matches!(config.cache.relation, Relation::Layered | Relation::Dual);
    let whole = "must be \"always\" with the relations layered and dual: their lines enter flash as a whole";
    problems.unless(admits_all || !lines, "admission.policy", whole);
    let queues = config.cache.relation == Relation::Etica;
    let chosen =
        "must be \"always\" with the relation etica, whose queues choose which blocks enter flash";
    problems.unless(admits_all || !queues, "admission.policy", chosen);
    let slots = config.flash.as_ref().is_none_or(|flash| flash.layout() == FlashLayout::Slots);
    let single = "must be \"slots\" with the relation etica: its queues evict single blocks, but \
                  the log layout frees whole regions in the order in which they were written";
    problems.unless(slots || !queues, "flash.layout", single);
    for (key, why) in config.etica.parameters().err().unwrap_or_default() {
        problems.add(format!("etica.{key}"), why);
    }
    let used = config.etica == Etica::default();
    problems.unless(
        used || queues,
        "etica",
        "applies only to the relation etica: set cache.relation",
    );
    let alone = config.cache.relation == Relation::Exclusive;
    let needs = "needs flash, but there is no [flash] section";
    problems.unless(alone || flash, "cache.relation", needs);
    let ask = config.admission.written == Written::Ask;
    problems.unless(ask || flash, "admission.written", needs_flash);
    let dirty = config.cache.write_policy.keeps_dirty_data();
    let needs = "applies to dirty data, which this cache.write_policy does not keep";
    problems.unless(ask || dirty, "admission.written", needs);
    let chosen = "must be \"ask\" with the relation etica, whose queues choose which blocks enter \
                  flash";
    problems.unless(ask || !queues, "admission.written", chosen);
    let classes = match config.replacement.parameters() {
        Ok(parameters) => parameters.get("classes"),
        Err((name, error)) => {
            problems.add(format!("replacement.parameters.{name}"), error.to_string());
            None
        }
    };
    for (i, volume) in config.volume.iter().enumerate() {
        let key = format!("volume.{i}.priority");
        problems.unless(PRIORITIES.contains(&volume.priority), &key, "must be from 1 to 255");
        if let Some(classes) = classes.filter(|&classes| volume.priority > classes) {
            let message = format!(
                "must be from 1 to {classes}, the number of classes of the replacement policy, not \
                 {}; for more classes, set `classes` in replacement.parameters",
                volume.priority
            );
            problems.add(key, message);
        }
    }
    let flush = &config.flush;
    let kept = flush.on_stop != OnStop::Keep || config.flash.is_some();
    let message = "\"keep\" needs a [flash] section: dirty data in memory would be lost";
    problems.unless(kept, "flush.on_stop", message);
    problems.unless(flush.parallel >= 1, "flush.parallel", "must be at least 1");
    let often = flush.stamp_every.nanos() >= STAMP_EVERY_MIN;
    problems.unless(often, "flush.stamp_every", "must be at least 10ms");
    let workers = &config.workers;
    let requests = (1..=1 << 20).contains(&workers.requests_max);
    problems.unless(requests, "workers.requests_max", "must be from 1 to 1048576");
    let message = format!("must be at most {SHARDS_MAX}");
    problems.unless(workers.shards <= SHARDS_MAX, "workers.shards", message);
}

fn shape_name(config: &Config, key: &str, name: Option<&str>, problems: &mut Problems) {
    if let Some(name) = name.filter(|name| !config.has_shape(name)) {
        problems.add(key, format!("there is no [shape.{name}], and {}", no_device(name)));
    }
}

/// Maximum parallelism: the model of a device has an entry for each operation in flight.
const PARALLELISM_MAX: u32 = 1 << 16;

fn check_shape(key: &str, shape: &Shape, problems: &mut Problems) {
    if let Some(name) = shape.device.as_deref().filter(|name| !Profile::NAMES.contains(name)) {
        problems.add(format!("{key}.device"), no_device(name));
    }
    let sigma = shape.sigma.is_finite() && (0.0..=5.0).contains(&shape.sigma);
    problems.unless(sigma, &format!("{key}.sigma"), "must be from 0 to 5");
    let parallel = shape.parallelism.is_none_or(|n| (1..=PARALLELISM_MAX).contains(&n));
    let message = format!("must be from 1 to {PARALLELISM_MAX}");
    problems.unless(parallel, &format!("{key}.parallelism"), message);
    let points = &shape.percentiles;
    let key = format!("{key}.percentiles");
    match shape.distribution {
        Some(Distribution::Percentiles) => {
            let inside = points.iter().all(|p| p.0 > 0.0 && p.0 <= 100.0);
            let rising = points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
            let message = "must be a list of [percent, time] pairs whose percentages rise and \
                           whose times do not fall, such as [[50.0, \"1ms\"], [99.0, \"20ms\"]]";
            problems.unless(!points.is_empty() && inside && rising, &key, message);
        }
        None | Some(Distribution::Fixed | Distribution::Lognormal) => {
            let message = "needs distribution = \"percentiles\"";
            problems.unless(points.is_empty(), &key, message);
        }
    }
}

fn no_device(name: &str) -> String {
    format!("no device is called `{name}`: the devices are {}", Profile::NAMES.join(", "))
}
