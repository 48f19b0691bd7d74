//! The figures: a line for each outage, tables, and a page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lockkeeper_tests::{DOCS, name};

use super::OutageForm;
use super::holders::{HOLDERS, HolderKind, Timeout};
use super::kills::Kills;
use super::probe::Sample;
use super::rivals::{self, RivalsOutcome};
use crate::servers::Place;

/// What one outage did to one group.
pub(super) fn line(sample: &Sample) -> String {
    let Sample { place, form, group, outage, lost, .. } = sample;
    let verdict = match (sample.counts(), lost.len()) {
        (true, 0) => "kept",
        (true, _) => "BROKEN",
        (false, _) if sample.is_busy => "not judged: this machine is busy",
        (false, _) => "not promised",
    };
    format!(
        "{:8} {:9} T {:7} {:5}  outage {:6.2} s  promised {:6.2} s  lost {} of {HOLDERS}  \
         {verdict} {}",
        name(*place),
        name(*form),
        text_of(group.timeout),
        name(group.kind),
        outage.as_secs_f64(),
        sample.promised().as_secs_f64(),
        lost.len(),
        lost.first().map_or("", String::as_str),
    )
}

fn text_of(timeout: Timeout) -> String {
    timeout.map_or("default".to_owned(), |timeout| format!("{} s", timeout.as_secs()))
}

/// The samples of each row of the table.
fn rows(samples: &[Sample]) -> Vec<Vec<&Sample>> {
    let key = |sample: &Sample| {
        let (place, form, group) = (name(sample.place), name(sample.form), sample.group);
        (place, form, group.session, text_of(group.timeout), name(group.kind))
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
            let (place, form, kind) = (name(*place), name(*form), name(group.kind));
            format!(
                "{place}, {form}, T {}, {kind}: no outage was short enough",
                text_of(group.timeout)
            )
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
            None => format!("default ({} s)", group.session.as_secs()),
            named => text_of(named),
        };
        let outages = |lost: bool| {
            row.iter()
                .filter(move |sample| sample.lost.is_empty() != lost)
                .map(|sample| sample.outage)
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
            name(group.kind),
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
        include_str!("page.md"),
        busy = busy,
        outages = table(samples),
        rivals = rivals::table(rivals),
        kills = kills.table().trim_end(),
    );
    Ok(fs::write(Path::new(DOCS).join("outage.md"), text)?)
}
