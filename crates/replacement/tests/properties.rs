//! Goal: what a cache may rely on holds for every policy. Method: random calls to each policy of
//! `Kind::ALL`, in every order that the protocol allows, including with more resident nodes than
//! the capacity.

use std::collections::BTreeSet;

use crate::common::{Cache, Numbers, mixed};
use forebay_replacement::{Hint, Kind, Parameters, Percent, Policy, Replacement};
use proptest::prelude::*;

const NODES: u32 = 24;

#[derive(Clone, Copy, Debug)]
enum Call {
    Access(u32),
    Insert(u32, u64, u8),
    Evict(Option<u64>),
    Restore(u32),
    Remove(u32),
    SetCapacity(u32),
}

fn call() -> impl Strategy<Value = Call> {
    let node = || 0..NODES;
    prop_oneof![
        8 => node().prop_map(Call::Access),
        8 => (node(), 0..60_u64, any::<u8>()).prop_map(|(n, k, p)| Call::Insert(n, k, p)),
        6 => prop::option::of(0..60_u64).prop_map(Call::Evict),
        3 => node().prop_map(Call::Restore),
        2 => node().prop_map(Call::Remove),
        1 => (0..=NODES).prop_map(Call::SetCapacity),
    ]
}

/// The expected state of a node after the calls so far.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Node {
    Free,
    Resident(u64),
    Evicted(u64),
}

/// Makes the calls that the protocol allows; returns the answers of `evict`.
fn drive(parameters: &Parameters, capacity: u32, calls: &[Call]) -> Vec<Option<u32>> {
    let mut policy = Replacement::new(NODES, capacity, parameters);
    let mut bytes = policy.metadata_bytes();
    let steps_max = Replacement::steps_max(parameters);
    let mut nodes = [Node::Free; NODES as usize];
    let mut answers = Vec::new();
    let kind = parameters.kind();
    for &call in calls {
        let steps = policy.steps();
        let is_there = |key| nodes.contains(&Node::Resident(key));
        match call {
            Call::Access(n) if matches!(nodes[n as usize], Node::Resident(_)) => {
                policy.on_access(n);
            }
            Call::Insert(n, key, position)
                if !matches!(nodes[n as usize], Node::Resident(_)) && !is_there(key) =>
            {
                let hint = Hint { position: Percent::new(position), ..Hint::default() };
                policy.insert(n, key, hint);
                nodes[n as usize] = Node::Resident(key);
                // The key is back, so an evicted node with the same key cannot be restored.
                for (other, node) in nodes.iter_mut().enumerate() {
                    if other != n as usize && *node == Node::Evicted(key) {
                        *node = Node::Free;
                    }
                }
            }
            Call::Evict(incoming) => {
                let answer = policy.evict(incoming.filter(|&key| !is_there(key)));
                answers.push(answer);
                let any = nodes.iter().any(|n| matches!(n, Node::Resident(_)));
                assert_eq!(answer.is_some(), any, "{kind}: somebody gives way if anybody is there");
                if let Some(n) = answer {
                    let Node::Resident(key) = nodes[n as usize] else {
                        panic!("{kind}: {n} gave way and is {:?}", nodes[n as usize])
                    };
                    // Only the last node evicted with the key can be restored.
                    for node in &mut nodes {
                        if *node == Node::Evicted(key) {
                            *node = Node::Free;
                        }
                    }
                    nodes[n as usize] = Node::Evicted(key);
                }
            }
            Call::Restore(n) => {
                if let Node::Evicted(key) = nodes[n as usize] {
                    policy.restore(n);
                    nodes[n as usize] = Node::Resident(key);
                }
            }
            Call::Remove(n) if nodes[n as usize] != Node::Free => {
                policy.remove(n);
                nodes[n as usize] = Node::Free;
            }
            Call::SetCapacity(capacity) => {
                policy.set_capacity(capacity);
                bytes = policy.metadata_bytes();
            }
            _ => {}
        }
        let resident: BTreeSet<u32> =
            (0..NODES).filter(|&n| matches!(nodes[n as usize], Node::Resident(_))).collect();
        assert_eq!(policy.len() as usize, resident.len(), "{kind} after {call:?}");
        assert_eq!(policy.is_empty(), resident.is_empty());
        let likely: Vec<u32> = policy.likely_victims().collect();
        let distinct: BTreeSet<u32> = likely.iter().copied().collect();
        assert!(distinct.is_subset(&resident), "{kind}: {likely:?} of {resident:?}");
        assert_eq!(distinct.len(), likely.len(), "{kind}: {likely:?}");
        assert_eq!(likely.is_empty(), resident.is_empty(), "{kind}: nobody is likely");
        assert_eq!(policy.metadata_bytes(), bytes, "{kind}: memory grew");
        let taken = policy.steps() - steps;
        assert!(taken <= steps_max, "{kind}: {taken} steps for {call:?}, {steps_max} allowed");
    }
    // Every node can be evicted, once.
    let count = policy.len();
    let mut left = BTreeSet::new();
    while let Some(n) = policy.evict(None) {
        assert!(left.insert(n), "{kind}: {n} left twice");
        answers.push(Some(n));
    }
    assert_eq!((left.len() as u32, policy.len()), (count, 0), "{kind}");
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_calls_in_the_order_of_the_protocol_are_answered_alike_and_within_bounds(
        calls in prop::collection::vec(call(), 1..300),
        capacity in 0..=NODES,
        hand_steps_max in 1..6_u32,
    ) {
        for &kind in Kind::ALL {
            let mut parameters = Parameters::new(kind);
            // (Not all policies have a hand.)
            let _ = parameters.set("hand_steps_max", hand_steps_max);
            let answers = drive(&parameters, capacity, &calls);
            prop_assert_eq!(answers, drive(&parameters, capacity, &calls), "{}", kind);
        }
    }
}

