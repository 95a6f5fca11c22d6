//! The calls that change a cache, as data: one driver's calls can be recorded, and repeated by
//! another.

use forebay_block::{Nanos, Request, Volume};
use forebay_effect::{Outcome, RequestId, Token};

use crate::cache::Cache;
use crate::config::VolumeConfig;
use crate::notice::Open;
use crate::order::Order;
use crate::stamp::StampReport;

/// A call into a [`Cache`]. Each variant is the method of the same name, where it is documented.
///
/// These are all calls that change what the cache does later, except [`Cache::handle_hit`], which
/// does what [`Call::Request`] with the same read would do, and the reads of published blocks.
/// Answers are taken with [`Cache::poll_effect`] and the other `poll` methods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Cache::attach`].
    Attach(VolumeConfig),
    /// [`Cache::keep_stamps`].
    KeepStamps(Volume),
    /// [`Cache::start`].
    Start(Nanos, Open),
    /// [`Cache::handle_request`].
    Request(RequestId, Request),
    /// [`Cache::handle_completion`]. Bytes that the effect read into metadata buffers are already
    /// there.
    Completion(Nanos, Token, Outcome),
    /// [`Cache::handle_checksum`].
    Checksum(Token, u32),
    /// [`Cache::handle_timeout`].
    Timeout(Nanos),
    /// [`Cache::handle_order`].
    Order(Nanos, Order),
    /// [`Cache::handle_stamped`].
    Stamped(Nanos, Vec<StampReport>),
}

impl Call {
    /// Makes the call.
    ///
    /// # Panics
    /// If the method of the cache panics.
    #[inline]
    pub fn apply(self, cache: &mut Cache) {
        match self {
            Call::Attach(volume) => _ = cache.attach(volume),
            Call::KeepStamps(volume) => cache.keep_stamps(volume),
            Call::Start(now, open) => cache.start(now, open),
            Call::Request(id, request) => cache.handle_request(id, request),
            Call::Completion(now, token, outcome) => cache.handle_completion(now, token, outcome),
            Call::Checksum(token, value) => cache.handle_checksum(token, value),
            Call::Timeout(now) => cache.handle_timeout(now),
            Call::Order(now, order) => cache.handle_order(now, order),
            Call::Stamped(now, reports) => cache.handle_stamped(now, &reports),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CacheConfig;
    use crate::policy::{Acknowledge, WritePolicy};
    use crate::stop::StopTarget;
    use forebay_block::Op;

    #[test]
    fn every_call_carries_its_time_which_never_goes_back() {
        let mut cache = Cache::new(CacheConfig::dram_only(4));
        cache.attach(VolumeConfig::new(1 << 16));
        let order = |order| move |now| Call::Order(now, order);
        let calls: [Box<dyn FnOnce(Nanos) -> Call>; 13] = [
            Box::new(|now| Call::Start(now, Open::RECOVER)),
            Box::new(|now| {
                Call::Request(RequestId(1), Request::new(now, Volume(0), Op::Read, 0, 4096))
            }),
            Box::new(Call::Timeout),
            Box::new(|now| Call::Stamped(now, Vec::new())),
            Box::new(order(Order::Destage)),
            Box::new(order(Order::RetryStores)),
            Box::new(order(Order::SetPolicy(WritePolicy::WRITE_BACK, Acknowledge::Dram))),
            Box::new(order(Order::SetDramBlocks(4))),
            Box::new(order(Order::Seal(Vec::new()))),
            Box::new(order(Order::Stamp)),
            Box::new(order(Order::EndCompletion)),
            Box::new(order(Order::PrepareStop)),
            Box::new(order(Order::Stop(StopTarget::Stores))),
        ];
        for (second, call) in calls.into_iter().enumerate() {
            let now = Nanos(1_000_000_000 * second as u64);
            call(now).apply(&mut cache);
            assert_eq!(cache.world.now, now, "call {second}");
        }
        let now = cache.world.now;
        cache.handle_order(Nanos(7), Order::Stamp);
        assert_eq!(cache.world.now, now);
    }
}
