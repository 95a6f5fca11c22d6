//! Requests in flight: the session of each, and the location of its data.

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_device::{AlignedBuffer, Loan, MemorySlice, Requests};
use forebay_effect::{IoError, Outcome, RequestId};
use smallvec::SmallVec;

use crate::queries::Contents;

/// A request as a session submits it.
#[derive(Debug)]
pub struct Submission {
    /// The session's own identifier, returned with the answer.
    pub tag: u64,
    /// The volume.
    pub volume: Volume,
    /// The operation.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The data of a write, or room for the data of a read: at least `length` bytes for both.
    pub buffer: Option<AlignedBuffer>,
}

impl Submission {
    /// Reads `length` bytes into `buffer`.
    pub fn read(tag: u64, volume: Volume, offset: u64, length: u64, buffer: AlignedBuffer) -> Self {
        Self::new(tag, volume, Op::Read, offset, length, Some(buffer))
    }

    /// Writes the first `length` bytes of `buffer`.
    pub fn write(
        tag: u64,
        volume: Volume,
        offset: u64,
        length: u64,
        buffer: AlignedBuffer,
    ) -> Self {
        Self::new(tag, volume, Op::Write, offset, length, Some(buffer))
    }

    /// Makes durable what was answered before.
    pub fn flush(tag: u64, volume: Volume) -> Self {
        Self::new(tag, volume, Op::Flush, 0, 0, None)
    }

    /// Any operation, without flags.
    pub fn new(
        tag: u64,
        volume: Volume,
        op: Op,
        offset: u64,
        length: u64,
        buffer: Option<AlignedBuffer>,
    ) -> Self {
        Submission { tag, volume, op, flags: Flags::NONE, offset, length, buffer }
    }

    /// This request with these flags.
    pub fn with_flags(self, flags: Flags) -> Self {
        Submission { flags, ..self }
    }

    /// What the cache learns of it.
    pub(crate) fn at(&self, time: Nanos) -> Request {
        let Submission { volume, op, flags, offset, length, .. } = *self;
        Request { time, volume, op, flags, offset, length }
    }
}

/// An answered request.
#[derive(Debug)]
pub struct Done {
    /// As submitted; after a successful read the buffer holds its data.
    pub request: Submission,
    /// Its result.
    pub result: Outcome,
    /// When it was submitted, by the engine's clock.
    pub arrived: Nanos,
    /// A read's data if they are lent, in this order, instead of in the buffer; empty otherwise.
    /// Only for a [`Session`](crate::Session) that borrows.
    pub lent: Loans,
}

/// Pieces of lent memory, most often one.
pub type Loans = SmallVec<[Loan; 1]>;

/// A session's part of the table.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    pub done: Vec<Done>,
    /// Answers to questions about contents.
    pub contents: Vec<Contents>,
    pub in_flight: u32,
    /// Whether there is news that its owner has not been told.
    pub news: bool,
    /// Its reads may be answered with lent memory.
    pub borrows: bool,
    open: bool,
}

#[derive(Debug)]
struct TableEntry {
    request: Submission,
    memory: MemorySlice,
    session: u32,
    arrived: Nanos,
    /// The start of a read's data, as long as all of it so far is lent.
    lent: Loans,
    lent_bytes: u64,
    /// More of it may be lent.
    borrows: bool,
}

impl TableEntry {
    /// Copies lent data into the buffer, which receives the rest.
    #[cold]
    fn copy_loans(&mut self) {
        self.borrows = false;
        let mut target = self.memory.pointer;
        for loan in self.lent.drain(..) {
            // SAFETY: all loans together are no longer than the request, and so than its memory.
            unsafe {
                target.copy_from_nonoverlapping(loan.as_ptr(), loan.len());
                target = target.add(loan.len());
            }
        }
        self.lent_bytes = 0;
    }
}

/// All requests in flight. Allocates only while it grows to its largest size.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Option<TableEntry>>,
    free: Vec<u32>,
    sessions: Vec<Mailbox>,
    /// Requests that change data, and whose client is gone. Most often there are none.
    abandoned: Vec<RequestId>,
    /// Sessions with news.
    pub to_wake: Vec<u32>,
}

