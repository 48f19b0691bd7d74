//! The page: what ran where, how far the targets are met, and every number. The text is in
//! `page.md.j2`.

use std::sync::Arc;

use anyhow::{Context, Result};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;

use super::description::Description;
use super::run::{Run, Runs};
use super::template::{self, grouped, short};
use crate::baselines::{self, RECORD_BYTES};
use crate::machine::WakeUp;
use crate::results::{Entries, Entry, Side};
use crate::scenarios::{self, Scenario};
use crate::settings::Settings;

/// A scenario as the page shows it.
#[derive(Serialize)]
struct Section {
    name: &'static str,
    about: &'static str,
    /// When it ran, and on which kind of machine.
    date: String,
    wake_up: &'static str,
    /// Of the peers that are in its numbers.
    versions: Vec<String>,
    charts: Vec<String>,
    tables: Vec<Table>,
}

/// The numbers of one number of tasks: a line for each side, a column for each metric.
#[derive(Serialize)]
struct Table {
    heading: Option<String>,
    head: Vec<String>,
    lines: Vec<Vec<String>>,
}

/// The page of these runs, with charts for some scenarios.
pub(super) fn page(runs: &Runs, charts: &[(String, String)]) -> Result<String> {
    let section = |scenario: &Scenario| {
        let run = runs.of(scenario.name)?;
        let entries = run.entries.0.iter().filter(|entry| entry.key.scenario == scenario.name);
        let entries: Vec<&Entry> = entries.collect();
        let charts = charts.iter().filter(|(of, _)| of == scenario.name);
        Some(Section {
            name: scenario.name,
            about: scenario.about,
            date: run.machine.date.clone(),
            wake_up: run.machine.wake_up().name(),
            versions: versions(run, &entries),
            charts: charts.map(|(_, name)| name.clone()).collect(),
            tables: tables(scenario.counted, &entries),
        })
    };
    let sections: Vec<Section> = scenarios::ALL.iter().filter_map(section).collect();

    let description = Description::read()?;
    let mut kinds = Vec::new();
    for wake_up in [WakeUp::Fast, WakeUp::Slow] {
        let entries = runs.entries(Some(wake_up));
        if !entries.0.is_empty() {
            let rows = description.rows(&entries, wake_up)?;
            kinds.push(context! { wake_up => wake_up.name(), rows => Value::from(Serde(rows)) });
        }
    }
    let shown = |run: &Run| {
        let Settings { rounds, plan, zookeeper_rounds, zookeeper_plan, .. } =
            Settings::of(run.quick);
        context! {
            wake_up => run.machine.wake_up().name(),
            warm_up_ms => plan.warm_up.as_millis() as u64,
            measure_ms => plan.measure.as_millis() as u64,
            zookeeper_measure_ms => zookeeper_plan.measure.as_millis() as u64,
            rounds,
            zookeeper_rounds,
            ..Value::from(Serde(run))
        }
    };

    let context = context! {
        runs => runs.0.iter().rev().map(shown).collect::<Vec<_>>(),
        kinds,
        record_bytes => RECORD_BYTES,
        sides_known => Value::from(Serde(&description.sides)),
        scenarios => Value::from(Serde(sections)),
    };
    let environment = environment(description, runs.entries(None))?;
    let page = environment.render_str(include_str!("page.md.j2"), context).context("page.md.j2")?;
    Ok(page.trim().to_owned() + "\n")
}

/// What the template may call.
fn environment(description: Description, entries: Entries) -> Result<Environment<'static>> {
    let mut environment = template::environment()?;
    environment.add_filter("over", |number: Option<f64>, by: f64| number.map(|number| number / by));

    let curve = move |scenario: &str, name: &str, metric: &str| {
        let side = description.side(name);
        let side =
            side.map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
        Ok::<_, Error>(entries.curve(scenario, side, metric))
    };
    let curve = Arc::new(curve);
    let all = curve.clone();
    let number = move |scenario: &str, name: &str, tasks: usize, metric: &str| {
        let found = all(scenario, name, metric)?.into_iter().find(|(count, _)| *count == tasks);
        Ok::<_, Error>(found.map(|(_, median)| median))
    };
    let of_one = number.clone();
    environment.add_function("number", number);
    environment.add_function(
        "measured",
        move |scenario: &str, mut sides: Vec<String>, tasks: usize, metrics: Vec<String>| {
            let is_there = |side: &str, metric| of_one(scenario, side, tasks, metric);
            let is_missing = |side: &str| {
                metrics.iter().all(|metric| matches!(is_there(side, metric), Ok(None)))
            };
            sides.retain(|side| !is_missing(side));
            sides
        },
    );
    environment.add_function("curve", move |scenario: &str, name: &str, metric: &str| {
        let point = |(tasks, value)| vec![tasks as f64, value];
        Ok::<_, Error>(curve(scenario, name, metric)?.into_iter().map(point).collect::<Vec<_>>())
    });
    Ok(environment)
}

