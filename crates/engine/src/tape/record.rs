//! The records of a tape, encoded and decoded.

use std::io::{self, Read, Write};

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, Call, Open, Order, StampReport, StopTarget, VolumeConfig, WritePolicy,
};
use forebay_effect::{IoError, MetaBuffer, Outcome, RequestId};
use forebay_flash::{
    BatchSequence, Binding, Sealed, Stamp, StampNumber, StoreId, StoreStamp, SuperblockGeneration,
    TierId,
};

use super::hash::{number, token};

/// Bytes that a read brought into metadata buffers: buffer, first byte, bytes.
pub type Metadata = Vec<(MetaBuffer, u32, Vec<u8>)>;

/// One call into the machine, or a mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TapeRecord {
    /// A call, and what was read into metadata buffers before it if it is a completion.
    Call(Call, Metadata),
    /// Effects so far, and their hash.
    Mark(u64, u64),
}

/// Why a tape cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapeError {
    /// It cannot be read.
    #[error("cannot read the tape: {0}")]
    Io(#[from] io::Error),
    /// It is not a tape, or a tape of another version.
    #[error("this is not a version {} tape", super::VERSION)]
    NotATape,
    /// A record is invalid.
    #[error("record {0} of the tape is damaged: {1}")]
    Damaged(u64, &'static str),
    /// The cache's parameters are not those of the recording.
    #[error("the tape was recorded with other parameters: {recorded}, not {given}")]
    Parameters {
        /// As on the tape.
        recorded: String,
        /// As given.
        given: String,
    },
    /// The machine answered differently than when the tape was recorded.
    #[error(
        "the cache's effects differ from the recorded ones: after record {record}, {given:?} \
         (number, hash) instead of {recorded:?}"
    )]
    Diverged {
        /// Index of the mark that does not match.
        record: u64,
        /// Number and hash recorded.
        recorded: (u64, u64),
        /// Number and hash given now.
        given: (u64, u64),
    },
}

const ERRORS: [IoError; 7] = [
    IoError::Device,
    IoError::Corrupt,
    IoError::NoSpace,
    IoError::ReadOnly,
    IoError::Invalid,
    IoError::Unsupported,
    IoError::Shutdown,
];

fn outcome_number(outcome: Outcome) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(e) => ERRORS.iter().position(|known| *known == e).map_or(1, |n| n as u8 + 1),
    }
}

/// The outcome with this number, if there is one.
fn outcome_of(number: u8) -> Option<Outcome> {
    match number {
        0 => Some(Ok(())),
        n => ERRORS.get(usize::from(n) - 1).map(|&error| Err(error)),
    }
}

impl TapeRecord {
    /// Appends the record.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            TapeRecord::Call(call, metadata) => write_call(call, metadata, out),
            TapeRecord::Mark(effects, hash) => {
                out.write_all(&[9])?;
                write_u64(&[*effects, *hash], out)
            }
        }
    }

    /// Reads the next record; `None` at the end of the tape.
    pub(super) fn read(input: &mut impl Read, index: u64) -> Result<Option<TapeRecord>, TapeError> {
        let mut kind = [0];
        if input.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let bad = |what| TapeError::Damaged(index, what);
        let token = |n| token(n).ok_or(bad("an invalid token"));
        let mut brought = Vec::new();
        let call = match kind[0] {
            1 => {
                let (read_only, priority) = (read_u8(input)? != 0, read_u8(input)?);
                let bypass = read_u8(input)? != 0;
                let size_bytes = read_u64(input)?;
                Call::Attach(VolumeConfig { size_bytes, read_only, priority, bypass })
            }
            2 => Call::Start(Nanos(read_u64(input)?), read_open(input, index)?),
            3 => {
                let op = Op::from_u8(read_u8(input)?).ok_or(bad("an invalid operation"))?;
                let (flags, volume) = (Flags(read_u8(input)?), Volume(read_u32(input)?));
                let (time, id) = (Nanos(read_u64(input)?), RequestId(read_u64(input)?));
                let (offset, length) = (read_u64(input)?, read_u64(input)?);
                Call::Request(id, Request { time, volume, op, flags, offset, length })
            }
            4 => {
                let outcome = outcome_of(read_u8(input)?).ok_or(bad("an invalid outcome"))?;
                let (now, token) = (Nanos(read_u64(input)?), token(read_u64(input)?)?);
                let count = read_u32(input)?;
                for _ in 0..count {
                    let (buffer, offset) = (MetaBuffer(read_u32(input)?), read_u32(input)?);
                    let length = u64::from(read_u32(input)?);
                    let mut bytes = Vec::new();
                    if input.by_ref().take(length).read_to_end(&mut bytes)? as u64 != length {
                        return Err(bad("truncated metadata"));
                    }
                    brought.push((buffer, offset, bytes));
                }
                Call::Completion(now, token, outcome)
            }
            5 => Call::Checksum(token(read_u64(input)?)?, read_u32(input)?),
            6 => Call::Timeout(Nanos(read_u64(input)?)),
            7 => {
                let now = Nanos(read_u64(input)?);
                Call::Order(now, read_order(input)?.ok_or(bad("an unknown order"))?)
            }
            8 => Call::KeepStamps(Volume(read_u32(input)?)),
            10 => {
                let (now, count) = (Nanos(read_u64(input)?), read_u32(input)?);
                let mut reports = Vec::new();
                for _ in 0..count {
                    let (volume, outcome) = (Volume(read_u32(input)?), read_u8(input)?);
                    let outcome = outcome_of(outcome).ok_or(bad("an invalid stamp outcome"))?;
                    let number = StampNumber(read_u64(input)?);
                    reports.push(StampReport { volume, result: outcome.map(|()| number) });
                }
                Call::Stamped(now, reports)
            }
            9 => return Ok(Some(TapeRecord::Mark(read_u64(input)?, read_u64(input)?))),
            _ => return Err(bad("an unknown kind of record")),
        };
        Ok(Some(TapeRecord::Call(call, brought)))
    }
}

