//! Charts, as `chart.svg.j2` draws them. One set of colours that is readable on white and on dark: a
//! picture in a page does not know which of them it is on.

use anyhow::{Context, Result};
use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::description::{Chart, Description};
use super::template::{environment, short};
use crate::results::{Entries, Entry, Key};

const WIDTH: usize = 820;

/// How wide a character is at most, on average, in pixels.
const CHARACTER: usize = 7;

/// What a chart shows of one side.
#[derive(Serialize)]
struct Series {
    label: String,
    colour: &'static str,
    /// As SVG has it; empty for a whole line.
    dashes: &'static str,
    /// The points of a curve; a bar has one, with the length of its value.
    points: Vec<Point>,
}

#[derive(Clone, Copy, Serialize)]
struct Point {
    tasks: f64,
    value: f64,
    /// The least and the greatest of all rounds.
    spread: (f64, f64),
}

/// All charts that there are numbers for.
pub(super) fn draw<'a>(
    description: &'a Description,
    entries: &Entries,
) -> Result<Vec<(&'a Chart, String)>> {
    let mut drawn = Vec::new();
    for chart in &description.charts {
        let (title, series) = select(chart, entries);
        if !series.is_empty() {
            drawn.push((chart, render(chart, &title, &series)?));
        }
    }
    Ok(drawn)
}

/// The title of a chart, and what it shows.
fn select(chart: &Chart, entries: &Entries) -> (String, Vec<Series>) {
    let is_shown = |key: &Key| !chart.awaited_only || !key.config.contains("not awaited");
    // A logarithmic scale has no place for a side that got nothing done.
    let mut entries: Vec<&Entry> = entries
        .of(&chart.scenario, &chart.metric)
        .filter(|entry| is_shown(&entry.key) && (chart.bars.is_some() || entry.median > 0.0))
        .collect();
    let mut title = chart.title.clone();
    if let Some(least) = chart.bars {
        let tasks = entries.iter().map(|entry| entry.key.tasks);
        let tasks = tasks.filter(|&count| count >= least).min();
        entries.retain(|entry| Some(entry.key.tasks) == tasks);
        title = title.replace("{}", &short(tasks.unwrap_or(least) as f64));
    }

    let mut all: Vec<Series> = Vec::new();
    for Entry { key, median, min, max, .. } in entries {
        let config = key.config.replace("appendfsync ", "").replace("release not", "not");
        let label = format!("{} ({config})", key.system);
        let place = all.iter().position(|series| series.label == label).unwrap_or(all.len());
        if place == all.len() {
            all.push(Series {
                label,
                colour: colour(key),
                dashes: dashes(key),
                points: Vec::new(),
            });
        }
        let tasks = key.tasks as f64;
        all[place].points.push(Point { tasks, value: *median, spread: (*min, *max) });
    }
    (title, all)
}

/// Bars below each other, or a curve for each series; all scales are logarithmic.
fn render(chart: &Chart, title: &str, series: &[Series]) -> Result<String> {
    let is_bars = chart.bars.is_some();
    let longest = series.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let (left, right, top, bottom) = match is_bars {
        true => (16 + CHARACTER * longest, WIDTH - 70, 36, 40 + 24 * series.len()),
        false => (80, WIDTH - 320, 56, 370),
    };
    let points = || series.iter().flat_map(|series| &series.points);
    let ys = Scale::around(points().map(|point| point.value), bottom, top);
    let xs = match is_bars {
        // Even the shortest bar is to be seen.
        true => points().flat_map(|point| [point.value * 0.9, point.value]).collect::<Vec<_>>(),
        false => points().map(|point| point.tasks).collect(),
    };
    let xs = Scale::around(xs.into_iter(), left, right);

    let mut environment = environment()?;
    environment.add_filter("px", |pixels: f64| format!("{pixels:.1}"));
    environment.add_function("x", move |value: f64| xs.at(value));
    environment.add_function("y", move |value: f64| ys.at(value));
    let across = if is_bars { &chart.unit } else { &chart.across };
    let up = context! { label => &chart.unit, decades => ys.decades() };
    let shown = context! {
        title, left, right, top, bottom,
        width => WIDTH,
        height => bottom + if is_bars { 44 } else { 50 },
        across => context! { label => across, decades => xs.decades() },
        up => (!is_bars).then_some(up),
        series => Value::from(Serde(series)),
    };
    let drawn = environment.render_str(include_str!("chart.svg.j2"), shown);
    Ok(drawn.context("chart.svg.j2")?.trim().to_owned() + "\n")
}

/// A logarithmic scale from values to pixels.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From whole decade to whole decade.
    fn around(values: impl Iterator<Item = f64>, from: usize, to: usize) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let (low, high) = (low.log10().floor(), (high * 0.999).log10().ceil());
        Self { low, high: high.max(low + 1.0), from: from as f64, to: to as f64 }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(1e-9).log10() - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn decades(&self) -> Vec<f64> {
        (self.low as i32..=self.high as i32).map(|power| 10_f64.powi(power)).collect()
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
