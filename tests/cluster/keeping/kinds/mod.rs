//! The kinds of locks. A new one is one more line of [`KINDS`].

pub(crate) mod command;
mod idle;
mod local;
mod multi_lock;
mod mutex;
mod rw_lock;
mod semaphore;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use anyhow::Result;

use self::command::Run;
use crate::keeping::held::Held;
use crate::keeping::scene::Scene;

/// Takes a lock after the wait of a case.
pub(crate) type Take = for<'a> fn(&'a Scene) -> Taking<'a>;

pub(crate) type Taking<'a> = Pin<Box<dyn Future<Output = Result<Held>> + Send + 'a>>;

/// One kind of lock, and of waiting for it.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) how: How,
}

pub(crate) enum How {
    Library(Take),
    Command(Run),
}

/// Who takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Library,
    Command,
}

macro_rules! take {
    ($take:path) => {
        |scene| Box::pin($take(scene))
    };
}

macro_rules! library {
    ($name:literal, $take:path) => {
        Kind { name: $name, how: How::Library(take!($take)) }
    };
}

macro_rules! command {
    ($name:literal, $options:literal, $before:path, $leaves:ident) => {
        Kind {
            name: concat!("lockkeeper ", $name),
            how: How::Command(Run {
                options: $options,
                before: take!($before),
                leaves: command::Leaves::$leaves,
            }),
        }
    };
}

pub(crate) const KINDS: &[Kind] = &[
    library!("Mutex", mutex::plain),
    library!("Mutex of kazoo's", mutex::kazoo),
    library!("Mutex with linger", mutex::with_linger),
    library!("Mutex with cohort", mutex::with_cohort),
    library!("Mutex with lock delay", mutex::with_lock_delay),
    library!("Mutex, the lock delay is the wait", mutex::after_lock_delay),
    library!("ReentrantMutex", mutex::reentrant),
    library!("ReentrantMutex, entered again", mutex::entered_again),
    library!("ExclusiveNode", mutex::exclusive_node),
    library!("Locks", mutex::of_registry),
    library!("Mutex of a blocking client", mutex::blocking),
    library!("RwLock read", rw_lock::read),
    library!("RwLock read of kazoo's", rw_lock::kazoo_read),
    library!("RwLock write", rw_lock::write),
    library!("RwLock write of kazoo's", rw_lock::kazoo_write),
    library!("RwLock write, downgraded", rw_lock::downgraded),
    library!("RwLock upgradeable read", rw_lock::upgradeable),
    library!("RwLock upgradeable read, upgraded", rw_lock::upgraded),
    library!("RwLock upgrade that waits", rw_lock::upgrade_waits),
    library!("Semaphore", semaphore::native),
    library!("Semaphore, several permits", semaphore::several),
    library!("Semaphore of Curator's", semaphore::curator),
    library!("Semaphore of Curator's, several permits", semaphore::curator_several),
    library!("Semaphore of kazoo's", semaphore::kazoo),
    library!("Semaphore of kazoo's, several permits", semaphore::kazoo_several),
    library!("MultiLock, waits for its first lock", multi_lock::waits_for_first),
    library!("MultiLock, waits for its last lock", multi_lock::waits_for_last),
    library!("Mutex, handed over in the process", local::handed_over),
    library!("Mutex with linger, handed over", local::handed_over_by_linger),
    library!("Mutex with cohort, handed over", local::handed_over_by_cohort),
    library!("Mutex with cohort, handed over at once", local::handed_over_at_once),
    library!("Mutex with linger, taken again", local::taken_again),
    library!("Mutex, idle client", idle::acquire),
    library!("Mutex, idle client, try_acquire", idle::try_acquire),
    library!("Mutex, idle client, acquired again", idle::again),
    command!("run", "", command::mutex, Released),
    command!("run --profile kazoo", "--profile kazoo", command::kazoo, Released),
    command!("run --shared", "--shared", command::write, Released),
    command!("run --write", "--write", command::read, Released),
    command!("run --permits 2", "--permits 2", command::two_permits, Released),
    command!("run --permits 3 --take 2", "--permits 3 --take 2", command::three_permits, Released),
    command!("run --lock-delay", "--lock-delay 1s", command::lock_delay, Released),
    command!(
        "run --lock-delay, the delay is the wait",
        "--lock-delay 1s",
        command::lock_delay,
        Vanishes
    ),
];

impl Kind {
    pub(crate) fn party(&self) -> Party {
        match self.how {
            How::Library(_) => Party::Library,
            How::Command(_) => Party::Command,
        }
    }

    /// What it costs the machine, where a case of the library's is 1: a command is processes.
    pub(crate) fn load(&self) -> u32 {
        match self.party() {
            Party::Library => 1,
            Party::Command => 6,
        }
    }

    /// Where it is in the table.
    pub(crate) fn place(&self) -> Option<usize> {
        KINDS.iter().position(|kind| kind.name == self.name)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