impl Table {
    /// Opens a session; its number is that of its mailbox.
    pub fn open_session(&mut self) -> u32 {
        let mailbox = Mailbox { open: true, ..Mailbox::default() };
        match self.sessions.iter().position(|s| !s.open) {
            Some(n) => {
                self.sessions[n] = mailbox;
                n as u32
            }
            None => {
                self.sessions.push(mailbox);
                self.sessions.len() as u32 - 1
            }
        }
    }

    /// Closes a session that has nothing in flight.
    pub fn close_session(&mut self, session: u32) {
        let mailbox = &mut self.sessions[session as usize];
        assert_eq!(mailbox.in_flight, 0, "a session was closed while requests were in flight");
        *mailbox = Mailbox::default();
    }

    pub fn session(&mut self, session: u32) -> &mut Mailbox {
        &mut self.sessions[session as usize]
    }

    /// A question about contents is in flight from now on.
    pub fn enter_question(&mut self, session: u32) {
        self.sessions[session as usize].in_flight += 1;
    }

    /// It has been answered.
    pub fn answer_contents(&mut self, session: u32, contents: Contents) {
        let mailbox = &mut self.sessions[session as usize];
        mailbox.in_flight -= 1;
        mailbox.contents.push(contents);
        self.news(session);
    }

    fn news(&mut self, session: u32) {
        let mailbox = &mut self.sessions[session as usize];
        if !mailbox.news {
            mailbox.news = true;
            self.to_wake.push(session);
        }
    }

    /// Enters a request.
    ///
    /// # Panics
    /// If the buffer is missing or too small: the machine would get memory of others. If a read or
    /// write has 4 GiB or more: the machine counts places in the buffer with 32 bits.
    pub fn enter(&mut self, session: u32, request: Submission, arrived: Nanos) -> RequestId {
        let memory = match &request.buffer {
            Some(buffer) => MemorySlice { pointer: buffer.pointer(), length: buffer.len() },
            None => MemorySlice { pointer: std::ptr::null_mut(), length: 0 },
        };
        if matches!(request.op, Op::Read | Op::Write) {
            assert!(
                memory.length as u64 >= request.length,
                "the buffer of the request is too small"
            );
            assert!(request.length <= u32::MAX.into(), "a read or write of 4 GiB or more");
        }
        let mailbox = &mut self.sessions[session as usize];
        mailbox.in_flight += 1;
        let borrows = mailbox.borrows && request.op == Op::Read;
        let lent = Loans::new();
        let entry =
            Some(TableEntry { request, memory, session, arrived, lent, lent_bytes: 0, borrows });
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                RequestId(index.into())
            }
            None => {
                self.entries.push(entry);
                RequestId(self.entries.len() as u64 - 1)
            }
        }
    }

    /// The number that the next request will have.
    pub fn next_id(&self) -> RequestId {
        let next = self.free.last().map_or(self.entries.len() as u64, |&index| index.into());
        RequestId(next)
    }

    /// A request in flight.
    pub fn request(&self, id: RequestId) -> &Submission {
        &self.entry(id).request
    }

    /// The requests in flight.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &Submission)> {
        let entries = (0..).map(RequestId).zip(&self.entries);
        entries.filter_map(|(id, entry)| Some((id, &entry.as_ref()?.request)))
    }

    /// When the oldest request in flight arrived.
    pub fn oldest(&self) -> Option<Nanos> {
        self.entries.iter().flatten().map(|entry| entry.arrived).min()
    }

    /// Answers all requests in flight with this error. Nothing accesses their memory any more.
    pub fn refuse_all(&mut self, error: IoError) {
        for index in 0..self.entries.len() {
            if self.entries[index].is_some() {
                self.reply(RequestId(index as u64), Err(error));
            }
        }
    }

    /// The client of a session is gone: what overlaps its changes waits until they have ended
    /// ([`Table::awaits_abandoned`]).
    pub fn abandon(&mut self, session: u32) {
        let changes = |e: &TableEntry| e.session == session && e.request.op.modifies();
        let entries = (0..).map(RequestId).zip(&self.entries);
        let changes = entries.filter(|(_, entry)| entry.as_ref().is_some_and(changes));
        self.abandoned.extend(changes.map(|(id, _)| id));
    }

    /// Whether changes are in flight whose client is gone.
    #[inline]
    pub fn has_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    /// Whether a request must wait because a change that overlaps it is in flight, and the client of that is
    /// gone. The client may send the change again and believe the answer: the first one must not take effect
    /// after that, nor after something newer.
    #[inline]
    pub fn awaits_abandoned(&self, request: &Submission) -> bool {
        self.abandoned.iter().any(|&id| overlap(self.request(id), request))
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn entry(&self, id: RequestId) -> &TableEntry {
        self.entries[id.0 as usize].as_ref().expect("the request is in flight")
    }

    fn entry_mut(&mut self, id: RequestId) -> &mut TableEntry {
        self.entries[id.0 as usize].as_mut().expect("the request is in flight")
    }
}

