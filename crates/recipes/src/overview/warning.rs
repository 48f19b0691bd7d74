//! Warnings about an overview (pure).

#![expect(clippy::disallowed_types, reason = "the servers' wall time, as they show it")]

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use lockkeeper_client::ZnodePath;
use lockkeeper_locks::graph::WaitGraph;
use lockkeeper_locks::inspect::{Entry, LockQueue};
use lockkeeper_locks::{OnceKey, OwnerInfo};

use crate::overview::uses::{Overview, QueueUse};

/// The limits from which on there is a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarningLimits {
    /// The longest wait of a contender for a lock.
    pub wait: Duration,
    /// The largest age of the oldest item of a queue.
    pub item: Duration,
    /// The longest hold of a lock, as a multiple of its usual hold time.
    pub times_usual: u32,
}

impl Default for WarningLimits {
    fn default() -> Self {
        let five_minutes = Duration::from_secs(300);
        Self { wait: five_minutes, item: five_minutes, times_usual: 10 }
    }
}

/// Information about holds over time, which the tree alone does not show.
#[derive(Clone, Debug, Default)]
pub struct HoldTimes {
    /// When a contender was granted its lock, by its node.
    pub held_since: HashMap<ZnodePath, SystemTime>,
    /// The median hold time of a lock, by its path.
    pub usual: HashMap<ZnodePath, Duration>,
}

/// A warning. It displays as text with the problem and the path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Contenders wait for each other.
    Deadlock {
        /// The locks of the cycle.
        locks: Vec<ZnodePath>,
        /// Whether it is a deadlock whatever the programs do in other tasks.
        is_certain: bool,
    },
    /// A lock is held much longer than usual.
    HeldLong {
        /// The lock.
        lock: ZnodePath,
        /// The node of its holder.
        holder: ZnodePath,
        /// How long it has been held.
        held: Duration,
        /// The median of its earlier hold times.
        usual: Duration,
    },
    /// A contender has waited for too long.
    WaitsLong {
        /// The lock.
        lock: ZnodePath,
        /// The node of the contender that has waited longest.
        waiter: ZnodePath,
        /// How long it has waited.
        waited: Duration,
        /// The number of contenders that have waited longer than the limit.
        waiters: usize,
    },
    /// The oldest item of a queue is older than the limit.
    ItemWaitsLong {
        /// The queue.
        queue: ZnodePath,
        /// Its age.
        age: Duration,
    },
    /// A queue has items but does not have consumers.
    NoConsumers {
        /// The queue.
        queue: ZnodePath,
        /// The number of waiting items.
        waiting: usize,
    },
    /// A queue has dead letters.
    DeadLetters {
        /// The queue.
        queue: ZnodePath,
        /// The number of dead letters.
        letters: usize,
    },
    /// A run of [`Once`](lockkeeper_locks::Once) ended without a record.
    RunAbandoned {
        /// Its lock.
        lock: ZnodePath,
        /// The key of the newest such run.
        key: OnceKey,
        /// The program of that run.
        owner: Box<OwnerInfo>,
        /// How long ago it began.
        ago: Duration,
    },
}

impl Overview {
    /// The warnings, the most urgent first. `now`: the best estimate of the servers' clock.
    pub fn warnings(
        &self,
        now: SystemTime,
        limits: &WarningLimits,
        times: &HoldTimes,
    ) -> Vec<Warning> {
        let mut warnings = self.deadlocks();
        for lock in &self.locks {
            warnings.extend(held_long(lock, now, limits, times));
            warnings.extend(waits_long(lock, now, limits));
        }
        warnings.extend(self.queues.iter().flat_map(|queue| of_queue(queue, now, limits)));
        for log in &self.once {
            // Only the newest run: an earlier run that died is known by then, or has been repeated.
            let newest = log.records.last();
            let abandoned = log.abandoned(self.lock(&log.lock));
            warnings.extend(abandoned.filter(|it| Some(*it) == newest).map(|record| {
                Warning::RunAbandoned {
                    lock: log.lock.clone(),
                    key: record.key.clone(),
                    owner: Box::new(record.owner.clone()),
                    ago: since(record.began, now),
                }
            }));
        }
        warnings
    }

    fn deadlocks(&self) -> Vec<Warning> {
        let graph = WaitGraph::new(&self.locks);
        let cycles = graph.cycles().into_iter().map(|cycle| {
            let locks = cycle.steps.iter().map(|step| self.locks[step.waiter.lock].path.clone());
            Warning::Deadlock { locks: locks.collect(), is_certain: cycle.is_certain() }
        });
        cycles.collect()
    }
}

impl Warning {
    /// The path of the warning. For a deadlock, the path of its first lock.
    pub fn path(&self) -> Option<&ZnodePath> {
        match self {
            Self::Deadlock { locks, .. } => locks.first(),
            Self::HeldLong { lock, .. }
            | Self::WaitsLong { lock, .. }
            | Self::RunAbandoned { lock, .. } => Some(lock),
            Self::ItemWaitsLong { queue, .. }
            | Self::NoConsumers { queue, .. }
            | Self::DeadLetters { queue, .. } => Some(queue),
        }
    }

