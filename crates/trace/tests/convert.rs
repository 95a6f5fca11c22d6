//! Goal: what is written in another format is read back as far as that format can express it.
//! Method: random requests, written and read back; oracleGeneral's next accesses compared with a
//! plain count.

use std::path::Path;

use crate::common::{Owned, records};
use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_trace::*;
use proptest::prelude::*;

fn metadata() -> Metadata {
    let volume = |n: u64| VolumeInfo { name: format!("vm-{n}"), bytes: None };
    Metadata {
        volumes: (0..5).map(volume).collect(),
        hashes: Some(HashInfo { algorithm: "md5".into(), unit_bytes: 512, digest_bytes: 16 }),
        ..Metadata::default()
    }
}

fn write(path: &Path, format: Option<&str>, records: &[Owned]) -> Written {
    let mut writer = create(path, format).unwrap();
    for part in records.chunks(100) {
        let mut batch = Batch::default();
        part.iter().for_each(|r| batch.push_record(r.record()));
        writer.write_batch(&batch, &metadata()).unwrap();
    }
    assert!(!path.exists(), "the file appears only when it is complete");
    writer.finish(&metadata()).unwrap()
}

/// The requests in the file, with volumes numbered as ours.
fn read(path: &Path) -> (Vec<Owned>, Metadata) {
    let mut reader = open(path, &OpenOptions::default()).unwrap();
    let (mut batch, mut found) = (Batch::default(), Vec::new());
    while reader.read_batch(&mut batch).unwrap() > 0 {
        for i in 0..batch.len() {
            let r = batch.record(i);
            let name = &reader.metadata().volumes[r.request.volume.0 as usize].name;
            let volume = name.strip_prefix("vm-").map_or(0, |n| n.parse().unwrap());
            found.push(Owned {
                request: Request { volume: Volume(volume), ..r.request },
                latency: r.latency.map(|l| l.0),
                result: r.result,
                hashes: r.hashes.to_vec(),
            });
        }
    }
    (found, reader.metadata().clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn csv_keeps_everything(records in records(300)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.csv");
        let written = write(&path, None, &records);
        prop_assert_eq!(written.requests, records.len() as u64);
        prop_assert_eq!(written.bytes, path.metadata().unwrap().len());
        let (found, about) = read(&path);
        prop_assert_eq!(found.len(), records.len());
        for (f, r) in found.iter().zip(&records) {
            prop_assert_eq!(f.record(), r.record());
        }
        if !records.is_empty() {
            prop_assert_eq!(about.hashes, metadata().hashes);
        }
    }

    #[test]
    fn iologs_keep_what_fio_knows(records in records(300), version in 2..=3) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        write(&path, Some(&format!("iolog:version={version}")), &records);
        let (found, about) = read(&path);
        prop_assert_eq!(about.format, "iolog");
        let has_data = |r: &&Owned| r.request.length > 0 || r.request.op == Op::Flush;
        let records: Vec<&Owned> = records.iter().filter(has_data).collect();
        prop_assert_eq!(found.len(), records.len());
        for (f, r) in found.iter().zip(records) {
            let mut e = r.request;
            e.flags = Flags::NONE;
            e.time = Nanos(e.time.0 / 1000 * 1000);
            if e.op == Op::WriteZeroes {
                e.op = Op::Write;
            }
            if e.op == Op::Flush {
                (e.offset, e.length) = (0, 0);
            }
            prop_assert_eq!(f.request, e);
        }
    }

    #[test]
    fn oracle_general_knows_every_next_access(
        blocks in proptest::collection::vec((0u64..50, 1u64..4), 1..400),
        split: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.oracleGeneral");
        let records: Vec<Owned> = (0..).zip(&blocks).map(|(n, (block, length))| Owned {
            request: Request {
                time: Nanos(n * 1_000_000_000),
                volume: Volume(0),
                op: Op::Read,
                flags: Flags::NONE,
                offset: block * 4096,
                length: length * 4096,
            },
            latency: None,
            result: None,
            hashes: Vec::new(),
        }).collect();
        let format = if split { "oracleGeneral:block=4096" } else { "oracleGeneral" };
        let written = write(&path, Some(format), &records);
        let bytes = std::fs::read(&path).unwrap();
        prop_assert_eq!(written.bytes, bytes.len() as u64);
        let objects: Vec<(u64, i64)> = bytes
            .chunks(24)
            .map(|r| {
                let object = u64::from_le_bytes(r[4..12].try_into().unwrap());
                (object, i64::from_le_bytes(r[16..].try_into().unwrap()))
            })
            .collect();
        let expected: Vec<u64> = blocks
            .iter()
            .flat_map(|(b, n)| if split { *b..b + n } else { b * 8..b * 8 + 1 })
            .collect();
        prop_assert_eq!(objects.iter().map(|o| o.0).collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(written.requests, expected.len() as u64);
        for (n, (object, next)) in objects.iter().enumerate() {
            let later = (n + 1..expected.len()).find(|m| expected[*m] == *object);
            prop_assert_eq!(*next, later.map_or(-1, |m| m as i64 + 1));
        }
    }
}

/// The parts of a request that a format can express.
fn expressible(format: &str, r: &Request) -> Vec<Request> {
    let plain = Request { flags: Flags::NONE, ..*r };
    let seconds = Nanos(r.time.0 / 1_000_000_000 * 1_000_000_000);
    let object = |offset, length| Request {
        time: seconds,
        volume: Volume(0),
        op: Op::Read,
        offset,
        length,
        ..plain
    };
    let (name, block) = format.split_once(":block=").unwrap_or((format, "0"));
    match (name, block.parse().unwrap()) {
        ("oracleGeneral", _) if r.length == 0 || r.op == Op::Trim => vec![],
        ("oracleGeneral", 0) => {
            let start = r.offset / 512 * 512;
            vec![object(start, r.offset + r.length - start)]
        }
        ("oracleGeneral", block) => {
            let blocks = r.offset / block..(r.offset + r.length).div_ceil(block);
            blocks.map(|n| object(n * block, block)).collect()
        }
        // fio crashes on requests of 0 bytes.
        ("iolog", _) if r.length == 0 && r.op != Op::Flush => vec![],
        ("iolog", _) => {
            let time = Nanos(r.time.0 / 1000 * 1000);
            vec![match r.op {
                Op::Flush => Request { offset: 0, length: 0, time, ..plain },
                Op::WriteZeroes => Request { op: Op::Write, time, ..plain },
                _ => Request { time, ..plain },
            }]
        }
        ("parquet" | "csv", _) => vec![*r],
        _ => panic!("say what {format} can express"),
    }
}

/// Names of volumes that are difficult for formats.
fn names() -> impl Strategy<Value = Vec<String>> {
    let name = prop_oneof![
        "[a-c,_# \"\t]{0,3}",
        "[a-z0-9/]{1,8}",
        Just("0".to_owned()),
        Just("a\nb".to_owned()),
    ];
    proptest::collection::vec(name, 5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_format_reads_back_what_it_wrote(
        requests in proptest::collection::vec(
            (0u64..1 << 33, 0u32..5, 0u8..5, 0u64..1 << 40, 0u64..40_000), 1..120),
        names in names(),
        block_shift in 9u32..17,
    ) {
        let mut time = 0;
        let requests: Vec<Request> = (0..).zip(&requests).map(|(n, &(gap, volume, op, offset, length))| {
            time += if n == 0 { 0 } else { gap };
            let op = Op::from_u8(op).unwrap();
            let (offset, length) = if op == Op::Flush { (0, 0) } else { (offset, length) };
            let (time, volume, flags) = (Nanos(time), Volume(volume), Flags::NONE);
            Request { time, volume, op, flags, offset, length }
        }).collect();
        let volume = |name: &String| VolumeInfo { name: name.clone(), bytes: None };
        let about = Metadata { volumes: names.iter().map(volume).collect(), ..Metadata::default() };
        let blocks = format!("oracleGeneral:block={}", 1 << block_shift);
        let formats = writable_formats().map(|(name, _)| name);
        for format in formats.chain(["iolog:version=2", &blocks]) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x");
            let mut writer = create(&path, Some(format)).unwrap();
            // Formats without volumes keep them in the upper bits of addresses.
            let of_one = format.starts_with("oracleGeneral");
            let mut batch = Batch::default();
            for r in &requests {
                batch.push(Request { volume: if of_one { Volume(0) } else { r.volume }, ..*r });
            }
            writer.write_batch(&batch, &about).unwrap();
            let read_as = writer.read_as();
            let to_read: Vec<Request> = requests.iter()
                .flat_map(|r| expressible(format.split(":version").next().unwrap(), r)).collect();
            writer.finish(&about).unwrap();
            if to_read.is_empty() {
                continue;
            }
            let options = OpenOptions { format: read_as, ..OpenOptions::default() };
            let mut reader = open(&path, &options).unwrap();
            let (mut batch, mut found) = (Batch::default(), Vec::new());
            while reader.read_batch(&mut batch).unwrap() > 0 {
                found.extend(batch.requests());
            }
            prop_assert_eq!(found.len(), to_read.len(), "{}", format);
            // Times count from the first request that the format has.
            let first = to_read[0].time.0;
            // Volumes are numbered in order of appearance, and distinct volumes stay distinct.
            let mut numbers = std::collections::HashMap::new();
            for (f, r) in found.iter().zip(&to_read) {
                let since = if format == "parquet" { r.time.0 } else { r.time.0 - first };
                let volume = *numbers.entry(r.volume).or_insert(f.volume);
                prop_assert_eq!(*f, Request { time: Nanos(since), volume, ..*r }, "{}", format);
            }
            let apart: std::collections::HashSet<_> = numbers.values().collect();
            prop_assert_eq!(apart.len(), numbers.len(), "{}: {:?}", format, names);
        }
    }
}

#[test]
fn numbers_of_blocks_taken_for_sectors_are_doubted_and_addresses_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.bin");
    let read = |offset, length| Owned {
        request: Request {
            time: Nanos(0),
            volume: Volume(0),
            op: Op::Read,
            flags: Flags::NONE,
            offset,
            length,
        },
        latency: None,
        result: None,
        hashes: Vec::new(),
    };
    let same: Vec<Owned> = (0..64).map(|n| read(n * n % 97 * 4096, 4096)).collect();
    let shifted: Vec<Owned> = (0..64).map(|n| read(n * n % 97 * 4096 + 3584, 4096)).collect();
    let mixed: Vec<Owned> = (0..64).map(|n| read(n * 512, 512 << (n % 4))).collect();
    let doubts = |records: &[Owned], to: &str, read_as: Option<&str>| {
        let _ = std::fs::remove_file(&path);
        write(&path, Some(to), records);
        let options = OpenOptions { format: read_as.map(String::from), ..OpenOptions::default() };
        open(&path, &options).unwrap().metadata().doubts.clone()
    };
    let doubt = doubts(&same, "oracleGeneral:block=4096", None);
    assert!(doubt.len() == 1 && doubt[0].contains("oracleGeneral:unit=4096"), "{doubt:?}");
    let told = Some("oracleGeneral:unit=4096");
    assert!(doubts(&same, "oracleGeneral:block=4096", told).is_empty());
    for sectors in [&same, &shifted, &mixed] {
        assert!(doubts(sectors, "oracleGeneral", None).is_empty());
    }
}

