//! Tickets identify the parts of the cache that wait for the log.
//!
//! The log answers a call later, with an event that repeats the call's ticket. To the log a ticket
//! is a number; only this file knows how the number is built.

use core::fmt;

use crate::slab::{Key, RequestIndex, TransferIndex};

/// The part of the cache that called the log, and its purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ticket {
    /// A request that promises durability waits for a sync of the log.
    Request(RequestIndex),
    /// A transfer of a shard appends a record or has an extent marked.
    Transfer { shard: u8, transfer: TransferIndex },
    /// A shard moves the mapping of a block.
    Mapping { shard: u8 },
    /// A cleaning waits for a sync of the log.
    Cleaner,
    /// The start disowns records.
    Start,
    /// A change of policy has the log declared clean.
    Switch,
    /// A seal has the log declared clean, then has its note written.
    Seal,
    /// A stop has the log declared clean.
    Stop,
    /// Pass-through syncs what the failed log has written, then voids records.
    PassThrough,
}

const REQUEST: u64 = 0;
const TRANSFER: u64 = 1;
const MAPPING: u64 = 2;
const CLEANER: u64 = 3;
const START: u64 = 4;
const SWITCH: u64 = 5;
const SEAL: u64 = 6;
const STOP: u64 = 7;
const PASS_THROUGH: u64 = 8;

/// A number holds, from the highest bits: the kind, the shard, and the number of the request or
/// transfer.
const KIND_SHIFT: u32 = 40;
const SHARD_SHIFT: u32 = 32;

impl Ticket {
    /// The number of the ticket, for calls of the log.
    #[inline]
    pub fn encode(self) -> u64 {
        let (kind, shard, index) = match self {
            Ticket::Request(request) => (REQUEST, 0, request.number()),
            Ticket::Transfer { shard, transfer } => (TRANSFER, shard, transfer.number()),
            Ticket::Mapping { shard } => (MAPPING, shard, 0),
            Ticket::Cleaner => (CLEANER, 0, 0),
            Ticket::Start => (START, 0, 0),
            Ticket::Switch => (SWITCH, 0, 0),
            Ticket::Seal => (SEAL, 0, 0),
            Ticket::Stop => (STOP, 0, 0),
            Ticket::PassThrough => (PASS_THROUGH, 0, 0),
        };
        kind << KIND_SHIFT | u64::from(shard) << SHARD_SHIFT | u64::from(index)
    }

    /// The ticket that an event of the log repeats.
    ///
    /// # Panics
    /// If [`Ticket::encode`] does not make this number.
    #[inline]
    pub fn decode(number: u64) -> Ticket {
        let (shard, index) = ((number >> SHARD_SHIFT) as u8, number as u32);
        match number >> KIND_SHIFT {
            REQUEST => Ticket::Request(RequestIndex::new(index)),
            TRANSFER => Ticket::Transfer { shard, transfer: TransferIndex::new(index) },
            MAPPING => Ticket::Mapping { shard },
            CLEANER => Ticket::Cleaner,
            START => Ticket::Start,
            SWITCH => Ticket::Switch,
            SEAL => Ticket::Seal,
            STOP => Ticket::Stop,
            PASS_THROUGH => Ticket::PassThrough,
            _ => unreachable!("{number:#x} is not a ticket"),
        }
    }

    /// The shard and the transfer that an event about a record or an extent is for.
    #[inline]
    pub fn transfer(number: u64) -> (usize, TransferIndex) {
        match Ticket::decode(number) {
            Ticket::Transfer { shard, transfer } => (usize::from(shard), transfer),
            other => other.unexpected("a transfer"),
        }
    }

    /// The shard that an event about a moved mapping is for.
    #[inline]
    pub fn mapping(number: u64) -> usize {
        match Ticket::decode(number) {
            Ticket::Mapping { shard } => usize::from(shard),
            other => other.unexpected("a mapping"),
        }
    }

    /// Panics, because the log answers `what` with this ticket, which was never used for it.
    #[cold]
    pub fn unexpected(self, what: impl fmt::Display) -> ! {
        unreachable!("the log answers {what} with the ticket {self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ticket_comes_back_from_its_number() {
        let shards = [0, 1, 63, u8::MAX];
        let indices = [0, 1, u32::MAX];
        let mut tickets = vec![
            Ticket::Cleaner,
            Ticket::Start,
            Ticket::Switch,
            Ticket::Seal,
            Ticket::Stop,
            Ticket::PassThrough,
        ];
        tickets.extend(indices.map(|n| Ticket::Request(RequestIndex::new(n))));
        for shard in shards {
            tickets.push(Ticket::Mapping { shard });
            tickets.extend(indices.map(|n| {
                let transfer = TransferIndex::new(n);
                Ticket::Transfer { shard, transfer }
            }));
        }
        let mut numbers: Vec<u64> = tickets.iter().map(|ticket| ticket.encode()).collect();
        assert!(numbers.iter().zip(&tickets).all(|(&n, &ticket)| Ticket::decode(n) == ticket));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), tickets.len(), "two tickets have one number");
    }
}
