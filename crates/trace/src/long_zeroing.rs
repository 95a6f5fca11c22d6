//! Write-zeroes requests that are longer than any write.

use forebay_block::Op;

use crate::{
    Batch, Counters, Metadata, Progress, Result, TraceReader, formats::text::TRANSFER_BYTES_MAX,
};

/// Reads zeroings of more than 4 GiB as trims.
///
/// Clients may zero a whole volume with one request (NBD's extended requests have lengths of 64
/// bits), and no cache keeps what was zeroed. An analysis, however, visits each block of a write,
/// and would take hours.
pub(crate) struct LongZeroingAsTrim<R>(pub(crate) R);

impl<R: TraceReader> TraceReader for LongZeroingAsTrim<R> {
    fn metadata(&self) -> &Metadata {
        self.0.metadata()
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }

    fn progress(&self) -> Progress {
        self.0.progress()
    }

    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        let read = self.0.read_batch(batch);
        for (op, &length) in batch.op.iter_mut().zip(&batch.length) {
            if is_long_zeroing(*op, length) {
                *op = Op::Trim;
            }
        }
        read
    }
}

/// Whether a request zeroes more bytes than a write can have.
#[inline]
pub(crate) fn is_long_zeroing(op: Op, length: u64) -> bool {
    op == Op::WriteZeroes && length > TRANSFER_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, open_bytes};

    #[test]
    fn a_zeroing_of_more_than_a_write_carries_is_a_trim_unless_it_is_to_be_kept() {
        let text =
            "time_ns,op,offset,length\n0,z,0,4294967296\n1,z,0,4294967297\n2,z,0,1099511627776\n";
        let ops = |keep_long_zeroing| {
            let options = OpenOptions { keep_long_zeroing, ..OpenOptions::default() };
            let reader = open_bytes(text.as_bytes().to_vec(), &options).unwrap();
            reader.into_requests().map(|r| r.unwrap().op).collect::<Vec<_>>()
        };
        assert_eq!(ops(false), [Op::WriteZeroes, Op::Trim, Op::Trim]);
        assert_eq!(ops(true), [Op::WriteZeroes; 3]);
    }
}
