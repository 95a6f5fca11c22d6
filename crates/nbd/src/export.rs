//! The exports of a server, by name.

use forebay_block::Volume;

use crate::wire::{PAYLOAD_BYTES_DEFAULT, TransmissionFlags};

/// Where a server looks up exports. The driver implements it over its volumes.
pub trait Exports {
    /// The export called `name`. The empty name asks for the default export, if there is one.
    fn lookup(&self, name: &str) -> Option<ExportInfo>;

    /// Calls `visit` with each export that clients may see in a list.
    fn list(&self, visit: &mut dyn FnMut(&ExportInfo));

    /// Whether a client may use the export that it chose. If not, the server answers GO with
    /// ERR_POLICY, and EXPORT_NAME by closing the connection.
    fn admit(&self, _: &ExportInfo) -> bool {
        true
    }
}

/// The exports of a fixed list; the first one is also the default export.
impl Exports for [ExportInfo] {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        if name.is_empty() {
            return self.first().cloned();
        }
        self.iter().find(|e| e.name == name).cloned()
    }

    fn list(&self, visit: &mut dyn FnMut(&ExportInfo)) {
        self.iter().for_each(visit);
    }
}

/// An export as it is offered to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// The volume behind it; only the driver reads it.
    pub volume: Volume,
    /// Its canonical name.
    pub name: String,
    /// A one-line description for people; empty if there is none.
    pub description: String,
    /// Its size in bytes. A partial minimum block at the end is not offered.
    pub size_bytes: u64,
    /// Its block sizes. All of them are advertised; the minimum and the maximum payload are
    /// enforced.
    pub block_sizes: BlockSizes,
    /// The features it supports. The session decides on `HAS_FLAGS`, `SEND_DF` and
    /// `BLOCK_STATUS_PAYLOAD`, which are ignored here. `CAN_MULTI_CONN` promises that FLUSH and FUA
    /// cover all connections.
    pub features: TransmissionFlags,
    /// Whether clients can query `base:allocation` with BLOCK_STATUS.
    pub allocation: bool,
    /// Whether clients must use TLS for this export when the server makes TLS optional.
    pub tls_required: bool,
}

impl ExportInfo {
    /// A writable export that supports FLUSH and FUA, with the protocol's default block sizes.
    pub fn new(volume: Volume, name: impl Into<String>, size_bytes: u64) -> Self {
        ExportInfo {
            volume,
            name: name.into(),
            description: String::new(),
            size_bytes,
            block_sizes: BlockSizes::DEFAULT,
            features: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_FUA,
            allocation: false,
            tls_required: false,
        }
    }

    /// The advertised size in bytes: rounded down to a multiple of the minimum block size.
    pub fn advertised_bytes(&self) -> u64 {
        self.size_bytes & !(u64::from(self.block_sizes.minimum_bytes) - 1)
    }

    /// The transmission flags to advertise on a connection with or without reply chunks.
    pub(crate) fn transmission_flags(&self, chunks: bool) -> TransmissionFlags {
        let mut flags = self.features.union(TransmissionFlags::HAS_FLAGS);
        flags = flags.without(TransmissionFlags::BLOCK_STATUS_PAYLOAD);
        flags = flags.without(TransmissionFlags::SEND_DF);
        flags = flags.with_if(chunks, TransmissionFlags::SEND_DF);
        if !flags.contains(TransmissionFlags::SEND_WRITE_ZEROES) {
            flags = flags.without(TransmissionFlags::SEND_FAST_ZERO);
        }
        flags
    }
}

/// The size constraints of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    minimum_bytes: u32,
    preferred_bytes: u32,
    payload_bytes_max: u32,
}

/// Block sizes that the protocol does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "block sizes {}/{}/{} (minimum/preferred/maximum payload) cannot be advertised: the minimum \
     must be a power of two up to 65536; the preferred size, a power of two that is at least 512 \
     and at least the minimum; the maximum payload, at least the preferred size",
    .0.minimum_bytes, .0.preferred_bytes, .0.payload_bytes_max
)]
pub struct BlockSizesError(BlockSizes);

impl BlockSizes {
    /// Any alignment, 4 KiB preferred, payloads up to 32 MiB.
    pub const DEFAULT: BlockSizes = BlockSizes {
        minimum_bytes: 1,
        preferred_bytes: 4096,
        payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
    };

    /// Takes the minimum block size (offsets and lengths must be multiples of it), the preferred
    /// block size, and the largest payload of one request.
    ///
    /// # Errors
    /// Unless the minimum is a power of two of at most 65,536, the preferred size a power of two
    /// of at least 512 and the minimum, and the maximum payload at least the preferred size.
    pub const fn new(
        minimum_bytes: u32,
        preferred_bytes: u32,
        payload_bytes_max: u32,
    ) -> Result<Self, BlockSizesError> {
        let sizes = BlockSizes { minimum_bytes, preferred_bytes, payload_bytes_max };
        let minimum_ok = minimum_bytes.is_power_of_two() && minimum_bytes <= 1 << 16;
        let preferred_ok = preferred_bytes.is_power_of_two()
            && preferred_bytes >= 512
            && preferred_bytes >= minimum_bytes;
        if minimum_ok && preferred_ok && payload_bytes_max >= preferred_bytes {
            Ok(sizes)
        } else {
            Err(BlockSizesError(sizes))
        }
    }

    /// Offsets and lengths must be multiples of this.
    pub const fn minimum_bytes(self) -> u32 {
        self.minimum_bytes
    }
    /// The block size that is most efficient.
    pub const fn preferred_bytes(self) -> u32 {
        self.preferred_bytes
    }
    /// The largest payload of one request or reply chunk.
    pub const fn payload_bytes_max(self) -> u32 {
        self.payload_bytes_max
    }
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_block_sizes_the_protocol_allows_can_be_made() {
        assert!(BlockSizes::new(1, 4096, 1 << 25).is_ok());
        assert!(BlockSizes::new(65_536, 65_536, u32::MAX).is_ok());
        for (minimum, preferred, max) in [
            (0, 4096, 1 << 25),
            (3, 4096, 1 << 25),
            (1 << 17, 1 << 17, 1 << 25),
            (4096, 512, 1 << 25),
            (1, 256, 1 << 25),
            (1, 4096, 4095),
        ] {
            assert!(BlockSizes::new(minimum, preferred, max).is_err());
        }
    }

    #[test]
    fn the_advertised_size_is_a_multiple_of_the_minimum_block() {
        let mut export = ExportInfo::new(Volume(0), "a", 10_000);
        assert_eq!(export.advertised_bytes(), 10_000);
        export.block_sizes = BlockSizes::new(4096, 4096, 1 << 20).unwrap();
        assert_eq!(export.advertised_bytes(), 8192);
    }

    #[test]
    fn flags_that_depend_on_others_are_cleared_without_them() {
        let mut export = ExportInfo::new(Volume(0), "a", 1);
        export.features = TransmissionFlags::SEND_FAST_ZERO | TransmissionFlags::SEND_DF;
        assert_eq!(export.transmission_flags(false), TransmissionFlags::HAS_FLAGS);
        export.features = export.features | TransmissionFlags::SEND_WRITE_ZEROES;
        let flags = export.transmission_flags(true);
        assert!(flags.contains(TransmissionFlags::SEND_FAST_ZERO | TransmissionFlags::SEND_DF));
    }
}
