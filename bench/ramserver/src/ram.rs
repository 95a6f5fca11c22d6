//! Memory that connections share like a disk: no order is promised between overlapping accesses,
//! and none is undefined, since the bytes are only ever copied, by raw pointers or by the kernel.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// An anonymous mapping.
pub struct Ram {
    start: *mut u8,
    size: usize,
}

// SAFETY: nothing but copies touch the mapping, and no reference to it is ever made.
unsafe impl Send for Ram {}
// SAFETY: as above.
unsafe impl Sync for Ram {}

impl Ram {
    /// `size` bytes, present from the start so that no page fault is measured.
    pub fn new(size: usize) -> Result<Ram> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Ram { start: start.cast(), size })
    }

    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let offset = offset as usize;
        assert!(offset <= self.size && length <= self.size - offset);
        // SAFETY: just checked to lie within the mapping.
        unsafe { self.start.add(offset) }
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: `to` is valid for that many bytes and no reference covers it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub fn zero(&self, offset: u64, length: u64) {
        let to = self.at(offset, length as usize);
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(to, 0, length as usize) };
    }

    /// Reads at least one byte and at most `length` from `socket` to `offset`.
    pub fn read_from(&self, socket: &UnixStream, offset: u64, length: u64) -> Result<u64> {
        let to = self.at(offset, length as usize);
        loop {
            // SAFETY: `to` is valid for `length` bytes.
            let n = unsafe { libc::read(socket.as_raw_fd(), to.cast(), length as usize) };
            match n {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                1.. => return Ok(n as u64),
                _ => retry_if_interrupted()?,
            }
        }
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

/// What one `writev` sends. Lives no longer than the bytes and the memory it points to.
pub struct Vectors<'a> {
    list: Vec<libc::iovec>,
    _sources: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Vectors<'a> {
    pub fn with_buffer(mut list: Vec<libc::iovec>) -> Self {
        list.clear();
        Vectors { list, _sources: std::marker::PhantomData }
    }

    pub fn push_bytes(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            let base = bytes.as_ptr().cast_mut().cast();
            self.list.push(libc::iovec { iov_base: base, iov_len: bytes.len() });
        }
    }

    pub fn push_memory(&mut self, ram: &'a Ram, offset: u64, length: usize) {
        let base = ram.at(offset, length).cast();
        self.list.push(libc::iovec { iov_base: base, iov_len: length });
    }

    /// Sends all of it and gives the buffer back.
    pub fn send(mut self, socket: &UnixStream) -> Result<Vec<libc::iovec>> {
        let mut rest = &mut self.list[..];
        while !rest.is_empty() {
            // SAFETY: every vector points to memory that outlives `self`.
            let n = unsafe { libc::writev(socket.as_raw_fd(), rest.as_ptr(), rest.len() as i32) };
            if n < 0 {
                retry_if_interrupted()?;
                continue;
            }
            let mut sent = n as usize;
            while !rest.is_empty() && sent >= rest[0].iov_len {
                sent -= rest[0].iov_len;
                rest = &mut rest[1..];
            }
            if let Some(first) = rest.first_mut() {
                first.iov_base = first.iov_base.cast::<u8>().wrapping_add(sent).cast();
                first.iov_len -= sent;
            }
        }
        Ok(self.list)
    }
}

fn retry_if_interrupted() -> Result<()> {
    let error = Error::last_os_error();
    if error.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
