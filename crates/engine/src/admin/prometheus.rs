//! The metrics as text for Prometheus.
//!
//! Values that ZooKeeper's own exporter also has keep its names (`znode_count`). Distributions are histograms in
//! seconds with names that begin with `lockkeeper_`, because ZooKeeper's are quantiles in milliseconds.

use std::fmt::Write;

use crate::admin::four_letter::{Value, metrics};
use crate::metrics::histogram::Reading;
use crate::metrics::ops::Op;
use crate::shared::Shared;
use crate::storage::DiskActivity;

/// The version of the format, as HTTP names it.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The whole text.
pub(crate) fn exposition(shared: &Shared) -> String {
    let mut text = String::new();
    for metric in metrics(shared) {
        let (kind, value) = match metric.value {
            Value::Gauge(value) => ("gauge", value.to_string()),
            Value::Fraction(value) => ("gauge", value.to_string()),
            Value::Counter(value) => ("counter", value.to_string()),
        };
        head(&mut text, metric.name, kind, metric.help);
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(text, "{} {value}", metric.name);
    }

    let metrics = &shared.metrics;
    let name = "lockkeeper_commit_seconds";
    head(&mut text, name, "histogram", "How long commits took, syncs included");
    histogram(&mut text, name, "", &metrics.commits.read(), SECONDS);

    let name = "lockkeeper_sync_seconds";
    head(&mut text, name, "histogram", "How long the log's syncs took, by concurrent activity");
    for (during, syncs) in DiskActivity::ALL.iter().zip(&metrics.syncs) {
        let label = format!("during=\"{}\"", during.name());
        histogram(&mut text, name, &label, &syncs.read(), SECONDS);
    }

    let name = "lockkeeper_commit_requests";
    head(&mut text, name, "histogram", "How many requests one commit made durable");
    histogram(&mut text, name, "", &metrics.batches.read(), 1.0);

    let name = "lockkeeper_request_seconds";
    head(&mut text, name, "histogram", "From a request's arrival to its reply's way out");
    for op in Op::all() {
        let reading = metrics.requests(op);
        if reading.count > 0 {
            let label = format!("op=\"{}\"", op.name());
            histogram(&mut text, name, &label, &reading, SECONDS);
        }
    }
    text
}

/// Times are counted in microseconds.
const SECONDS: f64 = 1e6;

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn histogram(text: &mut String, name: &str, label: &str, reading: &Reading, per_unit: f64) {
    let comma = if label.is_empty() { "" } else { "," };
    for (end, count) in &reading.buckets {
        let end = *end as f64 / per_unit;
        let _ = writeln!(text, "{name}_bucket{{{label}{comma}le=\"{end}\"}} {count}");
    }
    let _ = writeln!(text, "{name}_bucket{{{label}{comma}le=\"+Inf\"}} {}", reading.count);
    let braces = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
    let _ = writeln!(text, "{name}_sum{braces} {}", reading.sum as f64 / per_unit);
    let _ = writeln!(text, "{name}_count{braces} {}", reading.count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::histogram::Histogram;

    #[test]
    fn histograms_have_the_lines_that_prometheus_reads() {
        let sizes = Histogram::of_sizes();
        sizes.add(2, 3);
        let mut text = String::new();
        histogram(&mut text, "n", "op=\"x\"", &sizes.read(), 1.0);
        assert!(text.starts_with("n_bucket{op=\"x\",le=\"1\"} 0\nn_bucket{op=\"x\",le=\"2\"} 3\n"));
        assert!(text.ends_with("le=\"+Inf\"} 3\nn_sum{op=\"x\"} 6\nn_count{op=\"x\"} 3\n"));
        text.clear();
        let times = Histogram::of_times();
        histogram(&mut text, "t", "", &times.read(), SECONDS);
        assert!(text.starts_with("t_bucket{le=\"0.00005\"} 0\n"), "{text}");
        assert!(text.ends_with("t_sum 0\nt_count 0\n"));
    }
}
