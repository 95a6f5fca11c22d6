//! What tells tiers, stores and contents apart. Each takes 16 bytes on a device, and none can stand for another.

use core::fmt;

/// Identifies a flash tier. Random, and new with each format.
///
/// It is never all zeroes: in the header of a store, these stand for no tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierId([u8; 16]);

impl TierId {
    /// A tier with this UUID.
    ///
    /// # Panics
    /// If all bytes are zero.
    pub const fn new(bytes: [u8; 16]) -> TierId {
        TierId::from_bytes(bytes).expect("a flash tier has a UUID")
    }

    /// From the bytes in a header; `None` for zeroes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Option<TierId> {
        if is_zero(&bytes) { None } else { Some(TierId(bytes)) }
    }

    /// The bytes in a header.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// As a UUID.
impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_uuid(&self.0, f)
    }
}

/// Identifies a backing store to flash tiers: the UUID in its header or, without a header, what the driver
/// knows of its device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoreId([u8; 16]);

impl StoreId {
    /// A store with this UUID.
    pub const fn new(bytes: [u8; 16]) -> StoreId {
        StoreId(bytes)
    }

    /// The bytes in a header.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// As a UUID.
impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_uuid(&self.0, f)
    }
}

/// The fingerprint of a store's contents, which the driver computes.
///
/// It is never all zeroes: in the header of a store, these stand for no fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Contents with this hash. (0 and 1 have the same fingerprint.)
    pub const fn of_hash(hash: u128) -> Fingerprint {
        Fingerprint(if hash == 0 { 1 } else { hash }.to_le_bytes())
    }

    /// From the bytes in a header; `None` for zeroes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Option<Fingerprint> {
        if is_zero(&bytes) { None } else { Some(Fingerprint(bytes)) }
    }

    /// The bytes in a header.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

fn fmt_uuid(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, byte) in bytes.iter().enumerate() {
        let dash = if matches!(n, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(f, "{dash}{byte:02x}")?;
    }
    Ok(())
}

const fn is_zero(bytes: &[u8; 16]) -> bool {
    u128::from_le_bytes(*bytes) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_no_tier_and_no_fingerprint() {
        assert_eq!(TierId::from_bytes([0; 16]), None);
        assert_eq!(Fingerprint::from_bytes([0; 16]), None);
        for at in 0..16 {
            let mut bytes = [0; 16];
            bytes[at] = 1;
            assert_eq!(TierId::from_bytes(bytes).map(|tier| *tier.bytes()), Some(bytes));
            assert_eq!(Fingerprint::from_bytes(bytes).map(|print| *print.bytes()), Some(bytes));
        }
    }

    #[test]
    fn uuids_are_written_in_five_groups() {
        let uuid = *b"\0\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
        let written = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(TierId::new(uuid).to_string(), written);
        assert_eq!(StoreId::new(uuid).to_string(), written);
    }

    #[test]
    fn no_hash_is_taken_for_no_fingerprint() {
        for (hash, first) in [(0, 1), (1, 1), (0x0203, 3)] {
            let print = Fingerprint::of_hash(hash);
            assert_eq!(Fingerprint::from_bytes(*print.bytes()), Some(print));
            assert_eq!(print.bytes()[0], first);
        }
    }
}
