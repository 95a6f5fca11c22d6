//! The contents of sectors: each sector identifies its write, so that a mixture of two writes is
//! detected.

use crate::oracle::Value;

const SECTOR: usize = 512;
const MAGIC: u64 = 0x666f_7265_6261_7921;

/// Word `j` of a sector written by write `id`.
fn stamp_word(j: usize, volume: u32, at: u64, id: u32) -> u64 {
    match j {
        0 => MAGIC,
        1 => at << 8 | u64::from(volume),
        2 => u64::from(id),
        // Every word depends on all parameters, so that a mixture of two writes is detected.
        _ => (u64::from(id) << 32 ^ at ^ (j as u64) << 56).wrapping_mul(MAGIC | 1),
    }
}

/// Fills the sectors of a write so that each identifies the write.
pub fn stamp(data: &mut [u8], volume: u32, first_sector: u64, id: u32) {
    for (i, sector) in data.chunks_exact_mut(SECTOR).enumerate() {
        for (j, word) in sector.chunks_exact_mut(8).enumerate() {
            let w = stamp_word(j, volume, first_sector + i as u64, id);
            word.copy_from_slice(&w.to_le_bytes());
        }
    }
}

/// Fills the buffer of a read, so that a sector that is not read has no valid contents.
pub fn spoil(data: &mut [u8]) {
    data.chunks_mut(SECTOR).for_each(|sector| sector[..64].fill(0xEE));
}

/// The value that a sector holds.
pub fn value_of(sector: &[u8], volume: u32, at: u64) -> Value {
    let word = |j: usize| u64::from_le_bytes(sector[8 * j..8 * j + 8].try_into().expect("8 bytes"));
    let words = sector.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes")));
    if word(0) == 0 {
        let zero = words.fold(0, |any, w| any | w) == 0;
        return if zero { Value::Zero } else { Value::Garbage };
    }
    let id = word(2) as u32;
    let wrong =
        words.enumerate().fold(0, |wrong, (j, w)| wrong | (w ^ stamp_word(j, volume, at, id)));
    if wrong == 0 { Value::Write(id) } else { Value::Garbage }
}

/// The values of consecutive sectors.
pub fn values_of(data: &[u8], volume: u32, first: u64) -> Vec<Value> {
    (data.chunks_exact(SECTOR).enumerate())
        .map(|(i, s)| value_of(s, volume, first + i as u64))
        .collect()
}
