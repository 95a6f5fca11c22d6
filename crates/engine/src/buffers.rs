//! Aligned, reusable buffers for the data of requests.

use forebay_device::AlignedBuffer;

/// The smallest buffer, bytes.
const CLASS_BYTES_MIN: usize = 4096;

/// Buffers that a session has used and can use again, by power-of-two size. Bounded: buffers beyond
/// the bound are freed when they are returned.
#[derive(Debug)]
pub struct BufferPool {
    free: Vec<Vec<AlignedBuffer>>,
    held_bytes: usize,
    held_bytes_max: usize,
}

impl BufferPool {
    /// A pool that keeps at most `held_bytes_max` bytes of unused buffers.
    pub fn new(held_bytes_max: usize) -> BufferPool {
        BufferPool { free: Vec::new(), held_bytes: 0, held_bytes_max }
    }

    /// The length of a buffer for `bytes` bytes.
    pub fn buffer_bytes(bytes: usize) -> usize {
        CLASS_BYTES_MIN << Self::class(bytes)
    }

    /// Bytes of unused buffers.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Frees unused buffers, the largest first, until at most `bytes` are left.
    pub fn shrink(&mut self, bytes: usize) {
        for class in self.free.iter_mut().rev() {
            while self.held_bytes > bytes
                && let Some(buffer) = class.pop()
            {
                self.held_bytes -= buffer.len();
            }
        }
        if self.held_bytes == 0 {
            self.free = Vec::new();
        }
    }

    /// A buffer of at least `bytes` bytes. It still holds the bytes of its last use, which was by
    /// this session.
    pub fn take(&mut self, bytes: usize) -> AlignedBuffer {
        let class = Self::class(bytes);
        match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => {
                self.held_bytes -= buffer.len();
                buffer
            }
            None => AlignedBuffer::new(CLASS_BYTES_MIN << class),
        }
    }

    /// Returns a buffer.
    pub fn give(&mut self, buffer: AlignedBuffer) {
        let bytes = buffer.len();
        let class = Self::class(bytes);
        if self.held_bytes + bytes > self.held_bytes_max || CLASS_BYTES_MIN << class != bytes {
            return;
        }
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.held_bytes += bytes;
        self.free[class].push(buffer);
    }

    fn class(bytes: usize) -> usize {
        bytes.div_ceil(CLASS_BYTES_MIN).next_power_of_two().trailing_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_no_more_are_kept_than_agreed() {
        let mut pool = BufferPool::new(8192);
        let first = pool.take(5000);
        let address = first.pointer();
        assert_eq!(first.len(), 8192);
        let second = pool.take(1);
        pool.give(first);
        pool.give(second);
        assert_eq!(pool.held_bytes, 8192, "the second is beyond the bound");
        assert_eq!(pool.take(8192).pointer(), address);
        assert_eq!(pool.held_bytes, 0);
    }

    #[test]
    fn a_pool_gives_its_buffers_back_to_the_system() {
        let mut pool = BufferPool::new(1 << 20);
        let buffers = [4096, 8192, 8192, 65536].map(|bytes| pool.take(bytes));
        assert_eq!(BufferPool::buffer_bytes(5000), 8192);
        buffers.into_iter().for_each(|buffer| pool.give(buffer));
        pool.shrink(20480);
        assert_eq!(pool.held_bytes(), 20480, "the largest goes first");
        pool.shrink(0);
        assert_eq!(pool.held_bytes(), 0);
    }
}
