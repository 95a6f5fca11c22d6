//! Fuzz targets as plain functions: each accepts any bytes and must return.

use crate::events::{Event, StartEvent};
use crate::format::batch::BatchHeader;
use crate::format::directory::{DirectoryHeader, RegionContents};
use crate::format::region::RegionHeader;
use crate::format::superblock::Superblock;
use crate::geometry::Geometry;
use crate::identity::TierId;
use crate::log::Log;
use crate::types::{OnDamage, Options, Start};
use forebay_effect::{Effect, Place};

/// A geometry whose device is 42 pages.
pub const GEOMETRY: Geometry = Geometry {
    block_size: 4096,
    page_size: 4096,
    region_pages: 10,
    regions: 4,
    slots: 0,
    directory_pages: 1,
    superblock_pages: 1,
    extent_bytes: 16384,
    batch_pages_max: 5,
    batch_entries_max: 4,
    inflight_batches_max: 2,
    active_extents_max: 2,
};

/// Runs every decoder on the same bytes.
pub fn decode(bytes: &[u8]) {
    let uuid = bytes.get(24..40).and_then(|b| TierId::from_bytes(b.try_into().ok()?));
    let uuid = uuid.unwrap_or(TierId::new([1; 16]));
    let page = bytes.get(20..24).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let mut entries = Vec::new();
    let _ = Superblock::decode(bytes).map(|superblock| GEOMETRY.as_stored(&superblock));
    let _ = RegionHeader::decode(bytes, uuid, page);
    let _ = BatchHeader::decode(bytes, uuid, page, &GEOMETRY, &mut entries);
    let _ = DirectoryHeader::decode(bytes, uuid, page, &GEOMETRY, &mut RegionContents::default());
}

/// Checks and recovers a device that holds these bytes (followed by zeroes). Uses the stored
/// geometry if it fits. Returns the number of events, which is finite.
pub fn recover(bytes: &[u8]) -> usize {
    let mut device = bytes.to_vec();
    device.resize(GEOMETRY.device_bytes() as usize, 0);
    let copies = [0, 4096].map(|at| Superblock::decode(&device[at..]));
    let stored = copies.iter().flatten().find_map(|copy| GEOMETRY.as_stored(copy).ok());
    let fits = |g: &Geometry| g.device_bytes() <= device.len() as u64;
    let geometry = stored.filter(fits).unwrap_or(GEOMETRY);
    let options = Options { on_damage: OnDamage::Report, ..Options::default() };
    let mut events = 0;
    for how in [Start::Check, Start::RECOVER] {
        let mut log = Log::new(geometry, options);
        log.start(how);
        events += drive(log, &mut device);
    }
    events
}

/// Executes the log's effects until it is ready or has failed.
fn drive(mut log: Log, device: &mut [u8]) -> usize {
    let mut segments = Vec::new();
    let mut events = 0;
    loop {
        while let Some(event) = log.poll_event() {
            events += 1;
            if matches!(event, Event::Start(StartEvent::Ready(_) | StartEvent::Failed(_))) {
                return events;
            }
        }
        let Some(effect) = log.poll_effect(&mut segments) else { return events };
        let (Effect::Read { token, offset, .. }
        | Effect::Write { token, offset, .. }
        | Effect::WriteZeroes { token, offset, .. }) = effect
        else {
            if let Some(token) = effect.token() {
                log.handle_completion(token.index, Ok(()));
            }
            continue;
        };
        let mut at = offset as usize;
        for segment in &segments {
            let Place::Meta { buffer, offset } = segment.place else { continue };
            let (from, n) = (offset as usize, segment.length as usize);
            let (meta, flash) =
                (&mut log.meta_mut(buffer)[from..from + n], &mut device[at..at + n]);
            match effect {
                Effect::Read { .. } => meta.copy_from_slice(flash),
                _ => flash.copy_from_slice(meta),
            }
            at += n;
        }
        log.handle_completion(token.index, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_take_anything() {
        let mut state = 1u64;
        for length in [0, 1, 20, 96, 4096, 8192, 200_000] {
            let mut bytes = vec![0; length];
            decode(&bytes);
            assert_eq!(recover(&bytes), 2, "two failed starts");
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 33) as u8;
            }
            decode(&bytes);
            assert_eq!(recover(&bytes), 2, "two failed starts");
        }
    }
}
