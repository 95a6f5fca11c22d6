//! Writes the format as a stream.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataWriter},
        properties::{EnabledStatistics, WriterProperties},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::{ColumnPath, SchemaDescriptor},
};

use super::{Column, SCHEMA, chunks::index_path, metadata, said};
use crate::{Batch, Metadata, Record, Result, TraceError, write::PartialFile};

/// Requests per row group. The writer holds them in memory, about 8 MiB without hashes.
const ROW_GROUP_REQUESTS: usize = 256 << 10;
/// A row group also ends when it holds this many bytes of hashes.
const ROW_GROUP_HASH_BYTES: usize = 64 << 20;

/// What [`ParquetTraceWriter::finish`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Requests in the file.
    pub requests: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Writes a trace in Forebay's format, request by request.
///
/// The file appears under its name when it is complete. Until [`finish`](Self::finish), it has
/// another name in the same directory, and it is removed if the writer is dropped. A recording is
/// called `NAME.partial` until then, and is kept if there was a [`checkpoint`](Self::checkpoint).
/// Times should not go back, because readers move such requests to their predecessor's time.
///
/// ```
/// # use forebay_trace::*;
/// # use forebay_block::*;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("x.parquet");
/// let mut writer = ParquetTraceWriter::create(&path)?;
/// writer.push(Record::from(Request { time: Nanos(0), volume: Volume(0), op: Op::Write,
///     flags: Flags::FUA, offset: 8192, length: 4096 }))?;
/// let written = writer.finish(&Metadata {
///     volumes: vec![VolumeInfo { name: "vm1".into(), bytes: Some(1 << 30) }],
///     ..Metadata::default()
/// })?;
/// assert_eq!(written.requests, 1);
/// let mut trace = open(&path, &OpenOptions::default())?;
/// assert_eq!(trace.metadata().volumes[0].name, "vm1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ParquetTraceWriter {
    path: PathBuf,
    /// `None` once a write has failed.
    writer: Option<SerializedFileWriter<PartialFile>>,
    pending: Batch,
    requests: u64,
    /// Whether checkpoints are allowed.
    is_recording: bool,
}

