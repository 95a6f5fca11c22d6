//! Slots layout: the cells whose record was superseded while a cleaning is in progress.
//!
//! A read of the cleaning may still access such a cell. And a chosen record is known by its cell, which must not
//! become that of another record of the same block meanwhile.

use forebay_flash::{Log, Position};

/// See the module.
#[derive(Default, Debug)]
pub(super) struct HeldCells {
    /// From the choice of the records to clean to the end of their cleaning.
    holding: bool,
    cells: Vec<Position>,
}

impl HeldCells {
    /// A cleaning begins: superseded cells are kept for it.
    pub fn hold(&mut self) {
        self.holding = true;
    }

    /// The record in the cell was superseded. A `careless` tier keeps no cell
    /// ([`Bug::ChosenCellsUsedAgain`](forebay_flash::sabotage::Bug::ChosenCellsUsedAgain)).
    pub fn superseded(&mut self, log: &mut Log, cell: Position, careless: bool) {
        if self.holding && !careless {
            self.cells.push(cell);
        } else {
            log.release_cell(cell);
        }
    }

    /// The cleaning has ended: cells kept for it are free.
    pub fn release(&mut self, log: &mut Log) {
        self.holding = false;
        for cell in self.cells.drain(..) {
            log.release_cell(cell);
        }
    }
}
