//! Random power cuts, kills and restarts: a few of each kind; `forebay-adversary ci` does many.

use forebay_adversary::campaign::{Tally, sweep};
use forebay_adversary::kind::Kind;

fn few(name: &str) -> Tally {
    let kind = Kind::find(name).expect("a kind of run");
    let tally = sweep(2, 0..100, |seed, tally| kind.tally(seed, tally));
    assert_eq!(tally.failures, [], "{name}");
    tally
}

#[test]
fn a_cache_without_flash_keeps_a_disks_promises() {
    assert!(few("dram").cuts > 1000);
}

#[test]
fn a_write_back_cache_over_flash_keeps_a_disks_promises() {
    assert!(few("back").cuts > 1000);
}

#[test]
fn a_write_through_cache_over_flash_keeps_a_disks_promises() {
    assert!(few("through").cuts > 1000);
}
