//! Charts, as `chart.svg.j2` draws them. One set of colours that is readable on white and on dark: a
//! picture in a page does not know which of them it is on.

use anyhow::{Context, Result};
use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::template::environment;

const WIDTH: u32 = 820;

/// How wide a character is at most, on average, in pixels.
const CHARACTER: usize = 7;

/// What a chart shows of one side.
#[derive(Serialize)]
pub(super) struct Series {
    pub(super) label: String,
    pub(super) colour: &'static str,
    /// As SVG has it; empty for a whole line.
    pub(super) dashes: &'static str,
    /// A bar's length, or the points of a curve.
    pub(super) points: Vec<Point>,
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Point {
    pub(super) tasks: f64,
    pub(super) value: f64,
    /// The least and the greatest of all rounds.
    pub(super) spread: (f64, f64),
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
    fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        let (low, high) = (low.log10().floor(), (high * 0.999).log10().ceil());
        Self { low, high: high.max(low + 1.0), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(1e-9).log10() - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn decades(&self) -> Vec<f64> {
        (self.low as i32..=self.high as i32).map(|power| 10_f64.powi(power)).collect()
    }
}

/// Some bars below each other, on a logarithmic scale: the first point of each series.
pub(super) fn bars(title: &str, unit: &str, series: &[Series]) -> Result<String> {
    let (right, top) = (WIDTH - 70, 36);
    let labels = series.iter().map(|bar| bar.label.chars().count());
    let left = 16 + CHARACTER * labels.max().unwrap_or(0);
    let bottom = top + 4 + 24 * series.len();
    // Even the shortest bar is to be seen.
    let points = series.iter().filter_map(|bar| bar.points.first());
    let values = points.flat_map(|point| [point.value * 0.9, point.value]);
    let scale = Scale::around(values, left as f64, f64::from(right));

    let series = Value::from(Serde(series));
    let across = context! { label => unit, decades => scale.decades() };
    let height = bottom + 44;
    draw(context! { title, height, left, right, top, bottom, across, series }, scale, scale)
}

/// A curve for each series, both scales logarithmic.
pub(super) fn curves(title: &str, (across, up): (&str, &str), series: &[Series]) -> Result<String> {
    let (left, right, top, bottom) = (80, WIDTH - 320, 56, 370);
    let points = || series.iter().flat_map(|curve| &curve.points);
    let xs = points().map(|point| point.tasks);
    let xs = Scale::around(xs, f64::from(left), f64::from(right));
    let ys = points().map(|point| point.value);
    let ys = Scale::around(ys, f64::from(bottom), f64::from(top));

    let series = Value::from(Serde(series));
    let across = context! { label => across, decades => xs.decades() };
    let up = context! { label => up, decades => ys.decades() };
    let height = bottom + 50;
    draw(context! { title, height, left, right, top, bottom, across, up, series }, xs, ys)
}

fn draw(chart: Value, x: Scale, y: Scale) -> Result<String> {
    let mut environment = environment()?;
    environment.add_filter("px", |pixels: f64| format!("{pixels:.1}"));
    environment.add_filter("escaped", |text: &str| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    });
    environment.add_function("x", move |value: f64| x.at(value));
    environment.add_function("y", move |value: f64| y.at(value));
    let chart = context! { width => WIDTH, ..chart };
    let drawn = environment.render_str(include_str!("chart.svg.j2"), chart);
    Ok(drawn.context("chart.svg.j2")?.trim().to_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_cover_whole_decades() {
        let scale = Scale::around([30.0, 4_000.0].into_iter(), 0.0, 300.0);
        assert_eq!(scale.decades(), [10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!(scale.at(100.0), 100.0);
        let empty = Scale::around(std::iter::empty(), 0.0, 300.0);
        assert!(empty.at(0.0).is_finite());
    }

    #[test]
    fn the_longest_label_has_room() {
        let label = "lockkeeper (zookeeper; not awaited)".to_owned();
        let points = vec![Point { tasks: 1.0, value: 20.0, spread: (10.0, 30.0) }];
        let series = [Series { label, colour: "#000", dashes: "", points }];
        let drawn = bars("t", "us", &series).unwrap();
        let end = drawn.split("<text x=\"").find(|text| text.contains("not awaited"));
        let end: f64 = end.unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(end >= 35.0 * CHARACTER as f64, "{end}");
    }

    #[test]
    fn text_is_escaped() {
        assert!(bars("a < b & c", "us", &[]).unwrap().contains("a &lt; b &amp; c"));
    }
}