impl ParquetTraceWriter {
    /// Begins a trace that will appear at `path`, replacing any existing file.
    ///
    /// # Errors
    /// If the temporary file in the same directory cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        Self::new(path, PartialFile::create(path)?, false)
    }

    /// Like [`ParquetTraceWriter::create`], for a trace that must survive a crash and that only
    /// this user may read. Until it is complete, the file is called `NAME.partial` and is locked.
    ///
    /// # Errors
    /// As for [`ParquetTraceWriter::create`]; also if `NAME.partial` exists, because it may be all
    /// that remains of an interrupted recording.
    pub fn create_recording(path: &Path) -> Result<Self> {
        Self::new(path, PartialFile::create_recording(path)?, true)
    }

    fn new(path: &Path, file: PartialFile, is_recording: bool) -> Result<Self> {
        let writer = SerializedFileWriter::new(file, SCHEMA.clone(), Arc::new(properties()))
            .map_err(|e| error(path, e))?;
        Ok(ParquetTraceWriter {
            path: path.to_owned(),
            writer: Some(writer),
            pending: Batch::default(),
            requests: 0,
            is_recording,
        })
    }

    /// Appends a request.
    ///
    /// # Errors
    /// If writing fails.
    pub fn push(&mut self, record: Record<'_>) -> Result<()> {
        self.pending.push_record(record);
        self.flush_if_full()
    }

    /// Appends all requests of `batch`.
    ///
    /// # Errors
    /// If writing fails.
    pub fn push_batch(&mut self, batch: &Batch) -> Result<()> {
        for i in 0..batch.len() {
            self.push(batch.record(i))?;
        }
        Ok(())
    }

    /// Number of requests appended so far.
    pub fn requests(&self) -> u64 {
        self.requests + self.pending.len() as u64
    }

    /// Makes the requests appended so far durable: if this process or the machine dies,
    /// `NAME.partial` can be read up to here (its end is stored in `NAME.partial.index`). After a
    /// checkpoint, dropping the writer no longer removes the file.
    ///
    /// Recorders should call this about once a minute: a checkpoint ends the row group, waits for
    /// the disk, and writes a kilobyte for each row group so far. `metadata` is as for
    /// [`finish`](Self::finish).
    ///
    /// # Errors
    /// If writing fails.
    ///
    /// # Panics
    /// If the file is not a recording ([`create_recording`](Self::create_recording)), because
    /// nobody would find it.
    pub fn checkpoint(&mut self, metadata: &Metadata) -> Result<()> {
        assert!(self.is_recording, "only a recording has checkpoints");
        self.flush_row_group()?;
        let Some(writer) = &mut self.writer else { return Err(self.failed_before()) };
        let groups = writer.flushed_row_groups().to_vec();
        let schema = Arc::new(SchemaDescriptor::new(SCHEMA.clone()));
        let pairs = Some(metadata::to_pairs(metadata));
        let about = FileMetaData::new(1, self.requests as i64, None, pairs, schema, None);
        let mut end = Vec::new();
        ParquetMetaDataWriter::new(&mut end, &ParquetMetaData::new(about, groups))
            .finish()
            .and_then(|()| Ok(writer.flush()?))
            .map_err(|e| error(&self.path, e))?;
        let file = writer.inner_mut();
        file.flushed().and_then(|f| f.sync_data()).map_err(|e| file.error(e))?;
        let Some(partial) = file.partial_path() else { return Ok(()) };
        let mut index = PartialFile::create_private(&index_path(partial))?;
        index.write_all(&end).map_err(|e| index.error(e))?;
        file.keep();
        index.finish().map(|_| ())
    }

    /// Completes the file and gives it its name. `metadata` describes the trace: its clock and
    /// epoch, volumes by number, hashes and provenance.
    ///
    /// # Errors
    /// If writing fails. The incomplete file is then removed, unless it is a recording with a
    /// checkpoint.
    pub fn finish(mut self, metadata: &Metadata) -> Result<Written> {
        self.flush_row_group()?;
        let Some(mut writer) = self.writer.take() else { return Err(self.failed_before()) };
        for pair in metadata::to_pairs(metadata) {
            writer.append_key_value_metadata(pair);
        }
        let file = writer.into_inner().map_err(|e| error(&self.path, e))?;
        let index = file.partial_path().filter(|_| self.is_recording).map(index_path);
        let bytes = file.finish()?;
        // The index file exists only if there was a checkpoint.
        index.map(std::fs::remove_file);
        Ok(Written { requests: self.requests, bytes })
    }

    fn failed_before(&self) -> TraceError {
        TraceError::Parquet {
            path: self.path.clone(),
            what: "an earlier write failed, so the trace cannot be continued".to_owned(),
        }
    }

    fn flush_if_full(&mut self) -> Result<()> {
        let full = self.pending.len() >= ROW_GROUP_REQUESTS
            || self.pending.hash_bytes_len() >= ROW_GROUP_HASH_BYTES;
        if full { self.flush_row_group() } else { Ok(()) }
    }

    /// Writes the requests appended since the last row group as a new row group.
    fn flush_row_group(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let Some(mut writer) = self.writer.take() else { return Err(self.failed_before()) };
        match write_row_group(&mut writer, &self.pending) {
            Ok(()) => {
                self.writer = Some(writer);
                self.requests += self.pending.len() as u64;
                self.pending.clear();
                Ok(())
            }
            Err(e) => Err(error(&self.path, e)),
        }
    }
}

