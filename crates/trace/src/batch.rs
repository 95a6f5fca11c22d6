//! Requests in columns: readers fill batches, writers take them.

use forebay_block::{Flags, Nanos, Op, Request, RequestColumns};

/// A run of requests, one `Vec` per column.
///
/// The mandatory columns always have the same length. Latency, result, gap and content hashes are
/// optional for each request; most traces have none of them, and then they take no memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Arrival times in nanoseconds.
    pub time_ns: Vec<u64>,
    /// Volume numbers.
    pub volume: Vec<u32>,
    /// Operations.
    pub op: Vec<Op>,
    /// Flags.
    pub flags: Vec<Flags>,
    /// Byte offsets of the first bytes.
    pub offset: Vec<u64>,
    /// Lengths in bytes.
    pub length: Vec<u64>,
    /// May be shorter than the mandatory columns; missing entries count as `None`.
    latency_ns: Vec<Option<u64>>,
    result: Vec<Option<u8>>,
    gap_ns: Vec<Option<u64>>,
    hash_ends: Vec<u32>,
    hash_bytes: Vec<u8>,
}

/// One request with everything that a trace may record about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The request.
    pub request: Request,
    /// Time from arrival to completion.
    pub latency: Option<Nanos>,
    /// 0 if it succeeded, else the error number (as in `errno`).
    pub result: Option<u8>,
    /// In a sample, the time between this request and its predecessor in the trace from which the
    /// sample was taken.
    pub gap: Option<Nanos>,
    /// One content hash per unit, concatenated; empty if unknown.
    pub hashes: &'a [u8],
}

impl From<Request> for Record<'static> {
    fn from(request: Request) -> Self {
        Record { request, latency: None, result: None, gap: None, hashes: &[] }
    }
}

impl Batch {
    /// An empty batch with room for `n` requests.
    pub fn with_capacity(n: usize) -> Self {
        Batch {
            time_ns: Vec::with_capacity(n),
            volume: Vec::with_capacity(n),
            op: Vec::with_capacity(n),
            flags: Vec::with_capacity(n),
            offset: Vec::with_capacity(n),
            length: Vec::with_capacity(n),
            ..Batch::default()
        }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.offset.len()
    }

    /// Whether the batch has no requests.
    pub fn is_empty(&self) -> bool {
        self.offset.is_empty()
    }

    /// Removes all requests but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Removes all requests after the first `n`.
    pub fn truncate(&mut self, n: usize) {
        self.time_ns.truncate(n);
        self.volume.truncate(n);
        self.op.truncate(n);
        self.flags.truncate(n);
        self.offset.truncate(n);
        self.length.truncate(n);
        self.latency_ns.truncate(n);
        self.result.truncate(n);
        self.gap_ns.truncate(n);
        self.hash_ends.truncate(n);
        self.hash_bytes.truncate(self.hash_ends.last().map_or(0, |&e| e as usize));
    }

    /// Appends a request.
    pub fn push(&mut self, request: Request) {
        self.time_ns.push(request.time.0);
        self.volume.push(request.volume.0);
        self.op.push(request.op);
        self.flags.push(request.flags);
        self.offset.push(request.offset);
        self.length.push(request.length);
    }

    /// Appends requests and returns their number. Works in runs, so that each column grows once per
    /// run.
    #[inline]
    pub(crate) fn extend(&mut self, mut requests: impl Iterator<Item = Request>) -> usize {
        const RUN: usize = 128;
        let (mut time_ns, mut offset, mut length) = ([0; RUN], [0; RUN], [0; RUN]);
        let (mut volume, mut op, mut flags) = ([0; RUN], [Op::Read; RUN], [Flags::NONE; RUN]);
        let before = self.len();
        loop {
            let mut n = 0;
            while n < RUN {
                let Some(request) = requests.next() else { break };
                time_ns[n] = request.time.0;
                volume[n] = request.volume.0;
                op[n] = request.op;
                flags[n] = request.flags;
                offset[n] = request.offset;
                length[n] = request.length;
                n += 1;
            }
            self.time_ns.extend_from_slice(&time_ns[..n]);
            self.volume.extend_from_slice(&volume[..n]);
            self.op.extend_from_slice(&op[..n]);
            self.flags.extend_from_slice(&flags[..n]);
            self.offset.extend_from_slice(&offset[..n]);
            self.length.extend_from_slice(&length[..n]);
            if n < RUN {
                return self.len() - before;
            }
        }
    }

