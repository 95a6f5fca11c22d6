//! Reads the format.

use std::path::PathBuf;

use parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    schema::types::ColumnDescriptor,
};

use super::{Column, FORMAT_VERSION, chunks::Chunks, metadata, said};
use crate::{
    Batch, Counters, Metadata, Progress, Result, TraceError, TraceReader,
    formats::text::{TIME_NS_MAX, impossible},
    reader::BATCH_REQUESTS,
    source::{Source, is_read_once, stem},
};
use forebay_block::{Flags, Op, Request};

/// Reads a trace in Forebay's format, or a Parquet file of another program with the same columns
/// (`time_ns`, `op`, `offset` and `length` suffice, as any integers of 32 or 64 bits).
pub struct ParquetTraceReader {
    path: PathBuf,
    file: SerializedFileReader<Chunks>,
    /// For each of [`Column::ALL`], its number in the file.
    columns: [Option<usize>; Column::ALL.len()],
    metadata: Metadata,
    row_group: usize,
    group: Option<Group>,
    bytes_before: u64,
    /// Requests read so far.
    rows: u64,
    last_ns: u64,
    counters: Counters,
    scratch: Scratch,
}

impl ParquetTraceReader {
    pub(crate) fn from_source(source: Source) -> Result<Self> {
        let path = source.path.clone();
        let wrong = |what: String| TraceError::Parquet { path: path.clone(), what };
        // Bytes in memory have no path, even if there is a file with the name of their source.
        if source.memory.is_none() && is_read_once(&path) {
            return Err(wrong(
                "Parquet is read from its end, so it cannot come from standard input or a pipe: \
                 use a file"
                    .to_owned(),
            ));
        }
        if source.compressed {
            return Err(wrong(
                "Parquet can be read only from an uncompressed file (Parquet compresses its own \
                 columns)"
                    .to_owned(),
            ));
        }
        let chunks = match source.memory {
            Some(bytes) => Chunks::Memory(bytes),
            None => Chunks::open(&path)?,
        };
        let open = |chunks| guarded(|| SerializedFileReader::new(chunks).map_err(|e| said(&e)));
        let file = open(chunks).or_else(|e| match Chunks::open_checkpointed(&path) {
            Some(chunks) => open(chunks),
            None => Err(e),
        });
        let file = file.map_err(|e| {
            wrong(format!(
                "not a complete Parquet file ({e}): it was cut off, or its writer is still running \
                 and has not written a checkpoint"
            ))
        })?;
        let about = file.metadata().file_metadata();
        let (mut metadata, version) = metadata::from_file(about).map_err(wrong)?;
        if let Some(found) = version.filter(|v| *v > FORMAT_VERSION) {
            return Err(TraceError::NewerVersion { path, found, known: FORMAT_VERSION });
        }
        if metadata.volumes.is_empty() {
            metadata::name_volumes_up_to(&mut metadata.volumes, 0);
            metadata.volumes[0].name = stem(&path);
        }
        metadata.name = stem(&path);
        let columns = find_columns(&file).map_err(wrong)?;
        Ok(ParquetTraceReader {
            path,
            file,
            columns,
            metadata,
            row_group: 0,
            group: None,
            bytes_before: 0,
            rows: 0,
            last_ns: 0,
            counters: Counters::default(),
            scratch: Scratch::default(),
        })
    }

    fn damaged(&self, e: impl std::fmt::Display) -> TraceError {
        TraceError::Parquet {
            path: self.path.clone(),
            what: format!("damaged in row group {}: {e}", self.row_group.saturating_sub(1)),
        }
    }

    fn open_group(&self, number: usize) -> Result<Group, ParquetError> {
        let meta = self.file.metadata().row_group(number);
        let group = self.file.get_row_group(number)?;
        let mut columns = Vec::new();
        for (column, at) in Column::ALL.iter().zip(self.columns) {
            let Some(at) = at else { continue };
            let nulls = meta.column(at).statistics().and_then(|s| s.null_count_opt());
            if column.optional() && nulls == Some(meta.num_rows().max(0) as u64) {
                continue;
            }
            let nullable = meta.column(at).column_descr().max_def_level() > 0;
            let Some(numbers) = Numbers::of(meta.column(at).column_descr(), *column) else {
                return Err(ParquetError::General("a column has the wrong type".to_owned()));
            };
            columns.push((*column, Values::new(group.get_column_reader(at)?, nullable, numbers)?));
        }
        Ok(Group { columns, left: meta.num_rows().max(0) as u64 })
    }

