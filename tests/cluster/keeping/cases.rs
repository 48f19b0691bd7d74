//! Cases side by side.
//!
//! A case mostly waits, so many cases run concurrently. Their number and the time between their starts are limited, so
//! that the load of the test does not delay heartbeats. On a shared machine, a
//! server can still pause for a part of a lease. So a failed case runs again, alone, before it
//! counts, and once more while its server does not reply like a healthy one.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::kinds::{How, KINDS, KeptKind};
use super::scene::{LEASES, Scene};
use super::servers::KeepingServer;
use super::{Case, KeepingForm};

/// How many clients may be at work at a time, for each second of a session timeout: what they all
/// cost is heartbeats, which come the more often the shorter a timeout is.
const LOAD_PER_SECOND: u64 = 75;

/// Up to this many failures run again one by one. More failures are not an accident, and would take long.
const ONE_BY_ONE: usize = 8;

/// How often a case is begun at most.
const ATTEMPTS: usize = 4;

/// A server that takes longer than this part of the session timeout to answer is not healthy. A
/// client that is silent for a 24th of it longer than it means to trusts no write for a while.
const SLOW: u32 = 40;

/// What a case of the command costs the machine, which is processes, where one of the library's is 1.
const COMMAND_LOAD: u32 = 6;

/// What no case comes near unless it hangs, beside its leases.
const LIMIT: Duration = Duration::from_secs(60);

/// How one case ended.
pub(super) struct CaseOutcome {
    pub(super) case: Case,
    pub(super) end: End,
    /// The longest time that a reply of the server took during the case.
    pub(super) slowest: Duration,
}

pub(super) enum End {
    /// Held all the time. The shortest remainder, in leases, where it can be seen.
    Kept(Option<f64>),
    Lost(String),
    /// The lock was not even had, or there is something else wrong.
    Failed(String),
}

impl CaseOutcome {
    pub(super) fn has_failed(&self) -> bool {
        !matches!(self.end, End::Kept(_))
    }

    /// Whether it says nothing yet: the first failure, and each one with a server that was slow.
    fn is_open(&self, form: KeepingForm) -> bool {
        self.has_failed() && (self.case.before.is_none() || self.slowest > form.timeout / SLOW)
    }
}

/// Runs all of these cases.
pub(super) async fn all(cases: Vec<Case>, form: KeepingForm) -> Vec<CaseOutcome> {
    let count = cases.len();
    let load = u64::try_from(form.timeout.as_millis()).unwrap_or(u64::MAX) * LOAD_PER_SECOND / 1000;
    let load = u32::try_from(load).unwrap_or(u32::MAX);
    let mut outcomes = side_by_side(cases, form, load).await;
    for _ in 1..ATTEMPTS {
        let (open, done): (Vec<_>, Vec<_>) =
            outcomes.into_iter().partition(|outcome| outcome.is_open(form));
        outcomes = done;
        if open.is_empty() {
            break;
        }
        let load = if open.len() <= ONE_BY_ONE { 1 } else { load / 8 };
        println!("{} of {count} cases failed and run again", open.len());
        let again = open.into_iter().map(|outcome| {
            let before = Some(line(&outcome));
            Case { before, ..outcome.case }
        });
        outcomes.extend(side_by_side(again.collect(), form, load).await);
    }
    outcomes
}

/// Runs cases within a bound of load.
async fn side_by_side(cases: Vec<Case>, form: KeepingForm, load: u32) -> Vec<CaseOutcome> {
    let room = Arc::new(Semaphore::new(load as usize));
    let mut running = JoinSet::new();
    for case in cases {
        let load_of_case = match case.kind.how {
            How::Library(_) => 1,
            How::Command(_) => COMMAND_LOAD.min(load),
        };
        let place = Arc::clone(&room).acquire_many_owned(load_of_case).await;
        running.spawn(async move {
            let outcome = run(case).await;
            drop(place);
            outcome
        });
        // Not all at once: to begin is most of a case's work.
        tokio::time::sleep(form.timeout * LEASES * load_of_case / load / 2).await;
    }
    running.join_all().await
}

