//! The metrics of locks, for the facade `metrics`.
//!
//! Counters and histograms are recorded when events happen. Gauges are set only by [`update`], from a list of
//! waiting calls and of held guards. Between updates they cost only an entry in that list.

use std::borrow::Cow;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lockkeeper_client::metrics::{
    ACQUIRED, ATTEMPTS, HELD, HOLD, KINDS, LEASE_REMAINING, LOST, METADATA, NOT_ACQUIRED,
    OLDEST_HOLD, OLDEST_WAIT, WAIT, WAITING, count, set,
};
use lockkeeper_client::{Clock, HoldProbe, Instant, ZnodePath, update_sessions};
use metrics::{Key, Label, SharedString, with_recorder};

use crate::error::LossReason;
use crate::telemetry::metric_kind::MetricKind;

/// Returns the value of the label `lock` for a path.
type Namer = Box<dyn Fn(&ZnodePath) -> Option<SharedString> + Send + Sync>;

static NAMER: OnceLock<Namer> = OnceLock::new();

static LIST: Mutex<List> = Mutex::new(List { entries: Vec::new(), free: Vec::new() });

/// The waiting calls and the held guards. Entries keep their index, so that adding and removing one takes constant
/// time.
struct List {
    entries: Vec<Tracked>,
    free: Vec<usize>,
}

enum Tracked {
    Free,
    Waiting(Instant),
    Held(Instant, HoldProbe),
}

/// Adds a label `lock` to the counters and histograms of locks. Its value is the result of `name` for the path
/// of the lock; the label is left out if that is `None`. Returns `false` without a change if a function was already
/// set.
///
/// Each value creates a time series for each metric and each instance of a program, which monitoring keeps
/// for as long as it keeps data. So use few values: `|path| path.parent().map(|it| it.to_string().into())` for
/// locks below a few nodes, and not the path itself if paths contain the ids of customers or orders. Call this
/// before the first client is created.
pub fn name_locks(
    name: impl Fn(&ZnodePath) -> Option<SharedString> + Send + Sync + 'static,
) -> bool {
    NAMER.set(Box::new(name)).is_ok()
}

/// Updates the gauges, which otherwise keep their values. Call it right before metrics are read, for example in
/// the handler of an exporter, or periodically. Makes no request. It reads the state of each session
/// and each guard.
pub fn update() {
    let timeout = update_sessions();
    let now = Clock.now();
    let (mut waits, mut holds) = (Vec::new(), Vec::new());
    for entry in &list().entries {
        match entry {
            Tracked::Free => {}
            Tracked::Waiting(since) => waits.push(*since),
            Tracked::Held(since, probe) => holds.push((*since, probe.clone())),
        }
    }

    // The list is not locked here, because every acquire waits for that lock.
    let left = |(_, probe): &(Instant, HoldProbe)| {
        let seen = probe.state();
        let deadline = seen.lease.deadline.filter(|_| seen.is_proven() && !seen.is_gone);
        deadline.map_or(Duration::ZERO, |deadline| deadline.since(seen.now))
    };
    let left = holds.iter().map(left).min().unwrap_or(timeout);
    let age = |first: Option<Instant>| first.map_or(0.0, |since| now.since(since).as_secs_f64());
    let oldest_hold = holds.iter().map(|(since, _)| *since).min();

    let amount = |amount: usize| u32::try_from(amount).unwrap_or(u32::MAX).into();
    set(WAITING, Vec::new(), amount(waits.len()));
    set(OLDEST_WAIT, Vec::new(), age(waits.into_iter().min()));
    set(HELD, Vec::new(), amount(holds.len()));
    set(OLDEST_HOLD, Vec::new(), age(oldest_hold));
    set(LEASE_REMAINING, Vec::new(), left.as_secs_f64());
}

fn list() -> std::sync::MutexGuard<'static, List> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry in the list. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Slot(usize);

impl Slot {
    fn new(entry: Tracked) -> Self {
        let mut list = list();
        match list.free.pop() {
            Some(index) => {
                list.entries[index] = entry;
                Self(index)
            }
            None => {
                list.entries.push(entry);
                Self(list.entries.len() - 1)
            }
        }
    }

    /// Records the start of a call.
    pub(crate) fn waiting(metric_kind: MetricKind, path: &ZnodePath, since: Instant) -> Self {
        increment(&ATTEMPTS_BY_KIND[metric_kind as usize], path);
        Self::new(Tracked::Waiting(since))
    }