fn versions(run: &Run, entries: &[&Entry]) -> Vec<String> {
    let is_here = |system: &str| {
        entries.iter().any(|Entry { key, .. }| {
            key.system == system || (system == "zookeeper" && key.config.contains(system))
        })
    };
    let mut versions: Vec<String> = Vec::new();
    for peer in run.configurations.iter().filter(|peer| is_here(&peer.system)) {
        if !versions.contains(&peer.version) {
            versions.push(peer.version.clone());
        }
    }
    versions
}

fn tables(counted: &str, entries: &[&Entry]) -> Vec<Table> {
    let mut counts: Vec<usize> = entries.iter().map(|entry| entry.key.tasks).collect();
    counts.sort_unstable();
    counts.dedup();
    let table_of = |count| {
        let here = entries.iter().copied().filter(|entry| entry.key.tasks == count);
        let plural = if count == 1 || counted.ends_with('m') { "" } else { "s" };
        let heading = format!("{} {counted}{plural}", grouped(count as f64));
        table((count > 0).then_some(heading), &here.collect::<Vec<_>>())
    };
    counts.into_iter().map(table_of).collect()
}

fn table(heading: Option<String>, entries: &[&Entry]) -> Table {
    let (mut metrics, mut sides): (Vec<&str>, Vec<Side<'_>>) = (Vec::new(), Vec::new());
    for entry in entries {
        if !metrics.contains(&entry.key.metric.as_str()) {
            metrics.push(&entry.key.metric);
        }
        if !sides.contains(&entry.key.side()) {
            sides.push(entry.key.side());
        }
    }
    // Ours first; what the machine itself takes is beside all of them, and no system.
    sides.sort_by_key(|side| (baselines::ALL.contains(side), side.0 != "lockkeeper", *side));
    let find = |side: Side<'_>, metric: &str| {
        entries.iter().find(|entry| entry.key.side() == side && entry.key.metric == metric)
    };
    let curator = find(("curator", "zookeeper"), metrics[0]);
    let compared = curator.filter(|_| metrics[0].ends_with("_per_s"));

    let mut head = vec!["system".to_owned(), "configuration".to_owned()];
    head.extend(metrics.iter().map(|metric| readable(metric)));
    head.extend(compared.map(|_| "against Curator".to_owned()));
    let line = |&side: &Side<'_>| {
        let mut cells = vec![side.0.to_owned(), side.1.to_owned()];
        for (column, metric) in metrics.iter().enumerate() {
            cells.push(find(side, metric).map_or(String::new(), |entry| cell(entry, column == 0)));
        }
        cells.extend(compared.map(|curator| {
            let ratio = find(side, metrics[0]).map(|entry| entry.median / curator.median);
            ratio.map_or(String::new(), |ratio| format!("{}x", short(ratio)))
        }));
        cells
    };
    let lines = sides.iter().map(line).collect();
    Table { heading, head, lines }
}

/// The median, and for the first column how far the rounds were apart.
fn cell(entry: &Entry, with_spread: bool) -> String {
    let median = short(entry.median);
    match with_spread && entry.rounds > 1 {
        true => format!("{median} ({}–{})", short(entry.min), short(entry.max)),
        false => median,
    }
}

/// `cycle_p999_us` is `cycle p99.9 us`, `cycles_per_s` is `cycles/s`.
fn readable(metric: &str) -> String {
    let metric = match metric.strip_suffix("_per_s") {
        Some(counted) => format!("{counted}/s"),
        None => metric.to_owned(),
    };
    metric.replace("p999", "p99.9").replace('_', " ")
}
