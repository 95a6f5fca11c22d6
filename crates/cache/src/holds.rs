//! The requests that are held back, and why.
//!
//! Several procedures may hold requests at the same time, each for its own reason. Only the
//! procedure that gave a reason removes it ([`World::unhold`](crate::world::World::unhold)), and
//! requests continue only once no reason is left. Requests that wait until records are void are in
//! the same list. Their reason is
//! [`FlashCondition::awaits_void`](crate::flash_condition::FlashCondition::awaits_void), which
//! shards also read.

use crate::in_flight::{InFlight, RequestList, RequestPlace};
use crate::slab::RequestIndex;

/// Why modifying requests and flushes are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HoldReason {
    /// A change of policy is past its first destage.
    Switch,
    /// Clients write so fast that a destage cannot catch up.
    Destage,
}

/// The held requests and the reasons; see the module documentation.
#[derive(Debug)]
pub(crate) struct Holds {
    switch: bool,
    destage: bool,
    /// Modifying requests and flushes that wait; some have begun.
    requests: RequestList,
    /// Whether cleanings that have not begun must wait until a seal has ended.
    pub cleanings: bool,
}

impl Holds {
    pub const NONE: Holds = Holds {
        switch: false,
        destage: false,
        requests: RequestList::new(RequestPlace::Held),
        cleanings: false,
    };

    /// Whether modifying requests and flushes are held for any reason.
    #[inline]
    pub fn any(&self) -> bool {
        self.switch || self.destage
    }

    /// Whether modifying requests and flushes are held for this reason.
    pub fn has(&self, reason: HoldReason) -> bool {
        match reason {
            HoldReason::Switch => self.switch,
            HoldReason::Destage => self.destage,
        }
    }

    /// Holds modifying requests and flushes for this reason from now on.
    pub fn add(&mut self, reason: HoldReason) {
        *self.flag(reason) = true;
    }

    /// Removes the reason; returns whether modifying requests and flushes were held for it.
    pub fn remove(&mut self, reason: HoldReason) -> bool {
        core::mem::take(self.flag(reason))
    }

    fn flag(&mut self, reason: HoldReason) -> &mut bool {
        match reason {
            HoldReason::Switch => &mut self.switch,
            HoldReason::Destage => &mut self.destage,
        }
    }

    /// The requests that wait.
    pub fn requests(&self) -> &RequestList {
        &self.requests
    }

    /// Adds a request to those that wait, as the last.
    pub fn push(&mut self, requests: &mut InFlight, request: RequestIndex) {
        requests.push(&mut self.requests, request);
    }

    /// Takes all requests that wait, in their order.
    pub fn take_requests(&mut self) -> RequestList {
        self.requests.take()
    }
}
