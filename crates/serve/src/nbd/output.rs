//! The replies of a connection, sent together.

use std::io::{self, IoSlice, Write};

use forebay_device::AlignedBuffer;

/// Pieces that one system call takes.
const PIECES_MAX: usize = 128;

/// Replies to be sent: their heads one after another, data between them where it lies.
#[derive(Debug, Default)]
pub(super) struct Output {
    heads: Vec<u8>,
    /// Data, its length, and the end of the heads that come before it.
    data: Vec<(AlignedBuffer, usize, usize)>,
}

impl Output {
    /// Where heads are appended.
    pub fn heads(&mut self) -> &mut Vec<u8> {
        &mut self.heads
    }

    /// Appends the first `length` bytes of a buffer behind the heads so far.
    pub fn push_data(&mut self, buffer: AlignedBuffer, length: usize) {
        self.data.push((buffer, length, self.heads.len()));
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
        self.data.drain(..).for_each(|(buffer, ..)| free(buffer));
        self.heads.clear();
        result
    }

    fn write(&self, socket: &mut impl Write) -> io::Result<()> {
        if self.data.is_empty() {
            return socket.write_all(&self.heads);
        }
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let (mut count, mut head_at) = (0, 0);
        for (buffer, length, head_end) in &self.data {
            slices[count] = IoSlice::new(&self.heads[head_at..*head_end]);
            slices[count + 1] = IoSlice::new(&buffer[..*length]);
            (count, head_at) = (count + 2, *head_end);
            if count + 2 > PIECES_MAX {
                write_all(socket, &mut slices[..count])?;
                count = 0;
            }
        }
        slices[count] = IoSlice::new(&self.heads[head_at..]);
        write_all(socket, &mut slices[..=count])
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
