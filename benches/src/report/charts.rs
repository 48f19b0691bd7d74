//! Which charts there are.

use anyhow::Result;

use super::description::{Chart, Description};
use super::numbers::short;
use super::svg::{self, Point, Series};
use crate::results::{Entries, Entry, Key};

/// All charts that there are numbers for, with their scenarios.
pub(super) fn draw<'a>(
    description: &'a Description,
    entries: &Entries,
) -> Result<Vec<(&'a Chart, String)>> {
    let drawn = |chart: &'a Chart| Some((chart, draw_one(chart, entries)?));
    let drawn = description.charts.iter().filter_map(drawn);
    drawn.map(|(chart, svg)| Ok((chart, svg?))).collect()
}

fn draw_one(chart: &Chart, entries: &Entries) -> Option<Result<String>> {
    let is_shown = |key: &Key| !chart.awaited_only || !key.config.contains("not awaited");
    // A logarithmic scale has no place for a side that got nothing done.
    let entries: Vec<&Entry> = entries
        .of(&chart.scenario, &chart.metric)
        .filter(|entry| is_shown(&entry.key) && (chart.bars.is_some() || entry.median > 0.0))
        .collect();
    let tasks = entries.iter().map(|entry| entry.key.tasks);
    let first = chart.bars.map(|least| tasks.filter(|&count| count >= least).min());
    if let Some(tasks) = first {
        let tasks = tasks?;
        let here = entries.iter().filter(|entry| entry.key.tasks == tasks);
        let series: Vec<Series> = here.map(|entry| series(&entry.key, &[entry])).collect();
        let title = chart.title.replace("{}", &short(tasks as f64));
        return Some(svg::bars(&title, &chart.unit, &series));
    }

    let (mut all, mut rest) = (Vec::new(), entries);
    while let Some(&first) = rest.first() {
        let (points, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|entry| entry.key.side() == first.key.side());
        all.push(series(&first.key, &points));
        rest = others;
    }
    (!all.is_empty()).then(|| svg::curves(&chart.title, (&chart.across, &chart.unit), &all))
}

fn series(key: &Key, entries: &[&Entry]) -> Series {
    let config = key.config.replace("appendfsync ", "").replace("release not", "not");
    let point = |entry: &&Entry| Point {
        tasks: entry.key.tasks as f64,
        value: entry.median,
        spread: (entry.min, entry.max),
    };
    Series {
        label: format!("{} ({config})", key.system),
        colour: colour(key),
        dashes: dashes(key),
        points: entries.iter().map(point).collect(),
    }
}

/// Ours in colours of their own, each peer in one.
fn colour(key: &Key) -> &'static str {
    match key.side() {
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
    let ends = |ends: &[&str]| ends.iter().any(|end| key.config.ends_with(end));
    match () {
        () if ends(&["os", "everysec"]) => "8 4",
        () if ends(&["memory", "no persistence"]) => "2 3",
        () => "",
    }
}
