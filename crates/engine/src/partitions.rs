//! Where the partitions of a disk begin, for [fingerprints](crate::fingerprint).
//!
//! A mount of a file system in a partition writes there, and seldom elsewhere in the first MiB of the
//! disk. Any bytes give an answer: a start that is none costs a read, and always the same one. So
//! nothing is verified, and a library that refuses a damaged table would be no help.

/// Most partitions.
const STARTS_MAX: usize = 128;
/// Most logical partitions in the chain of an extended one.
const LOGICAL_MAX: usize = 64;
const SECTOR: u64 = 512;
const MBR_MAGIC: [u8; 2] = [0x55, 0xAA];
/// Types of an extended partition.
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];

/// The first bytes of the partitions of a disk that begins with the bytes `first`, ascending and each
/// once. `read` reads the sector at an offset, if it can be read.
pub(crate) fn starts(first: &[u8], read: impl FnMut(u64) -> Option<[u8; 512]>) -> Vec<u64> {
    let mut starts = gpt(first, 512);
    starts.extend(gpt(first, 4096));
    starts.extend(mbr(first, read));
    starts.sort_unstable();
    starts.dedup();
    starts.truncate(STARTS_MAX);
    starts
}

/// The partitions of a GUID partition table, on a disk with sectors of this size.
fn gpt(first: &[u8], sector: usize) -> Vec<u64> {
    let Some(header) = first.get(sector..sector + 92).filter(|h| h.starts_with(b"EFI PART")) else {
        return Vec::new();
    };
    let (table, count, length) = (u64_at(header, 72), u32_at(header, 80), u32_at(header, 84));
    let entry = |n: u64| {
        let at = table.checked_mul(sector as u64)?.checked_add(n * u64::from(length))?;
        let at = usize::try_from(at).ok()?;
        let entry = first.get(at..at.checked_add(128)?)?;
        let used = entry[..16] != [0; 16];
        u64_at(entry, 32).checked_mul(sector as u64).filter(|_| used)
    };
    (0..u64::from(count).min(STARTS_MAX as u64)).filter_map(entry).collect()
}

/// The partitions of a master boot record, and the logical ones of its extended partitions.
fn mbr(first: &[u8], mut read: impl FnMut(u64) -> Option<[u8; 512]>) -> Vec<u64> {
    let mut starts = Vec::new();
    let Some(record) = first.get(..512).filter(|r| r[510..] == MBR_MAGIC) else { return starts };
    for (kind, begin) in entries(record) {
        starts.push(begin * SECTOR);
        let mut at = begin;
        for _ in 0..LOGICAL_MAX * usize::from(EXTENDED.contains(&kind)) {
            let record = read(at * SECTOR).filter(|r| r[510..] == MBR_MAGIC);
            let Some(record) = record else { break };
            let mut next = None;
            for (kind, relative) in entries(&record) {
                match EXTENDED.contains(&kind) {
                    // Counted from the extended partition, the others from this record.
                    true => next = Some(begin + relative),
                    false => starts.push((at + relative) * SECTOR),
                }
            }
            match next {
                Some(next) if next > at => at = next,
                _ => break,
            }
        }
    }
    starts
}

/// The types and the first sectors of the four entries of a boot record, where they are in use.
fn entries(record: &[u8]) -> Vec<(u8, u64)> {
    let entries = (0..4).map(|n| &record[446 + 16 * n..][..16]);
    let entries = entries.map(|entry| (entry[4], u64::from(u32_at(entry, 8))));
    entries.filter(|&(kind, begin)| kind != 0 && begin != 0).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A boot record with these entries: types, and first sectors.
    fn record(entries: &[(u8, u32)]) -> [u8; 512] {
        let mut record = [0; 512];
        record[510..].copy_from_slice(&MBR_MAGIC);
        for (n, &(kind, begin)) in entries.iter().enumerate() {
            record[446 + 16 * n + 4] = kind;
            record[446 + 16 * n + 8..][..4].copy_from_slice(&begin.to_le_bytes());
        }
        record
    }

    #[test]
    fn primary_and_logical_partitions_are_found() {
        let mut disk = vec![0; 8 << 20];
        let mut put = |sector: usize, record: [u8; 512]| {
            disk[sector * 512..][..512].copy_from_slice(&record);
        };
        put(0, record(&[(0x83, 2048), (0x05, 8192)]));
        put(8192, record(&[(0x83, 64), (0x05, 2000)]));
        put(10192, record(&[(0x83, 32)]));
        let read = |at: u64| disk.get(at as usize..at as usize + 512)?.try_into().ok();
        let found = starts(&disk[..MIB as usize], read);
        assert_eq!(found, [2048, 8192, 8256, 10224].map(|sector| sector * 512));
    }

    #[test]
    fn a_guid_partition_table_is_found_with_either_size_of_sectors() {
        for sector in [512u64, 4096] {
            let mut disk = vec![0; MIB as usize];
            disk[..512].copy_from_slice(&record(&[(0xEE, 1)]));
            let header = sector as usize;
            disk[header..][..8].copy_from_slice(b"EFI PART");
            disk[header + 72..][..8].copy_from_slice(&2u64.to_le_bytes());
            disk[header + 80..][..4].copy_from_slice(&128u32.to_le_bytes());
            disk[header + 84..][..4].copy_from_slice(&128u32.to_le_bytes());
            for (n, begin) in [(0, MIB), (3, 5 * MIB)] {
                let entry = 2 * header + 128 * n;
                disk[entry] = 7;
                disk[entry + 32..][..8].copy_from_slice(&(begin / sector).to_le_bytes());
            }
            let found = starts(&disk, |_| None);
            assert_eq!(found, [SECTOR, MIB, 5 * MIB]);
        }
    }

    #[test]
    fn any_bytes_give_an_answer() {
        let mut state = 7u64;
        for length in [0, 1, 511, 512, 600, 5000, 70_000] {
            for magic in [false, true] {
                let mut disk: Vec<u8> = (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                        (state >> 56) as u8
                    })
                    .collect();
                for at in [512, 4096] {
                    if magic && length > at + 8 {
                        disk[510..512].copy_from_slice(&MBR_MAGIC);
                        disk[at..at + 8].copy_from_slice(b"EFI PART");
                    }
                }
                // Every sector is an extended record that leads on.
                let chain = record(&[(0x05, 1), (0x0F, u32::MAX)]);
                assert!(starts(&disk, |_| Some(chain)).len() <= STARTS_MAX);
            }
        }
        assert_eq!(starts(&[0; 4096], |_| None), Vec::<u64>::new());
    }
}
