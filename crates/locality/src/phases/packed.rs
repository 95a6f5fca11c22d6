//! A compressed sequence of numbers of up to 32 bits.
//!
//! 64 numbers form a *chunk*. The width of a chunk is that of its largest number. Each number is
//! stored in a quarter, a half, three quarters or all of that width, and two bits say which; or all
//! numbers are stored in the full width, if that is shorter. Reuse distances are spread over all
//! orders of magnitude; they take about two bytes each, and a chunk of equal numbers takes no more.
//! Chunks are stored in *pages*, which never grow once they are full, so that nothing is ever
//! copied.

use core::ops::Range;

/// Number of numbers in a chunk.
pub(crate) const CHUNK: usize = 64;
/// Number of chunks in a page.
const PAGE: usize = 1024;
/// Flag in the first byte of a chunk: its numbers have different widths. The other bits of that
/// byte are the width of the chunk.
const MIXED: u8 = 0x80;
/// Padding bytes after the last number of a page, so that eight bytes can be read from the start of
/// any number.
const SPARE: usize = 8;

/// A compressed sequence of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    pages: Vec<Page>,
    /// The page being filled.
    open: OpenPage,
    /// The last numbers, too few to form a chunk.
    tail: Vec<u32>,
    len: u64,
}

#[derive(Clone, Debug)]
struct Page {
    /// The offset of each chunk in `bytes`.
    starts: Box<[u32]>,
    bytes: Box<[u8]>,
}

#[derive(Clone, Debug, Default)]
struct OpenPage {
    starts: Vec<u32>,
    bytes: Vec<u8>,
}

impl Packed {
    /// Returns the number of numbers.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn push(&mut self, number: u32) {
        self.tail.push(number);
        self.len += 1;
        if let Ok(chunk) = <&[u32; CHUNK]>::try_from(&self.tail[..]) {
            self.open.starts.push(self.open.bytes.len() as u32);
            encode(chunk, &mut self.open.bytes);
            self.tail.clear();
            if self.open.starts.len() == PAGE {
                self.open.bytes.extend([0; SPARE]);
                let (starts, bytes) = (self.open.starts[..].into(), self.open.bytes[..].into());
                self.pages.push(Page { starts, bytes });
                self.open.starts.clear();
                self.open.bytes.clear();
            }
        }
    }

    /// Returns an iterator over the numbers at the positions in `span`, in order.
    ///
    /// # Panics
    /// If `span` goes beyond the last number or ends before it starts.
    pub(crate) fn iter(&self, span: Range<u64>) -> Iter<'_> {
        assert!(span.start <= span.end && span.end <= self.len, "{span:?} of {}", self.len);
        let mut iter = Iter { packed: self, at: span.start, end: span.end, chunk: [0; CHUNK] };
        // Later chunks are decoded when the iterator reaches their first number.
        if !iter.at.is_multiple_of(CHUNK as u64) {
            iter.read();
        }
        iter
    }
}

/// An iterator over a part of the sequence, in order.
#[derive(Clone, Debug)]
pub(crate) struct Iter<'a> {
    packed: &'a Packed,
    at: u64,
    end: u64,
    chunk: [u32; CHUNK],
}

impl Iter<'_> {
    /// Decodes the chunk that contains `at`.
    fn read(&mut self) {
        let chunk = (self.at / CHUNK as u64) as usize;
        let (page, chunk) = (chunk / PAGE, chunk % PAGE);
        if let Some(page) = self.packed.pages.get(page) {
            decode(&page.bytes, page.starts[chunk] as usize, &mut self.chunk);
        } else if let Some(&start) = self.packed.open.starts.get(chunk) {
            let bytes = &self.packed.open.bytes[start as usize..];
            // The open page may lack the padding after its last number.
            let mut whole = [0; CHUNK_BYTES_MAX + SPARE];
            let len = bytes.len().min(CHUNK_BYTES_MAX);
            whole[..len].copy_from_slice(&bytes[..len]);
            decode(&whole, 0, &mut self.chunk);
        } else {
            self.chunk[..self.packed.tail.len()].copy_from_slice(&self.packed.tail);
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        if self.at == self.end {
            return None;
        }
        let within = (self.at % CHUNK as u64) as usize;
        if within == 0 {
            self.read();
        }
        self.at += 1;
        Some(self.chunk[within])
    }
}

/// The most bytes of a chunk: the first byte, the widths, and 64 numbers of 32 bits.
const CHUNK_BYTES_MAX: usize = 1 + CHUNK / 4 + 4 * CHUNK;

/// Returns the four widths that numbers can have in a chunk of width `width`.
fn widths(width: u32) -> [u32; 4] {
    [1, 2, 3, 4].map(|quarters: u32| (width * quarters).div_ceil(4))
}

