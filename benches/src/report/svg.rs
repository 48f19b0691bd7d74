//! A small writer of charts. One set of colours that is readable on white and on dark: a picture
//! in a page does not know which of them it is on.

use std::fmt::Write as _;

use super::page::short;

const INK: &str = "#757d89";
const GRID: &str = "#757d8950";
const FONT: &str = "font-family=\"system-ui, sans-serif\"";
const WIDTH: f64 = 820.0;

/// Some bars below each other, on a logarithmic scale.
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) unit: &'static str,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    /// The least and the greatest of all rounds.
    pub(super) spread: (f64, f64),
    pub(super) colour: &'static str,
}

/// Some curves, both scales logarithmic.
pub(super) struct Curves {
    pub(super) title: String,
    pub(super) across: &'static str,
    pub(super) up: &'static str,
    pub(super) curves: Vec<Curve>,
}

pub(super) struct Curve {
    pub(super) label: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) colour: &'static str,
    /// As SVG has it; empty for a whole line.
    pub(super) dashes: &'static str,
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
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\" {FONT} font-size=\"13\" \
             fill=\"{INK}\">\n"
        );
        let title = escaped(title);
        let _ = writeln!(svg, "<title>{title}</title>");
        let mut canvas = Self(svg);
        canvas.put(&format!("<text x=\"8\" y=\"22\" font-size=\"15\" font-weight=\"600\">{title}"));
        canvas.put("</text>\n");
        canvas
    }

    fn put(&mut self, text: &str) {
        self.0.push_str(text);
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
        );
    }

    fn finish(mut self) -> String {
        self.put("</svg>\n");
        self.0
    }
}

/// How wide a character is at most, on average, in pixels.
const CHARACTER: f64 = 7.0;

impl Bars {
    pub(super) fn draw(&self) -> String {
        let labels = self.bars.iter().map(|bar| bar.label.chars().count());
        let left = 16.0 + CHARACTER * labels.max().unwrap_or(0) as f64;
        const RIGHT: f64 = WIDTH - 70.0;
        const TOP: f64 = 40.0;
        const STEP: f64 = 24.0;
        let bottom = TOP + STEP * self.bars.len() as f64;
        // Even the shortest bar is to be seen.
        let least = self.bars.iter().map(|bar| bar.value * 0.9);
        let scale = Scale::around(least.chain(self.bars.iter().map(|bar| bar.value)), left, RIGHT);
        let mut canvas = Canvas::new(bottom + 44.0, &self.title);
        for decade in scale.decades() {
            let x = scale.at(decade);
            canvas.line((x, TOP - 4.0), (x, bottom), GRID);
            canvas.text((x, bottom + 16.0), "middle", &short(decade));
        }
        canvas.text(((left + RIGHT) / 2.0, bottom + 36.0), "middle", self.unit);
        for (index, bar) in self.bars.iter().enumerate() {
            let y = TOP + STEP * index as f64;
            let (end, middle) = (scale.at(bar.value), y + 9.0);
            canvas.text((left - 8.0, y + 14.0), "end", &bar.label);
            canvas.put(&format!(
                "<rect x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\" \
                 fill=\"{}\"/>\n",
                y + 2.0,
                (end - left).max(1.0),
                bar.colour
            ));
            let (least, greatest) = (scale.at(bar.spread.0), scale.at(bar.spread.1));
            canvas.line((least, middle), (greatest, middle), INK);
            for x in [least, greatest] {
                canvas.line((x, middle - 3.0), (x, middle + 3.0), INK);
            }
            canvas.text((end.max(greatest) + 6.0, y + 14.0), "start", &short(bar.value));
        }
        canvas.finish()
    }
}

impl Curves {
    pub(super) fn draw(&self) -> String {
        const LEFT: f64 = 80.0;
        const RIGHT: f64 = WIDTH - 320.0;
        const TOP: f64 = 56.0;
        const BOTTOM: f64 = 370.0;
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let across = Scale::around(points().map(|point| point.0), LEFT, RIGHT);
        let up = Scale::around(points().map(|point| point.1), BOTTOM, TOP);
        let mut canvas = Canvas::new(BOTTOM + 50.0, &self.title);
        for decade in across.decades() {
            let x = across.at(decade);
            canvas.line((x, TOP), (x, BOTTOM), GRID);
            canvas.text((x, BOTTOM + 18.0), "middle", &short(decade));
        }
        for decade in up.decades() {
            let y = up.at(decade);
            canvas.line((LEFT, y), (RIGHT, y), GRID);
            canvas.text((LEFT - 8.0, y + 4.0), "end", &short(decade));
        }
        canvas.text(((LEFT + RIGHT) / 2.0, BOTTOM + 40.0), "middle", self.across);
        canvas.text((LEFT, TOP - 8.0), "start", self.up);
        for (index, curve) in self.curves.iter().enumerate() {
            let place = |&(x, y): &(f64, f64)| format!("{:.1},{:.1}", across.at(x), up.at(y));
            let line: Vec<String> = curve.points.iter().map(place).collect();
            let dashes = match curve.dashes {
                "" => String::new(),
                dashes => format!(" stroke-dasharray=\"{dashes}\""),
            };
            let colour = curve.colour;
            canvas.put(&format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-width=\"2\"{dashes}/>\n",
                line.join(" ")
            ));
            for &(x, y) in &curve.points {
                canvas.put(&format!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>\n",
                    across.at(x),
                    up.at(y)
                ));
            }
            let y = TOP + 10.0 + 21.0 * index as f64;
            canvas.put(&format!(
                "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
                 stroke-width=\"2\"{dashes}/>\n",
                RIGHT + 14.0,
                RIGHT + 34.0
            ));
            canvas.text((RIGHT + 40.0, y + 4.0), "start", &curve.label);
        }
        canvas.finish()
    }
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
        let bar = Bar { label, value: 20.0, spread: (10.0, 30.0), colour: "#000" };
        let drawn = Bars { title: "t".into(), unit: "us", bars: vec![bar] }.draw();
        let end = drawn.split("<text x=\"").find(|text| text.contains("not awaited"));
        let end: f64 = end.unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(end >= 35.0 * CHARACTER, "{end}");
    }

    #[test]
    fn text_is_escaped() {
        let bars = Bars { title: "a < b & c".into(), unit: "us", bars: Vec::new() };
        assert!(bars.draw().contains("a &lt; b &amp; c"));
    }
}
