//! The tests of the simulator in one program: each file is a module, so that the dependencies are
//! linked only once.

mod common;
mod formulas;
mod instant;
mod lru;
mod outages;
mod policies;
mod positions;
mod runs;
mod slots;
