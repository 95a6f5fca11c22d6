//! What an engine asked of its devices, what came of it, and what its client was told, in order.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use forebay_device::DeviceError;
use forebay_engine::watch::{Operation, Part, Watch};

/// A block: number of the volume, number of the block.
pub type Block = (u32, u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    Begin { number: u64, operation: Operation },
    End { number: u64 },
    Mark(Mark),
}

/// What the client knows.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A write is about to be handed in.
    Issued(Block, u64),
    /// It was acknowledged.
    Acked(Block, u64),
    /// It was acknowledged with FUA: it is to survive everything.
    Forced(Block, u64),
    /// A FLUSH of a volume is about to be handed in.
    FlushBegins(u32),
    /// It was acknowledged: what was before it began is to survive everything.
    FlushEnds(u32),
    /// After a start the block reads as this version throughout.
    Read(Block, u64),
    /// A stop that was to destage everything has ended well.
    Stopped,
}

/// Keeps a journal of a run, and lets single operations on headers fail.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    events: Vec<Event>,
    next: u64,
    /// Header operations to let pass before one fails.
    fail_after: Option<usize>,
    failed: bool,
    pause: Option<Duration>,
    version: u64,
}

impl Journal {
    pub fn mark(&self, mark: Mark) {
        self.lock().events.push(Event::Mark(mark));
    }

    /// A version that no write had before.
    pub fn version(&self) -> u64 {
        let mut inner = self.lock();
        inner.version += 1;
        inner.version
    }

    /// Lets `pass` operations on headers pass and fails the next one.
    pub fn fail_header(&self, pass: usize) {
        self.lock().fail_after = Some(pass);
    }

    /// Whether it came to that; from now on nothing fails.
    pub fn has_failed(&self) -> bool {
        let mut inner = self.lock();
        inner.fail_after = None;
        std::mem::take(&mut inner.failed)
    }

    /// Header operations take so long from now on: what must wait for them can be seen not to.
    pub fn pause_headers(&self, pause: Option<Duration>) {
        self.lock().pause = pause;
    }

    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

impl Watch for Journal {
    fn begin(&self, operation: Operation) -> Result<u64, DeviceError> {
        if operation.part == Part::Header
            && let Some(pause) = { self.lock().pause }
        {
            std::thread::sleep(pause);
        }
        let mut inner = self.lock();
        if operation.part == Part::Header
            && let Some(pass) = inner.fail_after
        {
            inner.fail_after = pass.checked_sub(1);
            if pass == 0 {
                inner.failed = true;
                return Err(DeviceError::Io);
            }
        }
        let number = inner.next;
        inner.next += 1;
        inner.events.push(Event::Begin { number, operation });
        Ok(number)
    }

    fn end(&self, number: u64, ok: bool) {
        // What failed may have happened or not: as if it had not ended.
        if ok {
            self.lock().events.push(Event::End { number });
        }
    }
}