    /// Records that the call was granted a lock.
    #[expect(clippy::unused_self, reason = "only a recorded entry can end")]
    pub(crate) fn granted(&self, metric_kind: MetricKind, path: &ZnodePath, waited: f64) {
        increment(&ACQUIRED_BY_KIND[metric_kind as usize], path);
        record(&WAIT_BY_KIND[metric_kind as usize], path, waited);
    }

    /// Records that the call has ended without a lock.
    #[expect(clippy::unused_self, reason = "only a recorded entry can end")]
    pub(crate) fn refused(&self, metric_kind: MetricKind, path: &ZnodePath, reason: &'static str) {
        let kind = Label::from_static_parts("kind", metric_kind.name());
        let labels = [kind, Label::from_static_parts("reason", reason)];
        count(NOT_ACQUIRED, labels.into_iter().chain(lock_label(path)).collect());
    }

    /// Records a held lock.
    pub(crate) fn held(since: Instant, probe: HoldProbe) -> Self {
        Self::new(Tracked::Held(since, probe))
    }

    /// Records the end of a hold. `lost`: the reason, if the lock was lost.
    pub(crate) fn ended(self, path: &ZnodePath, held: f64, lost: Option<LossReason>) {
        record(&HOLD_KEY, path, held);
        if let Some(reason) = lost {
            let reason = Label::from_static_parts("reason", loss_label(reason));
            count(LOST, [reason].into_iter().chain(lock_label(path)).collect());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut list = list();
        let old = std::mem::replace(&mut list.entries[self.0], Tracked::Free);
        list.free.push(self.0);
        // Dropping the entry may drop a client, which takes other locks.
        drop(list);
        drop(old);
    }
}

fn loss_label(reason: LossReason) -> &'static str {
    match reason {
        LossReason::SessionExpired => "session_expired",
        LossReason::DeadlinePassed => "deadline_passed",
        LossReason::NodeDeleted => "node_deleted",
        LossReason::CheckRefused => "check_refused",
        LossReason::Revoked => "revoked",
        LossReason::ClientClosed => "client_closed",
        LossReason::HeldTooLong => "held_too_long",
        LossReason::Released => "released",
    }
}

fn lock_label(path: &ZnodePath) -> Option<Label> {
    let name = NAMER.get()?(path)?;
    Some(Label::new("lock", name))
}

fn increment(key: &'static Key, path: &ZnodePath) {
    let key = named(key, path);
    with_recorder(|recorder| recorder.register_counter(&key, &METADATA).increment(1));
}

fn record(key: &'static Key, path: &ZnodePath, value: f64) {
    let key = named(key, path);
    with_recorder(|recorder| recorder.register_histogram(&key, &METADATA).record(value));
}

fn named(key: &'static Key, path: &ZnodePath) -> Cow<'static, Key> {
    match lock_label(path) {
        Some(label) => Cow::Owned(key.with_extra_labels(vec![label])),
        None => Cow::Borrowed(key),
    }
}

// A constant, because creating a key at each call would cost more than everything else here.
static HOLD_KEY: Key = Key::from_static_name(HOLD);

macro_rules! by_kind {
    ($name:ident, $($index:literal)*) => {
        [$(Key::from_static_parts($name, &KIND_LABELS[$index])),*]
    };
}

static KIND_LABELS: [[Label; 1]; KINDS.len()] = {
    const fn label(index: usize) -> [Label; 1] {
        [Label::from_static_parts("kind", KINDS[index])]
    }
    [label(0), label(1), label(2), label(3), label(4), label(5), label(6), label(7)]
};
static ATTEMPTS_BY_KIND: [Key; KINDS.len()] = by_kind!(ATTEMPTS, 0 1 2 3 4 5 6 7);
static ACQUIRED_BY_KIND: [Key; KINDS.len()] = by_kind!(ACQUIRED, 0 1 2 3 4 5 6 7);
static WAIT_BY_KIND: [Key; KINDS.len()] = by_kind!(WAIT, 0 1 2 3 4 5 6 7);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_is_counted_under_its_own_name() {
        let all = [
            MetricKind::Exclusive,
            MetricKind::Read,
            MetricKind::Upgradeable,
            MetricKind::Write,
            MetricKind::Permits,
            MetricKind::Leader,
            MetricKind::Node,
            MetricKind::Several,
        ];
        assert_eq!(all.map(MetricKind::name), KINDS);
        assert_eq!(all.map(|metric_kind| metric_kind as usize), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