#[test]
fn a_format_that_cannot_be_written_is_refused_with_those_that_can() {
    let dir = tempfile::tempdir().unwrap();
    for (name, format) in [("x.txt", None), ("x.csv", Some("msr")), ("x", None)] {
        let error = create(&dir.path().join(name), format).err().unwrap().to_string();
        assert!(error.contains("oracleGeneral"), "{error}");
    }
    for format in ["csv:a=b", "iolog:version=1", "oracleGeneral:block=x", "csv:a"] {
        assert!(create(&dir.path().join("x"), Some(format)).is_err(), "{format}");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "nothing is left behind");
    assert!(create(&dir.path().join("none/x.csv"), None).is_err());
}

#[test]
fn volumes_keep_apart_in_oracle_general() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.bin");
    let record = |volume| Owned {
        request: Request {
            time: Nanos(0),
            volume: Volume(volume),
            op: Op::Write,
            flags: Flags::NONE,
            offset: 512,
            length: 512,
        },
        latency: None,
        result: None,
        hashes: Vec::new(),
    };
    write(&path, None, &[record(0), record(3), record(0)]);
    let offsets: Vec<u64> = read(&path).0.iter().map(|r| r.request.offset).collect();
    assert_eq!(offsets, [512, ((3 << 44) + 1) * 512, 512]);
}

