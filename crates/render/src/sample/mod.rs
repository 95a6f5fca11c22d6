//! Shows how close a sample is to its trace.

mod pictures;
mod text;

pub use pictures::sections;
pub use text::Samples;
