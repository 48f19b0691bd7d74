//! The scenarios: the requests of the clients, the possible faults, and how often they happen.

use std::time::Duration;

use lockkeeper::{Kind, LeaseMode, SemaphoreProfile};

use crate::histories::Times;
use crate::program::Setup;
use crate::wanted::Wanted;
use crate::{LOCK, TIMEOUT};
use lockkeeper_testkit::locks::{self, Design, Sharing};

/// What may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) lock: LockKind,
    pub(crate) clients: usize,
    pub(crate) kinds: &'static [Kind],
    pub(crate) asking: Asking,
    /// How many permits there are, where they are counted.
    pub(crate) permits: u32,
    pub(crate) losses: u8,
    pub(crate) cancellations: u8,
    pub(crate) restarts: u8,
    pub(crate) ticks: u8,
    /// How often a holder may turn into a writer, or a reader, without giving the lock back.
    pub(crate) turns: u8,
    /// How often another number of permits is written.
    pub(crate) changes: u8,
    /// How often a holder may give the lock back and acquire it again in one go.
    pub(crate) again: u8,
    /// For how long a party waits for the others, in milliseconds; 0: without end.
    pub(crate) patience_ms: u64,
    /// For how long an idle node is kept, in milliseconds; 0: not at all.
    pub(crate) linger_ms: u64,
    /// Timers that are due within so many milliseconds have their turn as messages have.
    pub(crate) soon_ms: u64,
    /// Whether what a server sends may be late, or is received at once unless it is lost. Late
    /// replies multiply the states, and matter where time passes.
    pub(crate) late: bool,
    /// Whether what a client sends at once arrives at once, or others may come in between.
    pub(crate) together: bool,
    pub(crate) mode: LeaseMode,
    /// How far time moves at once, in milliseconds.
    pub(crate) step_ms: u64,
    /// How many clients have asked when it begins, one after the other: the first one holds, and the next are in line.
    pub(crate) in_line: usize,
    /// Whether holders ride out outages.
    pub(crate) rides_out: bool,
    /// How often the node of a holder in jeopardy is deleted.
    pub(crate) deletions: u8,
    /// How often the server's data is put back to when the first client held, while that is in jeopardy.
    /// All have heard of more since.
    pub(crate) restores: u8,
    /// Whether the first client only puts the item. Otherwise the item exists at the start.
    pub(crate) puts: bool,
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Mutex,
    /// Its next holder waits for so many milliseconds if one has vanished.
    Delayed(u64),
    Reentrant,
    Multi,
    Exclusive,
    RwLock,
    Semaphore,
    /// A semaphore in the layout of Curator, whose number is a convention.
    CuratorSemaphore,
    KazooSemaphore,
    /// None: the item of a queue.
    Queue,
    /// None: rounds, of which all clients are parties.
    Rounds,
}

impl LockKind {
    /// Whether there is one line of contenders, whose order is that of the grants.
    pub(crate) fn has_one_line(self) -> bool {
        use LockKind::{Delayed, Mutex, Reentrant, RwLock, Semaphore};
        matches!(self, Mutex | Delayed(_) | Reentrant | RwLock | Semaphore)
    }

    /// Whether the number of permits is in the lock's own node.
    pub(crate) fn keeps_permits(self) -> bool {
        matches!(self, Self::Semaphore | Self::KazooSemaphore)
    }

    /// The kind of the lock; `None` if it is not a lock.
    fn kind(self, permits: u32) -> Option<locks::Kind> {
        let semaphore = |layout| locks::Kind::Semaphore { permits, layout };
        Some(match self {
            Self::Mutex => locks::Kind::Mutex,
            Self::Delayed(ms) => locks::Kind::Delayed(Duration::from_millis(ms)),
            Self::Reentrant => locks::Kind::Reentrant,
            Self::Multi => locks::Kind::Multi,
            Self::Exclusive => locks::Kind::Exclusive,
            Self::RwLock => locks::Kind::RwLock,
            Self::Semaphore => semaphore(SemaphoreProfile::Native),
            Self::CuratorSemaphore => semaphore(SemaphoreProfile::Curator),
            Self::KazooSemaphore => semaphore(SemaphoreProfile::Kazoo),
            Self::Queue | Self::Rounds => return None,
        })
    }
}

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asking {
    /// Each client for any of the kinds: all combinations are tried.
    Any,
    /// Each client for the kind in its place.
    InTurn,
}

