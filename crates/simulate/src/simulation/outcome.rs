//! Builds the result of a run, and destages after outages.

use forebay_block::{Nanos, Volume};
use forebay_cache::{Notice, Order, VolumeStats};
use forebay_flash::LogStats;
use forebay_results::{FlashResult, LatencyRecorder};

use super::Simulation;
use crate::error::SimulateError;
use crate::options::{Interval, Pacing};
use crate::result::{
    self, AddedFlushes, AfterOutages, Assumed, Overload, SimulationResult, Throughput, VolumeResult,
};
use crate::series::{Series, Totals};

impl Simulation {
    /// Waits for the end of every outage that has one, then destages everything. Returns `None` if
    /// there were no outages.
    pub(super) fn destage(&mut self) -> Result<Option<AfterOutages>, SimulateError> {
        if self.outages.is_empty() {
            return Ok(None);
        }
        let ends = self.outages.iter().filter_map(|outage| outage.until);
        let begin = self.now.max(self.epoch.saturating_add(ends.max().unwrap_or_default()));
        self.advance(begin);
        self.cache.handle_order(self.now, Order::Destage);
        self.execute();
        let ended = loop {
            match self.cache.poll_notice() {
                Some(Notice::Destaged(result)) => break result.is_ok(),
                Some(_) => {}
                None => self.step_or_stuck()?,
            }
        };
        Ok(Some(AfterOutages {
            destaged: ended,
            seconds: self.now.saturating_sub(begin).as_secs_f64(),
            dirty_blocks: self.cache.dirty_blocks(),
        }))
    }

    fn stats(&self) -> impl Iterator<Item = &VolumeStats> {
        (0..self.volumes.len() as u32).filter_map(|n| self.cache.volume_stats(Volume(n)))
    }

    /// Returns the busiest of the devices that late requests may have waited for: flash, or the
    /// backing store of their volume. At most one.
    ///
    /// A device with a queue is busy all the time, so requests did not wait for a device that was
    /// busy for less time than they waited. Nor did they wait for a store that fails. Returns
    /// nothing unless the pacing is [`Pacing::OpenLoop`], because other pacings fill the queues
    /// themselves.
    fn overloaded(&self, duration_s: f64) -> Vec<Overload> {
        if !matches!(self.pacing, Pacing::OpenLoop { .. }) {
            return Vec::new();
        }
        let waited = self.volumes.iter().map(|v| (v.name.as_str(), v.late.total));
        let waited = waited.chain([("flash", self.late.total)]).zip(self.timing.busy());
        let busiest = waited
            .filter(|((_, late), busy)| *late > Nanos(0) && busy >= late)
            .max_by_key(|(_, busy)| *busy);
        // (Work after the last answer counts as busy, too.)
        let share = |time: Nanos| (time.as_secs_f64() / duration_s.max(1e-9)).min(1.0);
        let overload = |((device, late), busy): ((&str, Nanos), Nanos)| Overload {
            device: device.to_owned(),
            busy_share: share(busy),
            seconds: late.as_secs_f64(),
            share: share(late),
        };
        busiest.map(overload).into_iter().collect()
    }

    pub(super) fn totals(&self) -> Totals {
        result::totals(&self.stats().sum(), self.cache.log_stats())
    }

    pub(super) fn result(&mut self) -> SimulationResult {
        let duration_s = self.last_answer.saturating_sub(self.epoch).as_secs_f64();
        let log = self.cache.log_stats();
        let flash_bytes = log.map_or(0, LogStats::bytes_written);
        let mut sum: VolumeStats = self.stats().sum();
        // With one volume, use the cache's own maximum: the cache updates it at every change, while
        // `self.dirty_blocks_max` is sampled.
        if self.volumes.len() > 1 {
            sum.dirty_blocks_max = self.dirty_blocks_max;
        }
        let mut latency = LatencyRecorder::default();
        let mut volumes = Vec::new();
        for (tally, stats) in self.volumes.iter().zip(self.stats()) {
            latency.add(&tally.latency);
            let own = tally.latency.summary();
            let (name, size_bytes) = (&tally.name, tally.size_bytes);
            volumes.push(VolumeResult::new(name, size_bytes, stats, tally.added, own));
        }
        let series = std::mem::replace(&mut self.series, Series::new(Interval::Adaptive));
        let added: AddedFlushes = self.volumes.iter().map(|v| v.added).sum();
        let run = result::run_result(&sum, added, latency.summary(), duration_s, flash_bytes);
        let (totals, is_timed) = (self.totals(), self.pacing != Pacing::Untimed);
        SimulationResult {
            throughput: Throughput::mean(&run),
            run,
            pacing: self.pacing.name(),
            component_latency_us: self.timing.components().summary(
                self.volumes.iter().zip(0..).map(|(v, number)| (Volume(number), v.name.as_str())),
            ),
            dirty_blocks: sum.dirty_blocks,
            flash: log.map(FlashResult::from),
            events: *self.cache.stats(),
            metadata_bytes: self.cache.memory_bytes(),
            capacity_blocks: self.capacity,
            overloaded: self.overloaded(duration_s),
            assumed: Assumed {
                flush: self.assume_flush.to_string(),
                flushes_added: added.count,
                flushes_traced: sum.flushes - added.count,
                devices: self.assumptions.clone(),
                flash_page_bytes: self.assumed_page_bytes,
            },
            after_outages: None,
            volumes,
            rows: series.finish(self.now.saturating_sub(self.epoch), totals, is_timed),
        }
    }
}
