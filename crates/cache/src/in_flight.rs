//! The requests in flight, and where each of them is.
//!
//! A request is in one place at any time. Some places have lists; only [`InFlight::push`] and
//! [`InFlight::pop`] change a list, and each list belongs to one place. Therefore [`InFlight`]
//! always knows which requests wait, and for what, although other types hold the lists.

use core::ops::{Index, IndexMut};

use forebay_block::{Flags, Op, Request, Volume};
use forebay_effect::{IoError, RequestId};

use crate::front::INTERNAL;
use crate::slab::{Fifo, Linked, RequestIndex, Slab};

/// Where a request is, or what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestPlace {
    /// The current call handles it: it waits for nothing.
    InHand,
    /// It takes its next step in the coming turn.
    Running,
    /// It takes its next step when enough of its pieces have returned.
    Paused,
    /// The shard of its next block has no place for another piece that waits.
    Blocked,
    /// A procedure holds it back, or records must become void first
    /// ([`Holds`](crate::holds::Holds)).
    Held,
    /// The dirty blocks of its volume fill the volume's share of flash.
    OverShare,
    /// A trim or zeroing of overlapping blocks must end first.
    Overlapping,
    /// A flush of its volume must write the blocks that are dirty in DRAM.
    Flushing,
    /// Its last pieces, or its syncs, must return.
    Returning,
    /// Everything has returned: the coming turn ends it or begins its last stage.
    Finished,
}

/// Number of places.
const PLACES: usize = RequestPlace::Finished as usize + 1;

impl RequestPlace {
    /// Whether the requests at this place are on lists.
    fn has_lists(self) -> bool {
        match self {
            Self::Running
            | Self::Blocked
            | Self::Held
            | Self::OverShare
            | Self::Overlapping
            | Self::Finished => true,
            Self::InHand | Self::Paused | Self::Flushing | Self::Returning => false,
        }
    }
}

/// Places that only clients' modifying requests and flushes enter, and that they leave only when
/// other work ends. A procedure that must not meet modifications, such as a change of policy, does
/// not wait for these requests.
const PUT_OFF: [RequestPlace; 3] =
    [RequestPlace::Held, RequestPlace::OverShare, RequestPlace::Overlapping];

/// The kind of a request's outstanding operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestStage {
    /// Its pieces.
    Pieces,
    /// The syncs that make it durable.
    Syncs,
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub id: RequestId,
    pub volume: Volume,
    pub op: Op,
    pub flags: Flags,
    pub offset: u64,
    pub end: u64,
    /// First byte not yet handed to a shard.
    pub cursor: u64,
    /// Pieces handed out and not returned, or syncs that it waits for.
    pub outstanding: u32,
    pub error: Option<IoError>,
    pub stage: RequestStage,
    /// Whether the log failed before the request was durable, so that it repeats its last stage.
    pub again: bool,
    /// Whether it is one of its volume's [`zeroings`](crate::volume::VolumeState::zeroings).
    pub zeroes: bool,
    /// Whether it bypasses the cache, as part of a sequential stream.
    pub bypass: bool,
    place: RequestPlace,
    next: RequestIndex,
}

impl RequestState {
    /// Whether it only brings data into the cache.
    pub fn is_prefetch(&self) -> bool {
        self.op == Op::Read && self.flags.contains(Flags::PREFETCH)
    }

    /// A request that has just arrived; its range lies in its volume.
    pub fn new(id: RequestId, request: &Request, bypass: bool) -> RequestState {
        let Request { volume, op, flags, offset, length, .. } = *request;
        let (offset, end) = if op == Op::Flush { (0, 0) } else { (offset, offset + length) };
        RequestState {
            id,
            volume,
            op,
            flags,
            offset,
            end,
            cursor: offset,
            outstanding: 0,
            error: None,
            stage: RequestStage::Pieces,
            again: false,
            zeroes: false,
            bypass,
            place: RequestPlace::InHand,
            next: RequestIndex::NONE,
        }
    }

