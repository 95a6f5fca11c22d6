//! A log on a flash device in memory, which generates realistic device contents.

use forebay_block::Volume;
use forebay_effect::{Effect, Frame, Place, Segment};
use forebay_flash::fuzz::GEOMETRY;
use forebay_flash::{Append, BlockKey, Event, Log, Options, Start, StartEvent, TierId};

/// The contents of a device whose log received `records` records, without the zeros at the end.
pub fn image(records: u64) -> Vec<u8> {
    let options = Options { frames: 8, reserve_regions: 1, ..Options::default() };
    let mut log = Log::new(GEOMETRY, options);
    let mut device = vec![0; GEOMETRY.device_bytes() as usize];
    log.start(Start::Format { uuid: TierId::new(*b"0123456789abcdef"), bindings: Vec::new() });
    drive(&mut log, &mut device);
    for ticket in 0..records {
        let (valid, frame) = (GEOMETRY.all_granules(), Frame((ticket % 8) as u32));
        let key = BlockKey::new(Volume(1), ticket % 5);
        log.append(Append { ticket, key, valid, dirty: valid, frame, urgent: true });
        drive(&mut log, &mut device);
    }
    log.sync(records);
    drive(&mut log, &mut device);
    let end = device.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    device.truncate(end);
    device
}

/// Executes the effects of the log.
fn drive(log: &mut Log, device: &mut [u8]) {
    let mut segments = Vec::new();
    loop {
        while let Some(effect) = log.poll_effect(&mut segments) {
            match effect {
                Effect::Checksum { token, seed } => {
                    let sum = crc32c::crc32c_append(seed, &gather(log, &segments));
                    log.handle_checksum(token.index, sum);
                }
                Effect::Write { token, offset, .. } => {
                    let bytes = gather(log, &segments);
                    device[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                    log.handle_completion(token.index, Ok(()));
                }
                _ => {
                    if let Some(token) = effect.token() {
                        log.handle_completion(token.index, Ok(()));
                    }
                }
            }
        }
        let Some(event) = log.poll_event() else { return };
        assert!(!matches!(event, Event::Start(StartEvent::Failed(_))), "{event:?}");
    }
}

/// Collects the bytes to write. Each byte of a block is the number of its frame plus 1.
fn gather(log: &mut Log, segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        let n = segment.length as usize;
        match segment.place {
            Place::Frame { frame, .. } => bytes.resize(bytes.len() + n, frame.0 as u8 + 1),
            Place::Meta { buffer, offset } => {
                bytes.extend_from_slice(&log.meta(buffer)[offset as usize..][..n]);
            }
            _ => bytes.resize(bytes.len() + n, 0),
        }
    }
    bytes
}