    /// Appends up to `max` requests of the open row group.
    fn read_group(&mut self, batch: &mut Batch, max: usize) -> Result<usize, String> {
        let Some(group) = &mut self.group else { return Ok(0) };
        let n = group.left.min(max as u64) as usize;
        for (column, values) in &mut group.columns {
            values.read(*column, n, batch, &mut self.scratch).map_err(|e| match e {
                Bad::Value { at, what } => {
                    let row = self.rows + at as u64 + 1;
                    format!("row {row} of the file: column {} {what}", column.name())
                }
                Bad::Column(what) => what,
            })?;
        }
        batch.volume.resize(n, 0);
        batch.flags.resize(n, Flags::NONE);
        self.rows += n as u64;
        group.left -= n as u64;
        if group.left == 0 {
            self.group = None;
        }
        Ok(n)
    }

    /// Checks what a file may violate: the order of times, ranges and volume numbers. Moves
    /// requests with an earlier time to their predecessor's time.
    fn check(&mut self, batch: &mut Batch) -> Result<(), String> {
        for time in &mut batch.time_ns {
            if *time < self.last_ns {
                self.counters.out_of_order += 1;
                *time = self.last_ns;
            }
            self.last_ns = *time;
        }
        for request in batch.requests() {
            if let Some(expected) = impossible(&request, Some(0)) {
                let Request { time, offset, length, .. } = request;
                return Err(format!(
                    "expected {expected}, found a request of {length} bytes at offset {offset}, at \
                     {} ns",
                    time.0
                ));
            }
        }
        let gaps = (0..batch.len()).filter(|_| batch.has_gaps()).filter_map(|i| batch.gap(i));
        if let Some(gap) = gaps.into_iter().find(|gap| gap.0 > TIME_NS_MAX) {
            return Err(format!("expected a gap below 2^63 ns (292 years), found {} ns", gap.0));
        }
        if let Some(max) = batch.volume.iter().copied().max() {
            metadata::name_volumes_up_to(&mut self.metadata.volumes, max);
            if max as usize >= self.metadata.volumes.len() {
                return Err(format!("volume number {max} is too large"));
            }
        }
        Ok(())
    }
}

impl TraceReader for ParquetTraceReader {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn progress(&self) -> Progress {
        let groups = self.file.metadata().row_groups();
        let total: i64 = groups.iter().map(|g| g.compressed_size()).sum();
        Progress { bytes_read: self.bytes_before, bytes_total: Some(total.max(0) as u64) }
    }

    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        batch.clear();
        while self.group.is_none() {
            if self.row_group == self.file.num_row_groups() {
                return Ok(0);
            }
            let number = self.row_group;
            self.row_group += 1;
            let group = guarded(|| self.open_group(number).map_err(|e| said(&e)))
                .map_err(|e| self.damaged(e))?;
            let size = self.file.metadata().row_group(number).compressed_size();
            self.bytes_before += size.max(0) as u64;
            self.group = Some(group).filter(|g| g.left > 0);
        }
        let read = guarded(|| self.read_group(batch, BATCH_REQUESTS));
        let read = read.and_then(|_| self.check(batch));
        if let Err(e) = read {
            // Requests that were read only in part are not reliable.
            batch.clear();
            (self.group, self.row_group) = (None, self.file.num_row_groups());
            return Err(self.damaged(e));
        }
        Ok(batch.len())
    }
}

/// Runs a step of the Parquet library, which panics on some damaged files (as of version 60).
fn guarded<T>(step: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(step));
    caught.unwrap_or_else(|_| Err("its pages are inconsistent".to_owned()))
}

