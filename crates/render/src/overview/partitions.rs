//! Division of a cache: the share of each volume, compared with other divisions.

use forebay_analysis::partition::VolumeCurves;
use forebay_report::{Section, Table, Unit};
use serde_json::Value;

use super::document::{Document, elements, number, text};
use super::error::OverviewError;
use crate::format::{count, percent};
use crate::partition::{Compared, compared_of, label, shares_of, why};

/// The sections of one division.
///
/// # Errors
/// If an older version, which wrote no curves, wrote the document.
pub fn sections(partition: &Document) -> Result<Vec<Section>, OverviewError> {
    let found = &partition.value;
    let name = |volume: &Value| text(volume, "volume");
    let names = || elements(found, "volumes").map(name);
    let bytes = |value: &Value| ["/flash_bytes", "/dram_bytes"].map(|of| number(value, of) as u64);
    let shares: Vec<(String, [u64; 2])> =
        elements(found, "volumes").map(|volume| (name(volume), bytes(volume))).collect();
    let left = found.get("unallocated").map_or([0; 2], bytes);
    let by = match text(found, "goal").as_str() {
        "latency" => Compared::Latency,
        "iops" => Compared::Iops,
        _ => Compared::Hits,
    };
    let fields = match by {
        Compared::Latency => ["/predicted_latency_us", "/simulated_latency_us"],
        Compared::Iops => ["/predicted_iops", "/simulated_iops"],
        Compared::Hits => ["/hit_ratio", "/simulated_hit_ratio"],
    };
    let divisions = std::iter::once(("found".to_string(), found))
        .chain(elements(found, "baselines").map(|division| (text(division, "name"), division)));
    let series = divisions.flat_map(|(division, value)| {
        fields.into_iter().zip(["predicted", "simulated"]).filter_map(move |(field, how)| {
            let values = elements(value, "volumes").map(|volume| number(volume, field));
            let values: Vec<f64> = values.collect();
            let known = values.iter().any(|value| value.is_finite());
            known.then(|| (format!("{}, {how}", label(&division)), values))
        })
    });
    let divided = Section::new(format!("How the cache is divided: {}", partition.label))
        .table(table(found))
        .figure(shares_of(&shares, bytes(found), left))
        .figure(compared_of(by, names(), series))
        .text(format!("Assumptions: {}.", assumed(found)));
    let by_flash = number(found, "/flash_bytes") > 0.0;
    let curves = elements(found, "volumes").map(|volume| curves(partition, volume, by_flash));
    Ok(vec![divided, why(&curves.collect::<Result<Vec<_>, _>>()?, by_flash)])
}

fn curves(
    partition: &Document,
    volume: &Value,
    by_flash: bool,
) -> Result<VolumeCurves, OverviewError> {
    let points = |field: &str| partition.parse_field(volume, field, "partition");
    let [flash_bytes, dram_bytes] =
        ["/flash_bytes", "/dram_bytes"].map(|of| number(volume, of) as u64);
    Ok(VolumeCurves {
        name: text(volume, "volume"),
        miss_ratios: points("miss_ratios")?,
        latencies: points("latencies")?,
        share_bytes: dram_bytes + flash_bytes,
        tier_bytes: if by_flash { flash_bytes } else { dram_bytes },
        miss_ratio: 1.0 - number(volume, "/hit_ratio"),
        latency_us: number(volume, "/predicted_latency_us"),
    })
}

fn table(found: &Value) -> Table {
    let or_dash = |value: f64, unit: Unit| match value.is_finite() {
        true => unit.show(value),
        false => "-".to_string(),
    };
    Table::from_items(elements(found, "volumes"))
        .column("volume", |volume| text(volume, "volume"))
        .number("requests", |volume| count(number(volume, "/requests") as u64))
        .number("memory", |volume| Unit::Bytes.show(number(volume, "/dram_bytes")))
        .number("flash", |volume| Unit::Bytes.show(number(volume, "/flash_bytes")))
        .number("hits", |volume| percent(number(volume, "/hit_ratio")))
        .number("latency", |volume| Unit::Micros.show(number(volume, "/predicted_latency_us")))
        .number("simulated", |volume| {
            or_dash(number(volume, "/simulated_latency_us"), Unit::Micros)
        })
        .table()
}

fn assumed(found: &Value) -> String {
    elements(found, "assumed").filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
}
