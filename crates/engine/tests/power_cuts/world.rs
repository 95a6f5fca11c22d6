//! Two volumes and a flash tier in small files, and engines that run on them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_block::{Flags, Op, Volume};
use forebay_config::{Acknowledge, Config, WritePolicy};
use forebay_device::Backend;
use forebay_device::file::DirectIo;
use forebay_engine::{Engine, EngineError, EngineOptions, Session, StopMode, Submission};

use crate::journal::{Block, Journal, Mark};

pub const BLOCK: usize = 4096;
pub const HEADER_AREA: usize = 1 << 20;
pub const VOLUME_BYTES: usize = 128 << 10;
pub const STORE_BYTES: usize = HEADER_AREA + VOLUME_BYTES;
pub const FLASH_BYTES: usize = 512 << 10;
/// Blocks of each volume that tests use.
pub const BLOCKS: u64 = 12;
/// Volumes: `a` in the layout offset, `b` in the layout tail.
pub const VOLUMES: u32 = 2;

/// What the files hold: the stores by volume, then flash if there is any.
pub type Images = Vec<Vec<u8>>;

/// Nothing anywhere.
pub fn blank(flash: bool) -> Images {
    let mut images = vec![vec![0; STORE_BYTES]; VOLUMES as usize];
    images.extend(flash.then(|| vec![0; FLASH_BYTES]));
    images
}

/// A directory with the files.
pub struct Files(tempfile::TempDir);

