//! Goal: what is written in our own format is read back unchanged, and damaged files are rejected.
//! Method: random requests with every optional column; files that are cut and changed.

use crate::common::{Owned, records};
use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_trace::*;
use proptest::prelude::*;
use std::path::Path;

fn metadata() -> Metadata {
    Metadata {
        format: "parquet".to_owned(),
        name: "x".to_owned(),
        clock: Clock::Unix,
        epoch_ns: Some(1_234_567_890_123_456_789),
        volumes: (0..5)
            .map(|n| VolumeInfo {
                name: format!("vm \"{n}\" é"),
                bytes: (n > 1).then_some(n << 40),
            })
            .collect(),
        names_volumes: true,
        volume_traces: Vec::new(),
        hashes: Some(HashInfo { algorithm: "md5".into(), unit_bytes: 512, digest_bytes: 16 }),
        sample: Some(SampleInfo {
            rate: 0.1,
            bits: 4,
            seed: u64::MAX,
            requests: 12,
            whole: Moments {
                read: OpMoments { requests: 3, bytes: 1 << 40, gap_ns: 5, misaligned_bytes: 7 },
                ..Moments::default()
            },
        }),
        merged_samples: Vec::new(),
        provenance: vec!["recorded".into(), "converted".into()],
        without_operations: Vec::new(),
        doubts: Vec::new(),
    }
}

fn write(path: &Path, records: &[Owned], metadata: &Metadata) -> Written {
    let mut writer = ParquetTraceWriter::create(path).unwrap();
    for r in records {
        writer.push(r.record()).unwrap();
    }
    assert!(!path.exists(), "the file appears only when it is complete");
    writer.finish(metadata).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read(records in records(300)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let written = write(&path, &records, &metadata());
        prop_assert_eq!(written.requests, records.len() as u64);
        prop_assert_eq!(written.bytes, path.metadata().unwrap().len());
        let mut reader = open(&path, &OpenOptions::default()).unwrap();
        prop_assert_eq!(reader.metadata(), &metadata());
        let (mut batch, mut n) = (Batch::default(), 0);
        while reader.read_batch(&mut batch).unwrap() > 0 {
            for i in 0..batch.len() {
                prop_assert_eq!(batch.record(i), records[n].record());
                n += 1;
            }
        }
        prop_assert_eq!(n, records.len());
        prop_assert_eq!(reader.counters(), Counters::default());
    }
}

fn sequence(n: u64) -> Vec<Owned> {
    (0..n)
        .map(|n| Owned {
            request: Request {
                time: Nanos(n * 1000),
                volume: Volume(0),
                op: Op::Write,
                flags: Flags::NONE,
                offset: n * 4096,
                length: 4096,
            },
            latency: None,
            result: None,
            hashes: Vec::new(),
        })
        .collect()
}

#[test]
fn a_trace_of_several_row_groups_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let mut writer = ParquetTraceWriter::create(&path).unwrap();
    let records = sequence(600_000);
    for r in &records {
        writer.push(r.record()).unwrap();
    }
    assert_eq!(writer.requests(), 600_000);
    writer.finish(&Metadata::default()).unwrap();
    let read = open(&path, &OpenOptions::default()).unwrap().into_requests();
    assert!(read.map(|r| r.unwrap()).eq(records.iter().map(|r| r.request)));
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let mut writer = ParquetTraceWriter::create(&path).unwrap();
    writer.push(sequence(1)[0].record()).unwrap();
    drop(writer);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_cut_file_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    write(&path, &sequence(1000), &metadata());
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
    let error = open(&path, &OpenOptions::default()).err().unwrap().to_string();
    assert!(error.contains("x.parquet") && error.contains("not a complete Parquet"), "{error}");
}

#[test]
fn what_was_checkpointed_survives_a_writer_that_dies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let records = sequence(1000);
    let mut writer = ParquetTraceWriter::create_recording(&path).unwrap();
    for part in records[..900].chunks(300) {
        part.iter().for_each(|r| writer.push(r.record()).unwrap());
        writer.checkpoint(&metadata()).unwrap();
    }
    records[900..].iter().for_each(|r| writer.push(r.record()).unwrap());
    drop(writer);
    assert!(!path.exists());
    let partial = dir.path().join("x.parquet.partial");
    // The write that was in progress is torn.
    let mut file = std::fs::File::options().append(true).open(&partial).unwrap();
    std::io::Write::write_all(&mut file, &[1, 2, 3]).unwrap();
    let reader = open(&partial, &OpenOptions::default()).unwrap();
    assert_eq!(reader.metadata().volumes, metadata().volumes);
    let read: Vec<_> = reader.into_requests().map(|r| r.unwrap()).collect();
    assert!(read.iter().eq(records[..900].iter().map(|r| &r.request)));
}

#[test]
fn checkpoints_leave_no_trace_in_a_finished_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let mut writer = ParquetTraceWriter::create_recording(&path).unwrap();
    for part in sequence(1000).chunks(500) {
        part.iter().for_each(|r| writer.push(r.record()).unwrap());
        writer.checkpoint(&metadata()).unwrap();
    }
    assert_eq!(writer.finish(&metadata()).unwrap().requests, 1000);
    assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    let read = open(&path, &OpenOptions::default()).unwrap().into_requests();
    assert!(read.map(|r| r.unwrap()).eq(sequence(1000).iter().map(|r| r.request)));
}

