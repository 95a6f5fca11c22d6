//! Requests that wait for room in the machine: sessions take turns, so that a session with many
//! requests does not delay those with few.

use std::collections::VecDeque;

use forebay_effect::RequestId;

/// Requests in the order in which they are to be submitted. Requests of one session keep their
/// order.
#[derive(Debug, Default)]
pub(crate) struct SessionQueues {
    /// By session.
    queues: Vec<VecDeque<RequestId>>,
    /// Sessions with requests; the next one first.
    turns: VecDeque<u32>,
    count: usize,
}

impl SessionQueues {
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether any of this session waits.
    pub fn has(&self, session: u32) -> bool {
        self.queues.get(session as usize).is_some_and(|queue| !queue.is_empty())
    }

    /// The requests that wait.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.queues.iter().flatten().copied()
    }

    /// Queues a request of a session after its others.
    pub fn push(&mut self, session: u32, request: RequestId) {
        let at = session as usize;
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, VecDeque::new);
        }
        if self.queues[at].is_empty() {
            self.turns.push_back(session);
        }
        self.queues[at].push_back(request);
        self.count += 1;
    }

    /// Takes back all requests of a session.
    pub fn take(&mut self, session: u32) -> VecDeque<RequestId> {
        self.turns.retain(|&turn| turn != session);
        let queue = self.queues.get_mut(session as usize).map(std::mem::take).unwrap_or_default();
        self.count -= queue.len();
        queue
    }

    /// The next request that `fits`, among the first request of each session.
    pub fn pop(&mut self, mut fits: impl FnMut(RequestId) -> bool) -> Option<RequestId> {
        let first = |session: &u32| self.queues[*session as usize].front().copied();
        let turn = self.turns.iter().position(|session| first(session).is_some_and(&mut fits))?;
        let session = self.turns.remove(turn)?;
        let queue = &mut self.queues[session as usize];
        let request = queue.pop_front();
        if !queue.is_empty() {
            self.turns.push_back(session);
        }
        self.count -= usize::from(request.is_some());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_asks_for_little_waits_for_one_turn_of_the_others() {
        let mut waiting = SessionQueues::default();
        (0..1000).for_each(|n| waiting.push(3, RequestId(n)));
        (1000..2000).for_each(|n| waiting.push(0, RequestId(n)));
        waiting.push(1, RequestId(5000));
        waiting.push(1, RequestId(5001));
        let order: Vec<u64> = (0..5).filter_map(|_| waiting.pop(|_| true)).map(|id| id.0).collect();
        assert_eq!(order, [0, 1000, 5000, 1, 1001]);
        assert_eq!(waiting.len(), 1997);
        let rest: Vec<u64> = std::iter::from_fn(|| waiting.pop(|_| true)).map(|id| id.0).collect();
        assert!(rest.iter().filter(|&&id| id < 1000).is_sorted(), "a session's order is its own");
        assert!(waiting.len() == 0 && rest.len() == 1997);
    }

    #[test]
    fn a_session_whose_request_does_not_fit_keeps_its_turn_and_others_go_on() {
        let mut waiting = SessionQueues::default();
        for (session, request) in [(0, 1), (0, 2), (1, 10), (1, 11)] {
            waiting.push(session, RequestId(request));
        }
        let large = |id: RequestId| id.0 >= 10;
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop(large)).map(|id| id.0).collect();
        assert_eq!(order, [10, 11]);
        assert!(waiting.has(0) && !waiting.has(1));
        assert_eq!(waiting.pop(|_| true), Some(RequestId(1)));
    }

    #[test]
    fn a_session_whose_requests_are_taken_back_has_no_turn_and_others_keep_theirs() {
        let mut waiting = SessionQueues::default();
        for (session, request) in [(0, 1), (1, 10), (0, 2), (2, 20)] {
            waiting.push(session, RequestId(request));
        }
        assert_eq!(waiting.take(0), [RequestId(1), RequestId(2)]);
        assert!(waiting.take(0).is_empty() && waiting.take(9).is_empty());
        assert!(waiting.len() == 2 && !waiting.has(0));
        waiting.push(0, RequestId(3));
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop(|_| true)).map(|id| id.0).collect();
        assert_eq!(order, [10, 20, 3]);
    }
}