impl Files {
    /// In memory where that can be had: syncs are judged by what was asked for, not by the disk.
    pub fn new() -> Files {
        let memory = Path::new("/dev/shm");
        Files(tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn path(&self, index: usize) -> PathBuf {
        self.0.path().join(["a.img", "b.img", "flash.img"][index])
    }

    pub fn put(&self, images: &Images) {
        for (index, image) in images.iter().enumerate() {
            // (Over what is there: to free the memory first and to ask for it again takes five times as long.)
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            let file = options.open(self.path(index)).unwrap();
            file.write_all_at(image, 0).unwrap();
            file.set_len(image.len() as u64).unwrap();
        }
    }

    pub fn get(&self, flash: bool) -> Images {
        (0..2 + usize::from(flash)).map(|index| std::fs::read(self.path(index)).unwrap()).collect()
    }

    fn config(&self, policy: &str, flash: bool, flash_keys: &str) -> Config {
        let path = |index| self.path(index).display().to_string();
        let flash = match flash {
            true => format!(
                "[flash]\npath = '{}'\nsize = '512KiB'\nlayout = 'log'\n{flash_keys}\n",
                path(2)
            ),
            false => String::new(),
        };
        let volume = |name, index, layout| {
            let path = path(index);
            format!(
                "[[volume]]\nname = '{name}'\nbacking = '{path}'\nsize = '128KiB'\n\
                 layout = '{layout}'\n"
            )
        };
        let (a, b) = (volume("a", 0, "offset"), volume("b", 1, "tail"));
        let text = format!("[cache]\ndram = '256KiB'\nwrite_policy = '{policy}'\n{flash}{a}{b}");
        Config::from_toml(&text).unwrap()
    }

    /// Starts an engine on the files.
    pub fn start(
        &self,
        policy: &str,
        flash: bool,
        journal: &Arc<Journal>,
        format: bool,
    ) -> Result<Run, EngineError> {
        let config = self.config(policy, flash, "");
        self.start_with(&config, journal, format)
    }

    /// Starts one over a new flash tier with these keys.
    pub fn start_new(&self, flash_keys: &str, journal: &Arc<Journal>) -> Result<Run, EngineError> {
        self.start_with(&self.config("write-back", true, flash_keys), journal, true)
    }

    fn start_with(
        &self,
        config: &Config,
        journal: &Arc<Journal>,
        format: bool,
    ) -> Result<Run, EngineError> {
        let options = EngineOptions {
            backend: Backend::Threads,
            direct: DirectIo::Never,
            watch: Some(journal.clone()),
            format,
            ..EngineOptions::default()
        };
        let engine = Engine::open(config, options)?;
        Ok(Run { engine, journal: journal.clone() })
    }
}

/// An engine that runs, with a client that keeps account.
pub struct Run {
    pub engine: Engine,
    pub journal: Arc<Journal>,
}

impl Run {
    /// Writes the next version of a block; with FUA it is to survive everything.
    pub fn write(&self, block: Block, fua: bool) {
        let mut session = self.engine.session().unwrap();
        let version = self.journal.version();
        self.journal.mark(Mark::Issued(block, version));
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        perform(&mut session, Op::Write, flags, block, stamp(block, version));
        self.journal.mark(Mark::Acked(block, version));
        if fua {
            self.journal.mark(Mark::Forced(block, version));
        }
    }

    /// Writes some blocks of both volumes, flushes one of them, and writes some again.
    pub fn work(&self, from: u64) {
        for block in from..from + 3 {
            self.write((0, block), false);
            self.write((1, block), block == from);
        }
        self.flush(0);
        self.write((0, from), false);
        self.write((1, from + 1), true);
        self.write((0, from + 2), true);
    }

    /// Flushes a volume: what was acknowledged is to survive everything.
    pub fn flush(&self, volume: u32) {
        let mut session = self.engine.session().unwrap();
        self.journal.mark(Mark::FlushBegins(volume));
        perform(&mut session, Op::Flush, Flags::NONE, (volume, 0), [0; BLOCK]);
        self.journal.mark(Mark::FlushEnds(volume));
    }

    pub fn set_policy(&self, policy: WritePolicy) -> Result<(), EngineError> {
        self.engine.set_policy(policy, Some(Acknowledge::Flash))
    }

    /// What every block reads as.
    pub fn read_all(&self) -> BTreeMap<Block, [u8; BLOCK]> {
        let mut session = self.engine.session().unwrap();
        let mut read = |block| perform(&mut session, Op::Read, Flags::NONE, block, [0xEE; BLOCK]);
        blocks().map(|block| (block, read(block))).collect()
    }

    /// Stops, everything destaged.
    pub fn stop(self) -> Result<(), EngineError> {
        self.engine.stop(StopMode::Destage, |_| {})?;
        self.journal.mark(Mark::Stopped);
        Ok(())
    }

    /// Stops, with what is dirty left on flash.
    pub fn stop_keeping(self) {
        self.engine.stop(StopMode::Keep, |_| {}).unwrap();
    }

    pub fn kill(self) {
        self.engine.kill();
    }
}

fn perform(
    session: &mut Session,
    op: Op,
    flags: Flags,
    (volume, block): Block,
    bytes: [u8; BLOCK],
) -> [u8; BLOCK] {
    let mut buffer = session.buffer(BLOCK);
    buffer[..BLOCK].copy_from_slice(&bytes);
    let (length, buffer) = if op == Op::Flush { (0, None) } else { (BLOCK as u64, Some(buffer)) };
    let (volume, offset) = (Volume(volume), block * BLOCK as u64);
    let request = Submission { tag: 0, volume, op, flags, offset, length, buffer };
    let (mut requests, mut done) = (vec![request], Vec::new());
    session.submit(&mut requests, &mut done);
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    let done = done.remove(0);
    assert_eq!(done.result, Ok(()), "{op:?} of block {block}");
    done.request.buffer.map_or(bytes, |buffer| buffer[..BLOCK].try_into().unwrap())
}

/// The bytes of a version of a block: each sector says whose it is and which.
pub fn stamp((volume, block): Block, version: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for unit in bytes.chunks_exact_mut(16) {
        unit[..8].copy_from_slice(&version.to_le_bytes());
        unit[8..12].copy_from_slice(&(volume + 1).to_le_bytes());
        unit[12..].copy_from_slice(&(block as u32).to_le_bytes());
    }
    bytes
}

/// Which version a sector of a block is; `None` if it is anything else.
pub fn version_of(block: Block, sector: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(sector[..8].try_into().unwrap());
    let expected = if version == 0 { [0; BLOCK] } else { stamp(block, version) };
    (sector == &expected[..sector.len()]).then_some(version)
}

/// Whether a sector is a version of any block, or nothing: no garbage.
pub fn is_a_stamp(sector: &[u8]) -> bool {
    blocks().any(|block| version_of(block, sector).is_some())
}

/// The bytes of a block on its store.
pub fn on_store<T: AsRef<[u8]>>(images: &[T], (volume, block): Block) -> &[u8] {
    let start = if volume == 0 { HEADER_AREA } else { 0 };
    &images[volume as usize].as_ref()[start + block as usize * BLOCK..][..BLOCK]
}

/// Every block that tests use.
pub fn blocks() -> impl Iterator<Item = Block> {
    (0..VOLUMES).flat_map(|volume| (0..BLOCKS).map(move |block| (volume, block)))
}