/// Whether two requests are for the same bytes.
fn overlap(a: &Submission, b: &Submission) -> bool {
    let precedes = |a: &Submission, b: &Submission| a.offset.saturating_add(a.length) <= b.offset;
    a.volume == b.volume && a.length > 0 && b.length > 0 && !precedes(a, b) && !precedes(b, a)
}

// SAFETY: the memory belongs to the `AlignedBuffer` of the entry, which is on the heap, is not
// touched while the entry stands, and leaves it only in `reply`. An engine drops its executor
// before its table.
unsafe impl Requests for Table {
    fn data(&mut self, request: RequestId) -> MemorySlice {
        let entry = self.entry_mut(request);
        if entry.borrows {
            entry.copy_loans();
        }
        entry.memory
    }

    fn borrows(&mut self, request: RequestId, offset: u32) -> bool {
        let entry = self.entry(request);
        entry.borrows && entry.lent_bytes == u64::from(offset)
    }

    fn borrow(&mut self, request: RequestId, loan: Loan) {
        let entry = self.entry_mut(request);
        entry.lent_bytes += loan.len() as u64;
        assert!(entry.lent_bytes <= entry.request.length, "more memory was lent than requested");
        let apart = match entry.lent.last_mut() {
            Some(last) => last.join(loan),
            None => Some(loan),
        };
        entry.lent.extend(apart);
    }

