//! The orders that operators and drivers give to a cache, as data.

use forebay_flash::Sealed;

#[cfg(doc)]
use crate::cache::Cache;
#[cfg(doc)]
use crate::notice::Notice;
use crate::policy::{Acknowledge, WritePolicy};
use crate::stop::StopTarget;
#[cfg(doc)]
use crate::switch::PolicyError;
#[cfg(doc)]
use forebay_effect::IoError;

/// An order, given with [`Cache::handle_order`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Write all data that is dirty now to the backing stores. [`Notice::Destaged`] follows, one
    /// for all orders given before the destage that serves them began. Requests continue meanwhile;
    /// the destage does not wait for data that they make dirty. Only if clients write faster than
    /// the stores, so that the destage cannot catch up, modifying requests wait for its end.
    /// Refused with [`IoError::Shutdown`] if requests are.
    Destage,
    /// Try failing stores again now, not at the next scheduled time.
    RetryStores,
    /// A stop is near: from now on, nothing waits for data that cannot be destaged, and requested
    /// destages end early with an error. The stop does the rest of their work, or leaves the data
    /// on flash.
    PrepareStop,
    /// Stop: requests in flight are finished, later ones refused; dirty data goes to the target.
    /// [`Notice::Stopped`] follows, unless the start has not ended or has failed. A cache that was
    /// never started stops without accessing a device.
    Stop(StopTarget),
    /// Change the write policy, and when writes under write-back are answered.
    /// [`Notice::PolicySet`] follows. At the end of the change, modifying requests wait while the
    /// last dirty blocks go to the backing stores; reads continue. [`PolicyError`] has the reasons
    /// for which a change is refused, or fails.
    SetPolicy(WritePolicy, Acknowledge),
    /// Call off the change of an [`Order::SetPolicy`]: it ends with [`PolicyError::CalledOff`], and the old policy
    /// stays. Has no effect on a change that waits only for the flash tier, nor if there is no change. The change of a
    /// start goes on, but lets requests continue until its destage ends.
    EndSwitch,
    /// Use this many blocks of DRAM from now on: at least one for each shard, and at most as many
    /// as the cache was built with. If that is fewer than now, blocks leave when others enter.
    SetDramBlocks(u32),
    /// Make the flash tier durably note the state of these volumes' backing stores, or that all
    /// their cached data is void. [`Notice::Sealed`] follows. Refused with [`IoError::Invalid`]
    /// unless the cache is quiet and nothing is dirty (as after a [`Order::Destage`] without
    /// requests), or the cache has stopped without an error. The caller holds all requests back
    /// until the notice, and until a seal of zeroes has replaced one that describes a store. A
    /// start forgets seals.
    Seal(Vec<Sealed>),
    /// Request new stamps for stores that have changed since their last stamp, or whose log has.
    /// [`Notice::Stamp`] follows if there are any. Drivers give this order from time to time, but
    /// not between an [`Order::Seal`] that describes the stores and the one that withdraws it.
    Stamp,
    /// The stores that recovery found to be older copies, `RecoveryReport::completing`, are up to
    /// date: an [`Order::Destage`] since the start has succeeded, and they have new stamps. Given
    /// before any request.
    EndCompletion,
}
