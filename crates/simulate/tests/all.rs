//! The tests of the simulator in one program: each file is a module, and the crates below are linked once.

mod common;
mod formulas;
mod instant;
mod lru;
mod outages;
mod policies;
mod positions;
mod runs;
mod slots;
