//! The format on flash, byte for byte. Decoders take arbitrary bytes and never panic.
//!
//! All numbers are little endian. Every structure starts with the same 20 bytes, which stay the
//! same in all versions, so that a later version is recognised and not taken for damage:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic |
//! | 8 | 2 | version, [`VERSION`] |
//! | 10 | 2 | a small number: layout, number of entries, or pages of a directory |
//! | 12 | 4 | bytes covered by the checksum, from offset 0 |
//! | 16 | 4 | CRC-32C of those bytes, these four taken as zeroes |

pub mod batch;
pub mod directory;
pub mod region;
pub mod superblock;

use crate::identity::TierId;
use crate::sequence::{BatchSequence, RegionSequence, StampNumber, SuperblockGeneration};
use core::fmt;

/// The version written, and the newest version read.
pub const VERSION: u16 = 3;
/// Bytes of the prefix that all versions share.
const PREFIX_BYTES: usize = 20;
/// Sequences stay below this (at a billion a second, for over a century), so that arithmetic on
/// decoded values cannot overflow.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// Why bytes are not the expected structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FormatError {
    /// The magic number is missing: the place is empty or holds other data.
    Missing,
    /// The checksum fails: torn or damaged.
    Checksum,
    /// A newer version of Forebay wrote it.
    Version(u16),
    /// The structure belongs to another log (another UUID).
    Foreign,
    /// The structure was written for another place.
    Misplaced,
    /// The checksum is right, but the named part is invalid.
    Invalid(&'static str),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Missing => f.write_str("no magic number"),
            FormatError::Checksum => f.write_str("the checksum does not match"),
            FormatError::Version(v) => write!(f, "version {v} is newer than {VERSION}"),
            FormatError::Foreign => f.write_str("it belongs to another log"),
            FormatError::Misplaced => f.write_str("it belongs at another location"),
            FormatError::Invalid(what) => write!(f, "invalid {what}"),
        }
    }
}

impl std::error::Error for FormatError {}

/// Writes the shared prefix over zeroed `bytes` whose rest is filled in, and covers all of them.
fn seal(bytes: &mut [u8], magic: &[u8; 8], small: u16) {
    bytes[..8].copy_from_slice(magic);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&small.to_le_bytes());
    let length = bytes.len() as u32;
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let crc = checksum(bytes);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
}

/// The version of a structure that has been opened.
fn version_of(bytes: &[u8]) -> u16 {
    u16_at(bytes, 8)
}

/// Checks the shared prefix; returns the small number and the covered bytes.
fn open<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Result<(u16, &'a [u8]), FormatError> {
    if bytes.len() < PREFIX_BYTES || bytes[..8] != magic[..] {
        return Err(FormatError::Missing);
    }
    let length = u32_at(bytes, 12) as usize;
    if length < PREFIX_BYTES || length > bytes.len() {
        return Err(FormatError::Checksum);
    }
    let covered = &bytes[..length];
    if checksum(covered) != u32_at(bytes, 16) {
        return Err(FormatError::Checksum);
    }
    match u16_at(bytes, 8) {
        1..=VERSION => Ok((u16_at(bytes, 10), covered)),
        v if v > VERSION => Err(FormatError::Version(v)),
        _ => Err(FormatError::Invalid("version")),
    }
}

/// CRC-32C with the checksum's own field taken as zeroes.
fn checksum(bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&bytes[..16]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &bytes[PREFIX_BYTES..])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// `N` bytes from `at` on, which must exist.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The sequence of a batch.
fn batch_at(bytes: &[u8], at: usize) -> Result<BatchSequence, FormatError> {
    sequence_at(bytes, at).map(BatchSequence)
}

/// The sequence of a region.
fn region_at(bytes: &[u8], at: usize) -> Result<RegionSequence, FormatError> {
    sequence_at(bytes, at).map(RegionSequence)
}

/// The number of a stamp.
fn stamp_at(bytes: &[u8], at: usize) -> Result<StampNumber, FormatError> {
    sequence_at(bytes, at).map(StampNumber)
}

/// The generation of a superblock.
fn generation_at(bytes: &[u8], at: usize) -> Result<SuperblockGeneration, FormatError> {
    sequence_at(bytes, at).map(SuperblockGeneration)
}

/// A sequence, epoch or generation.
fn sequence_at(bytes: &[u8], at: usize) -> Result<u64, FormatError> {
    match u64_at(bytes, at) {
        n if n < SEQUENCE_MAX => Ok(n),
        _ => Err(FormatError::Invalid("sequence")),
    }
}

/// The tier that wrote a structure of a region. Zeroes, which name no tier, are no more this log's than the name of
/// another.
fn tier_at(bytes: &[u8]) -> Result<TierId, FormatError> {
    TierId::from_bytes(array_at(bytes, 24)).ok_or(FormatError::Foreign)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
