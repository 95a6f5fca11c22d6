//! The source of requests: a trace or a generator, read ahead in a separate thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_block::Request;
use forebay_trace::{Batch, TraceError, TraceReader};

/// Maximum number of batches to read ahead: about 100,000 requests.
const READ_AHEAD: usize = 16;
/// Maximum number of requests that one of several feeds takes at a time.
const PIECE_MAX: usize = 64;
/// With several feeds, a feed takes so few requests that the rest of the batch would last for this
/// number of turns of every feed. This makes the feeds end together.
const PIECES_EACH: usize = 4;
/// A request to stop is noticed within this time while the reader has no requests ready.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// The next request of a run.
#[derive(Debug)]
pub enum Next {
    /// The next request.
    Request(Request),
    /// No request has been read yet: the reader is slower than the target.
    NotYet,
    /// There are no more requests.
    End,
    /// Reading failed; there are no more requests.
    Failed(TraceError),
}

/// A sequence of requests.
pub trait Source {
    /// Returns the next request without waiting.
    fn next(&mut self) -> Next;
}

/// Requests that a thread reads ahead. Several feeds can share one reader; each of them then takes
/// a few requests at a time.
pub struct Feed {
    shared: Arc<Mutex<Shared>>,
    /// The batch; requests `next..end` of it belong to this feed.
    batch: Arc<Batch>,
    next: usize,
    end: usize,
    ended: bool,
}

/// State that all feeds of one reader share.
struct Shared {
    batches: Receiver<Result<Batch, TraceError>>,
    returned: SyncSender<Batch>,
    /// The batch from which feeds take requests.
    batch: Arc<Batch>,
    /// Number of requests taken from `batch`.
    taken: usize,
    /// An error of the reader that no feed has reported yet.
    error: Option<TraceError>,
}

impl Shared {
    /// Makes `batch` the batch from which feeds take requests.
    fn begin(&mut self, batch: Batch) {
        let used = std::mem::replace(&mut self.batch, Arc::new(batch));
        self.taken = 0;
        self.give_back(used);
    }

    /// Returns a batch to the reader for reuse if no feed needs it any more.
    fn give_back(&self, batch: Arc<Batch>) {
        if let Some(batch) = Arc::into_inner(batch) {
            // If the channel is full, this batch is just not reused.
            let _ = self.returned.try_send(batch);
        }
    }
}

impl Feed {
    /// Starts a thread that reads ahead. It ends with the trace, or when all feeds have been
    /// dropped.
    pub fn start(reader: impl TraceReader + 'static) -> Feed {
        let (sender, batches) = sync_channel(READ_AHEAD);
        let (returned, empty) = sync_channel(READ_AHEAD);
        std::thread::spawn(move || read(reader, &sender, &empty));
        let shared = Shared { batches, returned, batch: Arc::default(), taken: 0, error: None };
        Feed::new(Arc::new(Mutex::new(shared)))
    }

    fn new(shared: Arc<Mutex<Shared>>) -> Feed {
        Feed { shared, batch: Arc::default(), next: 0, end: 0, ended: false }
    }

    /// Creates another feed that shares the reader.
    pub fn share(&self) -> Feed {
        Feed::new(self.shared.clone())
    }

