//! Self-contained, offline HTML reports: prose, facts, tables and Plotly figures in one file.
//!
//! A report is a [`Report`] of [`Section`]s; a picture is a [`Figure`], made by one of the chart
//! builders ([`Lines`], [`Bars`], [`Percentiles`], [`HeatMap`], [`BudgetChart`]). What must
//! always hold:
//!
//! * The file opens without a network: the Plotly script is embedded once, and a content security
//!   policy in the page forbids the browser to fetch anything.
//! * Every text given by a caller is data, never markup: volume and file names come from users.
//! * A figure is plain Plotly JSON ([`Figure::to_json`]), the same that the Python package of that
//!   name shows in a notebook; colours of text and grid follow the page's light or dark theme.
//!
//! The `plotly` crate, which carries the script, is heavy to compile and stays inside this crate.
//!
//! ```
//! use forebay_report::{Axis, Lines, Report, Section, Unit};
//! let curve = Lines::new("Miss ratio")
//!     .x(Axis::new("cache size", Unit::Bytes).log())
//!     .y(Axis::new("miss ratio", Unit::Fraction).from_zero())
//!     .line("LRU", [1e6, 1e7, 1e8], [0.9, 0.5, 0.2])
//!     .figure();
//! let report = Report::new("Miss-ratio curves")
//!     .section(Section::new("All volumes").text("One curve per policy.").figure(curve));
//! assert!(report.to_html().contains("Plotly.newPlot"));
//! ```

mod axis;
mod bars;
mod budget;
mod error;
mod figure;
mod heatmap;
mod lines;
mod page;
mod percentiles;
mod report;
mod script;
mod table;

pub use axis::{Axis, Unit};
pub use bars::Bars;
pub use budget::{BudgetChart, BudgetPoint};
pub use error::ReportError;
pub use figure::{Figure, PALETTE};
pub use heatmap::HeatMap;
pub use lines::{Lines, Shape};
pub use percentiles::Percentiles;
pub use report::{Report, Section};
pub use script::plotly_script;
pub use table::{Align, Table, TableOf};
