//! The header that Forebay keeps on a backing store, and what it allows.
//!
//! It ties a store to its flash tier and says whether the store alone is the truth. Two copies
//! are written in turn, so that one is whole whatever is cut short. It lies in the first MiB
//! (layout `offset`) or in the last (layout `tail`); the data keep clear of it.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `FOREBACK` |
//! | 8 | 2 | format version |
//! | 10 | 1 | layout: 1 = offset, 2 = tail |
//! | 11 | 1 | flags: 1 = dirty, 2 = opening, 4 = released |
//! | 12 | 4 | CRC-32C of the 512 bytes, this field as zero |
//! | 16 | 16 | UUID of the store |
//! | 32 | 8 | update: +1 for each time the header is written |
//! | 40 | 8 | generation: +1 for each time the store is opened |
//! | 48 | 16 | UUID of the flash tier it belongs to; zero for none |
//! | 64 | 8 | epoch of that tier when the store was last opened |
//! | 72 | 8 | bytes of data |
//! | 80 | 16 | fingerprint of the contents as Forebay left them; zeroes while it uses the store |
//! | 96 | 24 | stamp: `complete`, `seen`, `generation` (8 each); zeroes for none |
//! | 120 | 8 | number of the stamp: +1 for each |
//! | 128 | 384 | zeroes |
//!
//! What the values mean, and when each may change, is in [`StoreHeader`]; this module has the bytes.
//! **Dirty**: newer data may be on the flash tier. **Opening**: the tier may not have reached the
//! epoch. **Released**: the store was given away, and what the tier holds of it does not count. The
//! fingerprint is that of `fingerprint.rs`, and the stamp is `forebay_flash::Stamp`. (Version 1 had
//! neither of them, and no *released*. Headers from before there were stamps have zeroes there.)
//!
//! A copy whose checksum is right was written whole. If it says what no version writes, it is neither
//! torn nor an old copy that a newer one replaces: the header is refused as
//! [impossible](HeaderError::Impossible). The other copy, which is older, might call the store clean.
//!
//! - Versions count from 1, and layouts are 1 or 2. Another layout would put the data elsewhere.
//! - A flag that this version does not know may say that the store lacks data.
//! - All counts are below 2^62, like the log's. Higher ones would overflow, or never be outdone.
//! - Version 1 wrote zeroes behind byte 80, and no third flag.
//! - The 384 bytes at the end are ignored: a later version may use them for what this one need not
//!   know, as stamps were added.
//! - A stamp whose `complete` exceeds `seen` is accepted. Each value is compared with the log's own,
//!   and not with the other.

use core::ops::Deref;

use forebay_config::BackingLayout;
use forebay_flash::{
    BatchSequence, Fingerprint, HeaderChange, HeaderFields, Stamp, StampNumber, StoreHeader,
    StoreId, SuperblockGeneration, TierId,
};

/// Bytes of the header area, at the start or the end of the store.
pub const AREA_BYTES: u64 = 1 << 20;
/// Bytes of a copy as written.
pub const COPY_BYTES: usize = 4096;
/// Where the two copies lie in the area.
pub const COPY_OFFSETS: [u64; 2] = [0, AREA_BYTES / 2];
const MAGIC: [u8; 8] = *b"FOREBACK";
const VERSION: u16 = 2;
const CHECKED_BYTES: usize = 512;
/// Bytes that version 1 used.
const VERSION_1_BYTES: usize = 80;
const DIRTY: u8 = 1;
const OPENING: u8 = 2;
const RELEASED: u8 = 4;

/// A header, decoded. The fields of its state can be read as if they were its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackingHeader {
    /// `Offset` or `Tail`.
    pub layout: BackingLayout,
    /// UUID of the store.
    pub uuid: StoreId,
    /// What changes while the store is used.
    pub state: StoreHeader,
}

impl Deref for BackingHeader {
    type Target = StoreHeader;

    fn deref(&self) -> &StoreHeader {
        &self.state
    }
}

/// Why a header cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The area holds data that are not a Forebay header.
    #[error("its header area holds data that Forebay did not write")]
    Foreign,
    /// Nothing is there that a header could have been.
    #[error("it has no Forebay header")]
    Missing,
    /// Neither copy verifies.
    #[error("both copies of its header are damaged")]
    Damaged,
    /// A copy is intact, but the named value is one that no version writes.
    #[error("its header is intact, but contains an invalid {0}")]
    Impossible(&'static str),
    /// It is at the former end of the store.
    #[error("it was enlarged: its header (layout = \"tail\") is still at the old end, at byte {0}")]
    Inside(u64),
    /// Written by a newer version.
    #[error("its header has format {0}, but this version reads formats up to {VERSION}")]
    Newer(u16),
}

