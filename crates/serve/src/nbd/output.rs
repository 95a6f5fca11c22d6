//! The replies of a connection that wait to be sent to its client.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Instant;

use forebay_device::AlignedBuffer;
use forebay_engine::Loans;

/// Maximum number of slices in one system call.
const PIECES_MAX: usize = 256;
/// Number of sent bytes of heads above which the rest is moved to the front.
const SENT_HEADS_MAX: usize = 64 << 10;

/// Replies to be sent. The heads are stored one after another; the data between them is sent from
/// where it lies.
#[derive(Debug, Default)]
pub(super) struct Output {
    heads: Vec<u8>,
    /// Bytes of heads sent and removed before the first byte of `heads`.
    heads_gone: u64,
    /// Position at which the head of the first piece begins, counted over all heads so far.
    head_at: u64,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have been sent.
    sent: usize,
}

/// Heads, and the data that follows them.
#[derive(Debug)]
struct Piece {
    /// Position at which its heads end, counted over all heads so far.
    heads_end: u64,
    data: Data,
    /// Bytes of memory that were reserved for it.
    cost: u64,
    since: Instant,
}

#[derive(Debug)]
enum Data {
    /// No data.
    None,
    /// The first bytes of a buffer.
    Buffer(AlignedBuffer, usize),
    /// The cache's own memory.
    Lent(Loans),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Data::None => 0,
            Data::Buffer(_, length) => *length,
            Data::Lent(loans) => loans.iter().map(|loan| loan.len()).sum(),
        }
    }
}

impl Output {
    /// The buffer to which heads are appended.
    pub fn heads(&mut self) -> &mut Vec<u8> {
        &mut self.heads
    }

    /// Completes a reply whose head has been appended: `cost` is freed when the head has been sent.
    pub fn push(&mut self, cost: u64, now: Instant) {
        self.push_piece(Data::None, cost, now);
    }

    /// Appends the first `length` bytes of a buffer after the heads so far.
    pub fn push_data(&mut self, buffer: AlignedBuffer, length: usize, cost: u64, now: Instant) {
        self.push_piece(Data::Buffer(buffer, length), cost, now);
    }

    /// Appends lent memory after the heads so far.
    pub fn push_lent(&mut self, lent: Loans, cost: u64, now: Instant) {
        self.push_piece(Data::Lent(lent), cost, now);
    }

    fn push_piece(&mut self, data: Data, cost: u64, since: Instant) {
        let heads_end = self.heads_gone + self.heads.len() as u64;
        match (self.pieces.back_mut(), &data) {
            (Some(last), Data::None) if matches!(last.data, Data::None) && last.since == since => {
                (last.heads_end, last.cost) = (heads_end, last.cost + cost);
            }
            _ => self.pieces.push_back(Piece { heads_end, data, cost, since }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.heads.is_empty()
    }

    /// Since when the oldest reply has been waiting to be sent.
    pub fn waits_since(&self) -> Option<Instant> {
        self.pieces.front().map(|piece| piece.since)
    }

    /// Sends as much as `write` accepts. Calls `free` with the buffer and the cost of each reply
    /// that has been sent. Returns whether anything was sent.
    ///
    /// # Errors
    /// As `write`, except for [`io::ErrorKind::WouldBlock`] and [`io::ErrorKind::Interrupted`];
    /// [`io::ErrorKind::WriteZero`] if it accepts nothing.
    pub fn send(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
        mut free: impl FnMut(Option<AlignedBuffer>, u64),
    ) -> io::Result<bool> {
        let end = self.pieces.back().map_or(self.head_at, |last| last.heads_end);
        if self.heads_gone + self.heads.len() as u64 > end {
            // Heads without a cost: those of refused requests.
            self.push(0, Instant::now());
        }
        let mut any = false;
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.gather(&mut slices);
            match write(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.advance(sent, &mut free);
                    any = true;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(any)
    }

    /// Fills `slices` with the bytes to send next, and returns the number of slices used.
    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; PIECES_MAX]) -> usize {
        let (mut count, mut skip, mut head_at) = (0, self.sent, self.head_at);
        let mut push = |bytes: &'a [u8]| {
            let gone = skip.min(bytes.len());
            skip -= gone;
            if gone < bytes.len() && count < PIECES_MAX {
                slices[count] = IoSlice::new(&bytes[gone..]);
                count += 1;
            }
            count < PIECES_MAX
        };
        let at = |position: u64| (position - self.heads_gone) as usize;
        for piece in &self.pieces {
            let more = push(&self.heads[at(head_at)..at(piece.heads_end)])
                && match &piece.data {
                    Data::None => true,
                    Data::Buffer(buffer, length) => push(&buffer[..*length]),
                    Data::Lent(loans) => loans.iter().all(|loan| push(loan)),
                };
            if !more {
                break;
            }
            head_at = piece.heads_end;
        }
        count
    }

