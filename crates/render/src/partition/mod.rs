//! Shows how a cache is divided among volumes.

mod pictures;
mod text;

pub(crate) use pictures::{Compared, compared_of, shares_of, why};
pub(crate) use text::label;
pub use text::{Division, Overload};
