//! Which tiers to buy: [`Choices`], [`Growths`] (`--have`) and [`Studies`] (`--study`).

mod growth;
mod pictures;
mod study;
mod text;

pub use growth::{Growths, sections as growth_sections};
pub use study::{Studies, sections as study_sections};
pub use text::Choices;
pub(crate) use text::{SINGLE, tier_names, times};
