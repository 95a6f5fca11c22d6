//! The stop that operators ask for over the control address, and how it ended.

use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_engine::StopMode;

use crate::signals::StopSignals;

/// The stop that operators have asked for.
#[derive(Debug)]
pub(crate) struct StopRequest {
    state: Mutex<Asked>,
}

#[derive(Debug)]
struct Asked {
    /// What happens to dirty data unless an order or a signal says otherwise.
    usual: StopMode,
    /// The last order, with what it says about dirty data, if anything.
    order: Option<Option<StopMode>>,
    /// The stop that has begun. No order changes it.
    begun: Option<StopMode>,
}

impl StopRequest {
    /// A state in which no stop has been requested.
    pub fn new(usual: StopMode) -> StopRequest {
        StopRequest { state: Mutex::new(Asked { usual, order: None, begun: None }) }
    }

    fn state(&self) -> MutexGuard<'_, Asked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stop that has begun, if any.
    pub fn begun(&self) -> Option<StopMode> {
        self.state().begun
    }

    /// What happens to dirty data by default.
    pub fn usual(&self) -> StopMode {
        self.state().usual
    }

    /// Changes what happens to dirty data by default.
    pub fn set_usual(&self, usual: StopMode) {
        self.state().usual = usual;
    }

    /// The stop that was requested last, if any.
    pub fn get(&self) -> Option<StopMode> {
        let state = self.state();
        state.order.map(|named| named.unwrap_or(state.usual))
    }

    /// Whether the last order ends a start that is in progress. An order to destage or to release
    /// needs the cache, so it waits until the cache is ready.
    pub fn ends_start(&self) -> bool {
        matches!(self.state().order, Some(None | Some(StopMode::Keep)))
    }

    /// Begins the stop that was requested, or the default one. Returns the stop that has begun.
    pub fn begin(&self) -> StopMode {
        let mut state = self.state();
        let mode = state.order.flatten().unwrap_or(state.usual);
        *state.begun.get_or_insert(mode)
    }

    /// Records an order to stop, which may say what happens to dirty data.
    ///
    /// # Errors
    /// If a stop that does less has begun.
    pub fn ask(&self, named: Option<StopMode>) -> Result<(), &'static str> {
        let mut state = self.state();
        match (state.begun, named) {
            (Some(StopMode::Keep | StopMode::Destage), Some(StopMode::Release)) => {
                return Err("the server is already stopping, without releasing the stores");
            }
            (Some(StopMode::Keep), Some(StopMode::Destage)) => {
                return Err("the server is already stopping, without destaging dirty data");
            }
            _ => {}
        }
        state.order = Some(named);
        drop(state);
        StopSignals::wake();
        Ok(())
    }
}

/// How a server ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Before the cache was ready.
    InStart,
    /// By a stop.
    Stopped {
        /// What the stop was meant to do with dirty data.
        mode: StopMode,
        /// Blocks left dirty on flash.
        dirty_blocks: u64,
    },
}

impl Ended {
    /// Blocks left dirty on flash, if that is known.
    pub fn dirty_blocks(self) -> Option<u64> {
        match self {
            Ended::InStart => None,
            Ended::Stopped { dirty_blocks, .. } => Some(dirty_blocks),
        }
    }

    /// How the end falls short of `wanted`, as a part of a message; `None` if it does not. If
    /// `wanted` is only the default (not `named`), an end before the cache was ready does not fall
    /// short of a destage.
    pub fn lacks(self, wanted: StopMode, named: bool) -> Option<String> {
        match (wanted, self) {
            (StopMode::Keep, _) => None,
            (StopMode::Destage, Ended::InStart) if !named => None,
            (StopMode::Destage, Ended::InStart) => {
                Some("before the cache was ready, so it destaged nothing".to_owned())
            }
            (StopMode::Release, Ended::InStart) => {
                Some("before the cache was ready, so it did not release the stores".to_owned())
            }
            (_, Ended::Stopped { dirty_blocks: blocks @ 1.., .. }) => Some(format!(
                "{blocks} dirty block{} on flash",
                if blocks == 1 { " stays" } else { "s stay" }
            )),
            (StopMode::Release, Ended::Stopped { mode, .. }) if mode != StopMode::Release => {
                Some("it did not release the stores, because another stop had begun".to_owned())
            }
            (StopMode::Destage | StopMode::Release, Ended::Stopped { .. }) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use StopMode::{Destage, Keep, Release};

    #[test]
    fn a_stop_that_has_begun_is_not_changed() {
        let request = StopRequest::new(Keep);
        assert_eq!((request.get(), request.begin()), (None, Keep));
        for (named, accepted) in
            [(None, true), (Some(Keep), true), (Some(Destage), false), (Some(Release), false)]
        {
            assert_eq!(request.ask(named).is_ok(), accepted, "{named:?}");
            assert_eq!(request.begin(), Keep);
        }
        let request = StopRequest::new(Keep);
        request.ask(Some(Release)).unwrap();
        request.ask(Some(Destage)).unwrap();
        assert_eq!((request.get(), request.begin()), (Some(Destage), Destage));
        assert!(request.ask(Some(Release)).is_err());
        assert!(request.ask(Some(Keep)).is_ok(), "it does more");
    }

    #[test]
    fn an_order_that_needs_the_cache_waits_for_the_end_of_the_start() {
        for (named, ends) in
            [(None, true), (Some(Keep), true), (Some(Destage), false), (Some(Release), false)]
        {
            let request = StopRequest::new(Destage);
            assert!(!request.ends_start());
            request.ask(named).unwrap();
            assert_eq!(request.ends_start(), ends, "{named:?}");
        }
    }

    #[test]
    fn an_end_that_does_less_than_was_wanted_is_no_success() {
        let stopped = |mode, dirty_blocks| Ended::Stopped { mode, dirty_blocks };
        for (wanted, named, ended, lacks) in [
            (Keep, true, Ended::InStart, false),
            (Keep, true, stopped(Keep, 3), false),
            (Destage, false, Ended::InStart, false),
            (Destage, true, Ended::InStart, true),
            (Destage, true, stopped(Keep, 0), false),
            (Destage, false, stopped(Destage, 1), true),
            (Release, true, Ended::InStart, true),
            (Release, true, stopped(Destage, 0), true),
            (Release, true, stopped(Release, 0), false),
            (Release, true, stopped(Release, 1), true),
        ] {
            let lacking = ended.lacks(wanted, named);
            assert_eq!(lacking.is_some(), lacks, "{wanted:?} {ended:?}");
        }
    }
}
