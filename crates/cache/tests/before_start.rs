//! What may come before the start, and nothing else; and whose requests are counted.

use crate::driver::*;
use forebay_block::{Flags, Nanos, Op, Volume};
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, Notice, Order, StopTarget, StoresLeft, VolumeConfig,
    WritePolicy,
};

#[test]
fn a_stop_of_a_cache_that_was_never_started_succeeds_without_accessing_a_device() {
    let with_log = |policy| with_flash(policy, Acknowledge::Flash);
    for config in [
        with_log(WritePolicy::WRITE_BACK),
        with_log(WritePolicy::WRITE_THROUGH),
        CacheConfig::dram_only(4),
    ] {
        for (target, volumes) in
            [(StopTarget::Flash, 0), (StopTarget::Flash, 2), (StopTarget::Stores, 2)]
        {
            let mut cache = Cache::new(config.clone());
            for _ in 0..volumes {
                cache.attach(VolumeConfig::new(BLOCK));
            }
            cache.handle_order(Nanos(1), Order::Stop(target));
            assert_eq!(cache.poll_effect(&mut Vec::new()), None);
            let notices: Vec<Notice> = std::iter::from_fn(|| cache.poll_notice()).collect();
            assert_eq!(notices, [Notice::Stopped(Ok(StoresLeft::Whole))]);
        }
    }
}

#[test]
fn what_belongs_before_the_start_is_refused_after_it() {
    let attach: fn(&mut Cache) = |cache| _ = cache.attach(VolumeConfig::new(BLOCK));
    for (name, call) in [
        ("attach", attach),
        ("keep_stamps", |cache| cache.keep_stamps(Volume(0))),
        ("without_bytes", Cache::without_bytes),
        ("without_time", Cache::without_time),
    ] {
        let mut d = Driver::new(CacheConfig::dram_only(4));
        let late = std::panic::AssertUnwindSafe(|| call(&mut d.cache));
        let message = std::panic::catch_unwind(late).expect_err("it panics");
        let message = message.downcast_ref::<String>().expect("a formatted message");
        assert_eq!(*message, format!("{name} must be called before the start"));
    }
}

#[test]
fn the_flushes_of_a_destage_are_not_counted_as_requests_of_clients() {
    for config in
        [CacheConfig::dram_only(4), with_flash(WritePolicy::WRITE_BACK, Acknowledge::Dram)]
    {
        let mut d = Driver::new(config);
        d.write(1);
        d.order(Order::Destage);
        d.settle();
        assert_eq!(d.cache.dirty_blocks(), 0);
        let counts = |d: &Driver| {
            let volume = d.cache.volume_stats(Volume(0)).expect("it is attached");
            (volume.writes, volume.flushes, volume.requests())
        };
        assert_eq!(counts(&d), (1, 0, 1));
        d.request(Op::Flush, Flags::NONE, 0, 0);
        d.settle();
        assert_eq!(counts(&d), (1, 1, 2));
    }
}