    /// The mandatory columns.
    pub fn columns(&self) -> RequestColumns<'_> {
        RequestColumns {
            time_ns: &self.time_ns,
            volume: &self.volume,
            op: &self.op,
            flags: &self.flags,
            offset: &self.offset,
            length: &self.length,
        }
    }

    /// Appends a request with its optional values.
    pub fn push_record(&mut self, record: Record<'_>) {
        self.push(record.request);
        if let Some(latency) = record.latency {
            self.set_latency_of_last(latency);
        }
        if record.result.is_some() {
            self.set_result_of_last(record.result);
        }
        if let Some(gap) = record.gap {
            self.gap_ns.resize(self.len() - 1, None);
            self.gap_ns.push(Some(gap.0));
        }
        if !record.hashes.is_empty() {
            self.set_hashes_of_last(record.hashes);
        }
    }

    /// Request `i`.
    ///
    /// # Panics
    /// If the batch has `i` requests or fewer.
    pub fn request(&self, i: usize) -> Request {
        self.columns().request(i)
    }

    /// Request `i` with its optional values.
    ///
    /// # Panics
    /// If the batch has `i` requests or fewer.
    pub fn record(&self, i: usize) -> Record<'_> {
        Record {
            request: self.request(i),
            latency: self.latency(i),
            result: self.result(i),
            gap: self.gap(i),
            hashes: self.hashes(i),
        }
    }

    /// All requests, in order.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request> + '_ {
        self.columns().iter()
    }

    /// The latency of request `i`, if known.
    pub fn latency(&self, i: usize) -> Option<Nanos> {
        self.latency_ns.get(i).copied().flatten().map(Nanos)
    }

    /// The result of request `i`, if known.
    pub fn result(&self, i: usize) -> Option<u8> {
        self.result.get(i).copied().flatten()
    }

    /// The gap of request `i`, if it comes from a sample.
    pub fn gap(&self, i: usize) -> Option<Nanos> {
        self.gap_ns.get(i).copied().flatten().map(Nanos)
    }

    /// Whether any request may have a gap.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.gap_ns.is_empty()
    }

    /// The content hashes of request `i`, concatenated; empty if unknown.
    pub fn hashes(&self, i: usize) -> &[u8] {
        let Some(&end) = self.hash_ends.get(i) else { return &[] };
        let start = if i == 0 { 0 } else { self.hash_ends[i - 1] };
        &self.hash_bytes[start as usize..end as usize]
    }

    /// Bytes of memory that content hashes use. They are what makes a batch large.
    pub(crate) fn hash_bytes_len(&self) -> usize {
        self.hash_bytes.len()
    }

    pub(crate) fn set_flags_of_last(&mut self, flags: Flags) {
        if let Some(last) = self.flags.last_mut() {
            *last = flags;
        }
    }

    pub(crate) fn set_latency_of_last(&mut self, latency: Nanos) {
        let n = self.len();
        self.latency_ns.resize(n - 1, None);
        self.latency_ns.push(Some(latency.0));
    }

    pub(crate) fn set_result_of_last(&mut self, result: Option<u8>) {
        self.result.resize(self.len() - 1, None);
        self.result.push(result);
    }

    pub(crate) fn set_hashes_of_last(&mut self, hashes: &[u8]) {
        self.hash_sink().extend_from_slice(hashes);
        self.seal_hashes();
    }

    /// Appends to the latency column only, for readers that read column by column.
    pub(crate) fn append_latency(&mut self, latency_ns: Option<u64>) {
        self.latency_ns.push(latency_ns);
    }

    /// Like [`Batch::append_latency`], for this column.
    pub(crate) fn append_result(&mut self, result: Option<u8>) {
        self.result.push(result);
    }

    /// Like [`Batch::append_latency`], for this column.
    pub(crate) fn append_gap(&mut self, gap_ns: Option<u64>) {
        self.gap_ns.push(gap_ns);
    }

    /// Like [`Batch::append_latency`], for this column.
    pub(crate) fn append_hashes(&mut self, hashes: &[u8]) {
        self.hash_bytes.extend_from_slice(hashes);
        self.seal_hashes();
    }

    /// Buffer to which to append the hashes of the last request; call [`Batch::seal_hashes`]
    /// afterwards.
    pub(crate) fn hash_sink(&mut self) -> &mut Vec<u8> {
        let (n, end) = (self.len(), self.hash_bytes.len() as u32);
        self.hash_ends.resize(n - 1, end);
        &mut self.hash_bytes
    }

    pub(crate) fn seal_hashes(&mut self) {
        self.hash_ends.push(self.hash_bytes.len() as u32);
    }

    /// Keeps only the requests for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Batch, usize) -> bool) {
        if (0..self.len()).all(|i| keep(self, i)) {
            return;
        }
        let mut kept = Batch::with_capacity(self.len());
        for i in 0..self.len() {
            if keep(self, i) {
                kept.push_record(self.record(i));
            }
        }
        *self = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Volume;

    fn request(n: u64) -> Request {
        Request {
            time: Nanos(n),
            volume: Volume(n as u32 % 3),
            op: if n & 1 == 0 { Op::Read } else { Op::Write },
            flags: Flags::NONE,
            offset: n * 512,
            length: 512,
        }
    }

    #[test]
    fn optional_columns_belong_to_the_request_they_were_given_for() {
        let mut b = Batch::default();
        for n in 0..10 {
            let hashes: &[u8] = if n % 3 == 1 { &[n as u8; 4] } else { &[] };
            b.push_record(Record {
                request: request(n),
                latency: (n % 4 == 2).then_some(Nanos(n)),
                result: (n == 5).then_some(3),
                gap: (n % 5 == 4).then_some(Nanos(7 * n)),
                hashes,
            });
        }
        for n in 0..10 {
            let r = b.record(n as usize);
            assert_eq!(r.request, request(n));
            assert_eq!(r.latency, (n % 4 == 2).then_some(Nanos(n)));
            assert_eq!(r.result, (n == 5).then_some(3));
            assert_eq!(r.gap, (n % 5 == 4).then_some(Nanos(7 * n)));
            assert_eq!(r.hashes, if n % 3 == 1 { vec![n as u8; 4] } else { vec![] });
        }
        b.retain(|b, i| b.volume[i] == 1);
        assert_eq!(b.len(), 3);
        assert_eq!(b.hashes(1), [4; 4]);
        b.truncate(1);
        assert_eq!((b.len(), b.hashes(0), b.hashes(1)), (1, &[1u8; 4][..], &[][..]));
    }
}
