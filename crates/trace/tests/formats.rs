//! Goal: every format is recognised, read in its own units, and rejects what does not follow it.
//! Method: small traces of our own with their meaning written next to them, each also with a bad
//! line or record; random bytes, and good traces with random changes.

use std::fmt::Write as _;

use crate::common::fixtures::{FIXTURES, Fixture};
use forebay_block::{Flags, Op, Request};
use forebay_trace::fuzz::{fuzz_reader, fuzz_trace};
use forebay_trace::*;
use proptest::{prelude::*, sample};

fn read(bytes: &[u8], options: &OpenOptions) -> Result<(Vec<Request>, Metadata, Counters)> {
    let mut reader = open_bytes(bytes.to_vec(), options)?;
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    loop {
        let n = reader.read_batch(&mut batch)?;
        if n == 0 {
            return Ok((all, reader.metadata().clone(), reader.counters()));
        }
        all.extend(batch.requests());
    }
}

fn as_format(name: &str) -> OpenOptions {
    OpenOptions { format: Some(name.to_owned()), ..OpenOptions::default() }
}

/// Formats requests as `time ns, volume name, operation, offset, length`, one line each.
fn shown(requests: &[Request], metadata: &Metadata) -> String {
    let mut text = String::new();
    for r in requests {
        let volume = &metadata.volumes[r.volume.0 as usize].name;
        let fua = if r.flags.contains(Flags::FUA) { "+fua" } else { "" };
        let op = format!("{:?}{fua}", r.op).to_lowercase();
        writeln!(text, "{} {volume} {op} {} {}", r.time.0, r.offset, r.length).unwrap();
    }
    text
}

#[test]
fn every_format_but_parquet_has_a_fixture() {
    for format in FORMATS.iter().filter(|f| f.name != "parquet") {
        assert!(FIXTURES.iter().any(|f| f.format == format.name), "{}", format.name);
    }
}

#[test]
fn every_format_is_recognised_and_read_by_its_own_units() {
    for f in FIXTURES {
        let (requests, metadata, counters) = read(&f.bytes(), &OpenOptions::default())
            .unwrap_or_else(|e| panic!("{}: {e}", f.format));
        assert_eq!(metadata.format, f.format);
        assert_eq!(shown(&requests, &metadata), f.meaning, "{}", f.format);
        assert_eq!(counters.bad, 0);
        let named = read(&f.bytes(), &as_format(f.format)).unwrap();
        assert_eq!(named.0, requests);
    }
}

#[test]
fn compression_makes_no_difference() {
    for f in FIXTURES {
        let packed = zstd::encode_all(&f.bytes()[..], 1).unwrap();
        let (requests, metadata, _) = read(&packed, &OpenOptions::default()).unwrap();
        assert_eq!(shown(&requests, &metadata), f.meaning, "{}", f.format);
    }
}

#[test]
fn windows_line_ends_empty_lines_and_a_missing_last_line_end_are_fine() {
    for f in FIXTURES.iter().filter(|f| f.is_text()) {
        let text = String::from_utf8(f.bytes()).unwrap();
        let text = format!("{}\r\n\r\n", text.trim_end().replace('\n', "\r\n"));
        for text in [text.as_str(), text.trim_end()] {
            let (requests, metadata, _) = read(text.as_bytes(), &OpenOptions::default()).unwrap();
            assert_eq!(shown(&requests, &metadata), f.meaning, "{}", f.format);
        }
    }
}

#[test]
fn a_bad_line_stops_with_its_number_or_is_counted() {
    for f in FIXTURES.iter().filter(|f| f.is_text()) {
        let mut bytes = f.bytes();
        let lines = bytes.iter().filter(|b| **b == b'\n').count();
        bytes.extend_from_slice(b"8,this is;no\trequest\n");
        let error = read(&bytes, &as_format(f.format)).unwrap_err();
        let message = error.to_string();
        let TraceError::BadRecord { at, .. } = error else { panic!("{message}") };
        assert_eq!(at, Position::Line(lines as u64 + 1), "{}", f.format);
        assert!(message.contains("this is;no\\trequest"), "{message}");
        assert!(message.starts_with(&format!("memory:{}: expected ", lines + 1)), "{message}");

        let skip = OpenOptions { skip_bad_lines: true, ..as_format(f.format) };
        let (requests, metadata, counters) = read(&bytes, &skip).unwrap();
        assert_eq!(shown(&requests, &metadata), f.meaning, "{}", f.format);
        assert_eq!(counters.bad, 1);
    }
}

