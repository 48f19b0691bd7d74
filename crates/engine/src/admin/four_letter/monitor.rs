//! All metrics except the histograms, for `mntr` and Prometheus. They have ZooKeeper's names where they mean the same.

use std::fmt::Write;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::server::{milliseconds, version_text};
use crate::metrics::Traffic;
use crate::metrics::histogram::Reading;
use crate::metrics::ops::Effect;
use crate::shared::Shared;

/// A named number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    pub(crate) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// Can rise and fall.
    Gauge(i64),
    /// A fractional value that can rise and fall.
    Fraction(f64),
    /// Only rises.
    Counter(u64),
}

/// All values that are not distributions.
pub(crate) fn metrics(shared: &Shared) -> Vec<Metric> {
    let mut all = Vec::new();
    traffic(shared, &mut all);
    state(shared, &mut all);
    counters(shared, &mut all);
    all
}

fn gauge(name: &'static str, value: impl TryInto<i64>, help: &'static str) -> Metric {
    Metric { name, value: Value::Gauge(value.try_into().unwrap_or(i64::MAX)), help }
}

fn counter(name: &'static str, value: u64, help: &'static str) -> Metric {
    Metric { name, value: Value::Counter(value), help }
}

fn traffic(shared: &Shared, all: &mut Vec<Metric>) {
    let Traffic { received, sent, latency } = shared.metrics.traffic();
    let mean = Value::Fraction(milliseconds(latency.mean()));
    all.extend([
        Metric { name: "avg_latency", value: mean, help: "Mean time of a round, in ms" },
        gauge("max_latency", latency.max.as_millis(), "Longest time of a round, in ms"),
        gauge("min_latency", latency.min.as_millis(), "Shortest time of a round, in ms"),
        counter("packets_received", received, "Frames received"),
        counter("packets_sent", sent, "Frames sent"),
    ]);
}

fn state(shared: &Shared, all: &mut Vec<Metric>) {
    let stats = shared.metrics.stats();
    let uptime = shared.started.elapsed().as_millis();
    let quiet = shared.quiet_time_left().unwrap_or_default().as_millis();
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);

    all.extend([
        gauge("num_alive_connections", stats.connections, "Open connections"),
        gauge("outstanding_requests", shared.pipeline.waiting(), "Batches that wait for the disk"),
        gauge("uptime", uptime, "Time since the start, in ms"),
        gauge("znode_count", stats.nodes, "Nodes"),
        gauge("watch_count", stats.watches, "Watches"),
        gauge("ephemerals_count", stats.ephemerals, "Ephemeral nodes"),
        gauge("approximate_data_size", stats.data_bytes, "Bytes of paths and data"),
        gauge("global_sessions", stats.sessions, "Sessions"),
        gauge("waiting_bytes", shared.budget.waiting(), "Bytes of replies and requests that wait"),
        gauge("watch_bytes", shared.budget.watches(), "Bytes that watches take"),
        gauge("identity_bytes", shared.budget.identities(), "Bytes that identities take"),
        gauge("tls_bytes", shared.budget.tls(), "Bytes that TLS may take"),
        gauge("memory_budget", shared.budget.max(), "Limit of waiting bytes and watches, in bytes"),
        gauge(
            "data_weight",
            stats.weight,
            "Bytes of memory that nodes take, as counted by the engine",
        ),
        gauge("data_budget", shared.plan.config.max_weight, "Limit of data_weight, in bytes"),
        gauge("memory_used", shared.memory.used(), "Bytes of memory that the process uses"),
        gauge(
            "memory_limit",
            shared.memory.limit(),
            "Bytes of memory of the machine or control group",
        ),
        gauge("disk_free", shared.disk.free(), "Bytes free on the disk of the data directory"),
        gauge(
            "disk_reserve",
            shared.disk.reserve(),
            "Free bytes below which the data does not grow",
        ),
        gauge("quiet_time", quiet, "Time until sessions may begin, in ms"),
        gauge("local_sessions", 0, "Sessions of this member of an ensemble only"),
        gauge("open_file_descriptor_count", open_files(shared), "Open file descriptors"),
        gauge("max_file_descriptor_count", files, "Limit of open file descriptors"),
    ]);
}

fn counters(shared: &Shared, all: &mut Vec<Metric>) {
    let counts = &shared.metrics.counters;
    all.extend([
        counter("connection_request_count", counts.handshakes.get(), "Handshakes"),
        counter("connection_rejected", counts.rejected.get(), "Connections over a limit"),
        counter("connection_drop_count", counts.dropped.get(), "Connections that ended"),
        counter(
            "dropped_for_memory",
            counts.dropped_for_memory.get(),
            "Connections ended for memory",
        ),
        counter("stale_sessions_expired", counts.expired.get(), "Sessions that expired"),
        counter("auth_failed_count", counts.auth_failed.get(), "Credentials that were refused"),
        counter("large_requests_rejected", counts.too_large.get(), "Requests over the frame limit"),
        counter("unsuccessful_handshake", counts.tls_failed.get(), "TLS handshakes that failed"),
        counter("bytes_received_count", counts.bytes_received.get(), "Bytes of requests"),
        counter("response_bytes", counts.bytes_sent.get(), "Bytes of replies and events"),
    ]);
}

/// How long a count of the open files is used.
const OPEN_FILES_AGE: Duration = Duration::from_secs(1);

/// Counted at most once a second: counting ten thousand takes milliseconds, during which clients wait.
fn open_files(shared: &Shared) -> i64 {
    let mut last = shared.metrics.open_files.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, count)) if at.elapsed() < OPEN_FILES_AGE => count,
        _ => {
            let count = count_open_files();
            *last = Some((Instant::now(), count));
            count
        }
    }
}

/// -1 where the system does not list them.
fn count_open_files() -> i64 {
    let entries = std::path::Path::new("/proc/self/fd").read_dir();
    // The listing itself uses one.
    entries.map_or(-1, |entries| entries.count() as i64 - 1)
}

/// Lines of a name, a tab and a value.
pub(super) fn mntr(shared: &Shared) -> String {
    let mut text = format!("zk_version\t{}\nzk_server_state\tstandalone\n", version_text());
    for metric in metrics(shared) {
        // Writing to a `String` cannot fail, here and below.
        let _ = match metric.value {
            Value::Gauge(value) => writeln!(text, "zk_{}\t{value}", metric.name),
            Value::Fraction(value) => writeln!(text, "zk_{}\t{value:.4}", metric.name),
            Value::Counter(value) => writeln!(text, "zk_{}\t{value}", metric.name),
        };
    }

    let times = [
        ("fsynctime", shared.metrics.commits.read()),
        ("readlatency", shared.metrics.requests_with(Effect::Read)),
        ("updatelatency", shared.metrics.requests_with(Effect::Update)),
    ];
    for (name, reading) in times {
        distribution(&mut text, name, &reading, 1_000);
    }
    distribution(&mut text, "sync_processor_batch_size", &shared.metrics.batches.read(), 1);
    text
}

/// ZooKeeper's five lines for a distribution; `unit` divides the reading's values.
fn distribution(text: &mut String, name: &str, reading: &Reading, unit: u64) {
    let mean = reading.mean() / unit as f64;
    let (min, max, sum) = (reading.min / unit, reading.max / unit, reading.sum / unit);
    let _ = write!(
        text,
        "zk_avg_{name}\t{mean:.4}\n\
         zk_min_{name}\t{min}\n\
         zk_max_{name}\t{max}\n\
         zk_cnt_{name}\t{}\n\
         zk_sum_{name}\t{sum}\n",
        reading.count
    );
}
