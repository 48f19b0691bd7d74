//! A small writer of charts. One set of colours that is readable on white and on dark: a picture
//! in a page does not know which of them it is on.

use std::fmt::{Display, Write as _};

use super::numbers::short;

const INK: &str = "#757d89";
const GRID: &str = "#757d8950";
const WIDTH: f64 = 820.0;

/// How wide a character is at most, on average, in pixels.
const CHARACTER: f64 = 7.0;

/// What a chart shows of one side.
pub(super) struct Series {
    pub(super) label: String,
    pub(super) colour: &'static str,
    /// As SVG has it; empty for a whole line.
    pub(super) dashes: &'static str,
    /// A bar's length, or the points of a curve.
    pub(super) points: Vec<Point>,
}

#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) tasks: f64,
    pub(super) value: f64,
    /// The least and the greatest of all rounds.
    pub(super) spread: (f64, f64),
}

/// A logarithmic scale from values to pixels.
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

struct Canvas(String);

impl Canvas {
    fn new(height: f64, title: &str) -> Self {
        let title = escaped(title);
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"{INK}\">\n\
             <title>{title}</title>\n\
             <text x=\"8\" y=\"22\" font-size=\"15\" font-weight=\"600\">{title}</text>\n"
        ))
    }

    fn put(&mut self, element: impl Display) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "{element}");
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// A line; `more` is its width and dashes, if they are not the usual ones.
    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, more: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
             stroke=\"{colour}\"{more}/>"
        ));
    }

    /// The decades of a scale that runs to the right, between two heights.
    fn grid_across(&mut self, scale: &Scale, top: f64, bottom: f64, label: &str) {
        for decade in scale.decades() {
            let x = scale.at(decade);
            self.line((x, top), (x, bottom), GRID, "");
            self.text((x, bottom + 17.0), "middle", &short(decade));
        }
        self.text(((scale.from + scale.to) / 2.0, bottom + 38.0), "middle", label);
    }

    fn finish(mut self) -> String {
        self.put("</svg>");
        self.0
    }
}

/// Some bars below each other, on a logarithmic scale: the first point of each series.
pub(super) fn bars(title: &str, unit: &str, series: &[Series]) -> String {
    const RIGHT: f64 = WIDTH - 70.0;
    const TOP: f64 = 40.0;
    const STEP: f64 = 24.0;
    let labels = series.iter().map(|bar| bar.label.chars().count());
    let left = 16.0 + CHARACTER * labels.max().unwrap_or(0) as f64;
    let bottom = TOP + STEP * series.len() as f64;
    let points = || series.iter().filter_map(|bar| bar.points.first());
    // Even the shortest bar is to be seen.
    let values = points().flat_map(|point| [point.value * 0.9, point.value]);
    let scale = Scale::around(values, left, RIGHT);

    let mut canvas = Canvas::new(bottom + 44.0, title);
    canvas.grid_across(&scale, TOP - 4.0, bottom, unit);
    for (index, (bar, point)) in series.iter().zip(points()).enumerate() {
        let y = TOP + STEP * index as f64;
        let (end, middle) = (scale.at(point.value), y + 9.0);
        canvas.text((left - 8.0, y + 14.0), "end", &bar.label);
        canvas.put(format_args!(
            "<rect x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\" fill=\"{}\"/>",
            y + 2.0,
            (end - left).max(1.0),
            bar.colour
        ));

        // How far the rounds were apart.
        let (least, greatest) = (scale.at(point.spread.0), scale.at(point.spread.1));
        canvas.line((least, middle), (greatest, middle), INK, "");
        for x in [least, greatest] {
            canvas.line((x, middle - 3.0), (x, middle + 3.0), INK, "");
        }
        canvas.text((end.max(greatest) + 6.0, y + 14.0), "start", &short(point.value));
    }
    canvas.finish()
}

/// A curve for each series, both scales logarithmic.
pub(super) fn curves(title: &str, (across, up): (&str, &str), series: &[Series]) -> String {
    const LEFT: f64 = 80.0;
    const RIGHT: f64 = WIDTH - 320.0;
    const TOP: f64 = 56.0;
    const BOTTOM: f64 = 370.0;
    let points = || series.iter().flat_map(|curve| &curve.points);
    let xs = Scale::around(points().map(|point| point.tasks), LEFT, RIGHT);
    let ys = Scale::around(points().map(|point| point.value), BOTTOM, TOP);

    let mut canvas = Canvas::new(BOTTOM + 50.0, title);
    canvas.grid_across(&xs, TOP, BOTTOM, across);
    for decade in ys.decades() {
        let y = ys.at(decade);
        canvas.line((LEFT, y), (RIGHT, y), GRID, "");
        canvas.text((LEFT - 8.0, y + 4.0), "end", &short(decade));
    }
    canvas.text((LEFT, TOP - 8.0), "start", up);

    for (index, curve) in series.iter().enumerate() {
        let colour = curve.colour;
        let style = match curve.dashes {
            "" => " stroke-width=\"2\"".to_owned(),
            dashes => format!(" stroke-width=\"2\" stroke-dasharray=\"{dashes}\""),
        };
        let mut line = String::new();
        for point in &curve.points {
            let (x, y) = (xs.at(point.tasks), ys.at(point.value));
            let _ = write!(line, "{x:.1},{y:.1} ");
            canvas.put(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            ));
        }
        canvas.put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"{style}/>",
            line.trim_end()
        ));

        // Its line in the legend.
        let y = TOP + 10.0 + 21.0 * index as f64;
        canvas.line((RIGHT + 14.0, y), (RIGHT + 34.0, y), colour, &style);
        canvas.text((RIGHT + 40.0, y + 4.0), "start", &curve.label);
    }
    canvas.finish()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
        let drawn = bars("t", "us", &[Series { label, colour: "#000", dashes: "", points }]);
        let end = drawn.split("<text x=\"").find(|text| text.contains("not awaited"));
        let end: f64 = end.unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(end >= 35.0 * CHARACTER, "{end}");
    }

    #[test]
    fn text_is_escaped() {
        assert!(bars("a < b & c", "us", &[]).contains("a &lt; b &amp; c"));
    }
}