fn find_columns(
    file: &SerializedFileReader<Chunks>,
) -> Result<[Option<usize>; Column::ALL.len()], String> {
    let schema = file.metadata().file_metadata().schema_descr();
    let mut columns = [None; Column::ALL.len()];
    for (column, found) in Column::ALL.iter().zip(&mut columns) {
        *found = schema.columns().iter().position(|c| c.path().string() == column.name());
        let Some(at) = *found else {
            if column.optional() || matches!(column, Column::Volume | Column::Flags) {
                continue;
            }
            return Err(format!("Parquet, but not a trace: it has no column {}", column.name()));
        };
        let found = schema.column(at);
        let kind_fits = Numbers::of(&found, *column).is_some();
        if !kind_fits || found.max_rep_level() > 0 || found.max_def_level() > 1 {
            return Err(format!("Parquet, but its column {} has the wrong type", column.name()));
        }
    }
    Ok(columns)
}

struct Group {
    columns: Vec<(Column, Values)>,
    /// Requests not yet read.
    left: u64,
}

/// How the numbers of a column are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    signed: bool,
    /// Factor by which values are multiplied.
    unit: i64,
}

impl Numbers {
    /// Reads the declaration in the file. Returns `None` if `column` cannot have that type. (Byte
    /// arrays hold no numbers.)
    fn of(found: &ColumnDescriptor, column: Column) -> Option<Numbers> {
        let plain = |signed| Some(Numbers { signed, unit: 1 });
        let time = |unit| (column == Column::Time).then_some(Numbers { signed: true, unit });
        match (column, found.physical_type()) {
            (Column::Hashes, Physical::BYTE_ARRAY) => return plain(false),
            (Column::Hashes, _) => return None,
            (_, Physical::INT32 | Physical::INT64) => {}
            _ => return None,
        }
        match found.logical_type_ref() {
            Some(LogicalType::Integer(integer)) => plain(integer.is_signed),
            Some(LogicalType::Timestamp(timestamp)) => time(match timestamp.unit {
                TimeUnit::MILLIS => 1_000_000,
                TimeUnit::MICROS => 1_000,
                TimeUnit::NANOS => 1,
            }),
            Some(_) => None,
            // Older writers use this instead.
            None => match found.converted_type() {
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64 => plain(true),
                ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64 => plain(false),
                ConvertedType::TIMESTAMP_MILLIS => time(1_000_000),
                ConvertedType::TIMESTAMP_MICROS => time(1_000),
                _ => None,
            },
        }
    }

    /// If values are signed, rejects negative ones and multiplies the others by the unit.
    fn interpret(self, values: &mut [i64], levels: &[i16]) -> Result<(), Bad> {
        if !self.signed {
            return Ok(());
        }
        let bad = |at: usize, what: String| {
            // Nulls have a level, but no value.
            let mut present = (0..levels.len()).filter(|&row| levels[row] > 0);
            Bad::Value { at: present.nth(at).unwrap_or(at), what }
        };
        if let Some(at) = values.iter().position(|&value| value < 0) {
            return Err(bad(at, format!("is negative ({})", values[at])));
        }
        if self.unit > 1 {
            for (at, value) in values.iter_mut().enumerate() {
                let scaled = value.checked_mul(self.unit);
                *value = scaled.ok_or_else(|| {
                    bad(at, format!("is a time of 2^63 ns (292 years) or more ({value})"))
                })?;
            }
        }
        Ok(())
    }
}

/// Why a column cannot be read.
enum Bad {
    /// A value in row `at`, counted from the first row of this read.
    Value {
        at: usize,
        what: String,
    },
    Column(String),
}

/// Buffers that are reused.
#[derive(Default)]
struct Scratch {
    levels: Vec<i16>,
    wide: Vec<i64>,
    narrow: Vec<i32>,
    bytes: Vec<ByteArray>,
}

/// The values of one column of a row group.
struct Values {
    reader: Typed,
    numbers: Numbers,
    /// Whether the file allows nulls in this column, even if our format does not.
    nullable: bool,
}

enum Typed {
    Wide(ColumnReaderImpl<Int64Type>),
    Narrow(ColumnReaderImpl<Int32Type>),
    Bytes(ColumnReaderImpl<ByteArrayType>),
}