#[test]
fn who_is_restored_at_once_gives_way_next() {
    for &kind in Kind::ALL {
        // (Random has no order. With the other two, the next victim may come from another queue.)
        if matches!(kind, Kind::Random | Kind::S3Fifo | Kind::WTinyLfu) {
            continue;
        }
        let mut cache = Cache::new(&Parameters::new(kind), 100, 100);
        for (number, key) in mixed(5000, 3).into_iter().enumerate() {
            cache.access(key % 300, 100);
            if number > 1000 && number % 10 == 0 {
                let first = cache.policy.evict(None).unwrap();
                cache.policy.restore(first);
                assert_eq!(cache.policy.evict(None), Some(first), "{kind}");
                cache.policy.restore(first);
            }
        }
    }
}

#[test]
fn likely_victims_are_those_that_give_way_in_policies_without_a_hand() {
    for kind in
        [Kind::Lru, Kind::Fifo, Kind::Lfu, Kind::HrLru, Kind::PriorityLru, Kind::DerivativeLru]
    {
        let mut cache = Cache::new(&Parameters::new(kind), 100, 100);
        for key in mixed(5000, 4) {
            cache.access(key % 300, (key % 101) as u8);
        }
        let likely: Vec<u32> = cache.policy.likely_victims().collect();
        let order: Vec<u32> = std::iter::from_fn(|| cache.policy.evict(None)).collect();
        assert_eq!(likely, order, "{kind}");
    }
    for &kind in Kind::ALL {
        let mut cache = Cache::new(&Parameters::new(kind), 100, 100);
        (0..100).for_each(|key| assert!(!cache.access(key, 100)));
        let likely = cache.policy.likely_victim(None);
        assert_eq!(cache.policy.evict(Some(1000)), likely, "{kind}: nobody was used");
    }
}

