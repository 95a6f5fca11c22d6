//! A curve or a surface as text, rows and pictures.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_config::Size;
use forebay_report::{Axis, HeatMap, Lines, Report, Section, Unit};

use super::{Answer, Point, Ratios};
use crate::commands::mrc::Args;
use crate::format::table;

/// For people.
pub fn print(answer: &Answer, out: &mut dyn Write) -> std::io::Result<()> {
    for (name, value) in answer.facts() {
        writeln!(out, "{name:<20} {value}")?;
    }
    let flash = flash_sizes(answer);
    if flash.len() > 1 {
        writeln!(out, "\nmiss ratio, by memory and flash")?;
        let names: Vec<String> = flash.iter().map(|&bytes| name(bytes)).collect();
        let header: Vec<&str> =
            std::iter::once("memory").chain(names.iter().map(String::as_str)).collect();
        let rows: Vec<Vec<String>> = memory_sizes(answer)
            .into_iter()
            .map(|bytes| {
                let cells = of_memory(answer, bytes).map(|p| cell(p, |r| r.miss_ratio));
                std::iter::once(Size(bytes).to_string()).chain(cells).collect()
            })
            .collect();
        return writeln!(out, "{}", table(&header, &rows).trim_end());
    }
    let rows: Vec<Vec<String>> = answer
        .points
        .iter()
        .map(|p| {
            vec![
                Size(p.size_bytes).to_string(),
                cell(p, |r| r.miss_ratio),
                cell(p, |r| r.read_miss_ratio),
                cell(p, |r| r.write_miss_ratio),
                cell(p, |r| r.tier1_hit_ratio),
                cell(p, |r| r.tier2_hit_ratio),
            ]
        })
        .collect();
    let header =
        ["memory", "miss ratio", "of reads", "of writes", "hits in memory", "hits in flash"];
    let (header, rows) = match flash.first() {
        Some(Some(_)) => (&header[..], rows),
        _ => (&header[..4], rows.into_iter().map(|row| row[..4].to_vec()).collect()),
    };
    writeln!(out, "\n{}", table(header, &rows).trim_end())
}

/// A row for each pair of sizes.
pub fn rows(answer: &Answer) -> Columns {
    let points = &answer.points;
    let real = |pick: fn(&Ratios) -> f64| points.iter().map(move |p| p.ratios.as_ref().map(pick));
    Columns::default()
        .integers("memory_bytes", points.iter().map(|p| p.size_bytes))
        .integers("flash_bytes", points.iter().map(|p| p.flash_bytes.unwrap_or(0)))
        .optional_reals("miss_ratio", real(|r| r.miss_ratio))
        .optional_reals("read_miss_ratio", real(|r| r.read_miss_ratio))
        .optional_reals("write_miss_ratio", real(|r| r.write_miss_ratio))
        .optional_reals("tier1_hit_ratio", real(|r| r.tier1_hit_ratio))
        .optional_reals("tier2_hit_ratio", real(|r| r.tier2_hit_ratio))
        .optional_reals("tier2_bytes_written", real(|r| r.tier2_bytes_written as f64))
        .optional_reals("backing_read_bytes", real(|r| r.backing_read_bytes as f64))
        .optional_reals("backing_write_bytes", real(|r| r.backing_write_bytes as f64))
}

/// The pictures.
pub fn report(answer: &Answer, args: &Args) -> Report {
    let flash = flash_sizes(answer);
    let mut lines = Lines::new("Miss ratio by memory")
        .x(Axis::new("memory", Unit::Bytes).log())
        .y(Axis::new("miss ratio", Unit::Fraction).from_zero());
    for &bytes in &flash {
        let points = || answer.points.iter().filter(move |p| p.flash_bytes == bytes);
        lines = lines.line(
            bytes.map_or("memory only".to_owned(), |bytes| format!("{} of flash", Size(bytes))),
            points().map(|p| p.size_bytes as f64),
            points().map(|p| p.ratios.map_or(f64::NAN, |r| r.miss_ratio)),
        );
    }
    let mut section =
        Section::new("The cache").facts(answer.facts()).figure(lines.figure().caption(
            "The share of block accesses that the cache of this configuration misses, simulated by \
         the cache itself, scaled down, on a sample of the blocks.",
        ));
    if flash.len() > 1 {
        let mut map = HeatMap::new("Miss ratio by memory and flash", Unit::Fraction)
            .columns("flash", flash.iter().map(|&bytes| name(bytes)))
            .rows("memory", memory_sizes(answer).into_iter().map(|bytes| Size(bytes).to_string()));
        for bytes in memory_sizes(answer) {
            let cells = of_memory(answer, bytes);
            map = map.row(cells.map(|p| p.ratios.map_or(f64::NAN, |r| r.miss_ratio)));
        }
        section = section.figure(map.figure());
    }
    let files: Vec<String> =
        args.traces.traces.iter().map(|path| path.display().to_string()).collect();
    Report::new("Miss ratios in miniature").subtitle(files.join(", ")).section(section)
}

fn cell(point: &Point, pick: fn(&Ratios) -> f64) -> String {
    point.ratios.as_ref().map_or("-".to_owned(), |ratios| format!("{:.4}", pick(ratios)))
}

fn name(flash_bytes: Option<u64>) -> String {
    flash_bytes.map_or("none".to_owned(), |bytes| Size(bytes).to_string())
}

/// In the order asked for.
fn flash_sizes(answer: &Answer) -> Vec<Option<u64>> {
    let mut sizes: Vec<Option<u64>> = Vec::new();
    for point in &answer.points {
        if !sizes.contains(&point.flash_bytes) {
            sizes.push(point.flash_bytes);
        }
    }
    sizes
}

fn memory_sizes(answer: &Answer) -> Vec<u64> {
    let mut sizes: Vec<u64> = answer.points.iter().map(|p| p.size_bytes).collect();
    sizes.dedup();
    sizes
}

fn of_memory(answer: &Answer, bytes: u64) -> impl Iterator<Item = &Point> {
    answer.points.iter().filter(move |p| p.size_bytes == bytes)
}
