//! Goal: several traces are read as one, in order of time, with the right volumes and distances.
//! Method: small files whose merged order can be written down.

use std::path::PathBuf;

use forebay_block::Op;
use forebay_trace::*;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn add(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Formats requests as `time in us, volume name, sector`.
fn read(paths: &[PathBuf], options: &OpenOptions) -> Result<Vec<(u64, String, u64)>> {
    let mut reader = open_all(paths, options)?;
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    while reader.read_batch(&mut batch)? > 0 {
        let volumes = &reader.metadata().volumes;
        all.extend(
            batch.requests().map(|r| {
                (r.time.0 / 1000, volumes[r.volume.0 as usize].name.clone(), r.offset / 512)
            }),
        );
    }
    Ok(all)
}

fn expected(rows: &[(u64, &str, u64)]) -> Vec<(u64, String, u64)> {
    rows.iter().map(|(t, v, s)| (*t, v.to_string(), *s)).collect()
}

#[test]
fn traces_without_date_start_together_and_keep_their_volumes_apart() {
    let files = Files::new();
    let a = files.add("a.csv", "5000,1,r,512\n5010,2,r,512\n5030,3,r,512\n");
    let b = files.add("b.csv", "70,11,r,512\n80,12,r,512\n95,13,r,512\n");
    let rows = read(&[a, b], &OpenOptions::default()).unwrap();
    let by_time =
        [(0, "a", 1), (0, "b", 11), (10, "a", 2), (10, "b", 12), (25, "b", 13), (30, "a", 3)];
    assert_eq!(rows, expected(&by_time));
}

/// Two halves of a capture, with a minute between them, given in the wrong order.
const EARLY: &str =
    "128166372000000000,h,0,Read,512,512,1\n128166372000000100,h,1,Read,1024,512,1\n";
const LATE: &str = "128166372600000000,h,0,Read,1536,512,1\n";

#[test]
fn dated_traces_keep_their_distance_and_share_volumes_of_the_same_name() {
    let files = Files::new();
    let paths = [files.add("late.csv", LATE), files.add("early.csv", EARLY)];
    let rows = read(&paths, &OpenOptions::default()).unwrap();
    assert_eq!(rows, expected(&[(0, "h_0", 1), (10, "h_1", 2), (60_000_000, "h_0", 3)]));
    let options = OpenOptions { align: Align::Start, ..OpenOptions::default() };
    let rows = read(&paths, &options).unwrap();
    assert_eq!(rows, expected(&[(0, "h_0", 3), (0, "h_0", 1), (10, "h_1", 2)]));
}

#[test]
fn a_dated_trace_and_one_without_date_start_together() {
    let files = Files::new();
    let paths = [files.add("late.csv", LATE), files.add("x.csv", "9,5,w,512\n")];
    let rows = read(&paths, &OpenOptions::default()).unwrap();
    assert_eq!(rows, expected(&[(0, "h_0", 3), (0, "x", 5)]));
}

#[test]
fn numbered_devices_of_different_traces_are_different_volumes() {
    let files = Files::new();
    let paths = [
        files.add("a.trace", "0.5 3 1 1 1\n0.75 4 2 1 0\n"),
        files.add("b.trace", "0.5 3 7 1 1\n"),
    ];
    let rows = read(&paths, &OpenOptions::default()).unwrap();
    assert_eq!(rows, expected(&[(0, "a/3", 1), (0, "b/3", 7), (250, "a/4", 2)]));
}

#[test]
fn what_comes_before_a_bad_line_of_one_trace_is_handed_out() {
    let files = Files::new();
    let paths =
        [files.add("a.csv", "1,1,r,512\n3,2,r,512\n"), files.add("b.csv", "1,3,r,512\nbad\n")];
    let options = OpenOptions { format: Some("cydonia".to_owned()), ..OpenOptions::default() };
    let reader = open_all(&paths, &options).unwrap();
    let all: Vec<_> = reader.into_requests().collect();
    let message = all.last().unwrap().as_ref().unwrap_err().to_string();
    assert!(message.contains("b.csv:2:"), "{message}");
    assert_eq!(all.len(), 3, "both first requests, then the error");
    assert!(all[..2].iter().all(|r| r.as_ref().unwrap().op == Op::Read));
}

#[test]
fn hashes_that_do_not_compare_are_refused() {
    let files = Files::new();
    let header = "time_us,op,offset,length,hashes\n0,w,0,512,";
    let a = files.add("a.csv", &format!("# hashes md5 512 16\n{header}{}\n", "00".repeat(16)));
    let b = files.add("b.csv", &format!("# hashes xxh3-128 4096 16\n{header}\n"));
    let error = read(&[a, b], &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("md5 hash for every 512 B") && error.contains("xxh3-128"), "{error}");
}

#[test]
fn no_trace_at_all_is_an_error() {
    let error = open_all::<PathBuf>(&[], &OpenOptions::default()).err().unwrap();
    assert!(matches!(error, TraceError::Options(_)), "{error}");
}

#[test]
fn traces_opened_apart_share_no_volume_though_both_name_it() {
    let files = Files::new();
    let row = |disk: u32, time: u64| {
        format!("{},host,{disk},Read,0,4096,100\n", 128_166_372_000_000_000 + time)
    };
    let a = files.add("a.csv", &(row(0, 10) + &row(1, 30)));
    let b = files.add("b.csv", &(row(0, 20) + &row(1, 40)));
    let names = |apart| {
        let options = OpenOptions { apart, ..OpenOptions::default() };
        let mut reader = open_all(&[&a, &b], &options).unwrap();
        let mut batch = Batch::default();
        while reader.read_batch(&mut batch).unwrap() > 0 {}
        let metadata = reader.metadata();
        let names: Vec<String> = metadata.volumes.iter().map(|v| v.name.clone()).collect();
        (names, metadata.volume_traces.clone())
    };
    let (shared, traces) = names(false);
    assert_eq!((shared.len(), traces.len()), (2, 0));
    let (apart, traces) = names(true);
    assert_eq!(apart.len(), 4);
    for (name, trace) in apart.iter().zip(traces) {
        assert!(name.starts_with(["a/", "b/"][trace]), "{name} of {trace}");
    }
}

/// The lulls, with the traces aligned by their dates and by their starts.
fn lulls(paths: &[PathBuf]) -> [u64; 2] {
    [Align::Auto, Align::Start].map(|align| {
        let options = OpenOptions { align, ..OpenOptions::default() };
        let mut reader = open_all(paths, &options).unwrap();
        let mut batch = Batch::default();
        while reader.read_batch(&mut batch).unwrap() > 0 {}
        reader.counters().lull_ns
    })
}

#[test]
fn traces_of_distant_dates_are_told_and_those_of_one_day_are_not() {
    let files = Files::new();
    let [early, late] = [files.add("early.csv", EARLY), files.add("late.csv", LATE)];
    assert_eq!(lulls(&[late, early.clone()]), [60_000_000_000 - 10_000, 0]);
    // The time between the traces is shorter than they run.
    let next = EARLY.replace("1281663720000000", "1281663720000001");
    let next = files.add("next.csv", &next);
    assert_eq!(lulls(&[early.clone(), next]), [0, 0]);
    let undated = files.add("x.csv", "9,5,w,512\n");
    assert_eq!(lulls(&[early.clone(), undated]), [0, 0]);
    assert_eq!(lulls(&[early]), [0, 0]);
}

/// A Parquet file keeps the times that its writer gave, so its first request may be late.
#[test]
fn a_trace_that_begins_late_starts_together_with_the_others() {
    let files = Files::new();
    let late = files.0.path().join("late.parquet");
    let mut writer = create(&late, None).unwrap();
    let mut batch = Batch::default();
    for (us, sector) in [(5_000, 1), (5_010, 2)] {
        let request = forebay_block::Request {
            time: forebay_block::Nanos(us * 1000),
            volume: forebay_block::Volume(0),
            op: Op::Read,
            flags: forebay_block::Flags::NONE,
            offset: sector * 512,
            length: 512,
        };
        batch.push(request);
    }
    let volumes = vec![VolumeInfo { name: "late".into(), bytes: None }];
    let metadata = Metadata { volumes, names_volumes: true, ..Metadata::default() };
    writer.write_batch(&batch, &metadata).unwrap();
    writer.finish(&metadata).unwrap();

    let x = files.add("x.csv", "9,5,w,512\n14,6,w,512\n");
    let together = expected(&[(0, "late", 1), (0, "x", 5), (5, "x", 6), (10, "late", 2)]);
    for align in [Align::Auto, Align::Start] {
        let options = OpenOptions { align, ..OpenOptions::default() };
        assert_eq!(read(&[late.clone(), x.clone()], &options).unwrap(), together, "{align:?}");
    }
}
