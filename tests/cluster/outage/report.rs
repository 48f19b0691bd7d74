//! The figures: a line for each outage, tables, and a page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lockkeeper_tests::{DOCS, name};

use super::OutageForm;
use super::holders::{HolderKind, Timeout};
use super::kills::Kills;
use super::probe::Sample;
use super::rivals::{self, RivalsOutcome};
use crate::servers::Place;

/// What one outage did to one group.
pub(super) fn line(sample: &Sample) -> String {
    let Sample { place, form, group, outage, lost, complaint, .. } = sample;
    let verdict = match (sample.counts(), *lost) {
        (true, 0) => "kept",
        (true, _) => "BROKEN",
        (false, _) if sample.is_busy => "not judged: this machine is busy",
        (false, _) => "not promised",
    };
    format!(
        "{:8} {:9} T {:7} {:5}  outage {:6.2} s  promised {:6.2} s  lost {lost} of {}  {verdict} \
         {complaint}",
        name(*place),
        name(*form),
        group.timeout,
        group.kind.title(),
        outage.as_secs_f64(),
        sample.promised().as_secs_f64(),
        group.size,
    )
}

/// The samples of each row of the table.
fn rows(samples: &[Sample]) -> Vec<Vec<&Sample>> {
    let key = |sample: &Sample| {
        let (place, form, group) = (name(sample.place), name(sample.form), sample.group);
        (place, form, group.session, group.timeout.to_string(), group.kind.title())
    };
    let mut sorted: Vec<_> = samples.iter().collect();
    sorted.sort_by_key(|sample| key(sample));
    sorted.chunk_by(|one, other| key(one) == key(other)).map(<[_]>::to_vec).collect()
}

/// The rows where the lengths of outages were chosen, and none was short enough to be judged. Not
/// where a shared outage was aimed at another row.
pub(super) fn not_judged(samples: &[Sample]) -> Vec<String> {
    let line = |row: Vec<&Sample>| {
        let Sample { place, form, group, .. } = row[0];
        let is_aimed = match (place, form) {
            (Place::Ensemble, OutageForm::Stopped) => group.kind == HolderKind::Guard,
            (place, form) => form.has_chosen_length(*place),
        };
        let is_judged = row.iter().any(|sample| sample.counts());
        (is_aimed && !is_judged).then(|| {
            let (place, form, kind) = (name(*place), name(*form), group.kind.title());
            format!("{place}, {form}, T {}, {kind}: no outage was short enough", group.timeout)
        })
    };
    rows(samples).into_iter().filter_map(line).collect()
}

/// What was measured beside what is promised, in Markdown.
pub(super) fn table(samples: &[Sample]) -> String {
    let mut text = String::from(
        "| servers | outage | T | holder | promised | outages | longest without a loss | shortest \
         with a loss | promise |\n|---|---|---|---|--:|--:|--:|--:|---|\n",
    );
    let seconds = |length: Option<Duration>| {
        length.map_or("none".to_owned(), |length| format!("{:.2} s", length.as_secs_f64()))
    };
    for row in rows(samples) {
        let Sample { place, form, group, .. } = row[0];
        let timeout = match group.timeout {
            Timeout::Default => format!("default ({} s)", group.session.as_secs()),
            Timeout::Seconds(_) => group.timeout.to_string(),
        };
        let outages = |lost: bool| {
            row.iter().filter(move |sample| (sample.lost > 0) == lost).map(|sample| sample.outage)
        };
        let counted = row.iter().filter(|sample| sample.counts()).count();
        let broken = row.iter().filter(|sample| sample.breaks_the_promise()).count();
        let verdict = match (counted, broken) {
            (0, _) => "no outage was short enough".to_owned(),
            (_, 0) => format!("kept in {counted}"),
            _ => format!("**broken in {broken} of {counted}**"),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {timeout} | {} | {} | {} | {} | {} | {verdict} |",
            name(*place),
            form.title(),
            group.kind.title(),
            seconds(Some(row[0].promised())),
            row.len(),
            seconds(outages(false).max()),
            seconds(outages(true).min()),
        );
    }
    text
}

/// Writes the page.
pub(super) fn write(samples: &[Sample], rivals: &[RivalsOutcome], kills: &Kills) -> Result<()> {
    let busy = samples.iter().filter(|sample| sample.is_busy).count();
    let busy = match busy {
        0 => String::new(),
        _ => format!(
            "The machine had other work during {busy} of {} measurements: programs that wanted to \
             run were late for more than a fifth of the time. These are not judged.\n\n",
            samples.len()
        ),
    };
    let text = format!(
        "# Outages survived\n\n\
         Written by `cargo xtask outage`; do not edit.\n\n\
         How long may a service be away before a holder loses its lock? Holders are guards of the \
         library and commands under `lockkeeper run`, each with a lock and a session of its own, \
         with session timeout T. The servers are `lockkeeper serve` (engine) and three Apache \
         ZooKeeper servers with a tick of 2 s, which do not wait for their disks (ensemble), both \
         with a quorum lease, and the \
         machine-local engine with a direct lease (local). Each outage has eight holders of each \
         kind, whose heartbeats are spread evenly. An outage lasts from before it was made until \
         an independent client has had a write committed: on the same host as the holders where \
         their link was cut, on a host of the servers otherwise. The time for which the machine \
         itself stood still is added. The *promise* is the longest outage that must end nothing.\n\n\
         {busy}{}\n\
         ## Two for each lock\n\n\
         The first one has a session timeout of 6 s and rides out the outage, in `run_through` or \
         under `lockkeeper run --on-outage pause`; the second one waits. Both write to a \
         file that refuses the write of a holder that was overtaken, and notes it. Whoever goes \
         on does so with the same token, and the second one still waits; whoever does not has lost \
         its session, and wrote nothing after the second one had the lock.\n\n{}\n\
         ## Servers killed one at a time\n\n\
         Three ZooKeeper servers, default session timeout. A leader or a follower is killed \
         (`kill -9`), started again, and has rejoined before the next one is killed. Each lock \
         has a holder and a waiting contender. The *overlap* is the longest time for which a \
         holder had not been told to stop although the next one had been told to go on. \
         Curator's holder is *warned* by `SUSPENDED`, after which it must not rely on the lock; a \
         guard by `Suspect`, which still is good until the deadline.\n\n{}",
        table(samples),
        rivals::table(rivals),
        kills.table(),
    );
    Ok(fs::write(Path::new(DOCS).join("outage.md"), text)?)
}