#[test]
fn oracle_general_refuses_volumes_that_its_reader_could_not_tell_apart() {
    let dir = tempfile::tempdir().unwrap();
    let written = |format: &str, volume| {
        let mut batch = Batch::default();
        batch.push(Request {
            time: Nanos(0),
            volume: Volume(volume),
            op: Op::Read,
            flags: Flags::NONE,
            offset: 8192,
            length: 4096,
        });
        let path = dir.path().join("x.bin");
        let mut writer = create(&path, Some(format)).unwrap();
        writer.write_batch(&batch, &Metadata::default())?;
        let read_as = writer.read_as();
        writer.finish(&Metadata::default())?;
        let options = OpenOptions { format: read_as, ..OpenOptions::default() };
        let mut requests = open(&path, &options)?.into_requests();
        requests.next().expect("there is a request")
    };
    for (format, fit) in [("oracleGeneral", 1024), ("oracleGeneral:block=4096", 128)] {
        written(format, fit - 1).unwrap();
        let refused = written(format, fit).unwrap_err().to_string();
        assert!(refused.contains(&format!("room for {fit} volumes")), "{refused}");
    }
}

#[test]
fn an_iolog_has_no_requests_without_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.log");
    let mut writer = create(&path, Some("iolog")).unwrap();
    let mut batch = Batch::default();
    for (op, length) in [(Op::Read, 0), (Op::Write, 0), (Op::Flush, 0), (Op::Write, 512)] {
        let (time, volume, flags) = (Nanos(0), Volume(0), Flags::NONE);
        batch.push(Request { time, volume, op, flags, offset: 0, length });
    }
    writer.write_batch(&batch, &metadata()).unwrap();
    assert_eq!(writer.left_out(), LeftOut { empty: 2, ..LeftOut::default() });
    assert_eq!(writer.finish(&metadata()).unwrap().requests, 2);
    let ops: Vec<Op> = read(&path).0.iter().map(|r| r.request.op).collect();
    assert_eq!(ops, [Op::Flush, Op::Write]);
}