/// Appends a call.
pub(super) fn write_call(call: &Call, metadata: &Metadata, out: &mut impl Write) -> io::Result<()> {
    match call {
        Call::Attach(v) => {
            out.write_all(&[1, v.read_only.into(), v.priority, v.bypass.into()])?;
            out.write_all(&v.size_bytes.to_le_bytes())
        }
        Call::Start(now, open) => {
            out.write_all(&[2])?;
            out.write_all(&now.0.to_le_bytes())?;
            write_open(open, out)
        }
        Call::Request(id, Request { time, volume, op, flags, offset, length }) => {
            out.write_all(&[3, *op as u8, flags.0])?;
            out.write_all(&volume.0.to_le_bytes())?;
            write_u64(&[time.0, id.0, *offset, *length], out)
        }
        Call::Completion(now, token, outcome) => {
            out.write_all(&[4, outcome_number(*outcome)])?;
            write_u64(&[now.0, number(*token)], out)?;
            out.write_all(&(metadata.len() as u32).to_le_bytes())?;
            for (buffer, offset, bytes) in metadata {
                for field in [buffer.0, *offset, bytes.len() as u32] {
                    out.write_all(&field.to_le_bytes())?;
                }
                out.write_all(bytes)?;
            }
            Ok(())
        }
        Call::Checksum(token, value) => {
            out.write_all(&[5])?;
            write_u64(&[number(*token)], out)?;
            out.write_all(&value.to_le_bytes())
        }
        Call::Timeout(now) => {
            out.write_all(&[6])?;
            write_u64(&[now.0], out)
        }
        Call::Order(now, order) => {
            out.write_all(&[7])?;
            write_u64(&[now.0], out)?;
            write_order(order, out)
        }
        Call::KeepStamps(volume) => {
            out.write_all(&[8])?;
            out.write_all(&volume.0.to_le_bytes())
        }
        Call::Stamped(now, reports) => {
            out.write_all(&[10])?;
            write_u64(&[now.0], out)?;
            out.write_all(&(reports.len() as u32).to_le_bytes())?;
            reports.iter().try_for_each(|StampReport { volume, result }| {
                out.write_all(&volume.0.to_le_bytes())?;
                out.write_all(&[outcome_number(result.map(|_| ()))])?;
                out.write_all(&result.unwrap_or_default().0.to_le_bytes())
            })
        }
    }
}