    fn reply(&mut self, request: RequestId, result: Outcome) {
        let mut entry = self.entries[request.0 as usize].take().expect("the request is in flight");
        if entry.lent_bytes != entry.request.length && !entry.lent.is_empty() {
            entry.copy_loans();
        }
        self.free.push(request.0 as u32);
        if !self.abandoned.is_empty() {
            self.abandoned.retain(|&abandoned| abandoned != request);
        }
        let mailbox = &mut self.sessions[entry.session as usize];
        mailbox.in_flight -= 1;
        let TableEntry { request, arrived, lent, .. } = entry;
        mailbox.done.push(Done { request, result, arrived, lent });
        self.news(entry.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_device::{Arena, HugePages};

    fn read(tag: u64) -> Submission {
        Submission {
            tag,
            volume: Volume(0),
            op: Op::Read,
            flags: Flags::NONE,
            offset: 0,
            length: 4096,
            buffer: Some(AlignedBuffer::new(4096)),
        }
    }

    #[test]
    fn answers_reach_the_session_that_asked_with_the_buffer_that_was_lent() {
        let mut table = Table::default();
        let (a, b) = (table.open_session(), table.open_session());
        let request = read(7);
        let address = request.buffer.as_ref().unwrap().pointer();
        let id = table.enter(b, request, Nanos(5));
        assert_eq!(table.data(id).pointer, address);
        table.reply(id, Ok(()));
        assert!(table.session(a).done.is_empty());
        assert_eq!(table.to_wake, [b]);
        let done = table.session(b).done.pop().unwrap();
        assert_eq!((done.request.tag, done.arrived, done.result), (7, Nanos(5), Ok(())));
        assert_eq!(done.request.buffer.unwrap().pointer(), address);
        assert_eq!(table.len(), 0);
    }

    #[test]
    #[should_panic(expected = "is too small")]
    fn a_read_without_room_for_its_data_is_refused() {
        let mut table = Table::default();
        let session = table.open_session();
        table.enter(session, Submission { length: 4097, ..read(1) }, Nanos(0));
    }

    #[test]
    #[should_panic(expected = "closed while requests were in flight")]
    fn a_session_with_requests_in_flight_is_not_closed() {
        let mut table = Table::default();
        let session = table.open_session();
        table.enter(session, read(1), Nanos(0));
        table.close_session(session);
    }

    #[test]
    fn what_overlaps_a_change_whose_client_is_gone_waits_until_that_has_ended() {
        let mut table = Table::default();
        let (gone, other) = (table.open_session(), table.open_session());
        let write = |offset| Submission { op: Op::Write, offset, ..read(1) };
        let id = table.enter(gone, write(8192), Nanos(0));
        table.enter(gone, read(2), Nanos(0));
        table.enter(other, write(65536), Nanos(0));
        assert!(!table.has_abandoned() && !table.awaits_abandoned(&write(8192)));
        table.abandon(gone);
        let waits = |request: Submission| table.awaits_abandoned(&request);
        assert!(waits(write(8192)) && waits(write(4608)) && waits(write(11776)));
        assert!(
            waits(Submission { op: Op::Read, ..write(8192) }),
            "a read may not see it come later"
        );
        assert!(waits(Submission { offset: 0, length: u64::MAX, op: Op::Trim, ..read(1) }));
        assert!(
            !waits(write(4096)) && !waits(write(12288)) && !waits(Submission::flush(1, Volume(0)))
        );
        assert!(!waits(Submission { volume: Volume(1), ..write(8192) }));
        assert!(
            !waits(read(2)) && !waits(write(65536)),
            "a read, and what is of others, block nobody"
        );
        table.reply(id, Ok(()));
        assert!(!table.has_abandoned() && !table.awaits_abandoned(&write(8192)));
    }

    /// A table with a session that borrows and a read of two blocks of it, and the memory of two.
    fn borrowing() -> (Table, u32, RequestId, Arena) {
        let mut table = Table::default();
        let session = table.open_session();
        table.session(session).borrows = true;
        let buffer = Some(AlignedBuffer::new(8192));
        let id = table.enter(session, Submission { length: 8192, buffer, ..read(1) }, Nanos(0));
        let mut arena = Arena::lending(2, 4096, HugePages::Never, 2).unwrap();
        for frame in 0..2 {
            let memory = arena.writable(frame, 0, 4096);
            // SAFETY: memory of the arena, that nobody else has.
            unsafe { memory.pointer.write_bytes(frame as u8 + 1, memory.length) };
        }
        (table, session, id, arena)
    }

    #[test]
    fn what_is_lent_for_all_of_a_read_goes_out_as_it_is() {
        let (mut table, session, id, mut arena) = borrowing();
        for (frame, at) in [(1, 0), (0, 4096)] {
            assert!(table.borrows(id, at) && !table.borrows(id, at + 512));
            table.borrow(id, arena.lend(frame, 0, 4096).unwrap());
        }
        table.reply(id, Ok(()));
        let done = table.session(session).done.pop().unwrap();
        let lent: Vec<u8> = done.lent.iter().flat_map(|loan| loan.to_vec()).collect();
        assert!(lent[..4096].iter().all(|&b| b == 2) && lent[4096..].iter().all(|&b| b == 1));
    }

    #[test]
    fn a_read_that_is_not_lent_as_a_whole_has_all_of_its_data_in_its_buffer() {
        let (mut table, session, id, mut arena) = borrowing();
        table.borrow(id, arena.lend(1, 0, 4096).unwrap());
        let memory = table.data(id);
        // SAFETY: the buffer of the request, which is still in flight.
        unsafe { memory.pointer.add(4096).write_bytes(7, 4096) };
        assert!(!table.borrows(id, 4096), "what follows goes to the buffer, too");
        table.reply(id, Ok(()));
        let done = table.session(session).done.pop().unwrap();
        let data = done.request.buffer.unwrap();
        assert!(done.lent.is_empty());
        assert!(data[..4096].iter().all(|&b| b == 2) && data[4096..].iter().all(|&b| b == 7));
    }

    #[test]
    fn who_does_not_borrow_is_lent_nothing() {
        let mut table = Table::default();
        let session = table.open_session();
        let id = table.enter(session, read(1), Nanos(0));
        assert!(!table.borrows(id, 0));
    }
}