    /// Whether all of it has been handed to shards.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.cursor == self.end
    }

    /// Its place.
    #[inline]
    pub fn place(&self) -> RequestPlace {
        self.place
    }

    /// Whether a client waits for the answer.
    pub fn is_clients(&self) -> bool {
        self.id != INTERNAL
    }

    /// Whether it may make blocks dirty, or is a flush, and a client waits for the answer.
    fn is_modification(&self) -> bool {
        self.is_clients() && self.op != Op::Read
    }
}

impl Linked<RequestIndex> for RequestState {
    fn next(&mut self) -> &mut RequestIndex {
        &mut self.next
    }
}

/// Requests at one place, in the order in which they leave it.
#[derive(Debug)]
#[must_use]
pub(crate) struct RequestList {
    place: RequestPlace,
    members: Fifo<RequestIndex>,
}

impl RequestList {
    /// An empty list of requests at this place.
    pub const fn new(place: RequestPlace) -> RequestList {
        RequestList { place, members: Fifo::EMPTY }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The request that leaves first.
    pub fn first(&self) -> Option<RequestIndex> {
        self.members.first()
    }

    /// The request that leaves last.
    pub fn last(&self) -> Option<RequestIndex> {
        self.members.last()
    }

    /// Takes the whole list; the requests remain at their place until they are popped.
    pub fn take(&mut self) -> RequestList {
        core::mem::replace(self, RequestList::new(self.place))
    }
}

/// The requests in flight; see the module documentation.
#[derive(Debug)]
pub(crate) struct InFlight {
    requests: Slab<RequestIndex, RequestState>,
    /// Number of requests at each place.
    counts: [u32; PLACES],
    /// Modifying requests and flushes of clients, wherever they are.
    modifications: u32,
}

impl Index<RequestIndex> for InFlight {
    type Output = RequestState;
    #[inline]
    fn index(&self, request: RequestIndex) -> &RequestState {
        &self.requests[request]
    }
}

impl IndexMut<RequestIndex> for InFlight {
    #[inline]
    fn index_mut(&mut self, request: RequestIndex) -> &mut RequestState {
        &mut self.requests[request]
    }
}

impl InFlight {
    /// Has no requests yet, and room for `capacity` at a time.
    pub fn new(capacity: u32) -> InFlight {
        InFlight { requests: Slab::new(capacity), counts: [0; PLACES], modifications: 0 }
    }

    /// The most requests, including the cache's own: queues of requests never hold more.
    pub fn capacity(&self) -> usize {
        self.requests.capacity()
    }

    pub fn in_use(&self) -> usize {
        self.requests.in_use()
    }

    pub fn get(&self, request: RequestIndex) -> Option<&RequestState> {
        self.requests.get(request)
    }

    pub fn iter(&self) -> impl Iterator<Item = (RequestIndex, &RequestState)> {
        self.requests.keys().filter_map(|request| Some((request, self.requests.get(request)?)))
    }

    /// The number of requests at a place.
    #[inline]
    pub fn count(&self, place: RequestPlace) -> u32 {
        self.counts[place as usize]
    }

    /// Whether any modifying request or flush of a client is not put off.
    pub fn is_modified(&self) -> bool {
        self.modifications > PUT_OFF.into_iter().map(|place| self.count(place)).sum()
    }

    /// Adds a request that has arrived; it is in hand.
    pub fn insert(&mut self, state: RequestState) -> RequestIndex {
        self.counts[RequestPlace::InHand as usize] += 1;
        self.modifications += u32::from(state.is_modification());
        self.requests.insert(state)
    }

    /// Removes a request in hand, because it is answered.
    pub fn remove(&mut self, request: RequestIndex) -> RequestState {
        let state = self.requests.remove(request);
        assert!(state.place == RequestPlace::InHand, "answered while {:?}", state.place);
        self.counts[RequestPlace::InHand as usize] -= 1;
        self.modifications -= u32::from(state.is_modification());
        state
    }

    /// Moves a request to a place that has no lists.
    pub fn enter(&mut self, request: RequestIndex, place: RequestPlace) {
        assert!(!place.has_lists() && !self[request].place.has_lists(), "a list would differ");
        self.move_to(request, place);
    }

