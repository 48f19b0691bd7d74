//! The figures: a line for each outage, tables, and a page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::outage::forms::{Form, Place};
use crate::outage::holders::Kind;
use crate::outage::kills::{Kills, Program};
use crate::outage::rivals::Outcome;
use crate::outage::stand::Sample;
use crate::outage::timeout::Timeout;

/// What one outage did to one group.
pub(crate) fn line(sample: &Sample) -> String {
    let Sample { place, form, kind, timeout, outage, held, lost, complaint, .. } = sample;
    let verdict = match (sample.counts(), *lost) {
        (true, 0) => "kept",
        (true, _) => "BROKEN",
        (false, _) if sample.is_busy => "not judged: this machine is busy",
        (false, _) => "not promised",
    };
    format!(
        "{:8} {:9} T {timeout:7} {:5}  outage {:6.2} s  promised {:6.2} s  lost {lost} of {held}  \
         {verdict} {complaint}",
        place.name(),
        form.name(),
        kind.name(),
        outage.as_secs_f64(),
        sample.promised().as_secs_f64(),
    )
}

/// The samples of one row of the table.
struct Row<'a> {
    place: Place,
    form: Form,
    timeout: Timeout,
    kind: Kind,
    samples: Vec<&'a Sample>,
}

impl Row<'_> {
    fn longest_kept(&self) -> Option<Duration> {
        self.samples.iter().filter(|sample| sample.lost == 0).map(|sample| sample.outage).max()
    }

    fn shortest_lost(&self) -> Option<Duration> {
        self.samples.iter().filter(|sample| sample.lost > 0).map(|sample| sample.outage).min()
    }

    fn verdict(&self) -> String {
        let counted = self.samples.iter().filter(|sample| sample.counts()).count();
        let broken = self.samples.iter().filter(|sample| sample.breaks_the_promise()).count();
        match (counted, broken) {
            (0, _) => "no outage was short enough".to_owned(),
            (_, 0) => format!("kept in {counted}"),
            _ => format!("**broken in {broken} of {counted}**"),
        }
    }
}

fn rows(samples: &[Sample]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for sample in samples {
        let Sample { place, form, timeout, kind, .. } = *sample;
        let key = (place, form, timeout, kind);
        match rows.iter_mut().find(|row| (row.place, row.form, row.timeout, row.kind) == key) {
            Some(row) => row.samples.push(sample),
            None => rows.push(Row { place, form, timeout, kind, samples: vec![sample] }),
        }
    }
    let position = |row: &Row<'_>| {
        let session = row.samples.first().map(|sample| sample.session);
        (row.place.name(), row.form.name(), session, row.timeout.to_string(), row.kind.name())
    };
    rows.sort_by_key(position);
    rows
}

/// The rows where the lengths of outages were chosen, and none was short enough to be judged. Not
/// where a shared outage was aimed at another row.
pub(crate) fn not_judged(samples: &[Sample]) -> Vec<String> {
    let is_aimed = |row: &Row<'_>| match (row.place, row.form) {
        (Place::Ensemble, Form::Stopped) => row.kind == Kind::Guard,
        (place, form) => form.has_chosen_length(place),
    };
    let rows = rows(samples).into_iter().filter(is_aimed);
    let unjudged = rows.filter(|row| !row.samples.iter().any(|sample| sample.counts()));
    let line = |row: Row<'_>| {
        let (place, form, kind) = (row.place.name(), row.form.name(), row.kind.name());
        format!("{place}, {form}, T {}, {kind}: no outage was short enough", row.timeout)
    };
    unjudged.map(line).collect()
}

/// What was measured beside what is promised, in Markdown.
pub(crate) fn table(samples: &[Sample]) -> String {
    let mut text = String::from(
        "| servers | outage | T | holder | promised | outages | longest without a loss | shortest \
         with a loss | promise |\n|---|---|---|---|--:|--:|--:|--:|---|\n",
    );
    let seconds = |length: Option<Duration>| {
        length.map_or("none".to_owned(), |length| format!("{:.2} s", length.as_secs_f64()))
    };
    for row in rows(samples) {
        let Some(first) = row.samples.first() else { continue };
        let timeout = match row.timeout {
            Timeout::Default => format!("default ({} s)", first.session.as_secs()),
            Timeout::Seconds(_) => row.timeout.to_string(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {timeout} | {} | {} | {} | {} | {} | {} |",
            row.place.name(),
            row.form.title(),
            row.kind.name(),
            seconds(Some(first.promised())),
            row.samples.len(),
            seconds(row.longest_kept()),
            seconds(row.shortest_lost()),
            row.verdict(),
        );
    }
    text
}

/// What became of those who rode out an outage with somebody behind them, in Markdown.
fn table_of_rivals(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| servers | outage | first | length | went on | stale writes, or two at a time |\n\
         |---|---|---|--:|---|--:|\n",
    );
    for outcome in outcomes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.2} s | {} | {} |",
            outcome.place.name(),
            outcome.form.title(),
            outcome.kind.name(),
            outcome.outage.as_secs_f64(),
            if outcome.goes_on { "yes" } else { "no" },
            outcome.problem.as_deref().unwrap_or("0"),
        );
    }
    text
}

