//! The tests of the cache in one program: each file is a module, and the crates below are linked once.

mod accesses;
mod admission;
mod before_start;
mod bypass;
mod contract;
mod driver;
mod examples;
mod failed_syncs;
mod hits;
mod positions;
mod published;
mod reinsertion;
mod relations;
mod silent_stores;
mod stamps;
mod stored_geometry;
mod stores;
mod switch;
mod trim;
mod unreadable;
mod unsyncable;