impl BackingHeader {
    /// A new header for a store that has none.
    pub fn new(layout: BackingLayout, uuid: StoreId, data_bytes: u64) -> BackingHeader {
        BackingHeader { layout, uuid, state: StoreHeader::new(data_bytes) }
    }

    /// The header after this change, to be written.
    #[must_use]
    pub fn after(&self, change: &HeaderChange) -> BackingHeader {
        BackingHeader { state: self.state.after(change), ..*self }
    }

    /// One copy, to be written at [`BackingHeader::offset_in_area`] of the area.
    pub fn encode(&self) -> [u8; COPY_BYTES] {
        let mut bytes = [0; COPY_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        let layout = if self.layout == BackingLayout::Tail { 2 } else { 1 };
        let flags = [(self.dirty, DIRTY), (self.opening, OPENING), (self.released, RELEASED)];
        let flags = flags.iter().filter(|flag| flag.0).fold(0, |all, flag| all | flag.1);
        put(10, &[layout, flags]);
        put(16, self.uuid.bytes());
        put(32, &self.update.to_le_bytes());
        put(40, &self.generation.to_le_bytes());
        put(48, &self.flash_uuid.map_or([0; 16], |tier| *tier.bytes()));
        put(64, &self.flash_epoch.to_le_bytes());
        put(72, &self.data_bytes.to_le_bytes());
        put(80, &self.fingerprint.map_or([0; 16], |print| *print.bytes()));
        put(96, &self.stamp.complete.0.to_le_bytes());
        put(104, &self.stamp.seen.0.to_le_bytes());
        put(112, &self.stamp.generation.0.to_le_bytes());
        put(120, &self.stamp_number.0.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Where in the area this version of the header is written: the two copies alternate.
    pub fn offset_in_area(&self) -> u64 {
        COPY_OFFSETS[(self.update % 2) as usize]
    }

    /// The newest header of an area, from its two copies; `None` if there was none yet. `blank`
    /// says that the area is zeroes, except for remains of the very first copy after a power cut
    /// ([`BackingHeader::is_blank`]).
    ///
    /// # Errors
    /// If the area holds other data than a header, or no intact copy.
    pub fn newest(copies: [&[u8]; 2], blank: bool) -> Result<Option<BackingHeader>, HeaderError> {
        let mut decoded = copies.map(decode);
        for (copy, offset) in decoded.iter_mut().zip(COPY_OFFSETS) {
            // One that is not at its offset belongs to the header of a store that was shorter.
            if copy.is_ok_and(|header| header.offset_in_area() != offset) {
                *copy = Err(HeaderError::Foreign);
            }
        }
        let newest = decoded.iter().filter_map(|d| d.as_ref().ok()).max_by_key(|h| h.update);
        if let Some(header) = newest {
            // A whole copy that cannot be understood next to an older one: it may be the last that
            // was written.
            return match decoded.iter().find_map(|d| d.err().filter(|e| e.is_of_whole_copy())) {
                Some(error) => Err(error),
                None => Ok(Some(*header)),
            };
        }
        let error =
            |wanted: fn(&HeaderError) -> bool| decoded.iter().find_map(|d| d.err().filter(wanted));
        let is_newer = |e: &HeaderError| matches!(e, HeaderError::Newer(_));
        let whole = error(is_newer).or_else(|| error(HeaderError::is_of_whole_copy));
        match whole.or_else(|| error(|e| *e == HeaderError::Damaged)) {
            Some(error) if error.is_of_whole_copy() => Err(error),
            _ if blank => Ok(None),
            error => Err(error.unwrap_or(HeaderError::Foreign)),
        }
    }

    /// Whether an area holds neither a header nor other data: it is zeroes, except for the place of
    /// the very first copy, which a power cut may leave torn.
    pub fn is_blank(area: &[u8]) -> bool {
        let first = COPY_OFFSETS[1] as usize;
        let (before, after) = area.split_at(first.min(area.len()));
        let after = after.get(COPY_BYTES..).unwrap_or(&[]);
        before.iter().chain(after).all(|&byte| byte == 0)
    }

    /// Whether this store may be used with a flash tier that is at `epoch`.
    ///
    /// # Errors
    /// If the tier is older than the store, or the store older than the tier.
    pub fn check_epoch(&self, epoch: u64) -> Result<(), EpochError> {
        let (epochs, store) = (self.epochs(), self.flash_epoch);
        match epoch {
            flash if flash < *epochs.start() => Err(EpochError::FlashOlder { flash, store }),
            flash if flash > *epochs.end() => Err(EpochError::StoreOlder { flash, store }),
            _ => Ok(()),
        }
    }
}

/// Flash and store were not last used together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpochError {
    /// The flash tier is an older copy of itself.
    #[error(
        "the flash tier (epoch {flash}) is older than the tier that the store was last used with \
         (epoch {store})"
    )]
    FlashOlder {
        /// The tier's epoch.
        flash: u64,
        /// The epoch noted in the store.
        store: u64,
    },
    /// The store is an older copy of itself.
    #[error("the store (epoch {store}) is older than the flash tier (epoch {flash})")]
    StoreOlder {
        /// The tier's epoch.
        flash: u64,
        /// The epoch noted in the store.
        store: u64,
    },
}