/// What servers that are killed did to holders, in Markdown.
pub(crate) fn table_of_kills(kills: &Kills) -> String {
    let mut text = String::from(
        "| holders | locks | leader kills | follower kills | warned | lost | \
         overlap |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for program in Program::ALL {
        let records: Vec<_> =
            kills.records.iter().filter(|record| record.program == program).collect();
        let warnings: usize = records.iter().map(|record| record.warnings).sum();
        let lost = records.iter().filter(|record| record.is_lost).count();
        let overlap = records.iter().map(|record| record.overlap).fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {lost} | {overlap:.2} s |",
            program.title(),
            records.len(),
            kills.leaders.len(),
            kills.followers,
            if program == Program::Run { "not told".to_owned() } else { warnings.to_string() },
        );
    }
    let mut lengths: Vec<f64> = kills.leaders.iter().map(Duration::as_secs_f64).collect();
    lengths.sort_by(f64::total_cmp);
    if let (Some(median), Some(longest)) = (lengths.get(lengths.len() / 2), lengths.last()) {
        let _ = writeln!(
            text,
            "\nNobody could write for {median:.2} s after the kill of a leader (median; longest \
             {longest:.2} s)."
        );
    }
    text
}

/// Writes the page into a folder.
pub(crate) fn write(
    folder: &Path,
    samples: &[Sample],
    rivals: &[Outcome],
    kills: Option<&Kills>,
) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut text = String::from(
        "# Outages survived\n\n\
         Written by `cargo xtask outage`; do not edit.\n\n\
         How long may a service be away before a holder loses its lock? Holders are guards of the \
         library and commands under `lockkeeper run`, each with a lock and a session of its own, \
         with session timeout T. The servers are `lockkeeper serve` (engine) and three Apache \
         ZooKeeper servers with a tick of 2 s (ensemble), both with a quorum lease, and the \
         machine-local engine with a direct lease (local). Each outage has eight holders of each \
         kind, whose heartbeats are spread evenly. An outage lasts from before it was made until \
         an independent client has had a write committed: on the same host as the holders where \
         their link was cut, on a host of the servers otherwise. The time for which the machine \
         itself stood still is added. The *promise* is the longest outage that must end nothing.\n\n",
    );
    let busy = samples.iter().filter(|sample| sample.is_busy).count();
    if busy > 0 {
        let _ = writeln!(
            text,
            "The machine had other work during {busy} of {} measurements: programs that wanted to \
             run were late for more than a fifth of the time. These are not judged.\n",
            samples.len(),
        );
    }
    text.push_str(&table(samples));
    if !rivals.is_empty() {
        text.push_str(
            "\n## Two for each lock\n\n\
             The first one has a session timeout of 6 s and rides out the outage, in `run_through` or \
             under `lockkeeper run --on-outage pause`; the second one waits. Both write to a SQLite \
             table that refuses the write of a holder that was overtaken, and notes it. Whoever goes \
             on does so with the same token, and the second one still waits; whoever does not has lost \
             its session, and wrote nothing after the second one had the lock.\n\n",
        );
        text.push_str(&table_of_rivals(rivals));
    }
    if let Some(kills) = kills {
        text.push_str(
            "\n## Servers killed one at a time\n\n\
             Three ZooKeeper servers, default session timeout. A leader or a follower is killed \
             (`kill -9`), started again, and has rejoined before the next one is killed. Each lock \
             has a holder and a waiting contender. The *overlap* is the longest time for which a \
             holder had not been told to stop although the next one had been told to go on. \
             Curator's holder is *warned* by `SUSPENDED`, after which it must not rely on the lock; a \
             guard by `Suspect`, which still is good until the deadline.\n\n",
        );
        text.push_str(&table_of_kills(kills));
    }
    fs::write(folder.join("outage.md"), text)?;
    Ok(())
}
