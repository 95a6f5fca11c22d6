//! Hand-made problems, and a brute-force search, for tests.

use proptest::prelude::*;

use super::cost::{Cost, Costs, Share};

/// Costs from a table: `costs[volume][dram][flash]`; beyond the table, the cost at its edge.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub budget: Share,
    pub floors: Vec<Share>,
    pub costs: Vec<Vec<Vec<f64>>>,
    /// A volume that costs more than this misses its target.
    pub targets: Vec<Option<f64>>,
    pub monotone: bool,
}

impl Table {
    /// These costs in smaller units, `parts` to one unit; a share that does not fill an old unit
    /// gains nothing from the remainder.
    pub fn divided(&self, parts: u64) -> Table {
        let spread = |of: &[f64]| -> Vec<f64> {
            of.iter().flat_map(|&c| std::iter::repeat_n(c, parts as usize)).collect()
        };
        let spread_rows = |rows: &Vec<Vec<f64>>| -> Vec<Vec<f64>> {
            let rows = rows.iter().map(|row| spread(row));
            rows.flat_map(|row| std::iter::repeat_n(row, parts as usize)).collect()
        };
        let times = |s: &Share| Share::new(s.dram * parts, s.flash * parts);
        Table {
            budget: times(&self.budget),
            floors: self.floors.iter().map(times).collect(),
            costs: self.costs.iter().map(spread_rows).collect(),
            ..self.clone()
        }
    }
}

impl Costs for Table {
    fn volumes(&self) -> usize {
        self.costs.len()
    }
    fn budget(&self) -> Share {
        self.budget
    }
    fn floor(&self, volume: usize) -> Share {
        self.floors[volume]
    }
    fn useful(&self, volume: usize) -> Share {
        let rows = &self.costs[volume];
        Share::new(rows.len() as u64 - 1, rows[0].len() as u64 - 1)
    }
    fn cost(&self, volume: usize, share: Share) -> Cost {
        let rows = &self.costs[volume];
        let row = &rows[(share.dram as usize).min(rows.len() - 1)];
        let value = row[(share.flash as usize).min(row.len() - 1)];
        let missed = self.targets[volume].map_or(0.0, |most| (value - most).max(0.0) / 100.0);
        Cost { missed, value }
    }
    fn is_monotone(&self) -> bool {
        self.monotone
    }
    fn has_targets(&self) -> bool {
        self.targets.iter().any(Option::is_some)
    }
}

/// Two to four volumes with few units, arbitrary or falling costs, with and without targets.
pub(crate) fn tables() -> impl Strategy<Value = Table> {
    let sizes = (2..5usize, 0..4u64, 0..7u64, any::<bool>(), any::<bool>());
    sizes.prop_flat_map(|(volumes, dram, flash, monotone, targets)| {
        let budget = Share::new(dram, flash);
        let cost = (0..=100u32).prop_map(f64::from);
        let row = prop::collection::vec(cost, 1..=flash as usize + 1);
        let rows = prop::collection::vec(row, 1..=dram as usize + 1);
        let target = prop::option::of((0..100u32).prop_map(f64::from));
        let floor = prop_oneof![
            4 => Just(Share::default()),
            1 => (0..=dram, 0..=flash).prop_map(|(dram, flash)| Share::new(dram, flash))
        ];
        let volume = (rows, target, floor);
        prop::collection::vec(volume, volumes).prop_map(move |volumes| {
            let mut table = Table {
                budget,
                floors: volumes.iter().map(|v| v.2).collect(),
                costs: volumes.iter().map(|v| even(&v.0)).collect(),
                targets: volumes.iter().map(|v| v.1.filter(|_| targets)).collect(),
                monotone,
            };
            if monotone {
                table.costs.iter_mut().for_each(|rows| fall(rows));
            }
            table
        })
    })
}

/// Makes all rows as long as the first.
fn even(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let width = rows[0].len();
    let row = |r: &Vec<f64>| (0..width).map(|i| r[i.min(r.len() - 1)]).collect();
    rows.iter().map(row).collect()
}

/// Makes costs fall, or stay the same, as either tier grows.
fn fall(rows: &mut [Vec<f64>]) {
    for d in 0..rows.len() {
        for f in 0..rows[d].len() {
            let left = if f > 0 { rows[d][f - 1] } else { f64::INFINITY };
            let above = if d > 0 { rows[d - 1][f] } else { f64::INFINITY };
            rows[d][f] = rows[d][f].min(left).min(above);
        }
    }
}

/// The sum of the units of all shares.
pub(crate) fn sum(shares: &[Share]) -> Share {
    shares.iter().fold(Share::default(), |a, b| Share::new(a.dram + b.dram, a.flash + b.flash))
}

/// The lowest cost of all divisions; `None` if the floors exceed the budget.
pub(crate) fn brute_force(table: &Table) -> Option<Cost> {
    fn below(table: &Table, volume: usize, left: Share, so_far: Cost, best: &mut Option<Cost>) {
        if volume == table.costs.len() {
            if best.is_none_or(|b| so_far.is_below(&b)) {
                *best = Some(so_far);
            }
            return;
        }
        let floor = table.floors[volume];
        for dram in floor.dram..=left.dram {
            for flash in floor.flash..=left.flash {
                let rest = Share::new(left.dram - dram, left.flash - flash);
                let cost = table.cost(volume, Share::new(dram, flash));
                below(table, volume + 1, rest, so_far + cost, best);
            }
        }
    }
    let mut best = None;
    below(table, 0, table.budget, Cost::default(), &mut best);
    best
}
