//! Entry points for fuzzers, which read arbitrary bytes as a trace of any format. They check the
//! guarantees of every reader and panic if one is violated.

use forebay_block::Op;

use crate::{Batch, FORMATS, OpenOptions, open_bytes};

/// Reads the bytes after the first one as a trace. The first byte selects the format, by its index
/// in [`FORMATS`] (other indices mean detection), and whether bad lines and records are skipped.
pub fn fuzz_trace(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let format = FORMATS.get(usize::from(choice >> 1)).map(|format| format.name.to_owned());
    let options = OpenOptions { format, skip_bad_lines: choice & 1 == 1, ..OpenOptions::default() };
    fuzz_reader(bytes, &options);
}

/// Reads these bytes as a trace, with the given options.
pub fn fuzz_reader(bytes: &[u8], options: &OpenOptions) {
    let Ok(mut reader) = open_bytes(bytes.to_vec(), options) else { return };
    let (mut batch, mut last) = (Batch::default(), 0);
    loop {
        let read = reader.read_batch(&mut batch);
        for r in batch.requests() {
            assert!(r.time.0 >= last, "times go back");
            last = r.time.0;
            let end = r.offset.checked_add(r.length);
            assert!(end.is_some_and(|end| end <= i64::MAX as u64), "the end overflows");
            let bounded = matches!(r.op, Op::Read | Op::Write | Op::WriteZeroes);
            assert!(!bounded || r.length <= 4 << 30, "too long");
            assert!(r.time.0 <= i64::MAX as u64, "too late");
            assert!((r.volume.0 as usize) < reader.metadata().volumes.len(), "no such volume");
        }
        if !matches!(read, Ok(n) if n > 0) {
            return;
        }
    }
}
