//! The page: what ran where, how far the targets are met, and every number.

use super::markdown::{Markdown, grouped, short};
use super::run::Run;
use super::targets::{Goal, Part};
use super::{breakdown, charts};
use crate::baselines::{self, RECORD_BYTES};
use crate::machine::Machine;
use crate::peers::Configuration;
use crate::results::{Entry, Side, Skip};
use crate::scenarios;
use crate::settings::Settings;

/// From which share of the processors' time on it matters what others do with it.
const BUSY: f64 = 0.05;

pub(super) fn page(run: &Run) -> String {
    let mut page = Markdown::default();
    opening(&mut page, run);
    facts(&mut page, run);
    page.paragraph("## Targets");
    targets(&mut page, run);
    breakdown::write(&mut page, &run.entries);

    for scenario in scenarios::ALL {
        let entries: Vec<&Entry> =
            run.entries.0.iter().filter(|entry| entry.key.scenario == scenario.name).collect();
        if entries.is_empty() {
            continue;
        }
        page.paragraph(&format!("## {}: {}", scenario.name, scenario.about));
        page.paragraph(&setting(run, &entries));
        for chart in charts::of_scenario(&run.entries, scenario.name) {
            page.paragraph(&format!("![{chart}](benchmarks/{chart}.svg)"));
        }
        numbers(&mut page, scenario.counted, &entries);
    }

    skips(&mut page, run);
    page.paragraph("## How each peer is configured");
    let peer = |peer: &Configuration| {
        vec![peer.system.clone(), peer.version.clone(), peer.settings.clone()]
    };
    let peers: Vec<_> = run.configurations.iter().map(peer).collect();
    page.table(&["peer", "version", "configuration"], &peers);
    page.finish()
}

fn opening(page: &mut Markdown, run: &Run) {
    let machine = &run.machine;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    page.paragraph("# Benchmarks");
    page.paragraph(
        "`cargo xtask bench` writes this page. All systems ran on one machine in one run, in turns, \
         over TCP on the loopback interface. Each server is a process of its own. The clients are \
         Rust on one thread of one process, and all of them use the allocator mimalloc. Absolute \
         numbers are those of this machine: compare the ratios.",
    );
    page.paragraph(&format!(
        "The ratios depend on the machine, too. {}",
        match machine.wakes_fast() {
            true =>
                "This one has a fast wake-up: a message that wakes a thread on another processor \
                 costs little more than one that stays on its processor. Where waking is slow, a \
                 server that spins for the next request, as the engine does, gains more on one that \
                 sleeps.",
            false =>
                "This one has a slow wake-up: a message that wakes a thread on another processor \
                 costs several times what it costs on the same one. A server that spins for the \
                 next request, as the engine does, gains more on one that sleeps than it does \
                 where waking is fast.",
        }
    ));
    page.paragraph(
        "Compare like with like: the engine's `sync` and Redis's `appendfsync always` answer when a \
         change is on the disk. `os` and `appendfsync everysec` answer from memory, and the disk \
         follows within about a second. `memory` and `no persistence` never write to the disk.",
    );

    if run.quick {
        page.paragraph(
            "**This was a quick run** (`--quick`): good for a look, not for quoting. Turns are \
             short, and the programs that are compiled while they run have hardly warmed up.",
        );
    }
    if machine.busy_before > BUSY {
        page.paragraph(&format!(
            "**The machine was busy**: {} of its processors' time just before the run began. The \
             figures are not to be trusted.",
            percent(machine.busy_before)
        ));
    }
    if machine.stolen > BUSY {
        page.paragraph(&format!(
            "**The machine was not alone**: its host gave {} of its processors' time to others \
             during the run. Figures that differ by less than their spread say nothing.",
            percent(machine.stolen)
        ));
    }
}

fn facts(page: &mut Markdown, run: &Run) {
    let machine = &run.machine;
    let Settings { rounds, plan, zookeeper_rounds, zookeeper_plan, .. } = Settings::of(run.quick);
    let facts = [
        ("date, commit", format!("{}, {}", machine.date, machine.commit)),
        ("processor", format!("{}, {} cores", machine.processor, machine.cores)),
        (
            "its time",
            format!(
                "{:.1} % used just before the run, {:.1} % given to others by the host during it",
                machine.busy_before * 100.0,
                machine.stolen * 100.0
            ),
        ),
        ("memory", format!("{:.0} GiB", machine.memory_gib)),
        ("kernel, file system", format!("{}, {}", machine.kernel, machine.file_system)),
        ("compiler", machine.compiler.clone()),
        (
            "a record with its `fdatasync`",
            format!(
                "{RECORD_BYTES} bytes: {} in place, {} appended",
                typical(machine.fdatasync_in_place_p50_us, machine.fdatasync_in_place_p99_us),
                typical(machine.fdatasync_p50_us, machine.fdatasync_p99_us)
            ),
        ),
        ("loopback round trip", loopback(machine)),
        (
            "turns",
            format!(
                "{rounds} rounds; {} ms of warm-up and {} ms of measuring each; for P5 to P7 \
                 {zookeeper_rounds} rounds of {} ms, as Apache ZooKeeper takes snapshots and \
                 collects garbage every few seconds; {} s in all",
                plan.warm_up.as_millis(),
                plan.measure.as_millis(),
                zookeeper_plan.measure.as_millis(),
                run.seconds
            ),
        ),
    ];
    page.table(&["this run", ""], &facts.map(|(name, value)| vec![name.to_owned(), value]));
}

