//! Groups of traces, and the trace that represents each.

use std::collections::BTreeMap;

use forebay_report::{Axis, Figure, Lines, Section, Shape, Table, Unit};
use serde::Deserialize;

use super::document::Document;
use super::error::OverviewError;
use crate::format::count;

/// The document of `forebay representatives`.
#[derive(Deserialize)]
struct Groups {
    clusters: Vec<Cluster>,
    elbow: Vec<Elbow>,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Cluster {
    trace: String,
    members: Vec<String>,
}

#[derive(Deserialize)]
struct Elbow {
    clusters: f64,
    within: f64,
}

/// The position of a trace.
#[derive(Deserialize)]
struct Point {
    trace: String,
    cluster: usize,
    /// Dimensions by name: `d1` and so on.
    #[serde(flatten)]
    dimensions: BTreeMap<String, f64>,
}

/// The section of one grouping.
pub fn section(document: &Document) -> Result<Section, OverviewError> {
    let groups: Groups = document.parse("representatives")?;
    let table = Table::new().column("representative").number("traces").column("members");
    let table = groups.clusters.iter().fold(table, |table, cluster| {
        table.row([
            cluster.trace.clone(),
            count(cluster.members.len() as u64),
            cluster.members.join(", "),
        ])
    });
    Ok(Section::new(format!("Groups of traces: {}", document.label))
        .table(table)
        .figure(groups.traces())
        .figure(groups.elbow()))
}

impl Groups {
    /// The traces, drawn in their first two dimensions.
    fn traces(&self) -> Figure {
        let x = |p: &Point| p.dimensions.get("d1").copied().unwrap_or(f64::NAN);
        let y = |p: &Point| p.dimensions.get("d2").copied().unwrap_or_else(|| x(p));
        let lines = Lines::new("Traces")
            .x(Axis::new("first dimension", Unit::Plain))
            .y(Axis::new("second dimension", Unit::Plain));
        let points = |lines: Lines, name: &str, of: Vec<&Point>| {
            let (xs, ys) = (of.iter().map(|p| x(p)), of.iter().map(|p| y(p)));
            lines.shaped(name, Shape::Points, xs, ys)
        };
        let lines = self.clusters.iter().enumerate().fold(lines, |lines, (number, cluster)| {
            let own = self.points.iter().filter(|p| p.cluster == number).collect();
            points(lines, &format!("like {}", cluster.trace), own)
        });
        let stands = |p: &&Point| self.clusters.iter().any(|cluster| cluster.trace == p.trace);
        points(lines, "represents its group", self.points.iter().filter(stands).collect())
            .figure()
            .caption(
                "The axes are the two combinations of features in which the traces differ most.",
            )
    }

    fn elbow(&self) -> Figure {
        let (x, y) = (self.elbow.iter().map(|e| e.clusters), self.elbow.iter().map(|e| e.within));
        Lines::new("Variance within groups")
            .x(Axis::new("groups", Unit::Plain))
            .y(Axis::new("share of the total variance", Unit::Fraction).from_zero())
            .line("within groups", x, y)
            .mark(self.clusters.len() as f64, "taken")
            .figure()
    }
}