    /// Notes that `sent` bytes have been sent.
    fn advance(&mut self, sent: usize, free: &mut impl FnMut(Option<AlignedBuffer>, u64)) {
        self.sent += sent;
        while let Some(first) = self.pieces.front() {
            let length = (first.heads_end - self.head_at) as usize + first.data.len();
            if self.sent < length {
                break;
            }
            self.sent -= length;
            self.head_at = first.heads_end;
            if let Some(Piece { data, cost, .. }) = self.pieces.pop_front() {
                match data {
                    Data::Buffer(buffer, _) => free(Some(buffer), cost),
                    Data::None | Data::Lent(_) => free(None, cost),
                }
            }
        }
        let gone = (self.head_at - self.heads_gone) as usize;
        if gone == self.heads.len() {
            self.heads.clear();
            self.heads_gone = self.head_at;
        } else if gone > SENT_HEADS_MAX {
            self.heads.drain(..gone);
            self.heads_gone = self.head_at;
        }
    }

    /// Gives back memory that is not in use.
    pub fn trim(&mut self) {
        self.heads.shrink_to_fit();
        self.pieces.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_data_leave_in_the_order_in_which_they_were_added() {
        let (mut output, mut expected) = (Output::default(), Vec::new());
        let now = Instant::now();
        for n in 0..1000u32 {
            let head = n.to_le_bytes();
            output.heads().extend_from_slice(&head);
            expected.extend_from_slice(&head);
            match n % 3 {
                0 => output.push(1, now),
                1 => {
                    let mut buffer = AlignedBuffer::new(16);
                    buffer.fill(n as u8);
                    output.push_data(buffer, 5, 1, now);
                    expected.extend_from_slice(&[n as u8; 5]);
                }
                // A refused request: there is nothing to free.
                _ => {}
            }
        }
        // Accepts at most seven bytes, and none at every third call.
        let (mut taken, mut calls, mut buffers, mut cost) = (Vec::new(), 0, 0, 0);
        while !output.is_empty() {
            let write = |slices: &[IoSlice<'_>]| {
                calls += 1;
                if calls % 3 == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                let n = all.len().min(7);
                taken.extend_from_slice(&all[..n]);
                Ok(n)
            };
            let free = |buffer: Option<AlignedBuffer>, freed| {
                buffers += usize::from(buffer.is_some());
                cost += freed;
            };
            output.send(write, free).unwrap();
        }
        assert!(taken == expected);
        assert_eq!((buffers, cost, output.waits_since()), (333, 667, None));
    }

    #[test]
    fn a_signal_during_a_send_is_no_sign_of_the_client() {
        let mut output = Output::default();
        output.heads().extend_from_slice(&[1; 8]);
        output.push(1, Instant::now());
        let mut answers = [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock].into_iter();
        let write = |_: &[IoSlice<'_>]| Err(answers.next().expect("two calls").into());
        assert!(!output.send(write, |_, _| ()).unwrap());
        assert!(output.send(|slices| Ok(slices[0].len()), |_, _| ()).unwrap());
    }
}