#[test]
fn the_good_requests_before_a_bad_line_are_handed_out() {
    let mut bytes = FIXTURES[0].bytes();
    let (expected, ..) = read(&bytes, &OpenOptions::default()).unwrap();
    bytes.extend_from_slice(b"bad\n");
    let reader = open_bytes(bytes, &as_format(FIXTURES[0].format)).unwrap();
    let all: Vec<_> = reader.into_requests().collect();
    assert!(all.last().unwrap().is_err());
    let good: Vec<Request> = all.into_iter().flatten().collect();
    assert_eq!(good, expected);
}

#[test]
fn a_truncated_binary_trace_says_how_much_of_it_is_whole() {
    for f in FIXTURES.iter().filter(|f| !f.is_text()) {
        let mut bytes = f.bytes();
        bytes.truncate(bytes.len() - 5);
        let error = read(&bytes, &as_format(f.format)).unwrap_err();
        let message = error.to_string();
        let TraceError::Truncated { records, record_bytes, trailing, .. } = error else {
            panic!("{}: {message}", f.format)
        };
        assert_eq!(trailing, record_bytes - 5);
        let skip = OpenOptions { skip_bad_lines: true, ..as_format(f.format) };
        let (requests, _, counters) = read(&bytes, &skip).unwrap();
        assert_eq!((requests.len(), counters.bad), (f.meaning.lines().count() - 1, 1));
        assert_eq!(records, requests.len() as u64 + counters.ignored, "{}", f.format);
        assert!(message.contains(&format!("{records} whole record")), "{message}");
    }
}

#[test]
fn a_bad_record_is_told_by_number_and_place() {
    let f = FIXTURES.iter().find(|f| f.format == "vscsi-v1").unwrap();
    let mut bytes = f.bytes();
    bytes[32 + 15] = 9;
    let error = read(&bytes, &as_format("vscsi-v1")).unwrap_err();
    let TraceError::BadRecord { at, .. } = error else { panic!("{error}") };
    assert_eq!(at, Position::Record { number: 1, offset: 32 });
    let skip = OpenOptions { skip_bad_lines: true, ..as_format("vscsi-v1") };
    assert_eq!(read(&bytes, &skip).unwrap().2.bad, 1);
}

