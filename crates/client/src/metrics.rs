//! Metrics for the facade `metrics`: all names, and how to record one.
//!
//! The names of locks and queues are defined here too, so that all metrics are registered with the first
//! client, and a dashboard shows zero instead of no data.

pub use metrics::Label;
use metrics::{Key, KeyName, Level, Metadata, Unit, with_recorder};

/// Calls that tried to acquire a lock.
pub const ATTEMPTS: &str = "lockkeeper_acquire_attempts_total";
/// Calls that acquired a lock.
pub const ACQUIRED: &str = "lockkeeper_acquired_total";
/// Calls that ended without the lock.
pub const NOT_ACQUIRED: &str = "lockkeeper_not_acquired_total";
/// The wait of successful calls.
pub const WAIT: &str = "lockkeeper_acquire_wait_seconds";
/// The number of calls that wait now.
pub const WAITING: &str = "lockkeeper_waiting";
/// How long the oldest waiting call has waited.
pub const OLDEST_WAIT: &str = "lockkeeper_oldest_wait_seconds";
/// The number of guards that hold a lock now.
pub const HELD: &str = "lockkeeper_held";
/// How long the oldest guard has been held.
pub const OLDEST_HOLD: &str = "lockkeeper_oldest_hold_seconds";
/// How long locks were held.
pub const HOLD: &str = "lockkeeper_hold_seconds";
/// The shortest remaining lease.
pub const LEASE_REMAINING: &str = "lockkeeper_lease_remaining_seconds";
/// Locks that were lost.
pub const LOST: &str = "lockkeeper_lost_total";
/// Clients by connection state.
pub const SESSIONS: &str = "lockkeeper_sessions";
/// The longest silence of a server.
pub const SILENCE: &str = "lockkeeper_session_silence_seconds";
/// The shortest session timeout.
pub const TIMEOUT: &str = "lockkeeper_session_timeout_seconds";
/// Connections that ended.
pub const DISCONNECTS: &str = "lockkeeper_disconnects_total";
/// Sessions that expired.
pub const EXPIRED: &str = "lockkeeper_sessions_expired_total";
/// The items of a queue.
pub const QUEUE_ITEMS: &str = "lockkeeper_queue_items";
/// The age of the oldest item of a queue.
pub const QUEUE_OLDEST: &str = "lockkeeper_queue_oldest_item_seconds";

/// The kinds of locks, as values of the label `kind`.
pub const KINDS: [&str; 8] =
    ["exclusive", "read", "upgradeable", "write", "permits", "leader", "node", "several"];

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// A counter: it only increases.
    Counter,
    /// A gauge: it can increase and decrease.
    Gauge,
    /// A histogram.
    Histogram,
}

/// A metric that this library reports.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Figure {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: FigureKind,
    /// The unit: seconds or a count.
    pub unit: Unit,
    /// The labels, with all values of each; empty where the program chooses the values.
    pub labels: &'static [(&'static str, &'static [&'static str])],
    /// The description.
    pub help: &'static str,
}

const KIND: (&str, &[&str]) = ("kind", &KINDS);
const NOT_ACQUIRED_REASONS: &[&str] = &["taken", "given_up", "failed"];
const LOSS_REASONS: &[&str] = &[
    "session_expired",
    "deadline_passed",
    "node_deleted",
    "check_refused",
    "revoked",
    "client_closed",
    "held_too_long",
];
pub(crate) const STATES: &[&str] = &["connected", "disconnected", "unreachable"];

macro_rules! figures {
    ($($name:ident $kind:ident $unit:ident [$($label:expr),*] $help:literal;)*) => {
        &[$(Figure {
            name: $name,
            kind: FigureKind::$kind,
            unit: Unit::$unit,
            labels: &[$($label),*],
            help: $help,
        }),*]
    };
}

/// All metrics that this library reports. `docs/monitoring.md` explains how to use them.
pub const FIGURES: &[Figure] = figures! {
    ATTEMPTS Counter Count [KIND] "Calls that asked for a lock";
    ACQUIRED Counter Count [KIND] "Calls that acquired a lock";
    NOT_ACQUIRED Counter Count [KIND, ("reason", NOT_ACQUIRED_REASONS)]
        "Calls that ended without the lock: it was taken, the time limit ended or the caller gave up, or an error";
    WAIT Histogram Seconds [KIND] "Time from the call to the grant";
    WAITING Gauge Count [] "Calls that wait for a lock now";
    OLDEST_WAIT Gauge Seconds [] "How long the call has waited that has waited longest";
    HELD Gauge Count [] "Guards that hold something now";
    OLDEST_HOLD Gauge Seconds [] "How long the guard has held that has held longest";
    HOLD Histogram Seconds [] "Time from the grant to the release or the loss";
    LEASE_REMAINING Gauge Seconds []
        "Time to the nearest deadline of what is held; the session timeout while nothing is held";
    LOST Counter Count [("reason", LOSS_REASONS)] "Guards that lost what they held";
    SESSIONS Gauge Count [("state", STATES)] "Clients by how they stand with their servers";
    SILENCE Gauge Seconds [] "Longest time since a client has heard of a server, or connected to one";
    TIMEOUT Gauge Seconds [] "Shortest session timeout of the clients";
    DISCONNECTS Counter Count [] "Connections of sessions that ended";
    EXPIRED Counter Count [] "Sessions that the servers ended";
    QUEUE_ITEMS Gauge Count [("queue", &[]), ("state", &["waiting", "claimed", "delayed", "dead"])]
        "Items of a queue when it was last inspected";
    QUEUE_OLDEST Gauge Seconds [("queue", &[])]
        "Age of the oldest item of a queue when it was last inspected; 0 without items";
};

/// The metadata of all metrics.
pub static METADATA: Metadata<'static> = Metadata::new("lockkeeper", Level::INFO, None);

/// Registers all metrics with the recorder, and sets those without a value to zero. Each new client calls it;
/// call it again if the recorder is installed later.
pub fn describe() {
    with_recorder(|recorder| {
        for Figure { name, kind, unit, labels, help } in FIGURES {
            let (key_name, unit) = (KeyName::from_const_str(name), Some(*unit));
            match kind {
                FigureKind::Counter => recorder.describe_counter(key_name, unit, (*help).into()),
                FigureKind::Gauge => recorder.describe_gauge(key_name, unit, (*help).into()),
                FigureKind::Histogram => {
                    recorder.describe_histogram(key_name, unit, (*help).into());
                }
            }
            for labels in combinations(labels) {
                let key = Key::from_parts(*name, labels);
                match kind {
                    FigureKind::Counter => recorder.register_counter(&key, &METADATA).increment(0),
                    FigureKind::Gauge => recorder.register_gauge(&key, &METADATA).increment(0.0),
                    FigureKind::Histogram => drop(recorder.register_histogram(&key, &METADATA)),
                }
            }
        }
    });
}

/// All combinations of these labels; empty if the values of a label are not known.
fn combinations(labels: &[(&'static str, &'static [&'static str])]) -> Vec<Vec<Label>> {
    let mut all = vec![Vec::new()];
    for (label, values) in labels {
        let with = |before: &Vec<Label>| {
            let before = before.clone();
            values.iter().map(move |value| {
                let mut labels = before.clone();
                labels.push(Label::from_static_parts(label, value));
                labels
            })
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// Increments a counter.
pub fn count(name: &'static str, labels: Vec<Label>) {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_counter(&key, &METADATA).increment(1));
}

/// Sets a gauge.
pub fn set(name: &'static str, labels: Vec<Label>, value: f64) {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_gauge(&key, &METADATA).set(value));
}
