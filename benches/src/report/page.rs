//! The page: what ran where, how far the targets are met, and every number.

use std::fmt::Write as _;

use super::{Report, breakdown};
use crate::book::{Book, Entry, Key};
use crate::floors::{self, RECORD_BYTES};
use crate::machine::Machine;
use crate::rows;
use crate::settings::Settings;
use crate::targets::{Part, Side};

/// From which share of the processors' time on it matters what others do with it.
const BUSY: f64 = 0.05;

/// Writing to a `String` cannot fail, so nothing here does.
#[derive(Default)]
pub(super) struct Page(String);

impl From<Page> for String {
    fn from(page: Page) -> Self {
        page.0
    }
}

impl Page {
    pub(super) fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    pub(super) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.line(&format!("| {} |", head.join(" | ")));
        // Names to the left, numbers to the right.
        let align = |(column, _): (usize, &&str)| if column < 2 { "---" } else { "---:" };
        let aligns: Vec<&str> = head.iter().enumerate().map(align).collect();
        self.line(&format!("| {} |", aligns.join(" | ")));
        for row in rows {
            self.line(&format!("| {} |", row.join(" | ")));
        }
        self.line("");
    }
}

pub(super) fn page(report: &Report, book: &Book, settings: &Settings) -> String {
    let mut page = Page::default();
    opening(&mut page, report, settings);
    targets(&mut page, report);
    breakdown::write(&mut page, book);
    for row in rows::ALL {
        let entries = book.find(|key| key.row == row.name);
        if !entries.is_empty() {
            page.line(&format!("## {}: {}\n", row.name, row.about));
            chart(&mut page, report, row.name);
            numbers(&mut page, row.name, &entries);
        }
    }
    skips(&mut page, report);
    configurations(&mut page, report);
    page.0.trim_end().to_owned() + "\n"
}

fn opening(page: &mut Page, report: &Report, settings: &Settings) {
    let machine = &report.machine;
    page.line("# Benchmarks\n");
    page.line(
        "Written by `cargo xtask bench`. All sides ran on one machine in one run, in turns, over \
         TCP on the loopback interface; servers as processes of their own, clients in Rust on one \
         thread of one process, whose allocator (mimalloc) all of them have. Absolute numbers are \
         those of this machine: look at the ratios.\n",
    );
    if settings.quick {
        page.line(
            "**This was a quick run** (`--quick`): good for a look, not for quoting. Turns are \
             short, and the programs that are compiled while they run have hardly warmed up.\n",
        );
    }
    if machine.busy_before > BUSY {
        page.line(&format!(
            "**The machine was busy**: {:.0} % of its processors' time just before the run began. \
             The figures are not to be trusted.\n",
            machine.busy_before * 100.0
        ));
    }
    if machine.stolen > BUSY {
        page.line(&format!(
            "**The machine was not alone**: its host gave {:.0} % of its processors' time to others \
             during the run. Figures that differ by less than their spread say nothing.\n",
            machine.stolen * 100.0
        ));
    }
    let plan = settings.plan;
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
                "{} rounds; {} ms of warm-up and {} ms of measuring each; for P5 to P7 {} rounds of {} \
                 ms, as Apache ZooKeeper takes snapshots and collects garbage every few seconds; {} s \
                 in all",
                settings.rounds,
                plan.warm_up.as_millis(),
                plan.measure.as_millis(),
                settings.zookeeper_rounds,
                settings.zookeeper_plan.measure.as_millis(),
                report.seconds
            ),
        ),
    ];
    let rows: Vec<Vec<String>> =
        facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    page.table(&["this run", ""], &rows);
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

fn targets(page: &mut Page, report: &Report) {
    page.line("## Targets\n");
    let mut rows = Vec::new();
    for target in &report.targets {
        for (index, part) in target.parts.iter().enumerate() {
            let (id, what) = if index == 0 { (target.id, target.what) } else { ("", "") };
            let verdict = match (part.ratio, part.goal, part.met) {
                (None, ..) => "not measured",
                (_, None, _) => "",
                (_, _, true) => "met",
                (_, _, false) => "**not met**",
            };
            let ratio = part.ratio.map_or(String::new(), short);
            let (id, what) = (id.to_owned(), format!("{what}{}", named(what, part)));
            rows.push(vec![id, what, ratio, goal(part), verdict.to_owned()]);
        }
    }
    page.table(&["", "what", "ratio", "goal", ""], &rows);
}

fn named(what: &str, part: &Part) -> String {
    if what.is_empty() { format!("… {}", part.part) } else { format!("; {}", part.part) }
}

fn goal(part: &Part) -> String {
    match (part.goal, part.side) {
        (None, _) => String::new(),
        (Some(goal), Side::AtMost) => format!("at most {}", short(goal)),
        (Some(goal), Side::AtLeast) => format!("at least {}", short(goal)),
    }
}

fn chart(page: &mut Page, report: &Report, row: &str) {
    let names: &[&str] = match row {
        "cycles" => &["cycle-time", "cycles"],
        "hand-offs" => &["hand-offs"],
        "herd" => &["herd"],
        "waiters" => &["waiters"],
        _ => &[],
    };
    for name in names {
        if report.charts.iter().any(|(chart, _)| chart == name) {
            page.line(&format!("![{name}](benchmarks/{name}.svg)\n"));
        }
    }
}