fn write_order(order: &Order, out: &mut impl Write) -> io::Result<()> {
    match order {
        Order::Destage => out.write_all(&[0]),
        Order::RetryStores => out.write_all(&[1]),
        Order::PrepareStop => out.write_all(&[2]),
        Order::Stop(target) => out.write_all(&[3, (*target == StopTarget::Stores).into()]),
        Order::SetPolicy(p, acknowledge) => out.write_all(&[
            4,
            p.write_back.into(),
            p.allocate_on_write.into(),
            p.allocate_on_read.into(),
            (*acknowledge == Acknowledge::Dram).into(),
        ]),
        Order::SetDramBlocks(blocks) => {
            out.write_all(&[5])?;
            out.write_all(&blocks.to_le_bytes())
        }
        Order::Seal(volumes) => {
            out.write_all(&[6])?;
            write_seals(volumes, out)
        }
        Order::Stamp => out.write_all(&[7]),
        Order::EndCompletion => out.write_all(&[8]),
        Order::EndSwitch => out.write_all(&[9]),
    }
}

/// Reads an order; `None` if there is none of this kind.
fn read_order(input: &mut impl Read) -> io::Result<Option<Order>> {
    Ok(Some(match read_u8(input)? {
        0 => Order::Destage,
        1 => Order::RetryStores,
        2 => Order::PrepareStop,
        3 => match read_u8(input)? {
            0 => Order::Stop(StopTarget::Flash),
            _ => Order::Stop(StopTarget::Stores),
        },
        4 => {
            let policy = WritePolicy {
                write_back: read_u8(input)? != 0,
                allocate_on_write: read_u8(input)? != 0,
                allocate_on_read: read_u8(input)? != 0,
            };
            let dram = read_u8(input)? != 0;
            Order::SetPolicy(policy, if dram { Acknowledge::Dram } else { Acknowledge::Flash })
        }
        5 => Order::SetDramBlocks(read_u32(input)?),
        6 => Order::Seal(read_seals(input)?),
        7 => Order::Stamp,
        8 => Order::EndCompletion,
        9 => Order::EndSwitch,
        _ => return Ok(None),
    }))
}

/// A volume in 16 bits, as in the keys of blocks.
fn write_volume(volume: Volume, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&(volume.0 as u16).to_le_bytes())
}

fn read_volume(input: &mut impl Read) -> io::Result<Volume> {
    Ok(Volume(u16::from_le_bytes(read_array(input)?).into()))
}

fn write_open(open: &Open, out: &mut impl Write) -> io::Result<()> {
    let (uuid, bindings) = match open {
        Open::Format { uuid, bindings } => (uuid, bindings),
        Open::Recover { changed, drop_clean, stores } => {
            out.write_all(&[0, (*drop_clean).into()])?;
            out.write_all(&(changed.len() as u32).to_le_bytes())?;
            changed.iter().try_for_each(|&volume| write_volume(volume, out))?;
            out.write_all(&(stores.len() as u32).to_le_bytes())?;
            return stores.iter().try_for_each(|store| write_store(store, out));
        }
    };
    out.write_all(&[1])?;
    out.write_all(uuid.bytes())?;
    out.write_all(&(bindings.len() as u32).to_le_bytes())?;
    for binding in bindings {
        out.write_all(&binding.volume.0.to_le_bytes())?;
        out.write_all(binding.uuid.bytes())?;
        out.write_all(&binding.generation.to_le_bytes())?;
    }
    Ok(())
}

fn read_open(input: &mut impl Read, index: u64) -> Result<Open, TapeError> {
    if read_u8(input)? == 0 {
        let drop_clean = read_u8(input)? != 0;
        let changed = (0..read_u32(input)?).map(|_| read_volume(input));
        let changed = changed.collect::<io::Result<_>>()?;
        let stores = (0..read_u32(input)?).map(|_| read_store(input));
        let stores = stores.collect::<io::Result<_>>()?;
        return Ok(Open::Recover { changed, drop_clean, stores });
    }
    let uuid = TierId::from_bytes(read_array(input)?);
    let uuid = uuid.ok_or(TapeError::Damaged(index, "an invalid UUID of a flash tier"))?;
    let mut bindings = Vec::new();
    for _ in 0..read_u32(input)? {
        let volume = Volume(read_u32(input)?);
        if volume.0 > u16::MAX.into() {
            return Err(TapeError::Damaged(index, "an invalid binding"));
        }
        let (uuid, generation) = (StoreId::new(read_array(input)?), read_u64(input)?);
        bindings.push(Binding::new(volume, uuid, generation));
    }
    Ok(Open::Format { uuid, bindings })
}

fn write_seals(volumes: &[Sealed], out: &mut impl Write) -> io::Result<()> {
    out.write_all(&(volumes.len() as u32).to_le_bytes())?;
    for volume in volumes {
        write_volume(volume.volume, out)?;
        out.write_all(&volume.seal)?;
        out.write_all(&[volume.distrust.into()])?;
        out.write_all(&[volume.stamp.is_some().into()])?;
        out.write_all(&volume.stamp.unwrap_or_default().0.to_le_bytes())?;
    }
    Ok(())
}

