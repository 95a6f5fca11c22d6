//! Hashes of keys, which are the same on every machine.

/// Mixes the bits of a key; different keys have different hashes (the finaliser of SplitMix64,
/// Steele, Lea and Flood 2014).
#[inline]
pub(crate) const fn mix(key: u64) -> u64 {
    let x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The key with this hash: the inverse of [`mix`].
#[inline]
pub(crate) const fn unmix(hash: u64) -> u64 {
    let x = hash ^ (hash >> 31) ^ (hash >> 62);
    let x = x.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let x = x ^ (x >> 27) ^ (x >> 54);
    let x = x.wrapping_mul(0x96de_1b17_3f11_9089);
    let x = x ^ (x >> 30) ^ (x >> 60);
    x.wrapping_sub(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_says_its_key() {
        for n in 0..1000_u64 {
            for key in [n, n << 40, u64::MAX - n, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)] {
                assert_eq!(unmix(mix(key)), key);
            }
        }
    }
}