/// Goal: volumes whose numbers have a meaning only in their own file stay separate when the files
/// are converted and then read together.
#[test]
fn volumes_of_several_files_stay_apart_when_they_are_converted() {
    let dir = tempfile::tempdir().unwrap();
    let request = Request {
        time: Nanos(0),
        volume: Volume(0),
        op: Op::Read,
        flags: Flags::NONE,
        offset: 0,
        length: 512,
    };
    for (extension, names_volumes, together) in
        [("parquet", false, 2), ("parquet", true, 1), ("csv", false, 2), ("csv", true, 1)]
    {
        let paths = ["a", "b"].map(|name| {
            let path = dir.path().join(format!("{name}.{extension}"));
            let volumes = vec![VolumeInfo { name: "0".into(), bytes: None }];
            let metadata =
                Metadata { name: name.into(), volumes, names_volumes, ..Metadata::default() };
            let mut batch = Batch::default();
            batch.push(request);
            let mut writer = create(&path, None).unwrap();
            writer.write_batch(&batch, &metadata).unwrap();
            writer.finish(&metadata).unwrap();
            path
        });
        let mut reader = open_all(&paths, &OpenOptions::default()).unwrap();
        while reader.read_batch(&mut Batch::default()).unwrap() > 0 {}
        let volumes = &reader.metadata().volumes;
        assert_eq!(volumes.len(), together, "{extension}: {volumes:?}");
        if !names_volumes {
            assert_eq!((&*volumes[0].name, &*volumes[1].name), ("a/0", "b/0"), "{extension}");
        }
    }
}

/// Volumes stay separate although the second one, whose name another volume has taken, appears only
/// later.
#[test]
fn a_volume_keeps_its_name_when_another_appears_later() {
    let dir = tempfile::tempdir().unwrap();
    let volume = |name: &str| VolumeInfo { name: name.into(), bytes: None };
    let known = |names: &[&str]| Metadata {
        volumes: names.iter().map(|name| volume(name)).collect(),
        ..Metadata::default()
    };
    let request = |volume: u32, offset: u64| Request {
        time: Nanos(0),
        volume: Volume(volume),
        op: Op::Read,
        flags: Flags::NONE,
        offset,
        length: 512,
    };
    for (format, odd, taken) in [("csv", "vm#1", "vm_1"), ("iolog", "vm 1", "vm_1")] {
        let path = dir.path().join(format!("x.{format}"));
        let mut writer = create(&path, None).unwrap();
        let (first, both) = (known(&[odd]), known(&[odd, taken]));
        for (metadata, volumes) in [(&first, &[0, 0][..]), (&both, &[0, 1, 1]), (&both, &[1, 0])] {
            let mut batch = Batch::default();
            volumes.iter().for_each(|&v| batch.push(request(v, u64::from(v) * 512)));
            writer.write_batch(&batch, metadata).unwrap();
        }
        writer.finish(&both).unwrap();
        let mut reader = open(&path, &OpenOptions::default()).unwrap();
        let mut batch = Batch::default();
        assert_eq!(reader.read_batch(&mut batch).unwrap(), 7, "{format}");
        for r in batch.requests() {
            assert_eq!(u64::from(r.volume.0) * 512, r.offset, "{format}");
        }
        let names: Vec<_> = reader.metadata().volumes.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["vm_1", "vm_1_2"], "{format}");
    }
}
