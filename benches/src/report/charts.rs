//! Which charts there are.

use super::page::short;
use super::svg::{Bar, Bars, Curve, Curves};
use crate::book::{Book, Entry, Key};
use crate::settings::Settings;

/// All charts that there are numbers for, by name.
pub(super) fn charts(book: &Book, settings: &Settings) -> Vec<(&'static str, String)> {
    let mut charts = Vec::new();
    let mut bars = |name, title: &str, unit, entries: Vec<Entry>| {
        if !entries.is_empty() {
            charts.push((name, bars(title.to_owned(), unit, entries).draw()));
        }
    };
    bars(
        "cycle-time",
        "One lock cycle, 1 task: median",
        "microseconds for acquire + release (shorter is better)",
        book.find(|key| of(key, "cycles", "cycle_p50_us") && key.tasks == 1 && awaited(key)),
    );
    let clients = settings.clients.iter().copied().find(|&clients| clients == 8).unwrap_or(2);
    bars(
        "hand-offs",
        &format!("One lock, {clients} clients: hand-offs a second"),
        "hand-offs a second (longer is better)",
        book.find(|key| of(key, "hand-offs", "hand_offs_per_s") && key.tasks == clients),
    );
    bars(
        "herd",
        &format!("Watch events of one release, {} waiters", short(settings.herd as f64)),
        "events (shorter is better)",
        book.find(|key| of(key, "herd", "events_per_release")),
    );
    let mut curves = |name, title: &str, (across, up), entries: Vec<Entry>| {
        if !entries.is_empty() {
            let curves = curves(entries);
            charts.push((name, Curves { title: title.into(), across, up, curves }.draw()));
        }
    };
    curves(
        "cycles",
        "Lock cycles a second, a lock for each task",
        ("tasks", "cycles a second"),
        book.find(|key| of(key, "cycles", "cycles_per_s") && awaited(key)),
    );
    curves(
        "waiters",
        "What one more waiter costs: time",
        ("waiters before it", "microseconds"),
        book.find(|key| of(key, "waiters", "time_per_waiter_us")),
    );
    charts
}

fn of(key: &Key, row: &str, metric: &str) -> bool {
    key.row == row && key.metric == metric
}

fn awaited(key: &Key) -> bool {
    !key.config.contains("not awaited")
}

fn bars(title: String, unit: &'static str, entries: Vec<Entry>) -> Bars {
    let bars = entries.into_iter().map(|entry| Bar {
        label: label(&entry.key),
        colour: colour(&entry.key),
        value: entry.median,
        spread: (entry.min, entry.max),
    });
    Bars { title, unit, bars: bars.collect() }
}

fn curves(entries: Vec<Entry>) -> Vec<Curve> {
    let mut curves: Vec<(Key, Vec<(f64, f64)>)> = Vec::new();
    // A logarithmic scale has no place for a system that got nothing done.
    for entry in entries.into_iter().filter(|entry| entry.median > 0.0) {
        let point = (entry.key.tasks as f64, entry.median);
        let same = |(key, _): &&mut (Key, Vec<_>)| {
            key.system == entry.key.system && key.config == entry.key.config
        };
        match curves.iter_mut().find(same) {
            Some((_, points)) => points.push(point),
            None => curves.push((entry.key, vec![point])),
        }
    }
    let curve = |(key, points): (Key, Vec<_>)| Curve {
        label: label(&key),
        colour: colour(&key),
        dashes: dashes(&key),
        points,
    };
    curves.into_iter().map(curve).collect()
}

fn label(key: &Key) -> String {
    let config = key.config.replace("appendfsync ", "").replace("release not", "not");
    format!("{} ({config})", key.system)
}

/// Ours in colours of their own, each peer in one.
fn colour(key: &Key) -> &'static str {
    match (key.system.as_str(), key.config.as_str()) {
        ("lockkeeper", config) if config.starts_with("zookeeper") => "#9067e8",
        ("lockkeeper", config) if config.contains("many") => "#9067e8",
        ("lockkeeper", _) => "#2f86eb",
        ("redis", _) => "#d4582f",
        ("curator", _) => "#8a8f26",
        ("zookeeper-client", _) => "#a3772c",
        ("etcd", _) => "#2c9c87",
        ("postgresql", _) => "#c2559d",
        _ => "#8b949e",
    }
}

/// Where one colour stands for several: what writes to the disk later, or never.
fn dashes(key: &Key) -> &'static str {
    let is = |ends: &[&str]| ends.iter().any(|end| key.config.ends_with(end));
    if is(&["os", "everysec"]) {
        "8 4"
    } else if is(&["memory", "no persistence"]) {
        "2 3"
    } else {
        ""
    }
}