#[test]
fn a_file_that_is_no_trace_is_refused_with_the_formats_there_are() {
    for (bytes, hint) in [
        (&b"hello world\n"[..], "hello world"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0", "binary"),
        (b"{\"a\": 1}\n", "{"),
        (b"<html>\n<body>\n", "<html>"),
    ] {
        let error = read(bytes, &OpenOptions::default()).unwrap_err().to_string();
        assert!(error.contains(hint) && error.contains("oracleGeneral"), "{error}");
    }
}

#[test]
fn an_empty_file_is_refused_without_the_advice_to_name_a_format() {
    let error = read(b"", &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("is empty") && !error.contains("--format"), "{error}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let msr = FIXTURES.iter().find(|f| f.format == "msr").unwrap().bytes();
    for (format, reason) in [
        ("nothing", "no trace format \"nothing\""),
        ("msr:unit=3", "no parameter \"unit\""),
        ("arc:unit=0", "a number of bytes"),
        ("arc:unit", "key=value"),
        ("blkparse:event=QQ", "single letter"),
        ("csv", "as the offset"),
        ("csv:offset=5,header=no", "as the length"),
        ("csv:offset=5,length=6,header=no", "as the operation"),
        ("csv:offset=5,length=6,op=read,time=1,header=no", "unit"),
        ("csv:offset=x,length=6,op=read,header=no", "name or number"),
        ("csv:offset=5,length=6,op=4,time=1@weeks,header=no", "COLUMN@"),
        ("csv:offset=5,length=6,op=4,sep=x,header=no", "semicolon"),
    ] {
        let error = read(&msr, &as_format(format)).unwrap_err().to_string();
        assert!(error.contains(reason), "{format}: {error}");
    }
}

#[test]
fn any_csv_can_be_read_by_naming_its_columns() {
    let msr = FIXTURES.iter().find(|f| f.format == "msr").unwrap();
    let by_number = "csv:header=no,time=1@100ns,volume=2,op=4,offset=5,length=6,latency=7@100ns";
    let (requests, ..) = read(&msr.bytes(), &as_format(by_number)).unwrap();
    let (mut expected, ..) = read(&msr.bytes(), &OpenOptions::default()).unwrap();
    // Here, the host alone is the volume.
    expected.iter_mut().for_each(|r| r.volume.0 = 0);
    assert_eq!(requests, expected);

    let text = "when;\"kind\";lba;n\n0.5;W;8;1\n0.75;r;16;2\n";
    let by_name = "csv:time=when@s,op=kind,offset=lba,length=n@4096";
    let (requests, metadata, _) = read(text.as_bytes(), &as_format(by_name)).unwrap();
    assert_eq!(
        shown(&requests, &metadata),
        "0 memory write 4096 4096\n250000000 memory read 8192 8192\n"
    );

    let text = "7\n9\n";
    let alone = "csv:header=no,offset=1@4096,length=4096b,op=write";
    let (requests, ..) = read(text.as_bytes(), &as_format(alone)).unwrap();
    assert!(requests.iter().all(|r| (r.op, r.length) == (Op::Write, 4096)));
    assert_eq!(requests.iter().map(|r| r.offset / 4096).collect::<Vec<_>>(), [7, 9]);
}

#[test]
fn times_that_go_back_are_raised_and_counted() {
    let text = "1000,0,r,512\n5000,8,r,512\n3000,16,r,512\n500,24,r,512\n6000,32,r,512\n";
    let (requests, metadata, counters) = read(text.as_bytes(), &OpenOptions::default()).unwrap();
    let times: Vec<u64> = requests.iter().map(|r| r.time.0 / 1000).collect();
    assert_eq!(times, [0, 4000, 4000, 4000, 5000]);
    assert_eq!((counters.out_of_order, metadata.epoch_ns), (2, Some(1_000_000)));
}

#[test]
fn volumes_are_chosen_by_name_or_number_and_limits_end_the_trace() {
    let f = FIXTURES.iter().find(|f| f.format == "msr").unwrap();
    let (all, metadata, _) = read(&f.bytes(), &OpenOptions::default()).unwrap();
    let name = metadata.volumes[1].name.clone();
    for wanted in [name, "1".to_owned()] {
        let options = OpenOptions { volumes: vec![wanted], ..OpenOptions::default() };
        let (some, ..) = read(&f.bytes(), &options).unwrap();
        let expected: Vec<_> = all.iter().filter(|r| r.volume.0 == 1).copied().collect();
        assert!(!some.is_empty() && some == expected);
    }
    let options = OpenOptions { volumes: vec!["none".to_owned()], ..OpenOptions::default() };
    let error = read(&f.bytes(), &options).unwrap_err().to_string();
    assert!(error.contains("none") && error.contains(&metadata.volumes[0].name), "{error}");
    for limit in 0..=all.len() {
        let options = OpenOptions { limit: Some(limit as u64), ..OpenOptions::default() };
        assert_eq!(read(&f.bytes(), &options).unwrap().0, all[..limit]);
    }
}

/// Method: a volume `0` that appears after the volume with this number, in the first batch or later.
#[test]
fn a_number_that_is_the_name_of_a_volume_means_this_volume() {
    let of = |names: &[&str]| -> Vec<u8> {
        let lines = names.iter().map(|name| format!("0,{name},read,0,4096\n"));
        ("time_ns,volume,op,offset,length\n".to_owned() + &lines.collect::<String>()).into_bytes()
    };
    let numbers = |bytes: &[u8], wanted: &[&str]| {
        let volumes = wanted.iter().map(|w| w.to_string()).collect();
        let options = OpenOptions { volumes, ..OpenOptions::default() };
        read(bytes, &options).map(|(r, ..)| r.iter().map(|r| r.volume.0).collect::<Vec<_>>())
    };
    let early = of(&["db", "0", "db", "web"]);
    assert_eq!(numbers(&early, &["0"]).unwrap(), [1]);
    assert_eq!(numbers(&early, &["2", "0"]).unwrap(), [1, 2]);
    assert_eq!(numbers(&of(&["db", "web"]), &["0"]).unwrap(), [0]);
    let mut names = vec!["db"; 100_000];
    names.push("0");
    let late = of(&names);
    let error = numbers(&late, &["0"]).unwrap_err().to_string();
    assert!(error.contains("`0` is ambiguous") && error.contains("which is called db"), "{error}");
    assert_eq!(numbers(&late, &["db", "0"]).unwrap().len(), names.len());
    assert_eq!(numbers(&late, &["db"]).unwrap().len(), names.len() - 1);
}

#[test]
fn numbers_beyond_any_device_are_bad() {
    for line in [
        "0,36028797018963968,r,512",  // 2^55 sectors
        "0,0,r,4294967297",           // more than 4 GiB at once
        "0,18446744073709551615,w,1", // overflows in bytes
        "99999999999999999999,0,w,1", // no u64
        "18446744073709551615,0,w,1", // no u64 in ns
    ] {
        let error = read(format!("{line}\n").as_bytes(), &as_format("cydonia")).unwrap_err();
        assert!(matches!(error, TraceError::BadRecord { .. }), "{line}: {error}");
    }
}

#[test]
fn an_impossible_request_is_refused_with_the_reason() {
    for (line, reason) in [
        ("0,r,0,4294967297", "a read or write of at most 4 GiB"),
        ("0,r,9223372036854775296,512", "a request that ends below an offset of 2^63 bytes"),
        ("0,w,18446744073709551615,1", "a request that ends below an offset of 2^63 bytes"),
        (
            "9223372036854775809,w,0,1",
            "a time less than 2^63 ns (292 years) after the first request",
        ),
        ("18446744073709551615,w,0,1", "a time of less than 2^64 ns"),
    ] {
        let first = if line.starts_with("922") { "1,r,0,512\n" } else { "" };
        let text = format!("time_ns,op,offset,length\n{first}{line}\n");
        let error = read(text.as_bytes(), &as_format("csv")).unwrap_err().to_string();
        assert!(error.contains(&format!("expected {reason}, found \"{line}\"")), "{error}");
        let options = OpenOptions { skip_bad_lines: true, ..as_format("csv") };
        assert_eq!(read(text.as_bytes(), &options).unwrap().2.bad, 1);
    }
    // Also in other units, and in records.
    let sectors = read(b"0,36028797018963968,r,512\n", &as_format("cydonia")).unwrap_err();
    assert!(sectors.to_string().contains("below an offset of 2^63"), "{sectors}");
    let mut record = [0; 24];
    record[4..12].fill(0xff);
    let object = read(&record, &as_format("oracleGeneral")).unwrap_err();
    assert!(object.to_string().contains("below an offset of 2^63"), "{object}");
    let allowed =
        "time_ns,op,offset,length\n1,r,0,1\n9223372036854775808,r,9223372036854775295,512\n";
    let (all, ..) = read(allowed.as_bytes(), &as_format("csv")).unwrap();
    assert_eq!(all[1].time.0, i64::MAX as u64);
}

#[test]
fn a_line_without_end_is_refused_in_bounded_memory() {
    let endless = vec![b'1'; 6 << 20];
    let error = read(&endless, &as_format("msr")).unwrap_err().to_string();
    assert!(error.contains("line of at most"), "{error}");
}

/// A trace of our own format, in memory.
fn parquet() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let mut writer = ParquetTraceWriter::create(&path).unwrap();
    for r in Synth::new(&Spec::parse("zipf:blocks=100,requests=300,write=0.5").unwrap()).unwrap() {
        writer.push(Record { hashes: &[7; 16], ..r.into() }).unwrap();
    }
    writer.finish(&Metadata::default()).unwrap();
    std::fs::read(path).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..9000),
        format in sample::select(FORMATS),
        skip_bad_lines: bool,
    ) {
        fuzz_reader(&bytes, &OpenOptions { skip_bad_lines, ..as_format(format.name) });
        fuzz_trace(&bytes);
    }

    #[test]
    fn bent_traces_do_no_harm(
        fixture in sample::select(FIXTURES),
        bends in proptest::collection::vec((any::<sample::Index>(), any::<u8>(), 0..3), 1..10),
        skip_bad_lines: bool,
    ) {
        let bytes = bend(fixture.bytes(), &bends);
        fuzz_reader(&bytes, &OpenOptions { skip_bad_lines, ..as_format(fixture.format) });
        fuzz_reader(&bytes, &OpenOptions::default());
    }

    #[test]
    fn text_of_the_right_letters_does_no_harm(
        text in "[0-9]{0,22}([,. \t+\"rRwWFQ@:\n#-]|[0-9]{0,4}){0,60}\n?",
        format in sample::select(FORMATS),
    ) {
        let options = OpenOptions { skip_bad_lines: true, ..as_format(format.name) };
        fuzz_reader(text.as_bytes(), &options);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bent_parquet_does_no_harm(
        bends in proptest::collection::vec((any::<sample::Index>(), any::<u8>(), 0..3), 1..6),
    ) {
        thread_local!(static GOOD: Vec<u8> = parquet());
        let bytes = bend(GOOD.with(Clone::clone), &bends);
        fuzz_reader(&bytes, &as_format("parquet"));
    }
}

