//! Hashing keys, the same on every machine.

/// Mixes the bits of a key; different keys have different hashes (the finaliser of SplitMix64,
/// Steele, Lea and Flood 2014).
#[inline]
pub(crate) const fn mix(key: u64) -> u64 {
    let x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