impl Bounds {
    /// What the clients ask for: all combinations.
    pub(crate) fn combinations(&self) -> Vec<Vec<Kind>> {
        match self.asking {
            Asking::InTurn => vec![self.kinds[..self.clients].to_vec()],
            Asking::Any => (0..self.clients).fold(vec![Vec::new()], |before, _| {
                let with = |kinds: &Vec<Kind>| {
                    let kinds = kinds.clone();
                    self.kinds.iter().map(move |kind| [kinds.clone(), vec![*kind]].concat())
                };
                before.iter().flat_map(with).collect()
            }),
        }
    }

    pub(crate) fn setup(&self) -> Setup {
        let sharing = match self.linger_ms {
            0 => Sharing::Never,
            ms => Sharing::Linger(Duration::from_millis(ms)),
        };
        let wanted = match self.lock.kind(self.permits) {
            Some(kind) => Wanted::Lock(Design { path: LOCK, kind }, sharing),
            None if self.lock == LockKind::Rounds => {
                let patience = Duration::from_millis(self.patience_ms);
                Wanted::Round(self.clients, (!patience.is_zero()).then_some(patience))
            }
            None => Wanted::Item,
        };
        Setup {
            wanted,
            timeout: TIMEOUT,
            server_tick: Duration::from_millis(500),
            mode: self.mode,
            rides_out: self.rides_out,
        }
    }

    pub(crate) fn times(&self) -> Times {
        Times { step: self.step(), soon: Duration::from_millis(self.soon_ms) }
    }

    pub(crate) fn step(&self) -> Duration {
        Duration::from_millis(self.step_ms)
    }
}

/// A line of the table: its name, its bounds, and whether a plain test run has the time for it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) bounds: Bounds,
    pub(crate) length: Length,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Length {
    /// A second without optimization.
    Moment,
    /// Some seconds.
    Short,
    Long,
}

/// All clients.
const ALL: usize = usize::MAX;

const MUTEX: Bounds = Bounds {
    lock: LockKind::Mutex,
    clients: 3,
    kinds: &[Kind::Exclusive],
    asking: Asking::Any,
    permits: 1,
    losses: 0,
    cancellations: 0,
    restarts: 0,
    ticks: 0,
    turns: 0,
    changes: 0,
    again: 0,
    patience_ms: 0,
    linger_ms: 0,
    soon_ms: 200,
    late: false,
    together: false,
    mode: LeaseMode::Direct,
    // Three steps are just longer than a session lives.
    step_ms: 2_001,
    in_line: 0,
    rides_out: false,
    deletions: 0,
    restores: 0,
    puts: false,
};

/// One holds, rides out an outage, and has others behind it. After three steps without an answer its
/// lease has ended, and its session has not; after four it has, unless the server was away.
const RIDING: Bounds = Bounds {
    clients: 2,
    together: true,
    ticks: 4,
    step_ms: 1_990,
    in_line: ALL,
    rides_out: true,
    ..MUTEX
};

/// One for both permits holds, and one for one is behind it.
const RIDING_SEMAPHORE: Bounds = Bounds {
    lock: LockKind::Semaphore,
    kinds: &[Kind::Permits(2), Kind::Permits(1)],
    asking: Asking::InTurn,
    permits: 2,
    ..RIDING
};

const RIDING_MULTI: Bounds = Bounds { lock: LockKind::Multi, ..RIDING };

/// Its owner enters once more in each jeopardy.
const RIDING_REENTRANT: Bounds = Bounds { lock: LockKind::Reentrant, ..RIDING };

const RW_LOCK: Bounds =
    Bounds { lock: LockKind::RwLock, kinds: &[Kind::Read, Kind::Write], ..MUTEX };

/// Readers, one of which at a time may turn into a writer, and writers, that turn into readers.
const TURNING: Bounds =
    Bounds { kinds: &[Kind::Read, Kind::Upgradeable, Kind::Write], turns: 1, ..RW_LOCK };

/// Two permits, of which each wants one or both.
const SEMAPHORE: Bounds = Bounds {
    lock: LockKind::Semaphore,
    kinds: &[Kind::Permits(1), Kind::Permits(2)],
    permits: 2,
    ..MUTEX
};

