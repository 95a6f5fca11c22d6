//! The policies, one file each, and their registry.

mod arc;
mod clock;
mod derivative_lru;
mod fifo;
mod hr_lru;
mod lfu;
mod lru;
mod priority_lru;
mod random;
mod s3_fifo;
mod sieve;
pub(crate) mod sub_queues;
mod two_q;
mod w_tinylfu;

pub use arc::Arc;
pub use clock::Clock;
pub use derivative_lru::DerivativeLru;
pub use fifo::Fifo;
pub use hr_lru::HrLru;
pub use lfu::Lfu;
pub use lru::Lru;
pub use priority_lru::PriorityLru;
pub use random::Random;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use two_q::TwoQ;
pub use w_tinylfu::WTinyLfu;

use core::fmt;
use core::str::FromStr;

use crate::parameters::Parameters;
use crate::policy::{About, Documented, Hint, Policy, Tier};

/// Generates, from one line per policy, [`Kind`] with its names and ideas, and [`Replacement`] with
/// its dispatch. Nothing in a line is repeated elsewhere.
macro_rules! registry {
    ($($(#[doc = $idea:literal])+ $policy:ident = $name:literal;)+) => {
        /// The available policies.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[doc = $idea])+ $policy,)+
        }

        impl Kind {
            /// All policies.
            pub const ALL: &'static [Kind] = &[$(Kind::$policy),+];

            /// Its name in configurations.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$policy => $name,)+ }
            }

            /// Its idea, in a sentence.
            pub fn idea(self) -> &'static str {
                match self { $(Kind::$policy => concat!($($idea),+).trim_ascii_start(),)+ }
            }

            /// Its idea, line by line.
            pub const fn idea_lines(self) -> &'static [&'static str] {
                match self { $(Kind::$policy => &[$($idea),+],)+ }
            }

            /// Its source, tiers and parameters.
            pub const fn about(self) -> &'static About {
                match self { $(Kind::$policy => &<$policy as Documented>::ABOUT,)+ }
            }
        }

        /// A policy with its state. An enum rather than a trait object, because hits take this
        /// path.
        #[derive(Debug)]
        #[allow(missing_docs)]
        pub enum Replacement {
            $($policy($policy),)+
        }

        impl Policy for Replacement {
            /// Creates the policy to which `parameters` belong.
            fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self {
                match parameters.kind() {
                    $(Kind::$policy => Replacement::$policy(Policy::new(nodes, capacity, parameters)),)+
                }
            }
            #[inline]
            fn on_access(&mut self, node: u32) {
                match self { $(Replacement::$policy(p) => p.on_access(node),)+ }
            }
            #[inline]
            fn insert(&mut self, node: u32, key: u64, hint: Hint) {
                match self { $(Replacement::$policy(p) => p.insert(node, key, hint),)+ }
            }
            #[inline]
            fn evict(&mut self, incoming: Option<u64>) -> Option<u32> {
                match self { $(Replacement::$policy(p) => p.evict(incoming),)+ }
            }
            fn restore(&mut self, node: u32) {
                match self { $(Replacement::$policy(p) => p.restore(node),)+ }
            }
            fn remove(&mut self, node: u32) {
                match self { $(Replacement::$policy(p) => p.remove(node),)+ }
            }
            fn set_capacity(&mut self, capacity: u32) {
                match self { $(Replacement::$policy(p) => p.set_capacity(capacity),)+ }
            }
            #[inline]
            fn prefetch_absent(&self, key: u64, near: bool) {
                match self { $(Replacement::$policy(p) => p.prefetch_absent(key, near),)+ }
            }
            #[inline]
            fn prefetch(&self, node: u32, near: bool) {
                match self { $(Replacement::$policy(p) => p.prefetch(node, near),)+ }
            }
            fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
                match self { $(Replacement::$policy(p) => p.likely_victim(after),)+ }
            }
            fn len(&self) -> u32 {
                match self { $(Replacement::$policy(p) => p.len(),)+ }
            }
            fn metadata_bytes(&self) -> u64 {
                match self { $(Replacement::$policy(p) => p.metadata_bytes(),)+ }
            }
            fn steps_max(parameters: &Parameters) -> u64 {
                match parameters.kind() {
                    $(Kind::$policy => <$policy as Policy>::steps_max(parameters),)+
                }
            }
            fn steps(&self) -> u64 {
                match self { $(Replacement::$policy(p) => p.steps(),)+ }
            }
        }
    };
}

