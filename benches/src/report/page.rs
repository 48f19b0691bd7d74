//! The page: what ran where, how far the targets are met, and every number. The text is in
//! `page.md.j2`.

use std::sync::Arc;

use anyhow::{Context, Result};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;

use super::charts;
use super::description::Description;
use super::numbers::{grouped, short};
use super::run::{Run, Runs};
use super::{targets, template};
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

pub(super) fn page(description: &Arc<Description>, runs: &Runs) -> Result<String> {
    let entries = runs.entries(None);
    let charts = charts::draw(description, &entries)?;
    let section = |scenario: &Scenario| {
        let run = runs.of(scenario.name)?;
        let entries = run.entries.0.iter().filter(|entry| entry.key.scenario == scenario.name);
        let entries: Vec<&Entry> = entries.collect();
        let charts = charts.iter().filter(|(chart, _)| chart.scenario == scenario.name);
        Some(Section {
            name: scenario.name,
            about: scenario.about,
            date: run.machine.date.clone(),
            wake_up: run.machine.wake_up().name(),
            versions: versions(run, &entries),
            charts: charts.map(|(chart, _)| chart.name.clone()).collect(),
            tables: tables(scenario.counted, &entries),
        })
    };
    let sections: Vec<Section> = scenarios::ALL.iter().filter_map(section).collect();

    let mut kinds = Vec::new();
    for wake_up in [WakeUp::Fast, WakeUp::Slow] {
        let entries = runs.entries(Some(wake_up));
        if !entries.0.is_empty() {
            let targets = targets::targets(description, &entries, wake_up)?;
            kinds.push(
                context! { wake_up => wake_up.name(), targets => Value::from(Serde(targets)) },
            );
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
        sides_known => Value::from(Serde(description.sides.clone())),
        scenarios => Value::from(Serde(sections)),
    };
    let mut environment = environment(description, entries)?;
    environment.add_template("page", include_str!("page.md.j2"))?;
    let page = environment.get_template("page")?.render(context).context("page.md.j2")?;
    Ok(page.trim().to_owned() + "\n")
}

/// What the template may call.
fn environment(description: &Arc<Description>, entries: Entries) -> Result<Environment<'static>> {
    let mut environment = template::environment()?;
    environment.add_filter("over", |number: Option<f64>, by: f64| number.map(|number| number / by));

    let known = Arc::new((description.clone(), entries));
    let all = known.clone();
    environment.add_function(
        "number",
        move |scenario: &str, name: &str, tasks: usize, metric: &str| {
            let side = side(&all.0, name)?;
            Ok::<_, Error>(all.1.median(scenario, side, tasks, metric))
        },
    );
    let all = known.clone();
    environment.add_function(
        "measured",
        move |scenario: &str, sides: Vec<String>, tasks: usize, metrics: Vec<String>| {
            let mut found = Vec::new();
            for name in sides {
                let side = side(&all.0, &name)?;
                let number = |metric| all.1.median(scenario, side, tasks, metric);
                if metrics.iter().any(|metric| number(metric).is_some()) {
                    found.push(name);
                }
            }
            Ok::<_, Error>(found)
        },
    );
    environment.add_function("curve", move |scenario: &str, name: &str, metric: &str| {
        let side = side(&known.0, name)?;
        let curve = known.1.curve(scenario, side, metric);
        let point = |(tasks, value)| vec![tasks as f64, value];
        Ok::<_, Error>(curve.into_iter().map(point).collect::<Vec<_>>())
    });
    Ok(environment)
}