fn properties() -> WriterProperties {
    let path = |c: Column| ColumnPath::from(c.name());
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default());
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("forebay ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_dictionary_enabled(path(Column::Hashes), false);
    // Deltas take only the bits that they need, without the hashing that a dictionary requires.
    for column in Column::ALL.iter().filter(|&&column| column != Column::Hashes) {
        builder = builder
            .set_column_dictionary_enabled(path(*column), false)
            .set_column_encoding(path(*column), Encoding::DELTA_BINARY_PACKED);
    }
    // Times and latencies come in bursts of equal values, which deltas alone do not exploit, and
    // contents recur. On the other columns, compression would take a recorder more time than
    // anything else that it does, and save little.
    for column in [Column::Time, Column::Latency, Column::Gap, Column::Hashes] {
        builder = builder.set_column_compression(path(column), zstd);
    }
    // With these statistics, readers can skip a column that has only nulls.
    for column in [Column::Latency, Column::Result, Column::Gap] {
        builder = builder.set_column_statistics_enabled(path(column), EnabledStatistics::Chunk);
    }
    builder.build()
}

type RowGroup<'a> = SerializedRowGroupWriter<'a, PartialFile>;

fn write_row_group(
    writer: &mut SerializedFileWriter<PartialFile>,
    batch: &Batch,
) -> Result<(), ParquetError> {
    let n = batch.len();
    let mut group = writer.next_row_group()?;
    let signed = |column: &[u64]| column.iter().map(|v| *v as i64).collect::<Vec<_>>();
    column::<Int64Type>(&mut group, &signed(&batch.time_ns), None)?;
    column::<Int32Type>(
        &mut group,
        &batch.volume.iter().map(|v| *v as i32).collect::<Vec<_>>(),
        None,
    )?;
    column::<Int32Type>(&mut group, &batch.op.iter().map(|v| *v as i32).collect::<Vec<_>>(), None)?;
    column::<Int32Type>(
        &mut group,
        &batch.flags.iter().map(|v| v.0.into()).collect::<Vec<_>>(),
        None,
    )?;
    column::<Int64Type>(&mut group, &signed(&batch.offset), None)?;
    column::<Int64Type>(&mut group, &signed(&batch.length), None)?;
    let hashes = (0..n).map(|i| {
        let h = batch.hashes(i);
        (!h.is_empty()).then(|| ByteArray::from(h.to_vec()))
    });
    optional::<ByteArrayType>(&mut group, hashes)?;
    optional::<Int64Type>(&mut group, (0..n).map(|i| batch.latency(i).map(|l| l.0 as i64)))?;
    optional::<Int32Type>(&mut group, (0..n).map(|i| batch.result(i).map(i32::from)))?;
    optional::<Int64Type>(&mut group, (0..n).map(|i| batch.gap(i).map(|g| g.0 as i64)))?;
    group.close()?;
    Ok(())
}

fn column<T: DataType>(
    group: &mut RowGroup<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("a column is missing in the schema".to_owned());
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    writer.typed::<T>().write_batch(values, levels, None)?;
    writer.close()
}

fn optional<T: DataType>(
    group: &mut RowGroup<'_>,
    values: impl ExactSizeIterator<Item = Option<T::T>> + Clone,
) -> Result<(), ParquetError> {
    let n = values.len();
    let mut present = Vec::with_capacity(n);
    present.extend(values.clone().flatten());
    // Usually, either all values are present or none.
    let levels = match present.len() {
        0 => vec![0; n],
        all if all == n => vec![1; n],
        _ => values.map(|value| i16::from(value.is_some())).collect(),
    };
    column::<T>(group, &present, Some(&levels))
}

fn error(path: &Path, e: ParquetError) -> TraceError {
    TraceError::Parquet { path: path.to_owned(), what: format!("cannot write: {}", said(&e)) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_full_device_is_told_in_the_words_of_the_system() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let says = format!("x.parquet: cannot write: {full}");
        assert_eq!(error(Path::new("x.parquet"), full.into()).to_string(), says);
    }
}
