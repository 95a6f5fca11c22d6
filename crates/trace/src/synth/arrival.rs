//! When requests arrive.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    random::Random,
    spec::{Arrival, Phase},
};
use crate::{Result, TraceError};

/// The times of a phase's requests, in nanoseconds from its start.
pub(super) enum Arrivals {
    Fixed {
        rate: u64,
        sent: u64,
    },
    Poisson {
        gap_ns: f64,
        time_ns: f64,
    },
    /// The time at which each client sends its next request.
    Closed {
        service_ns: f64,
        clients: BinaryHeap<Reverse<u64>>,
    },
}

impl Arrivals {
    pub(super) fn new(phase: &Phase) -> Result<Self> {
        let rate = phase.rate.unwrap_or(10_000);
        let clients = phase.clients.unwrap_or(16);
        let service_ns = phase.service.map_or(1_000_000, |s| s.nanos().0);
        let wrong = |what: &str| Err(TraceError::Options(format!("workload: {what}")));
        Ok(match phase.arrival.unwrap_or_default() {
            Arrival::Fixed | Arrival::Poisson if rate == 0 => return wrong("rate must not be 0"),
            Arrival::Fixed => Arrivals::Fixed { rate, sent: 0 },
            Arrival::Poisson => Arrivals::Poisson { gap_ns: 1e9 / rate as f64, time_ns: 0.0 },
            Arrival::Closed if !(1..=1_000_000).contains(&clients) || service_ns == 0 => {
                return wrong("a closed loop needs 1 to 1,000,000 clients and a service time");
            }
            Arrival::Closed => {
                let clients = (0..clients).map(|_| Reverse(0)).collect();
                Arrivals::Closed { service_ns: service_ns as f64, clients }
            }
        })
    }

    /// The time of request `n`, counted from 0, without generating requests; `None` if it is
    /// random.
    pub(super) fn time_of(&self, n: u64) -> Option<u64> {
        let Arrivals::Fixed { rate, .. } = self else { return None };
        let ns = u128::from(n) * 1_000_000_000 / u128::from(*rate);
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The next request's time; times never go back.
    #[inline]
    pub(super) fn next(&mut self, random: &mut Random) -> u64 {
        match self {
            Arrivals::Fixed { rate, sent } => {
                *sent += 1;
                (u128::from(*sent - 1) * 1_000_000_000 / u128::from(*rate)) as u64
            }
            Arrivals::Poisson { gap_ns, time_ns } => {
                let now = *time_ns;
                *time_ns += random.exponential(*gap_ns);
                now as u64
            }
            Arrivals::Closed { service_ns, clients } => {
                let Reverse(now) = clients.pop().unwrap_or_default();
                let done = now.saturating_add(random.exponential(*service_ns) as u64);
                clients.push(Reverse(done));
                now
            }
        }
    }
}