/// Changes, inserts or removes bytes.
fn bend(mut bytes: Vec<u8>, bends: &[(sample::Index, u8, i32)]) -> Vec<u8> {
    for (at, byte, how) in bends {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = *byte,
            1 => bytes.insert(at, *byte),
            _ => {
                bytes.remove(at);
            }
        }
    }
    bytes
}

#[test]
fn fixtures_are_what_they_say() {
    let text = FIXTURES.iter().filter(|f: &&Fixture| f.is_text()).count();
    assert!(text >= 14 && FIXTURES.len() - text >= 4);
}

#[test]
fn csv_of_libcachesim_is_seconds_and_sectors_unless_its_objects_are_numbers_of_blocks() {
    let text =
        "time,obj_id,obj_size,op\n0,8,4096,read\n2,63,512,write\n2,8,4096,get\n3,9,512,set\n";
    let (requests, metadata, _) = read(text.as_bytes(), &OpenOptions::default()).unwrap();
    assert_eq!(metadata.format, "csv");
    assert_eq!(
        shown(&requests, &metadata),
        "0 memory read 4096 4096\n2000000000 memory write 32256 512\n\
         2000000000 memory read 4096 4096\n3000000000 memory write 4608 512\n"
    );
    assert!(metadata.doubts.is_empty());
    assert!(metadata.without_operations.is_empty());
    let only_reads = b"time,obj_id,obj_size\n1,7,512\n";
    let (reads, metadata, _) = read(only_reads, &OpenOptions::default()).unwrap();
    assert_eq!(metadata.without_operations, ["memory"]);
    let (_, told, _) = read(only_reads, &as_format("csv:op=read")).unwrap();
    assert!(told.without_operations.is_empty(), "the user says so");
    assert_eq!((reads[0].op, reads[0].offset), (Op::Read, 7 * 512));
    let mut blocks = "time,obj_id,obj_size,op\n".to_owned();
    (0..40).for_each(|n| writeln!(blocks, "{n},{},4096,read", n * n % 31).unwrap());
    let (_, doubted, _) = read(blocks.as_bytes(), &OpenOptions::default()).unwrap();
    assert!(doubted.doubts[0].contains("csv:offset=obj_id@4096"), "{:?}", doubted.doubts);
    let (requests, told, _) =
        read(blocks.as_bytes(), &as_format("csv:offset=obj_id@4096")).unwrap();
    assert!(told.doubts.is_empty() && requests[3].offset == 9 * 4096);
}

#[test]
fn a_trace_that_was_cut_off_is_named_where_the_whole_one_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.parquet");
    let gone = open(&path, &OpenOptions::default()).err().unwrap().to_string();
    assert!(!gone.contains("partial"), "{gone}");
    std::fs::write(dir.path().join("mine.parquet.partial"), "PAR1").unwrap();
    let error = open(&path, &OpenOptions::default()).err().unwrap();
    let text = format!("{error} {:?}", std::error::Error::source(&error).map(|e| e.to_string()));
    assert!(text.contains("mine.parquet.partial") && text.contains("trace convert"), "{text}");
}
