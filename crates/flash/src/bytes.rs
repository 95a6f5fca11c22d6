//! The location of the bytes that the log writes, and a log without bytes.

use crate::geometry::Geometry;
use crate::log::Log;
use crate::operation::Operation;
use forebay_effect::{Device, Effect, Frame, MetaBuffer, Place, Segment};

/// The valid granules of a frame as runs of bytes.
pub(crate) fn payload_segments(g: &Geometry, frame: Frame, valid: u16, out: &mut Vec<Segment>) {
    let granule = g.granule_bytes();
    let mut rest = u32::from(valid);
    while rest != 0 {
        let first = rest.trailing_zeros();
        let run = (rest >> first).trailing_ones();
        rest &= !(((1u32 << run) - 1) << first);
        let place = Place::Frame { frame, offset: first * granule };
        out.push(Segment { place, length: run * granule });
    }
}

impl Log {
    /// For a driver without bytes: payloads have no checksums (they are 0), and writes have no
    /// memory operands.
    pub fn without_bytes(&mut self) {
        self.without_bytes = true;
        self.effects.leave_out_segments();
    }

    /// Without bytes: issues the write of a batch at the point where, with bytes, its last checksum
    /// arrives.
    pub(crate) fn write_unsummed(&mut self) {
        if let Some(index) = self.batches.unsummed.pop_front() {
            self.write_batch(index);
        }
    }

    /// Issues a write of the flash device; the segments are in `self.segments`.
    pub(crate) fn push_write(&mut self, operation: Operation, page: u32, pages: u32) {
        let page_size = self.geometry.page_size;
        let length = pages * page_size;
        let bytes = || self.segments.iter().map(|s| s.length).sum::<u32>();
        debug_assert!(self.without_bytes || bytes() == length, "{} of {length} bytes", bytes());
        let offset = u64::from(page) * u64::from(page_size);
        let token = operation.token();
        let effect = Effect::Write { token, device: Device::Flash, offset, length };
        self.effects.push_slice(effect, &self.segments);
    }

    /// Issues a sync of the flash device.
    pub(crate) fn push_sync(&mut self, operation: Operation) {
        self.effects.push(Effect::Sync { token: operation.token(), device: Device::Flash });
    }

    /// A run of bytes in a metadata buffer.
    pub(crate) fn meta_segment(buffer: usize, offset: u32, length: u32) -> Segment {
        Segment { place: Place::Meta { buffer: MetaBuffer(buffer as u32), offset }, length }
    }
}
