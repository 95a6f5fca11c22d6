//! What a connection has received and not yet understood.

use std::io::{self, IoSliceMut, Read};

/// Bytes that one read of the socket may bring.
const INPUT_BYTES: usize = 256 << 10;

/// A receive buffer; what is unread lies between `start` and `end`.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub fn new() -> Input {
        Input { buffer: vec![0; INPUT_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// One that holds nothing and can hold nothing.
    pub fn empty() -> Input {
        Input { buffer: Box::new([]), start: 0, end: 0 }
    }

    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// All but the last `left` bytes have been understood.
    pub fn keep(&mut self, left: usize) {
        self.start = self.end - left;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once: first into `payload`, the rest of a write's data, then into the buffer. Returns
    /// the bytes for each; both are 0 at the end of the stream.
    pub fn fill(
        &mut self,
        socket: &mut impl Read,
        payload: &mut [u8],
    ) -> io::Result<(usize, usize)> {
        if self.start > 0 && self.end + (INPUT_BYTES / 2) > self.buffer.len() {
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
        let bytes: Vec<u8> = (0..3 * INPUT_BYTES + 17).map(|n| (n % 251) as u8).collect();
        let (mut socket, mut input, mut seen) = (&bytes[..], Input::new(), Vec::new());
        while input.fill(&mut socket, &mut []).unwrap() != (0, 0) {
            // A header of 28 bytes is never whole in the last part.
            let unread = input.unread();
            let take = unread.len() - unread.len() % 28;
            seen.extend_from_slice(&unread[..take]);
            let left = unread.len() - take;
            input.keep(left);
        }
        seen.extend_from_slice(input.unread());
        assert!(seen == bytes);
    }
}