async fn run(case: Case) -> CaseOutcome {
    let start = Instant::now();
    let limit = LIMIT + case.server.form.timeout * (LEASES + 2);
    let ended = tokio::time::timeout(limit, play(case.clone())).await;
    let end = ended.context("it hangs").flatten();
    let end = end.unwrap_or_else(|error| End::Failed(format!("{error:#}")));
    let slowest = case.server.slowest_since(start);
    CaseOutcome { case, end, slowest }
}

async fn play(case: Case) -> Result<End> {
    let kind = case.kind;
    let scene = Scene::open(case).await?;
    let end = match &kind.how {
        How::Library(take) => {
            let held = take(&scene).await?;
            let kept = held.keep(scene.lease).await;
            // A guard without async waits when it is dropped.
            tokio::task::spawn_blocking(move || drop(held)).await?;
            kept.map_or_else(End::Lost, |least| End::Kept(Some(least)))
        }
        How::Command(run) => run.play(&scene).await?,
    };
    scene.close().await;
    Ok(end)
}

// ----- the table ------------------------------------------------------------------------------

/// One standstill fails many cases at a time, and a few of them tell as much.
const UNSTABLE_LINES: usize = 10;

/// A row for each kind on each server; then what failed, and what failed only at first.
pub(super) fn page(outcomes: &[CaseOutcome], servers: &[Arc<KeepingServer>]) -> String {
    let is_of = |outcome: &CaseOutcome, kind: &KeptKind| outcome.case.kind.name == kind.name;
    let is_there = |kind: &&KeptKind| outcomes.iter().any(|outcome| is_of(outcome, kind));
    let kinds: Vec<_> = KINDS.iter().filter(is_there).collect();
    let width = kinds.iter().map(|kind| kind.name.len()).max().unwrap_or_default();
    let mut text = format!(
        "{:width$}  {:9}  {:>5}  {:>5}  {:>6}  least lease left\n",
        "kind", "server", "cases", "lost", "failed"
    );
    for kind in kinds {
        for server in servers.iter().map(|server| server.name) {
            let is_at = |one: &&CaseOutcome| is_of(one, kind) && one.case.server.name == server;
            let ends = outcomes.iter().filter(is_at).map(|outcome| &outcome.end);
            let figures = figures(&ends.collect::<Vec<_>>());
            let _ = writeln!(text, "{:width$}  {server:9}  {figures}", kind.name);
        }
    }

    let (failed, passed): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.has_failed());
    for outcome in failed {
        let _ = writeln!(text, "{}", line(outcome));
    }
    let unstable: Vec<_> = passed.iter().filter_map(|one| one.case.before.as_ref()).collect();
    for before in unstable.iter().take(UNSTABLE_LINES) {
        let _ = writeln!(text, "UNSTABLE, passed at a later attempt: {before}");
    }
    if unstable.len() > UNSTABLE_LINES {
        let _ = writeln!(text, "UNSTABLE: {} cases in all", unstable.len());
    }
    text
}

/// The columns of a row.
fn figures(ends: &[&End]) -> String {
    let lost = ends.iter().filter(|end| matches!(end, End::Lost(_))).count();
    let failed = ends.iter().filter(|end| matches!(end, End::Failed(_))).count();
    let left = ends.iter().filter_map(|end| match end {
        End::Kept(left) => *left,
        End::Lost(_) => Some(0.0),
        End::Failed(_) => None,
    });
    let least = left.min_by(f64::total_cmp);
    let least = least.map_or("-".to_owned(), |least| format!("{:.0} %", least * 100.0));
    format!("{:5}  {lost:5}  {failed:6}  {least:>5}", ends.len())
}

fn line(outcome: &CaseOutcome) -> String {
    let (how, why) = match &outcome.end {
        End::Kept(_) => ("kept", ""),
        End::Lost(why) => ("LOST", why.as_str()),
        End::Failed(why) => ("FAILED", why.as_str()),
    };
    let Case { kind, server, mode, share, .. } = &outcome.case;
    let (kind, server, slowest) = (kind.name, server.name, outcome.slowest.as_millis());
    format!(
        "{how}: {kind} on {server}, {mode:?}, after {share} % of a lease: {why}; the server's \
         slowest answer meanwhile took {slowest} ms"
    )
}