fn write_store(store: &StoreStamp, out: &mut impl Write) -> io::Result<()> {
    let StoreStamp { volume, number, stamp, whole, released } = *store;
    write_volume(volume, out)?;
    out.write_all(&[whole.into(), released.into()])?;
    write_u64(&[number.0, stamp.complete.0, stamp.seen.0, stamp.generation.0], out)
}

fn read_store(input: &mut impl Read) -> io::Result<StoreStamp> {
    let volume = read_volume(input)?;
    let (whole, released) = (read_u8(input)? != 0, read_u8(input)? != 0);
    let number = StampNumber(read_u64(input)?);
    let (complete, seen) = (BatchSequence(read_u64(input)?), BatchSequence(read_u64(input)?));
    let generation = SuperblockGeneration(read_u64(input)?);
    let stamp = Stamp { complete, seen, generation };
    Ok(StoreStamp { volume, number, stamp, whole, released })
}

fn read_seals(input: &mut impl Read) -> io::Result<Vec<Sealed>> {
    let mut volumes = Vec::new();
    for _ in 0..read_u32(input)? {
        let (volume, seal) = (read_volume(input)?, read_array(input)?);
        let distrust = read_u8(input)? != 0;
        let (has_stamp, number) = (read_u8(input)? != 0, StampNumber(read_u64(input)?));
        let stamp = has_stamp.then_some(number);
        volumes.push(Sealed { volume, seal, distrust, stamp });
    }
    Ok(volumes)
}

fn write_u64(words: &[u64], out: &mut impl Write) -> io::Result<()> {
    words.iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))
}

pub(super) fn read_array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u8(input: &mut impl Read) -> io::Result<u8> {
    Ok(read_array::<1>(input)?[0])
}

pub(super) fn read_u32(input: &mut impl Read) -> io::Result<u32> {
    Ok(u32::from_le_bytes(read_array(input)?))
}

fn read_u64(input: &mut impl Read) -> io::Result<u64> {
    Ok(u64::from_le_bytes(read_array(input)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_effect::{Owner, Token};

    fn calls() -> Vec<Call> {
        let (volume, now) = (Volume(3), Nanos(0x0102_0304_0506));
        let token = Token { owner: Owner::Log, index: 9 };
        let request = Request {
            flags: Flags::FUA,
            ..Request::new(now, volume, Op::WriteZeroes, 1 << 40, 1 << 20)
        };
        let sealed = |stamp| Sealed { volume, seal: [5; 32], distrust: true, stamp };
        let report = |result| StampReport { volume, result };
        let policy = WritePolicy { allocate_on_read: false, ..WritePolicy::WRITE_BACK };
        let mut calls = vec![
            Call::Attach(VolumeConfig { read_only: true, ..VolumeConfig::new(1 << 30) }),
            Call::KeepStamps(volume),
            Call::Start(now, Open::RECOVER),
            Call::Request(RequestId(7), request),
            Call::Completion(now, token, Err(IoError::NoSpace)),
            Call::Checksum(token, 0x0708_090A),
            Call::Timeout(now),
            Call::Stamped(now, vec![report(Ok(StampNumber(6))), report(Err(IoError::Device))]),
        ];
        let orders = [
            Order::Destage,
            Order::RetryStores,
            Order::PrepareStop,
            Order::Stop(StopTarget::Flash),
            Order::Stop(StopTarget::Stores),
            Order::SetPolicy(policy, Acknowledge::Dram),
            Order::SetDramBlocks(0x0B0C_0D0E),
            Order::Seal(vec![sealed(None), sealed(Some(StampNumber(8)))]),
            Order::Stamp,
            Order::EndCompletion,
            Order::EndSwitch,
        ];
        calls.extend(orders.into_iter().map(|order| Call::Order(now, order)));
        calls
    }

    #[test]
    fn every_call_is_read_as_it_was_written() {
        for call in calls() {
            let record = TapeRecord::Call(call, Metadata::new());
            let mut tape = Vec::new();
            record.write(&mut tape).expect("memory takes all");
            let mut rest = &tape[..];
            let read = TapeRecord::read(&mut rest, 1).expect("a record").expect("one record");
            assert_eq!((read, rest), (record, &[][..]));
        }
    }
}
