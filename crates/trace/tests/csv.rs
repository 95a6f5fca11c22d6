//! Goal: CSV files are read as their writers meant them: spreadsheets and other programs begin them with a byte
//! order mark or empty lines, and spell the columns differently.
//! Method: small files, with and without the things that should make no difference.

use forebay_block::Request;
use forebay_trace::*;

fn read_as(bytes: &[u8], format: Option<&str>) -> (Vec<Request>, Metadata) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.csv");
    std::fs::write(&path, bytes).unwrap();
    let format = format.map(str::to_owned);
    let options = OpenOptions { format, ..OpenOptions::default() };
    let mut reader = open(&path, &options).unwrap();
    let (mut batch, mut requests) = (Batch::default(), Vec::new());
    while reader.read_batch(&mut batch).unwrap() > 0 {
        requests.extend(batch.requests());
    }
    (requests, reader.metadata().clone())
}

fn read(text: &str) -> (Vec<Request>, Metadata) {
    read_as(text.as_bytes(), None)
}

fn names(metadata: &Metadata) -> Vec<&str> {
    metadata.volumes.iter().map(|v| v.name.as_str()).collect()
}

fn times_ns(requests: &[Request]) -> Vec<u64> {
    requests.iter().map(|r| r.time.0).collect()
}

const NAMED: &str = "volume,time_us,op,offset,length\na,5,r,0,512\nb,9,w,512,512\n";

#[test]
fn a_byte_order_mark_changes_nothing() {
    for text in [
        NAMED,
        "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
         128166372000000000,h,0,Read,512,512,1\n128166372000000100,h,1,Read,1024,512,1\n",
        "Timestamp,Response,IOType,LUN,Offset,Size\n\
         1455579631.1,0.1,R,4,512,4096\n1455579631.2,,W,5,1024,4096\n",
        "fio version 2 iolog\na add\na open\na write 0 512\na wait 7 0\na read 512 512\n",
    ] {
        let plain = read(text);
        assert_eq!(plain.0.len(), 2, "{text}");
        assert_eq!(read(&format!("\u{feff}{text}")), plain, "{text}");
    }
}

#[test]
fn a_byte_order_mark_before_a_long_file_costs_no_bytes() {
    let mut text = NAMED.to_owned();
    (0..20_000).for_each(|n| text += &format!("a,{},r,{},512\n", n + 10, n * 512));
    assert_eq!(read(&format!("\u{feff}{text}")), read(&text));
}

#[test]
fn the_same_bytes_at_the_beginning_of_a_binary_file_stay() {
    // Little-endian seconds that look like the mark, an object, a size and the next access.
    let record = |object: u64| {
        let mut bytes = 0x65bf_bbef_u32.to_le_bytes().to_vec();
        bytes.extend(object.to_le_bytes());
        bytes.extend(4096_u32.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
        bytes
    };
    let (requests, metadata) = read_as(&[record(8), record(16)].concat(), Some("oracleGeneral"));
    assert_eq!(requests.iter().map(|r| r.offset).collect::<Vec<_>>(), [4096, 8192]);
    assert_eq!(metadata.epoch_ns, Some(0x65bf_bbef * 1_000_000_000));
}

#[test]
fn empty_lines_and_blanks_before_the_header_change_nothing() {
    let plain = read(NAMED);
    for before in ["\n", "\r\n", "\r\n\r\n", "  \n", "\t\r\n", "\n# a comment\n \n"] {
        let (requests, metadata) = read(&format!("{before}{NAMED}"));
        assert_eq!((requests, names(&metadata)), (plain.0.clone(), vec!["a", "b"]), "{before:?}");
    }
}

#[test]
fn the_unit_of_a_time_column_may_follow_its_name_in_brackets() {
    for (name, unit) in [
        ("Time (s)", 1_000_000_000),
        ("time(us)", 1_000),
        ("Timestamp [ms]", 1_000_000),
        ("\"Time (ns)\"", 1),
        ("Timestamp_us", 1_000),
        ("TIME us", 1_000),
    ] {
        let text = format!("{name},op,offset,length\n3,r,0,512\n5,r,0,512\n");
        let (requests, metadata) = read(&text);
        assert_eq!(times_ns(&requests), [0, 2 * unit], "{name}");
        assert!(metadata.doubts.is_empty(), "{name}: {:?}", metadata.doubts);
    }
}

#[test]
fn a_csv_file_without_times_is_read_with_a_note_unless_that_is_meant() {
    let text = b"When,op,offset,length\n3,r,0,512\n5,r,0,512\n";
    let (requests, metadata) = read_as(text, None);
    assert_eq!(times_ns(&requests), [0, 0]);
    let [doubt] = &metadata.doubts[..] else { panic!("{:?}", metadata.doubts) };
    assert!(doubt.contains("time 0") && doubt.contains("csv:time=COLUMN@us"), "{doubt}");
    assert!(read_as(text, Some("csv:time=none")).1.doubts.is_empty());
    let (requests, metadata) = read_as(text, Some("csv:time=When@us"));
    assert_eq!(times_ns(&requests), [0, 2000]);
    assert!(metadata.doubts.is_empty());
    // A column with this name takes precedence.
    let named = b"none,op,offset,length\n3,r,0,512\n5,r,0,512\n";
    assert_eq!(times_ns(&read_as(named, Some("csv:time=none@ns")).0), [0, 2]);
}
