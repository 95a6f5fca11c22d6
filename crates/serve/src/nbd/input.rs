//! The received and unparsed bytes of a connection.

use std::io::{self, IoSliceMut, Read};

/// Minimum size of the receive buffer, in bytes.
pub(super) const INPUT_BYTES_MIN: usize = 8 << 10;
/// Maximum size of the receive buffer, in bytes, if there is memory for it.
pub(super) const INPUT_BYTES_MAX: usize = 64 << 10;

/// A receive buffer; the unread bytes lie between `start` and `end`.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub fn new() -> Input {
        Input { buffer: vec![0; INPUT_BYTES_MIN].into_boxed_slice(), start: 0, end: 0 }
    }

    /// A buffer without capacity.
    pub fn empty() -> Input {
        Input { buffer: Box::new([]), start: 0, end: 0 }
    }

    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops all unread bytes except the last `left`, which have not been parsed yet.
    pub fn keep(&mut self, left: usize) {
        self.start = self.end - left;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The capacity, in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there is space for more bytes.
    pub fn has_space(&self) -> bool {
        self.end - self.start < self.buffer.len()
    }

    /// Whether the last read may have left bytes in the socket for lack of room.
    pub fn is_too_small(&self) -> bool {
        self.end == self.buffer.len() && self.buffer.len() < INPUT_BYTES_MAX
    }

    /// Changes the capacity to `bytes`, if the unread bytes fit. Returns whether they do.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let unread = self.unread();
        if unread.len() > bytes {
            return false;
        }
        let mut buffer = vec![0; bytes].into_boxed_slice();
        buffer[..unread.len()].copy_from_slice(unread);
        (self.start, self.end) = (0, unread.len());
        self.buffer = buffer;
        true
    }

    /// Reads once: first into `payload`, the missing data of a write, then into the buffer. Returns
    /// the number of bytes for each; both are 0 at the end of the stream. One of them must have
    /// space.
    pub fn fill(
        &mut self,
        socket: &mut impl Read,
        payload: &mut [u8],
    ) -> io::Result<(usize, usize)> {
        if self.start > 0 && self.end + self.buffer.len() / 2 > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let free = &mut self.buffer[self.end..];
        let read = loop {
            let result = if payload.is_empty() {
                socket.read(free)
            } else {
                let mut slices = [IoSliceMut::new(payload), IoSliceMut::new(free)];
                socket.read_vectored(&mut slices)
            };
            match result {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        let direct = read.min(payload.len());
        self.end += read - direct;
        Ok((direct, read - direct))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_filled_before_the_buffer() {
        let mut input = Input::new();
        let mut payload = [0; 3];
        let mut socket = &b"abcdefg"[..];
        assert_eq!(input.fill(&mut socket, &mut payload).unwrap(), (3, 4));
        assert_eq!((&payload, input.unread()), (b"abc", &b"defg"[..]));
        input.keep(2);
        assert_eq!(input.unread(), b"fg");
        assert_eq!(input.fill(&mut socket, &mut []).unwrap(), (0, 0));
    }

    #[test]
    fn a_stream_longer_than_the_buffer_passes_through_it() {
        let bytes: Vec<u8> = (0..3 * INPUT_BYTES_MAX + 17).map(|n| (n % 251) as u8).collect();
        let (mut socket, mut input, mut seen) = (&bytes[..], Input::new(), Vec::new());
        for round in 0.. {
            assert!(input.has_space());
            if input.fill(&mut socket, &mut []).unwrap() == (0, 0) {
                break;
            }
            // The last part, which is shorter than a header of 28 bytes, stays unread.
            let unread = input.unread();
            let take = unread.len() - unread.len() % 28;
            seen.extend_from_slice(&unread[..take]);
            let left = unread.len() - take;
            // The buffer grows with its input, and shrinks if the unread bytes fit.
            let larger = input.is_too_small().then(|| 2 * input.capacity());
            input.keep(left);
            if let Some(larger) = larger {
                assert!(input.resize(larger));
            } else if round % 5 == 4 {
                assert!(input.resize(INPUT_BYTES_MIN));
            }
        }
        seen.extend_from_slice(input.unread());
        assert!(seen == bytes);
        assert!(!input.resize(input.unread().len() - 1), "nothing is thrown away");
    }
}