impl HeaderError {
    /// Whether a copy was written whole, and says something that this version does not understand:
    /// nothing else says how the store was left.
    pub const fn is_of_whole_copy(&self) -> bool {
        matches!(self, HeaderError::Newer(_) | HeaderError::Impossible(_))
    }
}

/// Decodes a copy of a header, if it is intact.
pub(crate) fn decode(bytes: &[u8]) -> Result<BackingHeader, HeaderError> {
    let Some(bytes) = bytes.get(..CHECKED_BYTES) else { return Err(HeaderError::Damaged) };
    if bytes[..8] != MAGIC {
        return Err(HeaderError::Foreign);
    }
    let mut zeroed = [0; CHECKED_BYTES];
    zeroed.copy_from_slice(bytes);
    zeroed[12..16].fill(0);
    if crc32c::crc32c(&zeroed) != u32::from_le_bytes(array(bytes, 12)) {
        return Err(HeaderError::Damaged);
    }
    let version = u16::from_le_bytes(array(bytes, 8));
    if version > VERSION {
        return Err(HeaderError::Newer(version));
    }
    let impossible = |what| Err(HeaderError::Impossible(what));
    let layout = match bytes[10] {
        1 => BackingLayout::Offset,
        2 => BackingLayout::Tail,
        _ => return impossible("layout"),
    };
    let (flags, wrote) = match version {
        0 => return impossible("version"),
        1 => (DIRTY | OPENING, VERSION_1_BYTES),
        _ => (DIRTY | OPENING | RELEASED, CHECKED_BYTES),
    };
    if bytes[11] & !flags != 0 {
        return impossible("set of flags");
    }
    if bytes[wrote..].iter().any(|&byte| byte != 0) {
        return impossible("fingerprint or stamp in version 1");
    }
    let u64_at = |at| u64::from_le_bytes(array(bytes, at));
    let state = StoreHeader::from_fields(HeaderFields {
        update: u64_at(32),
        generation: u64_at(40),
        flash_uuid: TierId::from_bytes(array(bytes, 48)),
        flash_epoch: u64_at(64),
        data_bytes: u64_at(72),
        dirty: bytes[11] & DIRTY != 0,
        opening: bytes[11] & OPENING != 0,
        released: bytes[11] & RELEASED != 0,
        fingerprint: Fingerprint::from_bytes(array(bytes, 80)),
        stamp: Stamp {
            complete: BatchSequence(u64_at(96)),
            seen: BatchSequence(u64_at(104)),
            generation: SuperblockGeneration(u64_at(112)),
        },
        stamp_number: StampNumber(u64_at(120)),
    });
    let state = state.map_err(HeaderError::Impossible)?;
    Ok(BackingHeader { layout, uuid: StoreId::new(array(bytes, 16)), state })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(update: u64) -> BackingHeader {
        with(HeaderFields { update, ..fields() })
    }

    fn fields() -> HeaderFields {
        HeaderFields {
            update: 1,
            generation: 9,
            flash_uuid: Some(TierId::new([3; 16])),
            flash_epoch: 5,
            data_bytes: 1 << 30,
            dirty: true,
            opening: false,
            released: true,
            fingerprint: Fingerprint::from_bytes([5; 16]),
            stamp: Stamp {
                complete: BatchSequence(0x31),
                seen: BatchSequence(0x32),
                generation: SuperblockGeneration(0x33),
            },
            stamp_number: StampNumber(0x34),
        }
    }

    fn with(fields: HeaderFields) -> BackingHeader {
        let state = StoreHeader::from_fields(fields).expect("all numbers are low");
        BackingHeader { state, ..BackingHeader::new(BackingLayout::Tail, StoreId::new([7; 16]), 0) }
    }

    /// A copy with another byte, and a checksum that is right all the same.
    fn bent(mut copy: [u8; COPY_BYTES], at: usize, byte: u8) -> [u8; COPY_BYTES] {
        copy[at] = byte;
        copy[12..16].fill(0);
        let sum = crc32c::crc32c(&copy[..CHECKED_BYTES]);
        copy[12..16].copy_from_slice(&sum.to_le_bytes());
        copy
    }

    #[test]
    fn a_header_survives_being_written_and_read() {
        let (a, b) = (header(4), header(5));
        assert_ne!(a.offset_in_area(), b.offset_in_area());
        let newest = BackingHeader::newest([&a.encode(), &b.encode()], false);
        assert_eq!(newest, Ok(Some(b)));
        assert_eq!(BackingHeader::newest([&[0; 4096], &[0; 4096]], true), Ok(None));
    }

    #[test]
    fn a_stamp_has_these_bytes_and_zeroes_are_none() {
        let mut expected = [0; 32];
        (expected[0], expected[8], expected[16], expected[24]) = (0x31, 0x32, 0x33, 0x34);
        assert_eq!(header(4).encode()[96..128], expected);
        let before = with(HeaderFields {
            stamp: Stamp::default(),
            stamp_number: StampNumber::NONE,
            ..fields()
        });
        assert_eq!(before.encode()[96..512], [0; 416]);
        assert_eq!(decode(&before.encode()), Ok(before));
    }

    #[test]
    fn each_identity_has_its_bytes_and_zeroes_are_no_tier_and_no_fingerprint() {
        let both = header(4).encode();
        assert_eq!((&both[16..32], &both[48..64]), (&[7; 16][..], &[3; 16][..]));
        assert_eq!(both[80..96], [5; 16]);
        let neither = with(HeaderFields { flash_uuid: None, fingerprint: None, ..fields() });
        let bytes = neither.encode();
        assert_eq!((&bytes[48..64], &bytes[80..96]), (&[0; 16][..], &[0; 16][..]));
        assert_eq!(decode(&bytes), Ok(neither));
    }

    #[test]
    fn a_copy_at_the_others_place_is_no_header_of_this_area() {
        // As seen from an end that is half an area further on.
        let newest = BackingHeader::newest([&header(5).encode(), &[0; 4096]], false);
        assert_eq!(newest, Err(HeaderError::Foreign));
    }

    #[test]
    fn a_torn_copy_leaves_the_other_one() {
        let (a, b) = (header(4), header(5));
        for at in 0..128 {
            let mut torn = b.encode();
            torn[at] ^= 0x40;
            let found = BackingHeader::newest([&a.encode(), &torn], false);
            assert_eq!(found, Ok(Some(a)), "byte {at}");
        }
    }

    #[test]
    fn a_torn_first_copy_is_no_header_yet_and_data_beside_it_is_foreign() {
        let first = header(1);
        let (whole, at) = (first.encode(), first.offset_in_area() as usize);
        let mut area = vec![0; AREA_BYTES as usize];
        area[at..at + 60].copy_from_slice(&whole[..60]);
        area[at + 1024..at + 1536].fill(0xA5);
        let newest = |area: &[u8]| {
            let copies = COPY_OFFSETS.map(|at| &area[at as usize..at as usize + COPY_BYTES]);
            BackingHeader::newest(copies, BackingHeader::is_blank(area))
        };
        assert_eq!(newest(&area), Ok(None));
        for elsewhere in [0, 5000, at - 1, at + COPY_BYTES, area.len() - 1] {
            let mut area = area.clone();
            area[elsewhere] = 1;
            assert!(newest(&area).is_err(), "byte {elsewhere}");
        }
        area[at..at + COPY_BYTES].copy_from_slice(&whole);
        assert_eq!(newest(&area), Ok(Some(first)));
        area[at..at + COPY_BYTES].copy_from_slice(&bent(whole, 8, 3));
        assert_eq!(newest(&area), Err(HeaderError::Newer(3)), "whole, and not ours to overwrite");
    }

    #[test]
    fn what_is_not_ours_and_what_is_too_new_are_told_apart() {
        let foreign = [0x5A; 4096];
        let none = BackingHeader::newest([&foreign, &[0; 4096]], false);
        assert_eq!(none, Err(HeaderError::Foreign), "zeroes next to data are no header");
        let torn = &header(1).encode()[..60];
        let none = BackingHeader::newest([&[torn, &[0; 500]].concat(), &[0; 4096]], false);
        assert_eq!(none, Err(HeaderError::Damaged));
        let none = BackingHeader::newest([&foreign, &foreign], false);
        assert_eq!(none, Err(HeaderError::Foreign));
        let newer = bent(header(6).encode(), 8, 3);
        let found = BackingHeader::newest([&newer, &header(5).encode()], false);
        assert_eq!(found, Err(HeaderError::Newer(3)));
    }

    #[test]
    fn an_older_flash_tier_and_an_older_store_are_refused() {
        let open = header(1);
        assert_eq!(open.check_epoch(5), Ok(()));
        assert!(matches!(open.check_epoch(4), Err(EpochError::FlashOlder { .. })));
        assert!(matches!(open.check_epoch(6), Err(EpochError::StoreOlder { .. })));
        let opening = with(HeaderFields { opening: true, ..fields() });
        assert_eq!(opening.check_epoch(4), Ok(()), "a crash before the tier's new epoch");
        assert_eq!(opening.check_epoch(5), Ok(()), "a crash after it");
        assert!(opening.check_epoch(3).is_err() && opening.check_epoch(6).is_err());
    }
    #[test]
    fn an_intact_copy_that_says_what_no_version_writes_is_refused() {
        let whole = header(6).encode();
        let version_1 = bent(whole, 8, 1);
        let old = {
            let mut old = version_1;
            old[80..].fill(0);
            bent(old, 11, DIRTY | OPENING)
        };
        assert!(decode(&old).is_ok_and(|h| h.dirty && h.opening && !h.released));
        for (copy, what) in [
            (bent(whole, 8, 0), "version"),
            (bent(whole, 10, 0), "layout"),
            (bent(whole, 10, 3), "layout"),
            (bent(whole, 11, 8), "set of flags"),
            (bent(whole, 11, 128 | DIRTY), "set of flags"),
            (bent(old, 11, RELEASED), "set of flags"),
            (bent(version_1, 11, DIRTY), "fingerprint or stamp in version 1"),
            (bent(old, 127, 1), "fingerprint or stamp in version 1"),
            (bent(whole, 39, 0x40), "number of updates"),
            (bent(whole, 47, 0x40), "generation"),
            (bent(whole, 71, 0x40), "epoch"),
            (bent(whole, 103, 0x40), "stamp"),
            (bent(whole, 111, 0xFF), "stamp"),
            (bent(whole, 119, 0x40), "stamp"),
            (bent(whole, 127, 0x40), "number of the stamp"),
        ] {
            assert_eq!(decode(&copy), Err(HeaderError::Impossible(what)));
        }
        let reserved = decode(&bent(whole, 128, 1));
        assert_eq!(reserved, Ok(header(6)), "a later version may need it");
        let highest = HeaderFields { update: (1 << 62) - 1, ..fields() };
        assert_eq!(decode(&with(highest).encode()), Ok(with(highest)));
    }

    #[test]
    fn an_older_copy_does_not_stand_in_for_one_that_is_impossible() {
        let (last, before) = (bent(header(6).encode(), 11, 8), header(5).encode());
        let impossible = Err(HeaderError::Impossible("set of flags"));
        assert_eq!(BackingHeader::newest([&last, &before], false), impossible);
        assert_eq!(BackingHeader::newest([&last, &[0; 4096]], false), impossible);
        // The very first copy of a store: not torn, so not taken for a new store.
        let first = bent(header(1).encode(), 11, 8);
        assert_eq!(BackingHeader::newest([&[0; 4096], &first], true), impossible);
        let newer = bent(before, 8, 3);
        let found = BackingHeader::newest([&last, &newer], false);
        assert_eq!(found, Err(HeaderError::Newer(3)), "which says what to do");
    }
}
