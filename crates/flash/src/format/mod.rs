//! What lies on flash, byte for byte. Decoders take arbitrary bytes and never panic.
//!
//! All numbers are little endian. Every structure starts with the same 20 bytes, which stay
//! the same in all versions: magic (8), version (2), a small count or kind (2), length covered
//! by the checksum (4), CRC-32C of that length with its own field as zeroes (4).

pub mod batch;
pub mod superblock;
