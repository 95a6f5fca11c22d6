//! The location of a backing store's header: a file or block device, or an export.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

use forebay_device::file::is_hole;
use forebay_device::nbd::Export;
use forebay_device::{DeviceError, StoreSyncs, Verb};
use forebay_effect::Device;
use rustix::fs::{Advice, fadvise};

use crate::backing_header::AREA_BYTES;
use crate::patience::Answers;
use crate::watch::{Operation, Part, Watch};

/// A backing store, for access to its header.
#[derive(Debug)]
pub(crate) struct HeaderArea {
    medium: Medium,
    /// Shared with the devices, which sync the data.
    syncs: Arc<StoreSyncs>,
    /// When it last answered.
    answers: Arc<Answers>,
    watch: Option<(Arc<dyn Watch>, Device)>,
}

#[derive(Debug)]
enum Medium {
    File(File),
    Remote(Arc<Export>),
}

impl HeaderArea {
    /// The header area of a file or block device.
    pub fn of_file(file: File) -> HeaderArea {
        HeaderArea::new(Medium::File(file))
    }

    /// The header area of an export.
    pub fn of_export(export: Arc<Export>) -> HeaderArea {
        HeaderArea::new(Medium::Remote(export))
    }

    fn new(medium: Medium) -> HeaderArea {
        HeaderArea { medium, syncs: Arc::default(), answers: Arc::default(), watch: None }
    }

    /// The syncs of the header, to be joined with those of the data on the same store.
    pub fn syncs(&self) -> &Arc<StoreSyncs> {
        &self.syncs
    }

    /// When a read, write or sync here last ended.
    pub fn answers(&self) -> &Arc<Answers> {
        &self.answers
    }

    /// From now on `watch` is notified of writes, as writes to `device`.
    pub fn watch(&mut self, watch: Arc<dyn Watch>, device: Device) {
        self.watch = Some((watch, device));
    }

    /// The area at `at`, or the part of it that exists.
    pub fn read(&self, at: u64) -> std::io::Result<Vec<u8>> {
        match &self.medium {
            Medium::File(file) => read_area(file, at),
            Medium::Remote(export) => {
                let length = export.size().saturating_sub(at).min(AREA_BYTES);
                let mut area = vec![0; length as usize];
                export.read_at(&mut area, at).map_err(|e| remote_error(export, e))?;
                Ok(area)
            }
        }
    }

    /// How many reads at the same time are faster than one after the other.
    pub fn reads_at_once(&self) -> usize {
        match &self.medium {
            Medium::File(_) => 1,
            Medium::Remote(_) => 16,
        }
    }

    /// Whether the system says that these bytes are zeroes because nothing was written there. (It
    /// may not say so even if it is true.)
    pub fn is_hole(&self, at: u64, length: u64) -> std::io::Result<bool> {
        let Medium::File(file) = &self.medium else { return Ok(false) };
        is_hole(file, at, length)
    }

    /// Reads `bytes` from `at`.
    pub fn read_exact(&self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        let read = self.read_all(at, bytes);
        self.answers.note();
        read
    }

    fn read_all(&self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        match &self.medium {
            Medium::File(file) => file.read_exact_at(bytes, at),
            Medium::Remote(export) => {
                let (lead, whole) = whole_blocks(export, at, bytes.len());
                let read = |into: &mut [u8]| {
                    export.read_at(into, at - lead as u64).map_err(|e| remote_error(export, e))
                };
                if whole == bytes.len() {
                    return read(bytes);
                }
                let mut blocks = vec![0; whole];
                read(&mut blocks)?;
                bytes.copy_from_slice(&blocks[lead..lead + bytes.len()]);
                Ok(())
            }
        }
    }

    /// The system's metadata of the file. None for an export, nor for a watched store, whose
    /// contents move from file to file.
    pub fn metadata(&self) -> std::io::Result<Option<Metadata>> {
        match &self.medium {
            Medium::File(file) if self.watch.is_none() => file.metadata().map(Some),
            _ => Ok(None),
        }
    }

    /// Makes later reads come from the device, where the system has cached what is there.
    pub fn forget_cached(&self) -> std::io::Result<()> {
        match &self.medium {
            Medium::File(file) => Ok(fadvise(file, 0, None, Advice::DontNeed)?),
            Medium::Remote(_) => Ok(()),
        }
    }