/// One table for each number of tasks: a line for each system, a column for each metric.
fn numbers(page: &mut Page, row: &str, entries: &[Entry]) {
    let mut counts: Vec<usize> = entries.iter().map(|entry| entry.key.tasks).collect();
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let here: Vec<&Entry> = entries.iter().filter(|entry| entry.key.tasks == count).collect();
        if count > 0 {
            page.line(&format!("### {}\n", heading(row, count)));
        }
        let mut metrics: Vec<&str> = Vec::new();
        for entry in &here {
            if !metrics.contains(&entry.key.metric.as_str()) {
                metrics.push(&entry.key.metric);
            }
        }
        let columns: Vec<String> = metrics.iter().map(|metric| readable(metric)).collect();
        let mut head = vec!["system", "configuration"];
        head.extend(columns.iter().map(String::as_str));
        let compared = metrics[0].ends_with("_per_s")
            && here.iter().any(|entry| is_baseline(&entry.key, metrics[0]));
        if compared {
            head.push("against Curator");
        }
        let rows = lines(&here, &metrics, compared);
        page.table(&head, &rows);
    }
}

fn heading(row: &str, count: usize) -> String {
    let what = match row {
        "hand-offs" => "clients",
        "herd" | "waiters" => "waiters",
        "resources" => "of them",
        _ if count == 1 => "task",
        _ => "tasks",
    };
    format!("{} {what}", grouped(count as f64))
}

fn lines(entries: &[&Entry], metrics: &[&str], compared: bool) -> Vec<Vec<String>> {
    let mut systems: Vec<(&str, &str)> = Vec::new();
    for entry in entries {
        let system = (entry.key.system.as_str(), entry.key.config.as_str());
        if !systems.contains(&system) {
            systems.push(system);
        }
    }
    // What the machine itself takes is beside all of them, and no system.
    systems.sort_by_key(|&system| floors::ALL.contains(&system));
    let baseline = entries.iter().copied().find(|entry| is_baseline(&entry.key, metrics[0]));
    let line = |system: (&str, &str)| {
        let mut cells = vec![system.0.to_owned(), system.1.to_owned()];
        for (column, metric) in metrics.iter().enumerate() {
            let entry = find(entries, system, metric);
            cells.push(entry.map_or(String::new(), |entry| cell(entry, column == 0)));
        }
        if compared {
            let ratio = find(entries, system, metrics[0])
                .zip(baseline)
                .map(|(entry, baseline)| format!("{}x", short(entry.median / baseline.median)));
            cells.push(ratio.unwrap_or_default());
        }
        cells
    };
    systems.into_iter().map(line).collect()
}

fn find<'a>(
    entries: &[&'a Entry],
    (system, config): (&str, &str),
    metric: &str,
) -> Option<&'a Entry> {
    let wanted = |key: &Key| key.system == system && key.config == config && key.metric == metric;
    entries.iter().copied().find(|entry| wanted(&entry.key))
}

fn is_baseline(key: &Key, metric: &str) -> bool {
    key.system == "curator" && key.metric == metric
}

/// The median, and for the first column how far the rounds were apart.
fn cell(entry: &Entry, with_spread: bool) -> String {
    let mut text = short(entry.median);
    if with_spread && entry.rounds > 1 {
        let _ = write!(text, " ({}–{})", short(entry.min), short(entry.max));
    }
    text
}

/// `cycle_p999_us` is `cycle p99.9 us`, `cycles_per_s` is `cycles/s`.
fn readable(metric: &str) -> String {
    metric.replace("_per_s", "/s").replace("p999", "p99.9").replace('_', " ")
}

fn skips(page: &mut Page, report: &Report) {
    if report.skipped.is_empty() {
        return;
    }
    page.line("## Skipped\n");
    for skip in &report.skipped {
        let why = skip.why.lines().next().unwrap_or_default();
        page.line(&format!("- {}, {}: {why}", skip.row, skip.system));
    }
    page.line("");
}

fn configurations(page: &mut Page, report: &Report) {
    page.line("## How each peer is configured\n");
    let rows: Vec<Vec<String>> = (report.configurations.iter())
        .map(|(peer, how)| vec![peer.clone(), how.split_whitespace().collect::<Vec<_>>().join(" ")])
        .collect();
    page.table(&["peer", "configuration"], &rows);
}

/// Three digits that count; thousands in groups.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = value.abs().log10().floor() as i32;
    if digits >= 3 {
        let unit = 10_f64.powi(digits - 2);
        return grouped((value / unit).round() * unit);
    }
    let decimals = usize::try_from(2 - digits).unwrap_or(0).min(6);
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [1_234_567.0, 999.6, 100.0, 12.34, 1.0, 0.1234, 0.05, 0.0].map(short);
        assert_eq!(shown, ["1,230,000", "1000", "100", "12.3", "1", "0.123", "0.05", "0"]);
    }

    #[test]
    fn metrics_are_readable() {
        assert_eq!(readable("cycle_p999_us"), "cycle p99.9 us");
        assert_eq!(readable("cycles_per_s"), "cycles/s");
    }
}
