//! The current stage of a procedure, which changes only as a table allows.
//!
//! A procedure that takes several calls declares its stages as an enum, with a table of what leads from one to the
//! next in the documentation of its module. [`Stage::leads_to`] is this table in code, and a test of each procedure
//! compares the two. [`CurrentStage::enter`] is the only way to another stage, so a step that the table lacks panics
//! where it is taken, and not later, where its consequences show.

use core::fmt::Debug;

/// A stage of a procedure.
pub(crate) trait Stage: Copy + PartialEq + Debug {
    /// What goes through these stages, for messages.
    const OF: &'static str;

    /// Whether the table has a row from this stage to that one.
    fn leads_to(self, next: Self) -> bool;
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CurrentStage<S>(S);

impl<S: Stage> CurrentStage<S> {
    /// The stage in which a procedure begins.
    pub fn first(stage: S) -> CurrentStage<S> {
        CurrentStage(stage)
    }

    #[inline]
    pub fn get(&self) -> S {
        self.0
    }

    /// Goes on to the next stage.
    ///
    /// # Panics
    /// If the table does not allow that.
    #[track_caller]
    pub fn enter(&mut self, next: S) {
        assert!(self.0.leads_to(next), "{} goes from {:?} to {next:?}", S::OF, self.0);
        self.0 = next;
    }
}

/// Compares the table in the documentation of a module with its stages, of which `stages` has one of each kind.
#[cfg(test)]
pub(crate) fn check_table<S: Stage + core::panic::UnwindSafe>(source: &str, stages: &[S]) {
    use std::collections::BTreeSet;

    // The words in backticks of a cell.
    let names = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let name = |stage: &S| {
        let text = format!("{stage:?}");
        text.split(|c: char| !c.is_alphanumeric()).next().expect("a name").to_owned()
    };
    let mut listed = BTreeSet::new();
    for row in source.lines().filter_map(|line| line.strip_prefix("//! | `")) {
        let row = format!("`{row}");
        let cells: Vec<&str> = row.split(" | ").collect();
        for next in names(cells[2]) {
            listed.extend(names(cells[0]).into_iter().map(|from| (from, next.clone())));
        }
    }
    let mut allowed = BTreeSet::new();
    for &from in stages {
        for &next in stages {
            let entered = std::panic::catch_unwind(move || {
                let mut stage = CurrentStage::first(from);
                stage.enter(next);
                assert_eq!(stage.get(), next);
            });
            if entered.is_ok() {
                allowed.insert((name(&from), name(&next)));
            }
        }
    }
    assert!(!listed.is_empty(), "the module has no table");
    assert_eq!(allowed, listed, "what is allowed, and what the table lists");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Door {
        Open,
        Shut(u8),
    }

    impl Stage for Door {
        const OF: &'static str = "a door";

        fn leads_to(self, next: Door) -> bool {
            self == Door::Open && matches!(next, Door::Shut(_))
        }
    }

    const DOORS: [Door; 2] = [Door::Open, Door::Shut(0)];

    #[test]
    fn a_stage_is_entered_from_where_the_table_says() {
        let mut door = CurrentStage::first(Door::Open);
        door.enter(Door::Shut(2));
        assert_eq!(door.get(), Door::Shut(2));
    }

    #[test]
    #[should_panic(expected = "a door goes from Shut(2) to Open")]
    fn a_step_that_the_table_lacks_panics() {
        CurrentStage::first(Door::Shut(2)).enter(Door::Open);
    }

    #[test]
    fn a_table_that_says_too_much_or_too_little_is_found() {
        let agrees = |table: &str| std::panic::catch_unwind(|| check_table(table, &DOORS)).is_ok();
        assert!(agrees("//! | `Open` | a draught | `Shut` |\n//! | `Shut` | a fire | the end |"));
        assert!(!agrees("//! | `Open`, `Shut` | a draught | `Shut` |"));
        assert!(!agrees("//! | `Shut` | a guest | `Open` |"));
        assert!(!agrees("//! no table"));
    }
}