fn side<'a>(description: &'a Description, name: &str) -> Result<Side<'a>, Error> {
    let side = description.side(name);
    side.map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;

    type Number<'a> = (&'a str, Side<'a>, usize, &'a str, f64);

    const SYNC: Side<'static> = ("lockkeeper", "engine, sync");
    const MEMORY: Side<'static> = ("lockkeeper", "engine, memory");
    const ON_ZOOKEEPER: Side<'static> = ("lockkeeper", "zookeeper");
    const ALWAYS: Side<'static> = ("redis", "appendfsync always");

    const BASELINES: [Number<'_>; 4] = [
        ("cycles", baselines::IN_PLACE, 1, "record_p50_us", 95.0),
        ("cycles", baselines::APPENDED, 1, "record_p50_us", 135.0),
        ("cycles", baselines::ONE_PROCESSOR, 1, "round_trip_p50_us", 17.0),
        ("cycles", baselines::TWO_PROCESSORS, 1, "round_trip_p50_us", 60.0),
    ];

    /// The part that says where the time goes, in one line for each paragraph's words.
    fn breakdown(numbers: &[Number<'_>]) -> String {
        let description = Arc::new(Description::read().unwrap());
        let page = page(&description, &Runs(vec![Run::of_numbers(numbers)])).unwrap();
        let (_, rest) = page.split_once("## Where the time goes").unwrap();
        let (breakdown, _) = rest.split_once("\n## ").unwrap();
        breakdown.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn has(page: &str, parts: &[&str]) {
        for part in parts {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }

    fn turn<'a>(side: Side<'a>, acquire: f64) -> [Number<'a>; 3] {
        [
            ("cycles", side, 1, "acquire_p50_us", acquire),
            ("cycles", side, 1, "harness_cpu_us", 20.0),
            ("cycles", side, 1, "other_cpu_us", 30.0),
        ]
    }

    #[test]
    fn metrics_are_readable() {
        assert_eq!(readable("cycle_p999_us"), "cycle p99.9 us");
        assert_eq!(readable("cycles_per_s"), "cycles/s");
        assert_eq!(readable("bytes_per_session"), "bytes per session");
    }

    #[test]
    fn an_acquire_is_disk_and_loopback_and_a_rest_which_may_be_negative() {
        let turns = [turn(MEMORY, 26.0), turn(SYNC, 165.0), turn(ALWAYS, 200.0)].concat();
        has(
            &breakdown(&[&BASELINES[..], &turns].concat()),
            &[
                "| lockkeeper | engine, memory | 26 | 0 | 17 | 43 | -34 | 20 | 30 |",
                "| lockkeeper | engine, sync | 165 | 95 | 17 | 43 | 10 | 20 | 30 |",
                "| redis | appendfsync always | 200 | 135 | 17 | 43 | 5 | 20 | 30 |",
                "155 us and Redis's with `always` 195 us, a ratio of 0.795",
                "165 us against 200 us, a ratio of 0.825",
                "60 us with each on a processor of its own, 17 us with both on one,",
            ],
        );
    }

    #[test]
    fn one_processor_has_one_round_trip_and_a_lone_side_no_ratio() {
        let page = breakdown(&[&BASELINES[..3], &turn(SYNC, 165.0)].concat());
        has(
            &page,
            &[
                "| lockkeeper | engine, sync | 165 | 95 | 17 | 0 | 53 |",
                "17 us, both on the only processor.",
            ],
        );
        assert!(!page.contains("For P3"), "{page}");
    }

    #[test]
    fn without_baselines_or_turns_there_is_nothing_to_say() {
        assert_eq!(breakdown(&turn(SYNC, 165.0)), "");
        assert_eq!(breakdown(&BASELINES), "");
    }

    #[test]
    fn resident_memory_is_shown_in_its_parts_as_far_as_it_was_measured() {
        let number = |side, metric, value| ("resources", side, 0, metric, value);
        let ours = [
            number(SYNC, "idle_mib", 8.0),
            number(SYNC, "idle_mapped_mib", 5.0),
            number(SYNC, "idle_private_mib", 3.0),
            number(SYNC, "after_load_mib", 17.0),
            number(SYNC, "after_load_mapped_mib", 6.0),
            number(SYNC, "after_load_private_mib", 11.0),
        ];
        let theirs = [
            number(ON_ZOOKEEPER, "after_load_mib", 240.0),
            number(ON_ZOOKEEPER, "after_load_mapped_mib", 30.0),
            number(ON_ZOOKEEPER, "after_load_private_mib", 210.0),
        ];
        let page = breakdown(&[&ours[..], &theirs].concat());
        has(
            &page,
            &[
                "| engine, sync | just started | 8 | 5 | 3 |",
                "| engine, sync | after the load | 17 | 6 | 11 |",
                "| ZooKeeper | after the load | 240 | 30 | 210 |",
                "after the load is 12 MiB. The engine has 17 MiB, of which 6 MiB are pages of files \
                 and 11 MiB its own.",
            ],
        );
        assert!(!page.contains("| ZooKeeper | just started"), "{page}");
        assert!(!breakdown(&ours).contains("twentieth"));
    }

    #[test]
    fn each_that_is_there_already_costs_its_name() {
        let many = ("lockkeeper", "engine, os, many processes");
        let waiters = |count, metric, value| ("waiters", many, count, metric, value);
        let numbers = [
            waiters(10_000, "bytes_per_waiter", 592_250.0),
            waiters(10, "bytes_per_waiter", 2_840.0),
            waiters(10_000, "time_per_waiter_us", 5_035.0),
            waiters(10, "time_per_waiter_us", 40.0),
            waiters(10_000, "next_holder_us", 440.0),
            waiters(10, "next_holder_us", 341.0),
        ];
        has(
            &breakdown(&numbers),
            &["from 10 waiters to 10,000, by 59 bytes", "0.5 us for each", "after 341 and 440 us"],
        );
        assert_eq!(breakdown(&numbers[..5]), "");
    }
}