    /// A short name of the warning, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Deadlock { .. } => "deadlock",
            Self::HeldLong { .. } => "held_long",
            Self::WaitsLong { .. } => "waits_long",
            Self::ItemWaitsLong { .. } => "item_waits_long",
            Self::NoConsumers { .. } => "no_consumers",
            Self::DeadLetters { .. } => "dead_letters",
            Self::RunAbandoned { .. } => "run_abandoned",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock { locks, is_certain } => {
                let seems = if *is_certain { "" } else { " (as far as sessions show)" };
                write!(f, "deadlock{seems} over ")?;
                for (index, lock) in locks.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{lock}")?;
                }
                Ok(())
            }
            Self::HeldLong { lock, held, usual, .. } => {
                let (held, usual) = (Rounded(*held), Rounded(*usual));
                write!(f, "{lock} has been held for {held}, usually {usual}")
            }
            Self::WaitsLong { lock, waited, waiters, .. } => {
                let waited = Rounded(*waited);
                let others = waiters.saturating_sub(1);
                write!(f, "a contender has waited for {lock} for {waited}")?;
                if others > 0 { write!(f, ", and {others} more wait long") } else { Ok(()) }
            }
            Self::ItemWaitsLong { queue, age } => {
                write!(f, "the oldest item of {queue} is {} old", Rounded(*age))
            }
            Self::NoConsumers { queue, waiting } => {
                let items =
                    if *waiting == 1 { "1 item waits" } else { &format!("{waiting} items wait") };
                write!(f, "{queue} has no consumers, and {items}")
            }
            Self::DeadLetters { queue, letters: 1 } => write!(f, "{queue} has 1 dead letter"),
            Self::DeadLetters { queue, letters } => write!(f, "{queue} has {letters} dead letters"),
            Self::RunAbandoned { lock, key, owner, ago } => {
                let what = match key {
                    OnceKey::Named(key) => format!("for the key {key:?}"),
                    OnceKey::Tick(_) => "for the last tick".to_owned(),
                };
                let ago = Rounded(*ago);
                write!(
                    f,
                    "the run under {lock} {what} by {owner} began {ago} ago and ended without a record"
                )
            }
        }
    }
}

/// A duration, displayed with its two largest units: `3h 20m`.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
            (0, 0, 0, 0) => write!(f, "{}ms", self.0.as_millis()),
            (0, 0, 0, seconds) => write!(f, "{seconds}s"),
            (0, 0, minutes, seconds) => write!(f, "{minutes}m {seconds}s"),
            (0, hours, minutes, _) => write!(f, "{hours}h {minutes}m"),
            (days, hours, ..) => write!(f, "{days}d {hours}h"),
        }
    }
}

fn since(time: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(time).unwrap_or_default()
}

fn of_queue(
    QueueUse { path, report, .. }: &QueueUse,
    now: SystemTime,
    limits: &WarningLimits,
) -> Vec<Warning> {
    let oldest = report.oldest_unix_ms.map(Duration::from_millis);
    let age = oldest.map(|at| since(SystemTime::UNIX_EPOCH + at, now)).unwrap_or_default();
    let has_no_consumers = report.waiting > 0 && report.workers == 0;

    let mut warnings = Vec::new();
    if has_no_consumers {
        warnings.push(Warning::NoConsumers { queue: path.clone(), waiting: report.waiting });
    } else if age > limits.item {
        warnings.push(Warning::ItemWaitsLong { queue: path.clone(), age });
    }
    if report.dead > 0 {
        warnings.push(Warning::DeadLetters { queue: path.clone(), letters: report.dead });
    }
    warnings
}

/// The holders that have held a lock for too long, if its usual time is known.
fn held_long<'a>(
    lock: &'a LockQueue,
    now: SystemTime,
    limits: &'a WarningLimits,
    times: &'a HoldTimes,
) -> impl Iterator<Item = Warning> {
    let usual = times.usual.get(&lock.path).copied();
    let noted = |holder: &Entry| {
        let ms = holder.owner.as_ref()?.held_since_unix_ms?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    };
    lock.holders().filter_map(move |holder| {
        let usual = usual?;
        let from = times.held_since.get(&holder.node).copied().or_else(|| noted(holder))?;
        let held = since(from, now);
        // A usual time of moments does not make a hold of a few moments too long.
        let limit = usual.saturating_mul(limits.times_usual).max(Duration::from_secs(10));
        let (lock, holder) = (lock.path.clone(), holder.node.clone());
        (held > limit).then_some(Warning::HeldLong { lock, holder, held, usual })
    })
}

/// The contender that has waited longest, if it has waited for too long.
fn waits_long(lock: &LockQueue, now: SystemTime, limits: &WarningLimits) -> Option<Warning> {
    let waits = lock.waiters().map(|waiter| (since(waiter.since, now), waiter));
    let long: Vec<_> = waits.filter(|(waited, _)| *waited > limits.wait).collect();
    let (waited, waiter) = long.iter().max_by_key(|(waited, _)| *waited)?;
    Some(Warning::WaitsLong {
        lock: lock.path.clone(),
        waiter: waiter.node.clone(),
        waited: *waited,
        waiters: long.len(),
    })
}