    /// Moves a request that is on no list to the place of this list, after the others.
    pub fn push(&mut self, list: &mut RequestList, request: RequestIndex) {
        let place = self[request].place;
        assert!(!place.has_lists(), "on the list of {place:?} requests, and pushed to another");
        self.move_to(request, list.place);
        self.requests.push_back(&mut list.members, request);
    }

    /// Takes the first request of a list in hand.
    pub fn pop(&mut self, list: &mut RequestList) -> Option<RequestIndex> {
        let request = self.requests.pop_front(&mut list.members)?;
        assert!(self[request].place == list.place, "a request has left its list unnoticed");
        self.move_to(request, RequestPlace::InHand);
        Some(request)
    }

    /// The only way in which a request in flight changes its place.
    fn move_to(&mut self, request: RequestIndex, place: RequestPlace) {
        let state = &mut self.requests[request];
        debug_assert!(
            !PUT_OFF.contains(&place) || state.is_modification(),
            "only modifications of clients are put off"
        );
        let before = core::mem::replace(&mut state.place, place);
        self.counts[before as usize] -= 1;
        self.counts[place as usize] += 1;
    }

    /// Checks, between calls, that places, lists and counts agree. `lists`: all lists of requests;
    /// `flushing`: the requests that wait for flushes.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check<'a>(
        &self,
        lists: impl Iterator<Item = &'a RequestList>,
        flushing: impl Iterator<Item = RequestIndex>,
    ) {
        let mut listed = [0; PLACES];
        let mut note = |request: RequestIndex, place: RequestPlace| {
            assert_eq!(self[request].place, place, "{:?}", self[request]);
            listed[place as usize] += 1;
            assert!(
                listed[place as usize] <= self.count(place),
                "a list of {place:?} requests is a circle"
            );
            self[request].next
        };
        for list in lists {
            let mut next = list.first();
            while let Some(request) = next {
                let behind = note(request, list.place);
                next = (behind != RequestIndex::NONE).then_some(behind);
            }
        }
        for request in flushing {
            note(request, RequestPlace::Flushing);
        }
        let (mut counts, mut modifications, mut to_list) = ([0; PLACES], 0, 0);
        for (_, state) in self.iter() {
            let place = state.place;
            counts[place as usize] += 1;
            modifications += u32::from(state.is_modification());
            to_list += u32::from(place.has_lists() || place == RequestPlace::Flushing);
            let fits = match place {
                RequestPlace::InHand => false,
                RequestPlace::Running => true,
                RequestPlace::Paused => state.outstanding > 0 && !state.is_at_end(),
                RequestPlace::Blocked | RequestPlace::OverShare => !state.is_at_end(),
                RequestPlace::Held => state.op != Op::Read,
                RequestPlace::Overlapping => state.outstanding == 0 && !state.zeroes,
                RequestPlace::Flushing => state.op == Op::Flush && state.outstanding == 0,
                RequestPlace::Returning => state.outstanding > 0 && state.is_at_end(),
                RequestPlace::Finished => state.outstanding == 0 && state.is_at_end(),
            };
            assert!(fits, "a request cannot be where it is: {state:?}");
            assert!(!PUT_OFF.contains(&place) || state.is_modification(), "put off: {state:?}");
        }
        assert_eq!((counts, modifications), (self.counts, self.modifications), "miscounted");
        // No place has more requests on lists than it counts, so each has as many.
        assert_eq!(listed.iter().sum::<u32>(), to_list, "a request is on no list");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Nanos;

    const FLUSH: RequestId = RequestId(7);

    /// Places with lists, and the requests on them.
    fn lists() -> [RequestList; 6] {
        [
            RequestPlace::Running,
            RequestPlace::Blocked,
            RequestPlace::Held,
            RequestPlace::OverShare,
            RequestPlace::Overlapping,
            RequestPlace::Finished,
        ]
        .map(RequestList::new)
    }

    fn arrive(requests: &mut InFlight, id: RequestId, op: Op) -> RequestIndex {
        requests.insert(RequestState::new(
            id,
            &Request::new(Nanos(0), Volume(0), op, 0, 4096),
            false,
        ))
    }

    #[test]
    fn a_request_counts_where_it_is_and_its_list_says_so() {
        let mut requests = InFlight::new(4);
        for mut list in lists() {
            let writes = [1, 2].map(|id| arrive(&mut requests, RequestId(id), Op::Write));
            assert_eq!(requests.count(RequestPlace::InHand), 2);
            for write in writes {
                requests.push(&mut list, write);
            }
            let place = list.place;
            assert_eq!(requests.count(place), 2, "{place:?}");
            assert_eq!(requests.is_modified(), !PUT_OFF.contains(&place), "{place:?}");
            let mut taken = list.take();
            assert!(list.is_empty() && requests.count(place) == 2, "{place:?}: not popped yet");
            for write in writes {
                assert_eq!(requests.pop(&mut taken), Some(write));
                assert_eq!(requests[write].place(), RequestPlace::InHand);
                assert!(requests.is_modified(), "one in hand may modify");
                requests.remove(write);
            }
            assert_eq!(requests.pop(&mut taken), None);
            assert_eq!(requests.counts, [0; PLACES]);
            assert!(!requests.is_modified());
        }
    }

    #[test]
    fn reads_and_the_caches_own_flushes_are_no_modifications() {
        let mut requests = InFlight::new(4);
        let mut held = RequestList::new(RequestPlace::Held);
        let read = arrive(&mut requests, RequestId(1), Op::Read);
        let own = arrive(&mut requests, INTERNAL, Op::Flush);
        requests.enter(own, RequestPlace::Flushing);
        assert!(!requests.is_modified());
        let flush = arrive(&mut requests, FLUSH, Op::Flush);
        assert!(requests.is_modified());
        requests.push(&mut held, flush);
        assert!(!requests.is_modified());
        requests.remove(read);
        requests.check([&held].into_iter(), [own].into_iter());
    }

    #[test]
    #[should_panic(expected = "on the list of Held requests")]
    fn a_request_is_on_one_list_at_most() {
        let mut requests = InFlight::new(1);
        let flush = arrive(&mut requests, FLUSH, Op::Flush);
        let [mut running, _, mut held, ..] = lists();
        requests.push(&mut held, flush);
        requests.push(&mut running, flush);
    }

    #[test]
    #[should_panic(expected = "answered while Held")]
    fn a_request_on_a_list_is_not_answered() {
        let mut requests = InFlight::new(1);
        let flush = arrive(&mut requests, FLUSH, Op::Flush);
        requests.push(&mut RequestList::new(RequestPlace::Held), flush);
        requests.remove(flush);
    }

    #[test]
    #[should_panic(expected = "a request is on no list")]
    fn a_check_finds_a_request_whose_list_is_lost() {
        let mut requests = InFlight::new(1);
        let flush = arrive(&mut requests, FLUSH, Op::Flush);
        let mut held = RequestList::new(RequestPlace::Held);
        requests.push(&mut held, flush);
        let _ = held.take();
        requests.check([&held].into_iter(), [].into_iter());
    }

    #[test]
    #[should_panic(expected = "a request cannot be where it is")]
    fn a_check_finds_a_request_that_waits_for_nothing() {
        let mut requests = InFlight::new(1);
        let read = arrive(&mut requests, RequestId(1), Op::Read);
        requests.enter(read, RequestPlace::Returning);
        requests.check([].into_iter(), [].into_iter());
    }

    #[test]
    #[should_panic(expected = "a list of Held requests is a circle")]
    fn a_check_finds_a_list_without_an_end() {
        let mut requests = InFlight::new(1);
        let flush = arrive(&mut requests, FLUSH, Op::Flush);
        let mut held = RequestList::new(RequestPlace::Held);
        requests.push(&mut held, flush);
        requests[flush].next = flush;
        requests.check([&held].into_iter(), [].into_iter());
    }
}