/// The command that messages and docs/trace-formats.md recommend reads `NAME.partial` and writes
/// `NAME`.
#[test]
fn an_interrupted_recording_is_rescued_under_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let (path, partial) = (dir.path().join("x.parquet"), dir.path().join("x.parquet.partial"));
    let records = sequence(1000);
    interrupted(&path, &records);
    let mut reader = open(&partial, &OpenOptions::default()).unwrap();
    let mut writer = create(&path, None).unwrap();
    let mut batch = Batch::default();
    while reader.read_batch(&mut batch).unwrap() > 0 {
        writer.write_batch(&batch, &metadata()).unwrap();
    }
    writer.finish(&metadata()).unwrap();
    for file in [&path, &partial] {
        let read = open(file, &OpenOptions::default()).unwrap().into_requests();
        assert!(read.map(|r| r.unwrap()).eq(records.iter().map(|r| r.request)), "{file:?}");
    }
}

#[test]
fn no_other_writer_touches_what_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (path, partial) = (dir.path().join("x.parquet"), dir.path().join("x.parquet.partial"));
    interrupted(&path, &sequence(1000));
    let before = std::fs::read(&partial).unwrap();
    for format in ["parquet", "csv", "oracleGeneral", "iolog"] {
        drop(create(&path, Some(format)).unwrap());
        assert!(std::fs::read(&partial).unwrap() == before, "{format}");
    }
    // A second recording with this name does not touch it, either.
    assert!(ParquetTraceWriter::create_recording(&path).is_err());
    assert!(std::fs::read(&partial).unwrap() == before);
}

#[test]
fn a_recording_in_progress_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let (path, partial) = (dir.path().join("x.parquet"), dir.path().join("x.parquet.partial"));
    let writer = ParquetTraceWriter::create_recording(&path).unwrap();
    let other = std::fs::File::open(&partial).unwrap();
    assert!(matches!(other.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)));
    drop(writer);
    other.try_lock_shared().unwrap();
}

/// Leaves a recording of `records` in the state in which a writer leaves it that is killed after a
/// checkpoint.
fn interrupted(path: &Path, records: &[Owned]) {
    let mut writer = ParquetTraceWriter::create_recording(path).unwrap();
    records.iter().for_each(|r| writer.push(r.record()).unwrap());
    writer.checkpoint(&metadata()).unwrap();
}

/// Reads a file of another writer: `rows` are the times; operations and offsets are 0, lengths 512.
fn foreign(time: &str, rows: &[i64]) -> Result<Vec<Request>> {
    use parquet::data_type::{Int32Type, Int64Type};
    use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
    let schema = format!(
        "message m {{ required {time}; required int32 op (INTEGER(8,false)); required int64 offset; \
         required int64 length; }}"
    );
    let schema = parquet::schema::parser::parse_message_type(&schema).unwrap();
    let narrow = schema.get_fields()[0].get_physical_type() == parquet::basic::Type::INT32;
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder().build();
    let mut file = SerializedFileWriter::new(&mut bytes, schema.into(), properties.into()).unwrap();
    let mut group = file.next_row_group().unwrap();
    for column in 0..4 {
        let mut writer = group.next_column().unwrap().unwrap();
        let wide: Vec<i64> = match column {
            0 => rows.to_vec(),
            3 => vec![512; rows.len()],
            _ => vec![0; rows.len()],
        };
        if column == 1 || (column == 0 && narrow) {
            let narrow: Vec<i32> = wide.iter().map(|&value| value as i32).collect();
            writer.typed::<Int32Type>().write_batch(&narrow, None, None).unwrap();
        } else {
            writer.typed::<Int64Type>().write_batch(&wide, None, None).unwrap();
        }
        writer.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    open_bytes(bytes, &OpenOptions::default())?.into_requests().collect()
}

#[test]
fn columns_of_other_writers_mean_what_their_types_say() {
    let times = |time: &str, rows: &[i64]| {
        let requests = foreign(time, rows).map_err(|error| error.to_string())?;
        Ok::<_, String>(requests.iter().map(|r| r.time.0).collect::<Vec<u64>>())
    };
    for plain in ["int64 time_ns", "int64 time_ns (INTEGER(64,true))", "int32 time_ns"] {
        assert_eq!(times(plain, &[5, 7]).unwrap(), [5, 7], "{plain}");
    }
    for (unit, ns) in [("MILLIS", 1_000_000), ("MICROS", 1_000), ("NANOS", 1)] {
        let timestamp = format!("int64 time_ns (TIMESTAMP({unit},true))");
        assert_eq!(times(&timestamp, &[5, 7]).unwrap(), [5 * ns, 7 * ns], "{unit}");
    }
    assert_eq!(times("int64 time_ns (TIMESTAMP_MICROS)", &[5]).unwrap(), [5_000]);
    assert_eq!(times("int32 time_ns (INTEGER(32,false))", &[-1]).unwrap(), [u64::from(u32::MAX)]);
    for signed in ["int64 time_ns", "int32 time_ns (INTEGER(32,true))"] {
        let said = times(signed, &[5, 7, -9]).unwrap_err();
        assert!(said.contains("row 3 of the file: column time_ns is negative (-9)"), "{said}");
    }
    let said = times("int64 time_ns (TIMESTAMP(MILLIS,true))", &[0, i64::MAX / 1000]).unwrap_err();
    assert!(said.contains("row 2") && said.contains("292 years"), "{said}");
    for other in ["int64 time_ns (DECIMAL(18,2))", "int64 time_ns (TIME(MICROS,true))"] {
        let said = times(other, &[5]).unwrap_err();
        assert!(said.contains("its column time_ns has the wrong type"), "{said}");
    }
}