fn encode(numbers: &[u32; CHUNK], bytes: &mut Vec<u8>) {
    let bits_of = |number: u32| u32::BITS - number.leading_zeros();
    let width = bits_of(numbers.iter().fold(0, |all, number| all | number));
    let widths = widths(width);
    let mut classes = [0u8; CHUNK];
    let mut bits = 2 * CHUNK as u32;
    for (class, &number) in classes.iter_mut().zip(numbers) {
        let needs = bits_of(number);
        *class = widths[..3].iter().map(|&width| u8::from(width < needs)).sum();
        bits += widths[usize::from(*class)];
    }
    let mixed = bits < CHUNK as u32 * width;
    bytes.push(width as u8 | if mixed { MIXED } else { 0 });
    if mixed {
        for four in classes.chunks_exact(4) {
            bytes.push(four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6);
        }
    } else {
        classes = [3; CHUNK];
    }
    let (mut waiting, mut count) = (0u64, 0);
    for (&number, &class) in numbers.iter().zip(&classes) {
        waiting |= u64::from(number) << count;
        count += widths[usize::from(class)];
        if count >= 32 {
            bytes.extend_from_slice(&(waiting as u32).to_le_bytes());
            waiting >>= 32;
            count -= 32;
        }
    }
    bytes.extend_from_slice(&waiting.to_le_bytes()[..count.div_ceil(8) as usize]);
}

/// Decodes the chunk that begins at byte `start`, which must be followed by [`SPARE`] bytes.
fn decode(bytes: &[u8], start: usize, numbers: &mut [u32; CHUNK]) {
    let word = |at: usize| {
        let eight = bytes[at..at + 8].try_into();
        eight.map_or(0, u64::from_le_bytes)
    };
    let width = u32::from(bytes[start] & !MIXED);
    let mixed = bytes[start] & MIXED != 0;
    let (widths, classes, first) = match mixed {
        true => (widths(width), [word(start + 1), word(start + 9)], start + 17),
        false => ([width; 4], [0; 2], start + 1),
    };
    let masks = widths.map(|width| (1u64 << width) - 1);
    let mut bit = 8 * first;
    for (numbers, mut classes) in numbers.chunks_exact_mut(CHUNK / 2).zip(classes) {
        for number in numbers {
            let class = (classes & 3) as usize;
            classes >>= 2;
            *number = (word(bit / 8) >> (bit % 8) & masks[class]) as u32;
            bit += widths[class] as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(numbers: &[u32]) -> Packed {
        let mut packed = Packed::default();
        numbers.iter().for_each(|&number| packed.push(number));
        packed
    }

    /// Runs of numbers of mixed width, of a common maximum width, or all equal.
    fn numbers() -> impl Strategy<Value = Vec<u32>> {
        let number = (0..=32u32, any::<u32>());
        let number = number.prop_map(|(bits, all)| (u64::from(all) & ((1 << bits) - 1)) as u32);
        let alike = (0..=32u32, proptest::collection::vec(any::<u32>(), 1..300));
        let alike = alike.prop_map(|(bits, all)| {
            all.into_iter().map(|n| (u64::from(n) & ((1 << bits) - 1)) as u32).collect::<Vec<u32>>()
        });
        let run = prop_oneof![
            proptest::collection::vec(number, 1..300),
            alike,
            (any::<u32>(), 1..300usize).prop_map(|(n, times)| vec![n; times]),
        ];
        proptest::collection::vec(run, 0..20).prop_map(|runs| runs.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_is_packed_is_what_was_pushed(
            numbers in numbers(), from in any::<prop::sample::Index>(),
            to in any::<prop::sample::Index>(),
        ) {
            let packed = packed(&numbers);
            prop_assert_eq!(packed.len(), numbers.len() as u64);
            let (one, other) = (from.index(numbers.len() + 1), to.index(numbers.len() + 1));
            let span = one.min(other)..one.max(other);
            let read = packed.iter(span.start as u64..span.end as u64);
            prop_assert_eq!(read.collect::<Vec<_>>(), &numbers[span]);
        }
    }

    #[test]
    fn full_pages_are_read_like_the_open_one() {
        let numbers: Vec<u32> = (0..(2 * PAGE * CHUNK + 777) as u32)
            .map(|n| n.wrapping_mul(2_654_435_761) >> (n % 32))
            .collect();
        let packed = packed(&numbers);
        assert_eq!(packed.pages.len(), 2);
        assert!(packed.iter(0..packed.len()).eq(numbers.iter().copied()));
        let from = PAGE * CHUNK - 70;
        assert!(packed.iter(from as u64..packed.len()).eq(numbers[from..].iter().copied()));
    }

    #[test]
    fn numbers_take_no_more_bytes_than_they_must() {
        let bytes = |number: fn(u32) -> u32| {
            let numbers: Vec<u32> = (0..(32 * PAGE * CHUNK) as u32).map(number).collect();
            let packed = packed(&numbers);
            let page = |page: &Page| page.bytes.len() + size_of_val(&*page.starts);
            let pages: usize = packed.pages.iter().map(page).sum();
            let index = packed.pages.capacity() * size_of::<Page>();
            let open = packed.open.bytes.capacity() + 4 * packed.open.starts.capacity();
            (pages + index + open + 4 * packed.tail.capacity()) as f64 / numbers.len() as f64
        };
        // For each chunk, 5 bytes for its start and width; and 10 % for the open page.
        let (of_chunk, room) = (5.0 / 64.0, 1.1);
        assert!(bytes(|_| 0) < of_chunk * room, "{}", bytes(|_| 0));
        let twenty = bytes(|n| (1 << 19) + n % 1000);
        assert!(twenty < (20.0 / 8.0 + of_chunk) * room, "{twenty}");
        // All orders of magnitude up to 2^21: 11 bits on average.
        let spread = bytes(|n| n.wrapping_mul(2_654_435_761) >> 11 >> (n % 21));
        assert!(spread < 2.1 * room, "{spread}");
    }
}
