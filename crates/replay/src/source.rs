//! The source of requests: a trace or a generator, read ahead in a separate thread.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_block::Request;
use forebay_trace::{Batch, TraceError, TraceReader};

/// Batches that may be read ahead: some 100,000 requests.
const READ_AHEAD: usize = 16;

/// The next of a run's requests.
#[derive(Debug)]
pub enum Next {
    /// This one.
    Request(Request),
    /// None has been read yet: the reader is slower than the target.
    NotYet,
    /// There are no more.
    End,
    /// Reading failed; there are no more.
    Failed(TraceError),
}

/// Requests in their order.
pub trait Source {
    /// The next request; never waits.
    fn next(&mut self) -> Next;
}

/// Requests that a thread reads ahead. Several of them can share one reader; then each gets some
/// thousands of requests at a time.
pub struct Feed {
    batches: Arc<Mutex<Receiver<Result<Batch, TraceError>>>>,
    returned: SyncSender<Batch>,
    batch: Batch,
    next: usize,
    ended: bool,
}

impl Feed {
    /// Starts reading. The thread ends with the trace, or when nobody listens any more.
    pub fn start(reader: impl TraceReader + 'static) -> Feed {
        let (sender, batches) = sync_channel(READ_AHEAD);
        let (returned, empty) = sync_channel(READ_AHEAD);
        std::thread::spawn(move || read(reader, &sender, &empty));
        let batches = Arc::new(Mutex::new(batches));
        Feed { batches, returned, batch: Batch::default(), next: 0, ended: false }
    }

    /// Another one that shares the reader.
    pub fn share(&self) -> Feed {
        let (batches, returned) = (self.batches.clone(), self.returned.clone());
        Feed { batches, returned, batch: Batch::default(), next: 0, ended: false }
    }

    /// Gets the next batch; what there is instead, if there is none.
    fn refill(&mut self) -> Option<Next> {
        if self.ended {
            return Some(Next::End);
        }
        let next = self.batches.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
        match next {
            Ok(Ok(batch)) => {
                let used = std::mem::replace(&mut self.batch, batch);
                self.next = 0;
                // A full channel only means that this batch is not used again.
                let _ = self.returned.try_send(used);
                None
            }
            Err(TryRecvError::Empty) => Some(Next::NotYet),
            Err(TryRecvError::Disconnected) => {
                self.ended = true;
                Some(Next::End)
            }
            Ok(Err(error)) => {
                self.ended = true;
                Some(Next::Failed(error))
            }
        }
    }
}

impl Source for Feed {
    #[inline]
    fn next(&mut self) -> Next {
        while self.next >= self.batch.len() {
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
        // Good requests before an error come first.
        if !batch.is_empty() && batches.send(Ok(batch)).is_err() {
            return;
        }
        match result {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                // If nobody listens any more, nobody misses it.
                let _ = batches.send(Err(error));
                return;
            }
        }
    }
}

/// Requests that lie in memory.
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
