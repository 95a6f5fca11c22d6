//! The calls that change a cache, as data: what one driver does can be recorded, and done again by another.

use forebay_block::{Nanos, Request, Volume};
use forebay_effect::{Outcome, RequestId, Token};
use forebay_flash::Sealed;

use crate::cache::Cache;
use crate::config::VolumeConfig;
use crate::notice::Open;
use crate::policy::{Acknowledge, WritePolicy};
use crate::stop::StopTarget;

/// A call into a [`Cache`]. Each variant is the method of the same name, where it is documented.
///
/// All calls that change what the cache does later are here, but for [`Cache::handle_hit`], which does what
/// [`Call::Request`] with the same read would do, and the reads of published blocks. Answers are taken with
/// [`Cache::poll_effect`] and its like.
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
    /// [`Cache::handle_completion`]. Bytes that the effect read into metadata buffers are already there.
    Completion(Nanos, Token, Outcome),
    /// [`Cache::handle_checksum`].
    Checksum(Token, u32),
    /// [`Cache::handle_timeout`].
    Timeout(Nanos),
    /// [`Cache::destage`].
    Destage,
    /// [`Cache::retry_stores`].
    RetryStores,
    /// [`Cache::prepare_stop`].
    PrepareStop,
    /// [`Cache::stop`].
    Stop(StopTarget),
    /// [`Cache::set_policy`].
    SetPolicy(WritePolicy, Acknowledge),
    /// [`Cache::set_dram_blocks`].
    SetDramBlocks(u32),
    /// [`Cache::seal`].
    Seal(Vec<Sealed>),
    /// [`Cache::stamp`].
    Stamp,
    /// [`Cache::stamped`].
    Stamped(Vec<(Volume, u64)>),
    /// [`Cache::completed`].
    Completed,
}

impl Call {
    /// Makes the call.
    ///
    /// # Panics
    /// Where the method of the cache does.
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
            Call::Destage => cache.destage(),
            Call::RetryStores => cache.retry_stores(),
            Call::PrepareStop => cache.prepare_stop(),
            Call::Stop(target) => cache.stop(target),
            Call::SetPolicy(policy, acknowledge) => cache.set_policy(policy, acknowledge),
            Call::SetDramBlocks(blocks) => cache.set_dram_blocks(blocks),
            Call::Seal(volumes) => cache.seal(volumes),
            Call::Stamp => cache.stamp(),
            Call::Stamped(numbers) => cache.stamped(&numbers),
            Call::Completed => cache.completed(),
        }
    }
}