impl Values {
    fn new(reader: ColumnReader, nullable: bool, numbers: Numbers) -> Result<Self, ParquetError> {
        let reader = match reader {
            ColumnReader::Int64ColumnReader(r) => Typed::Wide(r),
            ColumnReader::Int32ColumnReader(r) => Typed::Narrow(r),
            ColumnReader::ByteArrayColumnReader(r) => Typed::Bytes(r),
            _ => return Err(ParquetError::General("a column has the wrong type".to_owned())),
        };
        Ok(Values { reader, numbers, nullable })
    }

    /// Appends the next `n` values of `column` to `batch`.
    fn read(
        &mut self,
        column: Column,
        n: usize,
        batch: &mut Batch,
        scratch: &mut Scratch,
    ) -> Result<(), Bad> {
        let Scratch { levels, wide, narrow, bytes } = scratch;
        levels.clear();
        let levels = self.nullable.then_some(levels);
        let bits = match &mut self.reader {
            Typed::Wide(r) => {
                read_exactly(r, n, levels, wide, column).map_err(Bad::Column)?;
                u64::BITS
            }
            Typed::Narrow(r) => {
                read_exactly(r, n, levels, narrow, column).map_err(Bad::Column)?;
                wide.clear();
                match self.numbers.signed {
                    true => wide.extend(narrow.iter().map(|v| i64::from(*v))),
                    false => wide.extend(narrow.iter().map(|v| i64::from(*v as u32))),
                }
                u32::BITS
            }
            Typed::Bytes(r) => {
                read_exactly(r, n, levels, bytes, column).map_err(Bad::Column)?;
                let mut bytes = bytes.iter();
                for i in 0..n {
                    let present = scratch.levels.get(i).is_none_or(|l| *l > 0);
                    let hashes = if present { bytes.next() } else { None };
                    batch.append_hashes(hashes.map_or(&[], |h| h.data()));
                }
                return Ok(());
            }
        };
        self.numbers.interpret(wide, &scratch.levels)?;
        let too_large =
            || Bad::Column(format!("column {} has a value out of range", column.name()));
        let narrowed = |v: i64| u8::try_from(v).map_err(|_| too_large());
        let unsigned = || wide.iter().map(|v| *v as u64);
        match column {
            Column::Time => batch.time_ns.extend(unsigned()),
            Column::Offset => batch.offset.extend(unsigned()),
            Column::Length => batch.length.extend(unsigned()),
            Column::Volume => {
                if bits == u64::BITS && wide.iter().any(|v| u32::try_from(*v).is_err()) {
                    return Err(too_large());
                }
                batch.volume.extend(wide.iter().map(|v| *v as u32));
            }
            Column::Op => {
                for v in wide.iter() {
                    let op = narrowed(*v)?;
                    batch.op.push(Op::from_u8(op).ok_or_else(too_large)?);
                }
            }
            Column::Flags => {
                for v in wide.iter() {
                    batch.flags.push(Flags(narrowed(*v)?));
                }
            }
            Column::Latency => {
                let mut values = unsigned();
                for i in 0..n {
                    let present = scratch.levels.get(i).is_none_or(|l| *l > 0);
                    batch.append_latency(if present { values.next() } else { None });
                }
            }
            Column::Gap => {
                let mut values = unsigned();
                for i in 0..n {
                    let present = scratch.levels.get(i).is_none_or(|l| *l > 0);
                    batch.append_gap(if present { values.next() } else { None });
                }
            }
            Column::Result => {
                let mut values = wide.iter();
                for i in 0..n {
                    let present = scratch.levels.get(i).is_none_or(|l| *l > 0);
                    let value = if present { values.next() } else { None };
                    batch.append_result(value.map(|v| narrowed(*v)).transpose()?);
                }
            }
            Column::Hashes => return Err(too_large()),
        }
        Ok(())
    }
}

/// Reads `n` values into `values`, replacing its contents. Nulls in a required column are an error.
fn read_exactly<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    n: usize,
    levels: Option<&mut Vec<i16>>,
    values: &mut Vec<T::T>,
    column: Column,
) -> Result<(), String> {
    values.clear();
    let (records, present, _) =
        reader.read_records(n, levels, None, values).map_err(|e| said(&e))?;
    if records != n {
        return Err(format!("column {} ends early", column.name()));
    }
    if present != n && !column.optional() {
        return Err(format!("column {} has nulls", column.name()));
    }
    Ok(())
}
