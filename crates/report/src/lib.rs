//! Self-contained, offline HTML reports: prose, facts, tables and Plotly figures in one file.
//!
//! A report is a [`Report`] of [`Section`]s. One of the chart builders ([`Lines`], [`Bars`],
//! [`Percentiles`], [`HeatMap`], [`BudgetChart`]) creates each [`Figure`]. Invariants:
//!
//! * The file opens without a network: the Plotly script is embedded once, and a content security
//!   policy in the page prevents the browser from fetching anything.
//! * Every text from a caller is data, never markup, because users choose volume and file names.
//! * A figure is plain Plotly JSON ([`Figure::to_json`]), which the Python package `plotly` can show
//!   in a notebook. The colours of text and grid follow the page's light or dark theme.
//!
//! The `plotly` crate, which contains the script, is slow to compile; no other crate depends on it.
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