/// Each client asks for the kind in its place.
const fn turning(kinds: &'static [Kind]) -> Bounds {
    Bounds { clients: kinds.len(), kinds, asking: Asking::InTurn, ..TURNING }
}

const SEMAPHORE_IN_TURN: Bounds = Bounds {
    kinds: &[Kind::Permits(1), Kind::Permits(2), Kind::Permits(1)],
    asking: Asking::InTurn,
    ..SEMAPHORE
};

/// One consumer has the item, and the others wait. Whoever has it records that it is done, or drops it, and
/// goes.
const QUEUE: Bounds =
    Bounds { lock: LockKind::Queue, clients: 2, together: true, in_line: ALL, ..MUTEX };

/// A producer puts the item, for which the others wait.
const QUEUE_PUT: Bounds = Bounds { puts: true, ..QUEUE };

/// Nobody has the item yet.
const QUEUE_FREE: Bounds = Bounds { in_line: 0, ..QUEUE };

/// All enter, and leave or drop what they have.
const ROUNDS: Bounds =
    Bounds { lock: LockKind::Rounds, clients: 2, kinds: &[Kind::Read], together: true, ..MUTEX };

/// One has entered, and waits for the other one.
const ROUNDS_BEGUN: Bounds = Bounds { in_line: 1, ..ROUNDS };

/// All are inside.
const ROUNDS_OPEN: Bounds = Bounds { in_line: ALL, ..ROUNDS };

/// One line of [`SCENARIOS`].
const fn scenario(name: &'static str, length: Length, bounds: Bounds) -> Scenario {
    Scenario { name, bounds, length }
}

use Length::{Long, Moment, Short};

