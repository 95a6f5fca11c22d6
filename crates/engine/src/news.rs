//! What threads wait for that are not sessions: notices of the machine, the end of the engine, and rest.
//!
//! A thread that unlocks the core wakes them if there is news
//! ([`CoreGuard`](crate::shared::CoreGuard)). Requests make no news: while no thread waits for rest,
//! unlocking costs two comparisons.

use forebay_cache::Notice;

/// States in which some work has ended. An order waits for them before it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// The machine has no requests in flight; some may be held back.
    Unused,
    /// The machine can take a note of the stores.
    Quiet,
    /// No stamps are being written.
    Unstamped,
    /// There is no work left but new requests.
    Idle,
}

/// See the module.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct News {
    /// Notices not yet taken by the threads that wait for them.
    notices: Vec<Notice>,
    /// Some news has arrived since threads were last woken.
    untold: bool,
    /// What threads wait for, once for each.
    awaited: Vec<Rest>,
}

impl News {
    /// A notice has arrived.
    pub fn push(&mut self, notice: Notice) {
        self.notices.push(notice);
        self.untold = true;
    }

    /// Something else has changed that threads look at.
    pub fn tell(&mut self) {
        self.untold = true;
    }

    /// Whether there is news since the last call. A notice that nobody has taken is none.
    #[inline]
    pub fn take(&mut self) -> bool {
        self.untold && std::mem::take(&mut self.untold)
    }

    /// Takes the first notice that `wanted` accepts.
    pub fn take_notice<T>(&mut self, mut wanted: impl FnMut(&Notice) -> Option<T>) -> Option<T> {
        let found = self.notices.iter().enumerate().find_map(|(at, n)| Some((at, wanted(n)?)));
        let (at, value) = found?;
        self.notices.remove(at);
        Some(value)
    }

    /// A thread waits for this.
    pub fn add_awaited(&mut self, rest: Rest) {
        self.awaited.push(rest);
    }

    /// A thread does not wait for it any more.
    pub fn remove_awaited(&mut self, rest: Rest) {
        let at = self.awaited.iter().position(|&awaited| awaited == rest);
        self.awaited.swap_remove(at.expect("a thread waited for it"));
    }

    /// What threads wait for.
    #[inline]
    pub fn awaited(&self) -> &[Rest] {
        &self.awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_news_once_and_is_kept_for_those_that_want_it() {
        let mut news = News::default();
        news.push(Notice::Destaged(Ok(())));
        assert!(news.take());
        assert!(!news.take(), "each request that follows would wake all threads");
        let sealed = |notice: &Notice| matches!(notice, Notice::Sealed(_)).then_some(());
        assert_eq!(news.take_notice(sealed), None);
        let destaged = |notice: &Notice| matches!(notice, Notice::Destaged(_)).then_some(());
        assert_eq!((news.take_notice(destaged), news.take_notice(destaged)), (Some(()), None));
    }
}