#[test]
fn random_evicts_each_block_with_the_same_probability() {
    const BLOCKS: u32 = 20;
    const ROUNDS: u32 = 40_000;
    let mut policy = Replacement::new(BLOCKS, BLOCKS, &Parameters::new(Kind::Random));
    (0..BLOCKS).for_each(|n| policy.insert(n, n.into(), Hint::default()));
    let mut counts = [0_u32; BLOCKS as usize];
    for _ in 0..ROUNDS {
        let node = policy.evict(None).unwrap();
        counts[node as usize] += 1;
        policy.insert(node, 0, Hint::default());
    }
    let expected = f64::from(ROUNDS / BLOCKS);
    let square = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
    let chi_square: f64 = counts.iter().map(square).sum();
    // The 99.9th percentile with 19 degrees of freedom.
    assert!(chi_square < 43.8, "{chi_square} {counts:?}");
}

/// On a loop of `n` blocks, a cache of `c` blocks with random replacement keeps a block with
/// probability `(1 - 1/c)^m` over `m` misses, so the hit ratio `h` solves
/// `h = (1 - 1/c)^(n (1 - h))`.
#[test]
fn random_has_the_hit_ratio_of_theory_on_a_loop() {
    let (n, c) = (1000_u32, 700);
    let mut cache = Cache::new(&Parameters::new(Kind::Random), c, c);
    let hits = |cache: &mut Cache| (0..n).filter(|&key| cache.access(key.into(), 100)).count();
    (0..20).for_each(|_| _ = hits(&mut cache));
    let ratio = (0..50).map(|_| hits(&mut cache)).sum::<usize>() as f64 / 50_000.0;
    let theory =
        (0..1000).fold(0.5_f64, |h, _| (1.0 - 1.0 / f64::from(c)).powf(f64::from(n) * (1.0 - h)));
    assert!((ratio - theory).abs() < 0.01, "{ratio}, theory says {theory}");
}

#[test]
fn each_policy_takes_so_many_bytes_a_block() {
    // A power of two of nodes is the worst case for tables of ghosts.
    let nodes = 1 << 17;
    let bytes = |kind| {
        let policy = Replacement::new(nodes, nodes, &Parameters::new(kind));
        policy.metadata_bytes() as f64 / f64::from(nodes)
    };
    for (kind, most) in [
        (Kind::Lru, 8.1),
        (Kind::Fifo, 8.1),
        (Kind::Clock, 9.1),
        (Kind::Sieve, 9.1),
        (Kind::S3Fifo, 40.0),
        (Kind::TwoQ, 31.5),
        (Kind::Arc, 46.0),
        (Kind::Lfu, 13.1),
        (Kind::WTinyLfu, 26.0),
        (Kind::HrLru, 9.1),
        (Kind::PriorityLru, 9.1),
        (Kind::DerivativeLru, 9.1),
        (Kind::Random, 8.1),
    ] {
        let bytes = bytes(kind);
        assert!(bytes <= most && bytes > most - 2.5, "{kind}: {bytes} bytes a node");
    }
}

#[test]
fn scans_do_not_flush_what_is_used_often_from_policies_that_resist_them() {
    // 100 blocks are used repeatedly while new blocks stream past. LRU does not resist such scans:
    // it misses a block at its first use after each scan.
    for (kind, range) in [
        (Kind::Lru, 0.5..0.65),
        (Kind::Arc, 0.9..1.01),
        (Kind::S3Fifo, 0.9..1.01),
        (Kind::Lfu, 0.9..1.01),
        (Kind::WTinyLfu, 0.9..1.01),
    ] {
        let mut cache = Cache::new(&Parameters::new(kind), 200, 200);
        let (mut numbers, mut fresh) = (Numbers(5), 1000);
        let (mut hits, mut accesses) = (0, 0);
        for round in 0..300 {
            for _ in 0..200 {
                let hit = cache.access(numbers.next() % 100, 100);
                if round >= 100 {
                    hits += u32::from(hit);
                    accesses += 1;
                }
            }
            for _ in 0..400 {
                fresh += 1;
                cache.access(fresh, 100);
            }
        }
        let ratio = f64::from(hits) / f64::from(accesses);
        assert!(range.contains(&ratio), "{kind}: {ratio}");
    }
}
