//! Which charts there are.

use super::markdown::short;
use super::svg::{self, Point, Series};
use crate::results::{Entries, Entry, Key};

/// A chart of one metric of one scenario.
struct Chart {
    name: &'static str,
    scenario: &'static str,
    metric: &'static str,
    /// With the number of tasks in the place of `{}`.
    title: &'static str,
    kind: Kind,
    /// Whether sides are left out that do not wait for the release.
    awaited_only: bool,
}

enum Kind {
    /// Bars for this many tasks, or the fewest above that were measured.
    Bars { tasks: usize, unit: &'static str },
    /// Curves over the number of tasks: what is across, and what is up.
    Curves(&'static str, &'static str),
}

const CHARTS: [Chart; 5] = [
    Chart {
        name: "cycle-time",
        scenario: "cycles",
        metric: "cycle_p50_us",
        title: "One lock cycle, {} task: median",
        kind: Kind::Bars {
            tasks: 1,
            unit: "microseconds for acquire + release (shorter is better)",
        },
        awaited_only: true,
    },
    Chart {
        name: "cycles",
        scenario: "cycles",
        metric: "cycles_per_s",
        title: "Lock cycles a second, a lock for each task",
        kind: Kind::Curves("tasks", "cycles a second"),
        awaited_only: true,
    },
    Chart {
        name: "hand-offs",
        scenario: "hand-offs",
        metric: "hand_offs_per_s",
        title: "One lock, {} clients: hand-offs a second",
        kind: Kind::Bars { tasks: 8, unit: "hand-offs a second (longer is better)" },
        awaited_only: false,
    },
    Chart {
        name: "herd",
        scenario: "herd",
        metric: "events_per_release",
        title: "Watch events of one release, {} waiters",
        kind: Kind::Bars { tasks: 1, unit: "events (shorter is better)" },
        awaited_only: false,
    },
    Chart {
        name: "waiters",
        scenario: "waiters",
        metric: "time_per_waiter_us",
        title: "What one more waiter costs: time",
        kind: Kind::Curves("waiters before it", "microseconds"),
        awaited_only: false,
    },
];

/// The names of a scenario's charts, as far as there are numbers for them.
pub(super) fn of_scenario(entries: &Entries, scenario: &str) -> Vec<&'static str> {
    let charts = CHARTS.iter().filter(|chart| chart.scenario == scenario);
    charts.filter(|chart| !chart.entries(entries).is_empty()).map(|chart| chart.name).collect()
}

/// All charts that there are numbers for, by name.
pub(super) fn draw(entries: &Entries) -> Vec<(&'static str, String)> {
    let drawn = |chart: &Chart| Some((chart.name, chart.draw(&chart.entries(entries))?));
    CHARTS.iter().filter_map(drawn).collect()
}

impl Chart {
    fn entries<'a>(&self, entries: &'a Entries) -> Vec<&'a Entry> {
        let is_shown = |key: &Key| !self.awaited_only || !key.config.contains("not awaited");
        let found = entries.of(self.scenario, self.metric);
        found.filter(|entry| is_shown(&entry.key)).collect()
    }

    fn draw(&self, entries: &[&Entry]) -> Option<String> {
        match self.kind {
            Kind::Bars { tasks, unit } => {
                let all = entries.iter().map(|entry| entry.key.tasks);
                let tasks = all.filter(|&count| count >= tasks).min()?;
                let here = entries.iter().filter(|entry| entry.key.tasks == tasks);
                let series: Vec<Series> = here.map(|entry| series(&entry.key, &[entry])).collect();
                let title = self.title.replace("{}", &short(tasks as f64));
                Some(svg::bars(&title, unit, &series))
            }
            Kind::Curves(across, up) => {
                // A logarithmic scale has no place for a side that got nothing done.
                let mut rest: Vec<&Entry> =
                    entries.iter().copied().filter(|entry| entry.median > 0.0).collect();
                let mut all = Vec::new();
                while let Some(&first) = rest.first() {
                    let (points, others): (Vec<_>, Vec<_>) =
                        rest.into_iter().partition(|entry| entry.key.side() == first.key.side());
                    all.push(series(&first.key, &points));
                    rest = others;
                }
                (!all.is_empty()).then(|| svg::curves(self.title, (across, up), &all))
            }
        }
    }
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