fn loopback(machine: &Machine) -> String {
    let one = typical(machine.loopback_one_processor_p50_us, machine.loopback_one_processor_p99_us);
    match machine.loopback_processors {
        1 => format!("{one} on the only processor"),
        _ => {
            let two = typical(machine.loopback_p50_us, machine.loopback_p99_us);
            format!("{two} between two processors, {one} on one")
        }
    }
}

fn typical(p50: f64, p99: f64) -> String {
    format!("{} us (p99 {} us)", short(p50), short(p99))
}

fn targets(page: &mut Markdown, run: &Run) {
    let mut lines = Vec::new();
    for target in &run.targets {
        for (index, part) in target.parts.iter().enumerate() {
            let (id, what) = match index {
                0 => (target.id, format!("{}; {}", target.what, part.part)),
                _ => ("", format!("… {}", part.part)),
            };
            let ratio = part.ratio.map(short).unwrap_or_default();
            lines.push(vec![id.to_owned(), what, ratio, goal(part.goal), verdict(part).to_owned()]);
        }
    }
    page.table(&["", "what", "ratio", "goal", ""], &lines);
}

fn verdict(part: &Part) -> &'static str {
    match (part.ratio, part.goal) {
        (None, _) => "not measured",
        (_, Goal::Stated) => "",
        _ if part.met => "met",
        _ => "**not met**",
    }
}

pub(super) fn goal(goal: Goal) -> String {
    match goal {
        Goal::Stated => String::new(),
        Goal::AtMost(goal) => format!("at most {}", short(goal)),
        Goal::AtLeast(goal) => format!("at least {}", short(goal)),
    }
}

/// The kind of machine, and the versions of the peers that are in these numbers.
fn setting(run: &Run, entries: &[&Entry]) -> String {
    let is_here = |system: &str| {
        entries.iter().any(|entry| {
            entry.key.system == system
                || (system == "zookeeper" && entry.key.config.contains(system))
        })
    };
    let mut versions: Vec<&str> = Vec::new();
    for peer in run.configurations.iter().filter(|peer| is_here(&peer.system)) {
        if !versions.contains(&peer.version.as_str()) {
            versions.push(&peer.version);
        }
    }
    let speed = if run.machine.wakes_fast() { "fast" } else { "slow" };
    format!("On a machine with a {speed} wake-up. Versions: {}.", versions.join(", "))
}

/// One table for each number of tasks: a line for each side, a column for each metric.
fn numbers(page: &mut Markdown, counted: &str, entries: &[&Entry]) {
    let mut counts: Vec<usize> = entries.iter().map(|entry| entry.key.tasks).collect();
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let here: Vec<&Entry> =
            entries.iter().copied().filter(|entry| entry.key.tasks == count).collect();
        if count > 0 {
            let plural = if count == 1 || counted.ends_with('m') { "" } else { "s" };
            page.paragraph(&format!("### {} {counted}{plural}", grouped(count as f64)));
        }
        table(page, &here);
    }
}

fn table(page: &mut Markdown, entries: &[&Entry]) {
    let (mut metrics, mut sides): (Vec<&str>, Vec<Side<'_>>) = (Vec::new(), Vec::new());
    for entry in entries {
        if !metrics.contains(&entry.key.metric.as_str()) {
            metrics.push(&entry.key.metric);
        }
        if !sides.contains(&entry.key.side()) {
            sides.push(entry.key.side());
        }
    }
    // What the machine itself takes is beside all of them, and no system.
    sides.sort_by_key(|side| baselines::ALL.contains(side));
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
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    page.table(&head, &sides.iter().map(line).collect::<Vec<_>>());
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

fn skips(page: &mut Markdown, run: &Run) {
    if run.skipped.is_empty() {
        return;
    }
    page.paragraph("## Skipped");
    let line = |skip: &Skip| {
        let why = skip.why.lines().next().unwrap_or_default();
        format!("- {}, {}: {why}", skip.scenario, skip.system)
    };
    page.paragraph(&run.skipped.iter().map(line).collect::<Vec<_>>().join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_readable() {
        assert_eq!(readable("cycle_p999_us"), "cycle p99.9 us");
        assert_eq!(readable("cycles_per_s"), "cycles/s");
        assert_eq!(readable("bytes_per_session"), "bytes per session");
    }
}