registry! {
    /// Evicts the block that has not been used for the longest time.
    Lru = "lru";
    /// Evicts the block that entered the cache first.
    Fifo = "fifo";
    /// FIFO, but a block that has been used since the hand last passed it stays for another round.
    Clock = "clock";
    /// A hand sweeps a queue from old to new and evicts the first block that has not been used since the hand
    /// last passed it; the other blocks keep their places.
    Sieve = "sieve";
    /// New blocks enter a small queue, and leave soon if they are used only once or twice. Blocks that are used
    /// more often, or that return soon after leaving, enter the main queue.
    S3Fifo = "s3-fifo";
    /// New blocks enter a queue; a block that is accessed again after leaving the queue enters an LRU list.
    TwoQ = "2q";
    /// Two LRU lists, one of blocks used once and one of blocks used more often; accesses to blocks that
    /// recently left a list decide how large the lists are.
    Arc = "arc";
    /// Evicts the block that has been used least often; use counts are halved periodically.
    Lfu = "lfu";
    /// A block moves from a small LRU window to the main cache only if a sketch of recent use shows that it
    /// has been used more often than the block that it would replace.
    WTinyLfu = "w-tinylfu";
    /// LRU, but the lower the hit ratio of a block's chunk, the closer to eviction the block enters the
    /// queue.
    HrLru = "hr-lru";
    /// LRU, but the priority of a block's volume and the hit ratio of its chunk decide where the block
    /// enters the queue.
    PriorityLru = "priority-lru";
    /// LRU, but the less a block's volume would gain from a larger cache, the closer to eviction the block
    /// enters the queue.
    DerivativeLru = "derivative-lru";
    /// Evicts a random block; all blocks are equally likely.
    Random = "random";
}

impl Kind {
    /// Whether it can order this tier.
    pub const fn orders(self, tier: Tier) -> bool {
        let tiers = self.about().tiers;
        let mut n = 0;
        while n < tiers.len() {
            if tiers[n] as u8 == tier as u8 {
                return true;
            }
            n += 1;
        }
        false
    }
}

impl Default for Kind {
    /// LRU, which formulas and curves assume.
    fn default() -> Kind {
        Kind::Lru
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no policy has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownKind {
    name: String,
}

impl UnknownKind {
    /// The policy with the nearest name, if one is near enough to be the intended one.
    pub fn nearest(&self) -> Option<Kind> {
        forebay_names::nearest(&self.name, Kind::ALL.iter().map(|kind| kind.name()))?.parse().ok()
    }
}

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        write!(f, "there is no policy `{}`", self.name)?;
        if let Some(nearest) = self.nearest() {
            write!(f, " (did you mean `{nearest}`?)")?;
        }
        write!(f, ": choose one of {}", names.join(", "))
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// # Errors
    /// If no policy has that name; the message lists the available policies.
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let found = Kind::ALL.iter().copied().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownKind { name: name.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_policy_and_others_are_refused_with_the_nearest() {
        for &kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert!(!kind.idea().is_empty() && !kind.about().source.is_empty(), "{kind}");
            assert!(!kind.about().tiers.is_empty(), "{kind}");
        }
        let error = "S3FIFO".parse::<Kind>().unwrap_err();
        assert_eq!(error.nearest(), Some(Kind::S3Fifo));
        let text = error.to_string();
        assert!(text.contains("(did you mean `s3-fifo`?)") && text.contains("lru, fifo"), "{text}");
        assert_eq!("quantum".parse::<Kind>().unwrap_err().nearest(), None);
    }
}