    /// Waits until the reader has read requests, has failed or has reached the end, or until
    /// `stop` is set.
    pub(crate) fn wait_for_first(&self, stop: &AtomicBool) {
        let mut shared = lock(&self.shared);
        while shared.batch.is_empty() && !stop.load(Ordering::Relaxed) {
            match shared.batches.recv_timeout(STOP_CHECK) {
                Ok(Ok(batch)) => shared.begin(batch),
                Ok(Err(error)) => return shared.error = Some(error),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes some requests. If there are none, returns what [`Source::next`] must return instead.
    fn refill(&mut self) -> Option<Next> {
        if self.ended {
            return Some(Next::End);
        }
        let feeds = Arc::strong_count(&self.shared);
        let mut shared = lock(&self.shared);
        if shared.taken == shared.batch.len() {
            let next = match shared.error.take() {
                Some(error) => Ok(Err(error)),
                None => shared.batches.try_recv(),
            };
            match next {
                Ok(Ok(batch)) => shared.begin(batch),
                Err(TryRecvError::Empty) => return Some(Next::NotYet),
                Err(TryRecvError::Disconnected) => {
                    self.ended = true;
                    return Some(Next::End);
                }
                Ok(Err(error)) => {
                    self.ended = true;
                    return Some(Next::Failed(error));
                }
            }
        }
        let left = shared.batch.len() - shared.taken;
        let piece = match feeds {
            1 => left,
            _ => (left / (PIECES_EACH * feeds)).clamp(1, PIECE_MAX),
        };
        (self.next, self.end) = (shared.taken, shared.taken + piece);
        shared.taken = self.end;
        if !Arc::ptr_eq(&self.batch, &shared.batch) {
            let used = std::mem::replace(&mut self.batch, shared.batch.clone());
            shared.give_back(used);
        }
        None
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Source for Feed {
    #[inline]
    fn next(&mut self) -> Next {
        while self.next >= self.end {
            if let Some(instead) = self.refill() {
                return instead;
            }
        }
        self.next += 1;
        Next::Request(self.batch.request(self.next - 1))
    }
}

fn read(
    mut reader: impl TraceReader,
    batches: &SyncSender<Result<Batch, TraceError>>,
    empty: &Receiver<Batch>,
) {
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        let result = reader.read_batch(&mut batch);
        // Send the valid requests before the error.
        if !batch.is_empty() && batches.send(Ok(batch)).is_err() {
            return;
        }
        match result {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                // If all feeds have been dropped, no feed needs the error.
                let _ = batches.send(Err(error));
                return;
            }
        }
    }
}

/// Requests from any iterator, for example in memory.
impl<I: Iterator<Item = Request>> Source for I {
    fn next(&mut self) -> Next {
        Iterator::next(self).map_or(Next::End, Next::Request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_trace::{Spec, Synth};

    fn drain(mut feed: Feed) -> Vec<Request> {
        let mut requests = Vec::new();
        loop {
            match Source::next(&mut feed) {
                Next::Request(request) => requests.push(request),
                Next::NotYet => std::thread::yield_now(),
                Next::End => return requests,
                Next::Failed(error) => panic!("{error}"),
            }
        }
    }

    fn synth() -> Synth {
        Synth::new(&Spec::parse("zipf:blocks=1000,requests=100000").unwrap()).unwrap()
    }

    #[test]
    fn one_feed_keeps_the_order_and_several_share_all_requests_out() {
        let all: Vec<Request> = synth().collect();
        assert_eq!(drain(Feed::start(synth())), all);
        let first = Feed::start(synth());
        let second = first.share();
        let other = std::thread::spawn(move || drain(second));
        let mut both = drain(first);
        both.extend(other.join().unwrap());
        both.sort_by_key(|r| r.time);
        assert_eq!(both, all);
    }

    #[test]
    fn several_feeds_share_out_even_a_few_requests() {
        let few = Spec::parse("zipf:blocks=1000,requests=100").unwrap();
        let first = Feed::start(Synth::new(&few).unwrap());
        first.wait_for_first(&AtomicBool::new(false));
        let mut feeds = [first.share(), first.share(), first.share(), first];
        let mut taken = 0;
        for n in 0..100 {
            let next = Source::next(&mut feeds[n % 4]);
            assert!(matches!(next, Next::Request(_)) || n > 90, "{n}: {next:?}");
            taken += usize::from(matches!(next, Next::Request(_)));
        }
        let left: usize = feeds.into_iter().map(|feed| drain(feed).len()).sum();
        assert_eq!(taken + left, 100);
    }

    #[test]
    fn the_requests_before_an_error_come_first() {
        let text = b"time,op,offset,length\n1,r,0,512\n2,r,512,512\n3,oops,0,0\n".to_vec();
        let options = forebay_trace::OpenOptions {
            format: Some("csv:time=time@s,op=op,offset=offset,length=length".into()),
            ..Default::default()
        };
        let mut feed = Feed::start(forebay_trace::open_bytes(text, &options).unwrap());
        let mut requests = 0;
        loop {
            match Source::next(&mut feed) {
                Next::Request(_) => requests += 1,
                Next::NotYet => std::thread::yield_now(),
                Next::Failed(_) => break,
                Next::End => panic!("the error was lost"),
            }
        }
        assert_eq!(requests, 2);
        assert!(matches!(Source::next(&mut feed), Next::End));
    }
}