    /// When the file was last modified; `None` where [`HeaderArea::metadata`] is.
    pub fn modified(&self) -> std::io::Result<Option<SystemTime>> {
        self.metadata()?.filter(Metadata::is_file).map(|metadata| metadata.modified()).transpose()
    }

    /// Says when the file was last modified.
    pub fn set_modified(&self, time: SystemTime) -> std::io::Result<()> {
        match &self.medium {
            Medium::File(file) => file.set_modified(time),
            Medium::Remote(_) => Ok(()),
        }
    }

    /// Makes the times of the file durable with its contents.
    pub fn sync_times(&self) -> std::io::Result<()> {
        match &self.medium {
            // (Less than this leaves times to be lost with the power.)
            Medium::File(file) => self.syncs.write_header(|| Ok(()), || file.sync_all()),
            Medium::Remote(_) => Ok(()),
        }
    }

    /// Writes, durably. In an export with larger blocks, the other bytes of these blocks stay.
    pub fn write(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        let (at, bytes) = self.complete_blocks(at, bytes)?;
        let bytes = &*bytes;
        let write = || match &self.medium {
            Medium::File(file) => file.write_all_at(bytes, at),
            Medium::Remote(export) => {
                export.write_at(bytes, at).map_err(|e| remote_error(export, e))
            }
        };
        let sync = || match &self.medium {
            Medium::File(file) => file.sync_data(),
            Medium::Remote(export) => export.sync().map_err(|e| remote_error(export, e)),
        };
        self.syncs.write_header(
            || self.watched(Verb::Write, at, bytes, write),
            || self.watched(Verb::Sync, 0, &[], sync),
        )
    }

    /// The whole logical blocks that hold `bytes` once these are written at `at`, and their place.
    fn complete_blocks<'a>(
        &self,
        at: u64,
        bytes: &'a [u8],
    ) -> std::io::Result<(u64, Cow<'a, [u8]>)> {
        let Medium::Remote(export) = &self.medium else { return Ok((at, bytes.into())) };
        let (lead, whole) = whole_blocks(export, at, bytes.len());
        if whole == bytes.len() {
            return Ok((at, bytes.into()));
        }
        let (mut blocks, start) = (vec![0; whole], at - lead as u64);
        self.read_exact(start, &mut blocks)?;
        blocks[lead..lead + bytes.len()].copy_from_slice(bytes);
        Ok((start, blocks.into()))
    }

    fn watched(
        &self,
        verb: Verb,
        offset: u64,
        bytes: &[u8],
        perform: impl FnOnce() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let result = self.passed_on(verb, offset, bytes, perform);
        self.answers.note();
        result
    }

    fn passed_on(
        &self,
        verb: Verb,
        offset: u64,
        bytes: &[u8],
        perform: impl FnOnce() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let Some((watch, device)) = &self.watch else { return perform() };
        let (device, length) = (*device, bytes.len() as u64);
        let part = Part::Header;
        let operation = Operation { device, part, verb, offset, length, bytes: bytes.to_vec() };
        let number = watch.begin(operation).map_err(std::io::Error::other)?;
        let result = perform();
        watch.end(number, result.is_ok());
        result
    }
}

/// How far `at` is from the start of its logical block, and the bytes of the logical blocks that hold `length`
/// bytes from there on.
fn whole_blocks(export: &Export, at: u64, length: usize) -> (usize, usize) {
    let block = export.logical_block() as usize;
    let lead = (at % block as u64) as usize;
    (lead, (lead + length).next_multiple_of(block))
}

pub(crate) fn remote_error(export: &Export, error: DeviceError) -> std::io::Error {
    let kind = match error {
        DeviceError::Invalid => ErrorKind::InvalidInput,
        DeviceError::Gone => ErrorKind::NotConnected,
        _ => ErrorKind::Other,
    };
    std::io::Error::new(kind, export.failure().unwrap_or_else(|| error.to_string()))
}

fn read_area(file: &File, at: u64) -> std::io::Result<Vec<u8>> {
    let mut area = vec![0; AREA_BYTES as usize];
    let mut done = 0;
    while done < area.len() {
        match file.read_at(&mut area[done..], at + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    area.truncate(done);
    Ok(area)
}