/// A new scenario is one more line here.
pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("`Mutex`, 2 clients", Moment, Bounds { clients: 2, ..MUTEX }),
    scenario("`Mutex`, 3 clients", Moment, MUTEX),
    scenario("`RwLock`, 3 clients", Short, RW_LOCK),
    scenario("`Semaphore`, 3 clients", Short, Bounds { together: true, ..SEMAPHORE }),
    scenario(
        "`RwLock`, 2 clients, two upgrades or downgrades",
        Short,
        Bounds { clients: 2, turns: 2, ..TURNING },
    ),
    scenario(
        "`Semaphore`, 2 clients, two changes of the number of permits",
        Short,
        Bounds { together: true, clients: 2, changes: 2, ..SEMAPHORE },
    ),
    scenario("`Mutex`, 3 clients, a cancelled wait", Short, Bounds { cancellations: 1, ..MUTEX }),
    scenario("`Mutex`, 3 clients, a lost connection", Short, Bounds { losses: 1, ..MUTEX }),
    scenario(
        "`RwLock`, 3 clients, a lost connection",
        Short,
        Bounds { together: true, losses: 1, ..RW_LOCK },
    ),
    scenario(
        "`Semaphore`, 3 clients, a lost connection",
        Long,
        Bounds { together: true, losses: 1, ..SEMAPHORE },
    ),
    scenario(
        "`Mutex`, 3 clients, a restart",
        Short,
        Bounds { together: true, restarts: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, two lost connections, a cancelled wait",
        Long,
        Bounds { clients: 2, losses: 2, cancellations: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, a lost connection, a restart",
        Long,
        Bounds { clients: 2, losses: 1, restarts: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, sessions that expire",
        Long,
        Bounds { clients: 2, together: true, ticks: 3, ..MUTEX },
    ),
    scenario(
        "`RwLock`, 2 clients, a lost connection, a restart",
        Long,
        Bounds { together: true, clients: 2, losses: 1, restarts: 1, ..RW_LOCK },
    ),
    scenario(
        "`Semaphore`, 2 clients, a lost connection, a restart",
        Long,
        Bounds { together: true, clients: 2, losses: 1, restarts: 1, ..SEMAPHORE },
    ),
    scenario(
        "`RwLock`, a reader and a writer, sessions that expire",
        Long,
        Bounds { clients: 2, asking: Asking::InTurn, together: true, ticks: 3, ..RW_LOCK },
    ),
    scenario(
        "`Semaphore`, one for one permit and one for both, sessions that expire",
        Long,
        Bounds { clients: 2, asking: Asking::InTurn, together: true, ticks: 3, ..SEMAPHORE },
    ),
    scenario(
        "`Mutex`, 2 clients, late replies, time",
        Long,
        Bounds { clients: 2, together: true, ticks: 2, late: true, ..MUTEX },
    ),
    scenario(
        "`RwLock`, a writer between two readers, a restart",
        Long,
        Bounds {
            together: true,
            restarts: 1,
            turns: 0,
            ..turning(&[Kind::Read, Kind::Write, Kind::Read])
        },
    ),
    scenario(
        "`Semaphore`, one for both permits between two for one, a restart",
        Long,
        Bounds { together: true, restarts: 1, ..SEMAPHORE_IN_TURN },
    ),
    scenario(
        "`RwLock`, 3 clients, an upgrade or downgrade",
        Long,
        Bounds { together: true, ..TURNING },
    ),
    scenario(
        "`RwLock`, 2 clients, an upgrade or downgrade, a cancelled wait",
        Long,
        Bounds { clients: 2, cancellations: 1, ..TURNING },
    ),
    scenario(
        "`RwLock`, 2 clients, an upgrade or downgrade, a lost connection",
        Long,
        Bounds { clients: 2, losses: 1, ..TURNING },
    ),
    scenario(
        "`RwLock`, an upgrade beside a reader, a lost connection, a cancelled wait",
        Long,
        Bounds {
            together: true,
            losses: 1,
            cancellations: 1,
            ..turning(&[Kind::Upgradeable, Kind::Read])
        },
    ),
    scenario(
        "`RwLock`, 2 clients, an upgrade or downgrade, a restart",
        Short,
        Bounds { together: true, clients: 2, restarts: 1, ..TURNING },
    ),
    scenario(
        "`RwLock`, an upgrade beside a reader, sessions that expire",
        Long,
        Bounds { together: true, ticks: 3, ..turning(&[Kind::Upgradeable, Kind::Read]) },
    ),
    scenario(
        "`RwLock`, a downgrade before a writer, sessions that expire",
        Long,
        Bounds { together: true, ticks: 3, ..turning(&[Kind::Write, Kind::Write]) },
    ),
    scenario(
        "`RwLock`, an upgrade before a writer and a reader, a cancelled wait",
        Short,
        Bounds {
            together: true,
            cancellations: 1,
            ..turning(&[Kind::Upgradeable, Kind::Write, Kind::Read])
        },
    ),
    scenario(
        "`Semaphore`, one for both permits between two for one, a change of their number",
        Long,
        Bounds { together: true, changes: 1, ..SEMAPHORE_IN_TURN },
    ),
    scenario(
        "`Semaphore`, 2 clients, a change of the number of permits, a lost connection",
        Long,
        Bounds { together: true, clients: 2, changes: 1, losses: 1, ..SEMAPHORE },
    ),
    scenario(
        "`Mutex`, 2 clients, acquired again at once",
        Moment,
        Bounds { clients: 2, again: 2, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 3 clients, acquired again at once",
        Short,
        Bounds { together: true, again: 2, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, acquired again at once, a lost connection",
        Short,
        Bounds { clients: 2, again: 2, losses: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, acquired again at once, lingering",
        Short,
        Bounds { clients: 2, again: 1, linger_ms: 40, ..MUTEX },
    ),
    scenario(
        "`ReentrantMutex`, 2 clients",
        Moment,
        Bounds { clients: 2, lock: LockKind::Reentrant, ..MUTEX },
    ),
    scenario(
        "`ExclusiveNode`, 2 clients",
        Moment,
        Bounds { clients: 2, lock: LockKind::Exclusive, ..MUTEX },
    ),
    scenario(
        "`MultiLock`, 2 clients",
        Short,
        Bounds { together: true, clients: 2, lock: LockKind::Multi, ..MUTEX },
    ),
    scenario(
        "`Mutex` with a lock delay, 2 clients",
        Moment,
        Bounds { clients: 2, lock: LockKind::Delayed(50), ..MUTEX },
    ),
    scenario(
        "`Semaphore` as Curator's, 2 clients",
        Long,
        Bounds {
            together: true,
            clients: 2,
            asking: Asking::InTurn,
            lock: LockKind::CuratorSemaphore,
            ..SEMAPHORE
        },
    ),
    scenario(
        "`Semaphore` as kazoo's, 2 clients",
        Long,
        Bounds {
            together: true,
            clients: 2,
            asking: Asking::InTurn,
            lock: LockKind::KazooSemaphore,
            ..SEMAPHORE
        },
    ),
    scenario(
        "`RwLock`, 2 clients, a lost connection",
        Long,
        Bounds { clients: 2, losses: 1, ..RW_LOCK },
    ),
    scenario(
        "`Semaphore`, one for both permits and one for one, a lost connection",
        Long,
        Bounds { clients: 2, losses: 1, ..SEMAPHORE_IN_TURN },
    ),
    scenario(
        "`Mutex`, 3 clients, acquired again at once, a lost connection",
        Long,
        Bounds { together: true, again: 1, losses: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, acquired again at once, a restart",
        Long,
        Bounds { clients: 2, again: 2, restarts: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, acquired again at once, sessions that expire",
        Long,
        Bounds { clients: 2, together: true, again: 1, ticks: 3, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, acquired again at once, a cancelled wait",
        Short,
        Bounds { clients: 2, again: 2, cancellations: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, a long wait, a cancelled wait",
        Short,
        Bounds { clients: 2, cancellations: 1, soon_ms: 300, ..MUTEX },
    ),
    scenario("`Mutex`, 2 clients, jeopardy", Short, RIDING),
    scenario(
        "`Mutex`, 2 clients, jeopardy, a lost connection",
        Long,
        Bounds { losses: 1, ..RIDING },
    ),
    scenario("`Mutex`, 2 clients, jeopardy, a restart", Long, Bounds { restarts: 1, ..RIDING }),
    scenario(
        "`Mutex`, 2 clients, jeopardy, a quorum lease",
        Long,
        Bounds { mode: LeaseMode::Quorum, ..RIDING },
    ),
    scenario(
        "`ExclusiveNode`, 2 clients, entered again, jeopardy, the node is deleted",
        Long,
        Bounds { lock: LockKind::Exclusive, deletions: 1, ..RIDING },
    ),
    scenario(
        "`RwLock`, an upgradeable reader before a writer, jeopardy, an upgrade",
        Long,
        Bounds {
            lock: LockKind::RwLock,
            kinds: &[Kind::Upgradeable, Kind::Write],
            asking: Asking::InTurn,
            turns: 1,
            ..RIDING
        },
    ),
    scenario(
        "`Mutex`, 2 clients, jeopardy, acquired again at once",
        Long,
        Bounds { again: 1, ..RIDING },
    ),
    scenario(
        "`Mutex`, 2 clients, jeopardy, acquired again at once, lingering",
        Long,
        Bounds { again: 1, linger_ms: 40, ..RIDING },
    ),
    scenario(
        "`Semaphore`, one for both permits before one for one, jeopardy",
        Short,
        RIDING_SEMAPHORE,
    ),
    scenario(
        "`Semaphore`, one for both permits before one for one, jeopardy, the data is put back",
        Long,
        // The clients hear of what was written since in one step more.
        Bounds { restores: 1, ticks: 5, ..RIDING_SEMAPHORE },
    ),
    scenario(
        "`Semaphore`, one for both permits before one for one, jeopardy, a change of their number",
        Long,
        Bounds { changes: 1, ..RIDING_SEMAPHORE },
    ),
    scenario("`MultiLock`, 2 clients, jeopardy", Short, RIDING_MULTI),
    scenario(
        "`MultiLock`, 2 clients, jeopardy, a node is deleted",
        Long,
        Bounds { deletions: 1, ..RIDING_MULTI },
    ),
    scenario(
        "`MultiLock`, 2 clients, jeopardy, a quorum lease",
        Long,
        Bounds { mode: LeaseMode::Quorum, ..RIDING_MULTI },
    ),
    scenario("`Queue`, a consumer behind another", Moment, Bounds { together: false, ..QUEUE }),
    scenario(
        "`Queue`, two consumers behind another, a cancelled wait",
        Short,
        Bounds { clients: 3, cancellations: 1, ..QUEUE },
    ),
    scenario(
        "`Queue`, a consumer behind another, taken again at once",
        Short,
        Bounds { again: 1, ..QUEUE },
    ),
    scenario(
        "`Queue`, a consumer behind another, a lost connection",
        Short,
        Bounds { losses: 1, ..QUEUE },
    ),
    scenario(
        "`Queue`, a consumer behind another, a restart",
        Short,
        Bounds { restarts: 1, ..QUEUE },
    ),
    scenario("`Queue`, a producer and a consumer", Moment, Bounds { together: false, ..QUEUE_PUT }),
    scenario(
        "`Queue`, a producer and a consumer, a lost connection",
        Short,
        Bounds { losses: 1, ..QUEUE_PUT },
    ),
    scenario("`Queue`, 2 consumers", Short, QUEUE_FREE),
    scenario(
        "`Queue`, a consumer behind another, two lost connections",
        Long,
        Bounds { losses: 2, ..QUEUE },
    ),
    scenario(
        "`Queue`, two consumers behind another, a lost connection",
        Long,
        Bounds { clients: 3, losses: 1, ..QUEUE },
    ),
    scenario(
        "`Queue`, a consumer behind another, taken again at once, a lost connection",
        Long,
        Bounds { again: 1, losses: 1, ..QUEUE },
    ),
    scenario(
        "`Queue`, a consumer behind another, taken again at once, a cancelled wait",
        Long,
        Bounds { again: 1, cancellations: 1, ..QUEUE },
    ),
    scenario(
        "`Queue`, a consumer behind another, sessions that expire",
        Long,
        Bounds { ticks: 3, ..QUEUE },
    ),
    scenario(
        "`Queue`, a consumer behind another, late replies, time",
        Long,
        Bounds { ticks: 2, late: true, ..QUEUE },
    ),
    scenario(
        "`Queue`, a producer and a consumer, sessions that expire",
        Long,
        Bounds { ticks: 3, ..QUEUE_PUT },
    ),
    scenario(
        "`Queue`, a producer and two consumers, a lost connection",
        Long,
        Bounds { clients: 3, losses: 1, ..QUEUE_PUT },
    ),
    scenario("`DoubleBarrier`, 2 parties", Long, ROUNDS),
    scenario(
        "`DoubleBarrier`, 2 parties, a party that gives up",
        Long,
        Bounds { cancellations: 1, ..ROUNDS },
    ),
    scenario(
        "`DoubleBarrier`, a party before another, a lost connection",
        Long,
        Bounds { losses: 1, ..ROUNDS_BEGUN },
    ),
    scenario(
        "`DoubleBarrier`, a party before another, a restart",
        Long,
        Bounds { restarts: 1, ..ROUNDS_BEGUN },
    ),
    scenario(
        "`DoubleBarrier`, a party before another, sessions that expire",
        Long,
        Bounds { ticks: 1, step_ms: 6_100, ..ROUNDS_BEGUN },
    ),
    scenario(
        "`DoubleBarrier`, a party before another, time-outs",
        Long,
        Bounds { patience_ms: 100, ..ROUNDS_BEGUN },
    ),
    scenario("`DoubleBarrier`, 2 parties inside", Short, ROUNDS_OPEN),
    scenario(
        "`DoubleBarrier`, 2 parties inside, the next round",
        Short,
        Bounds { again: 2, ..ROUNDS_OPEN },
    ),
    scenario(
        "`DoubleBarrier`, 2 parties inside, a lost connection",
        Short,
        Bounds { losses: 1, ..ROUNDS_OPEN },
    ),
    scenario(
        "`DoubleBarrier`, 2 parties inside, a restart",
        Short,
        Bounds { restarts: 1, ..ROUNDS_OPEN },
    ),
    scenario(
        "`DoubleBarrier`, 2 parties inside, sessions that expire",
        Long,
        Bounds { ticks: 2, step_ms: 3_001, ..ROUNDS_OPEN },
    ),
    scenario("`ReentrantMutex`, 2 clients, entered again, jeopardy", Short, RIDING_REENTRANT),
    scenario(
        "`ReentrantMutex`, 2 clients, entered again, jeopardy, the node is deleted",
        Long,
        Bounds { deletions: 1, ..RIDING_REENTRANT },
    ),
    scenario(
        "`ReentrantMutex`, 2 clients, entered again, jeopardy, a quorum lease",
        Long,
        Bounds { mode: LeaseMode::Quorum, ..RIDING_REENTRANT },
    ),
];
