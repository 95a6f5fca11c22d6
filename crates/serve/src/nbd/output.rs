//! The replies of a connection, sent together.

use std::io::{self, IoSlice, Write};

use forebay_device::AlignedBuffer;
use forebay_engine::Loans;

/// Pieces that one system call takes.
const PIECES_MAX: usize = 256;

/// Replies to be sent: their heads one after another, data between them where it lies.
#[derive(Debug, Default)]
pub(super) struct Output {
    heads: Vec<u8>,
    /// Data, and the end of the heads that come before it.
    data: Vec<(Data, usize)>,
}

#[derive(Debug)]
enum Data {
    /// The first bytes of a buffer.
    Buffer(AlignedBuffer, usize),
    /// The cache's own memory.
    Lent(Loans),
}

impl Output {
    /// Where heads are appended.
    pub fn heads(&mut self) -> &mut Vec<u8> {
        &mut self.heads
    }

    /// Appends the first `length` bytes of a buffer behind the heads so far.
    pub fn push_data(&mut self, buffer: AlignedBuffer, length: usize) {
        self.data.push((Data::Buffer(buffer, length), self.heads.len()));
    }

    /// Appends lent memory behind the heads so far.
    pub fn push_lent(&mut self, lent: Loans) {
        self.data.push((Data::Lent(lent), self.heads.len()));
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Sends everything; `free` gets the buffers.
    pub fn send(
        &mut self,
        socket: &mut impl Write,
        mut free: impl FnMut(AlignedBuffer),
    ) -> io::Result<()> {
        let result = self.write(socket);
        for (data, _) in self.data.drain(..) {
            match data {
                Data::Buffer(buffer, _) => free(buffer),
                Data::Lent(lent) => drop(lent),
            }
        }
        self.heads.clear();
        result
    }

    fn write(&self, socket: &mut impl Write) -> io::Result<()> {
        if self.data.is_empty() {
            return socket.write_all(&self.heads);
        }
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let (mut count, mut head_at) = (0, 0);
        let mut push = |piece| {
            if count == PIECES_MAX {
                write_all(socket, &mut slices)?;
                count = 0;
            }
            slices[count] = IoSlice::new(piece);
            count += 1;
            io::Result::Ok(())
        };
        for (data, head_end) in &self.data {
            push(&self.heads[head_at..*head_end])?;
            head_at = *head_end;
            match data {
                Data::Buffer(buffer, length) => push(&buffer[..*length])?,
                Data::Lent(lent) => lent.iter().try_for_each(|loan| push(loan))?,
            }
        }
        push(&self.heads[head_at..])?;
        write_all(socket, &mut slices[..count])
    }
}

fn write_all(socket: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match socket.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut slices, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at most seven bytes at a time.
    struct Slow(Vec<u8>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(7);
            self.0.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn heads_and_data_leave_in_the_order_in_which_they_were_added() {
        let (mut output, mut expected) = (Output::default(), Vec::new());
        for n in 0..1000u32 {
            let head = n.to_le_bytes();
            output.heads().extend_from_slice(&head);
            expected.extend_from_slice(&head);
            if n % 3 != 0 {
                let mut buffer = AlignedBuffer::new(16);
                buffer.fill(n as u8);
                output.push_data(buffer, 5);
                expected.extend_from_slice(&[n as u8; 5]);
            }
        }
        let (mut socket, mut freed) = (Slow(Vec::new()), 0);
        output.send(&mut socket, |_| freed += 1).unwrap();
        assert!(socket.0 == expected && freed == 666 && output.is_empty());
    }
}
