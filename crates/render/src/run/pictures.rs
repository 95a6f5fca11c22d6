//! A run as charts.

use forebay_replay::Interval;
use forebay_report::{Axis, Figure, Lines, Percentiles, Report, Section, Unit};
use forebay_results::{Components, LatencyHistogram};

use super::document::Document;
use super::text::facts;

/// The page.
pub fn report(document: &Document) -> Report {
    let target = document.target.volumes.iter().map(|v| v.name.as_str()).collect::<Vec<_>>();
    let subtitle = format!("{} against {}", document.trace.name, target.join(", "));
    let title = if document.options.command == "load" { "Load" } else { "Replay" };
    let mut section = Section::new("The run").facts(facts(document)).figure(percentiles(document));
    let devices = document.result.component_latency_us.as_ref().and_then(devices);
    section = devices.into_iter().fold(section, Section::figure);
    for figure in over_time(&document.result.intervals) {
        section = section.figure(figure);
    }
    Report::new(title).subtitle(subtitle).section(section)
}

fn percentiles(document: &Document) -> Figure {
    let latency = &document.result.latency;
    let mut figure = Percentiles::new("Latency by percentile");
    for (name, histogram) in [("reads", &latency.read), ("writes", &latency.write)] {
        if histogram.count() > 0 {
            figure = figure.series(name, points(histogram));
        }
    }
    if latency.other.count() > 0 {
        figure = figure.series("trims, write-zeroes, flushes", points(&latency.other));
    }
    figure.figure().caption("Measured from sending a request to receiving its reply.")
}

/// Latencies of the operations on each device; `None` if there were none.
pub fn devices(components: &Components) -> Option<Figure> {
    let named = components.named();
    let figure = named.iter().fold(Percentiles::new("Latency of each device"), |figure, (n, c)| {
        figure.series(n, c.latency.quantiles())
    });
    let caption = "Measured from the cache's request for an operation to the end of the operation, \
                   including waits. Hits in memory need no operation.";
    (!named.is_empty()).then(|| figure.figure().caption(caption))
}

/// Ten points per nine, as far as the number of requests allows.
fn points(histogram: &LatencyHistogram) -> Vec<(f64, f64)> {
    let nines = (histogram.count() as f64).log10();
    let steps = (nines * 10.0).floor().max(1.0) as u32;
    let quantiles = (0..=steps).map(|step| 1.0 - 0.1f64.powf(f64::from(step) / 10.0));
    let mut points: Vec<_> = quantiles.map(|q| (q, histogram.at_us(q))).collect();
    points.push((1.0, histogram.at_us(1.0)));
    points
}

fn over_time(intervals: &[Interval]) -> Vec<Figure> {
    // A short last interval, while the queue drains, says nothing about rates.
    let whole = intervals.first().map_or(0.0, |i| i.length_s) / 2.0;
    let intervals = match intervals {
        [most @ .., last] if !most.is_empty() && last.length_s < whole => most,
        all => all,
    };
    let time = || Axis::new("time", Unit::Seconds);
    let x = || intervals.iter().map(|i| i.start_s + i.length_s / 2.0);
    let per_s =
        |value: fn(&Interval) -> u64| intervals.iter().map(move |i| value(i) as f64 / i.length_s);
    let requests = Lines::new("Requests completed")
        .x(time())
        .y(Axis::new("requests", Unit::PerSecond).from_zero())
        .line("requests", x(), per_s(|i| i.requests));
    let bytes = Lines::new("Bytes moved")
        .x(time())
        .y(Axis::new("throughput", Unit::BytesPerSecond).from_zero())
        .line("read", x(), per_s(|i| i.read_bytes))
        .line("written", x(), per_s(|i| i.write_bytes));
    // An interval without requests has no latency, which leaves a gap in the chart.
    let latency = |value: fn(&Interval) -> f64| {
        intervals.iter().map(move |i| if i.requests == 0 { f64::NAN } else { value(i) })
    };
    let latency = Lines::new("Latency over time")
        .x(time())
        .y(Axis::new("latency", Unit::Micros).log())
        .line("mean", x(), latency(|i| i.mean_us))
        .line("p99", x(), latency(|i| i.p99_us))
        .line("longest", x(), latency(|i| i.max_us));
    vec![requests.figure(), bytes.figure(), latency.figure()]
}
