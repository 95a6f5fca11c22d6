//! Validates requests and converts them to the form that the cache takes.

use forebay_block::{Flags, Op, Request, SECTOR_BYTES};

use super::Simulation;
use crate::error::SimulateError;
use crate::scenario::whole_sectors;

/// Request flags that the cache understands.
const FLAGS_KNOWN: Flags = Flags::FUA.union(Flags::NO_HOLE);

impl Simulation {
    /// Whether the cache takes the request unchanged. Always false for a flush.
    #[inline]
    pub(super) fn is_plain(&self, request: &Request) -> bool {
        let Request { volume, op, flags, offset, length, .. } = *request;
        let size = self.volumes.get(volume.0 as usize).map_or(0, |v| v.size_bytes);
        op != Op::Flush
            && (offset | length) % SECTOR_BYTES == 0
            && offset <= size
            && length <= size - offset
            && FLAGS_KNOWN.contains(flags)
    }

    /// The request rounded out to whole sectors, without unknown flags.
    pub(super) fn checked(&self, request: &Request) -> Result<Request, SimulateError> {
        let number = self.requests_taken;
        let Some(volume) = self.volumes.get(request.volume.0 as usize) else {
            let volumes = self.volumes.len();
            let volume = request.volume.0;
            return Err(SimulateError::UnknownVolume { request: number, volume, volumes });
        };
        if request.op == Op::Flush {
            return Ok(Request { offset: 0, length: 0, ..*request });
        }
        let (offset, length) = whole_sectors(request.offset, request.length);
        let (end, limit) = (offset.saturating_add(length), self.volume_bytes_limit);
        if end > volume.size_bytes && end >= limit {
            return Err(SimulateError::BeyondVolumes {
                request: number,
                volume: volume.name.clone(),
                end,
                limit,
            });
        }
        if end > volume.size_bytes {
            return Err(SimulateError::BeyondVolume {
                request: number,
                volume: volume.name.clone(),
                end,
                size: volume.size_bytes,
            });
        }
        // Other flags of a trace have no meaning here.
        let flags = Flags(request.flags.0 & FLAGS_KNOWN.0);
        Ok(Request { offset, length, flags, ..*request })
    }
}
