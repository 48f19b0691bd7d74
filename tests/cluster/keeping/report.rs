//! The table of a round, and what failed in it.

use std::fmt::Write as _;

use crate::keeping::cases::{End, Outcome};
use crate::keeping::kinds::Kind;
use crate::keeping::servers::{Name, Servers};

/// One standstill fails many cases at a time, and a few of them tell as much.
const UNSTABLE_LINES: usize = 10;

/// A row for each kind on each server; then what failed, and what failed only at first.
pub(crate) fn page(outcomes: &[Outcome], servers: &Servers) -> String {
    let mut text = table(outcomes, servers);
    for outcome in outcomes.iter().filter(|outcome| outcome.has_failed()) {
        let _ = writeln!(text, "{}", line(outcome));
    }
    let passed = outcomes.iter().filter(|outcome| !outcome.has_failed());
    let unstable: Vec<_> = passed.filter_map(|outcome| outcome.before.as_deref()).collect();
    for before in unstable.iter().take(UNSTABLE_LINES) {
        let _ = writeln!(text, "UNSTABLE, passed at a later attempt: {}", line(before));
    }
    if unstable.len() > UNSTABLE_LINES {
        let _ = writeln!(text, "UNSTABLE: {} cases in all", unstable.len());
    }
    text
}

fn table(outcomes: &[Outcome], servers: &Servers) -> String {
    let mut kinds: Vec<&'static Kind> = outcomes.iter().map(|outcome| outcome.case.kind).collect();
    kinds.sort_by_key(|kind| kind.place());
    kinds.dedup_by_key(|kind| kind.name);
    let width = kinds.iter().map(|kind| kind.name.len()).max().unwrap_or_default();

    let mut text = format!(
        "{:width$}  {:9}  {:>5}  {:>5}  {:>6}  least lease left\n",
        "kind", "server", "cases", "lost", "failed"
    );
    for kind in kinds {
        for server in servers.names() {
            let row: Vec<_> = outcomes.iter().filter(|one| is_of(one, kind, server)).collect();
            let _ = writeln!(text, "{:width$}  {server:9}  {}", kind.name, figures(&row));
        }
    }
    text
}

fn is_of(outcome: &Outcome, kind: &Kind, server: Name) -> bool {
    outcome.case.kind.name == kind.name && outcome.case.server == server
}

/// The columns of a row.
fn figures(outcomes: &[&Outcome]) -> String {
    let (mut lost, mut failed, mut least) = (0, 0, None);
    for outcome in outcomes {
        match &outcome.end {
            End::Kept(left) => least = shortest(least, *left),
            End::Lost(_) => lost += 1,
            End::Failed(_) => failed += 1,
        }
    }
    if lost > 0 {
        least = Some(0.0);
    }
    let least = least.map_or("-".to_owned(), |least| format!("{:.0} %", least * 100.0));
    format!("{:5}  {lost:5}  {failed:6}  {least:>5}", outcomes.len())
}

fn shortest(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).min_by(f64::total_cmp)
}

fn line(outcome: &Outcome) -> String {
    let (how, why) = match &outcome.end {
        End::Kept(_) => ("kept", ""),
        End::Lost(why) => ("LOST", why.as_str()),
        End::Failed(why) => ("FAILED", why.as_str()),
    };
    let Outcome { case, slowest, .. } = outcome;
    let slowest = slowest.as_millis();
    format!("{how}: {case}: {why}; the server's slowest answer meanwhile took {slowest} ms")
}
