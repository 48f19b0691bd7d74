//! Parts of several pages: root blockers and circles.

use askama::Template;
use lockkeeper::graph::{Because, RootBlocker, WaitCycle};

use crate::commands::console::model::Model;
use crate::commands::console::text;
use crate::commands::console::words::{Age, ContenderName, LockLink, Since};

/// How many other locks are named.
const MOST_LOCKS: usize = 3;

/// How many steps of a circle are written.
const MOST_STEPS: usize = 20;

/// The holders that others wait for.
#[derive(Debug, Template)]
#[template(path = "console/blockers.html")]
pub(super) struct ShownBlockers {
    pub(super) rows: Vec<BlockerRow>,
    has_others: bool,
}

impl ShownBlockers {
    /// The first ones.
    pub(super) fn of(model: &Model, most: usize) -> Self {
        let rows = model.roots.iter().take(most).map(|root| BlockerRow::of(model, root));
        let rows: Vec<_> = rows.collect();
        let has_others = rows.iter().any(|row| !row.others.is_empty());
        Self { rows, has_others }
    }
}

/// A holder that others wait for.
#[derive(Debug)]
pub(super) struct BlockerRow {
    pub(super) who: ContenderName,
    pub(super) lock: LockLink,
    pub(super) since: Since,
    pub(super) waiters: String,
    pub(super) oldest: Age,
    /// Other locks whose lines it holds up.
    pub(super) others: Vec<LockLink>,
    pub(super) more: usize,
}

impl BlockerRow {
    pub(super) fn of(model: &Model, root: &RootBlocker) -> Self {
        let others: Vec<_> = root.locks.iter().filter(|lock| **lock != root.holder.lock).collect();
        let shown = others.iter().take(MOST_LOCKS);
        Self {
            who: ContenderName::of(model.contender(root.holder)),
            lock: LockLink::to(model.queue(root.holder).path.as_str()),
            since: Since::of(model, root.holder),
            waiters: text::number(root.waiters),
            oldest: Age::of(model.contender(root.oldest).since),
            others: shown.map(|lock| LockLink::to(model.queues[**lock].path.as_str())).collect(),
            more: others.len().saturating_sub(MOST_LOCKS),
        }
    }
}

/// A circle of programs that wait for each other.
#[derive(Debug)]
pub(super) struct ShownCycle {
    pub(super) is_certain: bool,
    pub(super) steps: Vec<CycleRow>,
    pub(super) more: usize,
}

/// One wait of it.
#[derive(Debug)]
pub(super) struct CycleRow {
    pub(super) who: ContenderName,
    pub(super) since: Since,
    pub(super) lock: LockLink,
    pub(super) blocker: ContenderName,
    pub(super) because: &'static str,
}

impl ShownCycle {
    pub(super) fn of(model: &Model, cycle: &WaitCycle) -> Self {
        let steps = cycle.steps.iter().take(MOST_STEPS).map(|step| CycleRow {
            who: ContenderName::of(model.contender(step.waiter)),
            since: Since::of(model, step.waiter),
            lock: LockLink::to(model.queue(step.waiter).path.as_str()),
            blocker: ContenderName::of(model.contender(step.blocker)),
            because: match step.because {
                Because::ItWaits => "which waits too",
                Because::ItsCommandWaits => "whose command waits",
                Because::ItsSessionWaits => "whose session waits",
            },
        });
        let more = cycle.steps.len().saturating_sub(MOST_STEPS);
        Self { is_certain: cycle.is_certain(), steps: steps.collect(), more }
    }
}
