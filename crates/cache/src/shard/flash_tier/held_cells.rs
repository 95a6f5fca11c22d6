//! Slots layout: the cells whose record was superseded while a cleaning is in progress.
//!
//! A read of the cleaning may still access such a cell. Moreover, a chosen record is identified by
//! its cell, which must not become the cell of another record of the same block meanwhile.

use forebay_flash::{Log, Position};

/// The kept cells; see the module documentation.
#[derive(Default, Debug)]
pub(super) struct HeldCells {
    /// Set from the choice of the records to clean to the end of their cleaning.
    holding: bool,
    cells: Vec<Position>,
}

impl HeldCells {
    /// Keeps superseded cells from now on, for a cleaning that begins.
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

    /// Frees the cells kept for the cleaning, which has ended.
    pub fn release(&mut self, log: &mut Log) {
        self.holding = false;
        for cell in self.cells.drain(..) {
            log.release_cell(cell);
        }
    }
}
