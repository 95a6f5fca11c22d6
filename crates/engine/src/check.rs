//! Checks a flash tier offline: reads and verifies everything, and writes nothing.

use std::path::Path;

use forebay_device::file::{DirectIo, OpenOptions};
use forebay_device::{
    Arena, Backend, Doorbell, Executor, HugePages, OwnedRequests, RealDevices, uring,
};
use forebay_effect::{Device, Effect, Machine, MetaBuffer, Outcome, Owner, Segment, Token};
use forebay_flash::{
    BlockKey, Event, Log, LogError, Options, Position, RecoveryReport, Start, StartEvent,
};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::EngineError;
use crate::patience;
use crate::recognise::{Found, inspect_flash};

/// The results of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// The log's report.
    pub recovery: RecoveryReport,
    /// Blocks whose newest data is only on flash.
    pub dirty_blocks: u64,
    /// Blocks that the tier holds.
    pub blocks: u64,
    /// Records whose data cannot be read, in the order of their discovery.
    pub unreadable: Vec<Unreadable>,
    /// Why the tier could not be read to the end.
    pub failure: Option<LogError>,
}

/// A record whose data does not match its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The block.
    pub key: BlockKey,
    /// Its place.
    pub position: Position,
    /// The consequence for the block.
    pub loss: Loss,
}

/// The consequence of an unreadable record for its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The newest data was only there.
    Dirty,
    /// The backing store has the same data.
    Clean,
    /// A newer record has replaced it.
    Superseded,
}

/// Reads the whole flash tier at `path`.
///
/// # Errors
/// If it is in use, cannot be read, or is not a flash tier.
pub fn check_flash(path: &Path) -> Result<CheckReport, EngineError> {
    let superblock = match inspect_flash(path)? {
        Found::Tier(superblock) => superblock,
        Found::Unusable(error) => {
            return Err(EngineError::Flash { path: path.to_owned(), error });
        }
        other => {
            let holds = if other == Found::Blank { "is empty" } else { "holds other data" };
            return Err(EngineError::NoFlashTier { path: path.to_owned(), holds });
        }
    };
    let options =
        OpenOptions { read_only: true, direct: DirectIo::Never, ..OpenOptions::existing(path) };
    let (target, _) = patience::open(&options)?;
    let system = |what| move |e| EngineError::System(what, e);
    let bell = Arc::new(Doorbell::new().map_err(system("create an eventfd"))?);
    // Threads let go of the file at once, io_uring only when the kernel gets to it.
    let made = RealDevices::new(Backend::Threads, uring::Options::default(), bell.clone());
    let (mut devices, _) = made.map_err(system("set up device I/O"))?;
    let run = forebay_flash::Geometry::for_device(target.size(), superblock.block_size)
        .map_err(|error| EngineError::Geometry { path: path.to_owned(), error })?;
    let geometry = run
        .as_stored(&superblock)
        .map_err(|error| EngineError::Flash { path: path.to_owned(), error })?;
    let (size, needed) = (target.size(), geometry.device_bytes());
    if size < needed {
        return Err(EngineError::FlashCut { path: path.to_owned(), size, needed });
    }
    devices.add(Device::Flash, target);
    let arena = Arena::new(1, superblock.block_size, HugePages::Never)?;
    let mut executor = Executor::new(devices, arena);
    let options = Options { frames: 1, ..Options::default() };
    let mut checker = Checker::new(Log::new(geometry, options));
    checker.log.start(Start::Check);
    let mut requests = OwnedRequests::default();
    while !checker.over {
        let progress = executor.run(&mut checker, &mut requests);
        checker.hear();
        if !checker.over && !progress.more {
            bell.wait(None);
        }
    }
    Ok(checker.report())
}

/// Only the log, as a machine.
struct Checker {
    log: Log,
    /// The place of each block's newest record, and whether it is dirty.
    blocks: BTreeMap<BlockKey, (Position, bool)>,
    recovery: RecoveryReport,
    failure: Option<LogError>,
    over: bool,
}

impl Checker {
    fn new(log: Log) -> Checker {
        let (blocks, recovery) = (BTreeMap::new(), RecoveryReport::default());
        Checker { log, blocks, recovery, failure: None, over: false }
    }

    fn hear(&mut self) {
        while let Some(event) = self.log.poll_event() {
            match event {
                Event::Start(StartEvent::Recovered(record)) => {
                    self.blocks.insert(record.key, (record.position, !record.dirty.is_empty()));
                }
                Event::Start(StartEvent::RecoveredTombstone { key }) => {
                    self.blocks.remove(&key);
                }
                Event::Start(StartEvent::Ready(report)) => {
                    (self.recovery, self.over) = (*report, true)
                }
                Event::Start(StartEvent::Failed(error)) => {
                    (self.failure, self.over) = (Some(error), true)
                }
                _ => {}
            }
        }
    }

    fn report(self) -> CheckReport {
        let loss = |key, position| match self.blocks.get(&key) {
            Some(&(newest, dirty)) if newest == position => {
                if dirty {
                    Loss::Dirty
                } else {
                    Loss::Clean
                }
            }
            _ => Loss::Superseded,
        };
        let unreadable = self.recovery.damage.payloads.iter();
        let unreadable = unreadable
            .map(|&(key, position)| Unreadable { key, position, loss: loss(key, position) })
            .collect();
        CheckReport {
            unreadable,
            dirty_blocks: self.blocks.values().filter(|(_, dirty)| *dirty).count() as u64,
            blocks: self.blocks.len() as u64,
            recovery: self.recovery,
            failure: self.failure,
        }
    }
}

impl Machine for Checker {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        self.log.poll_effect(segments)
    }
    fn handle_completion(&mut self, token: Token, outcome: Outcome) {
        debug_assert_eq!(token.owner, Owner::Log);
        self.log.handle_completion(token.index, outcome);
        self.hear();
    }
    fn handle_checksum(&mut self, token: Token, value: u32) {
        self.log.handle_checksum(token.index, value);
    }
    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        self.log.meta_mut(buffer)
    }
}
