//! The locks that everybody contends for, and who contends for which.

use lockkeeper_testkit::history::Share;

/// A line of contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A mutex, in all languages.
    Mutex,
    /// A read-write lock, in all languages.
    ReadWrite,
    /// A semaphore as Curator's programs have it.
    CuratorSemaphore,
    /// A semaphore as kazoo's programs have it.
    KazooSemaphore,
    /// A semaphore of ours.
    Semaphore,
    /// Two mutexes at once, of ours.
    Multi,
    /// A leader election, of ours and by Curator's `LeaderLatch`.
    Election,
}

/// How many permits the semaphores have.
pub(crate) const PERMITS: u32 = 2;

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Mutex,
        Self::ReadWrite,
        Self::CuratorSemaphore,
        Self::KazooSemaphore,
        Self::Semaphore,
        Self::Multi,
        Self::Election,
    ];

    /// What a worker is called that contends for it; the programs in other languages say the same.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "rw",
            Self::CuratorSemaphore => "curator-semaphore",
            Self::KazooSemaphore => "kazoo-semaphore",
            Self::Semaphore => "semaphore",
            Self::Multi => "multi",
            Self::Election => "election",
        }
    }

    /// Where it is.
    pub(crate) fn paths(self) -> &'static [&'static str] {
        match self {
            Self::Mutex => &["/locks/mutex"],
            Self::ReadWrite => &["/locks/rw"],
            Self::CuratorSemaphore => &["/locks/curator-semaphore"],
            Self::KazooSemaphore => &["/locks/kazoo-semaphore"],
            Self::Semaphore => &["/locks/semaphore"],
            Self::Multi => &["/locks/multi-a", "/locks/multi-b"],
            Self::Election => &["/locks/election"],
        }
    }
}

/// What is written together with a check of the own node.
pub(crate) fn register(lock: &str) -> String {
    lock.replacen("/locks", "/registers", 1)
}

/// As it is said to the recorder: `alone`, `reading` or `permits:TAKEN:OF`.
pub(crate) fn share_from(word: &str) -> Option<Share> {
    match word.split(':').collect::<Vec<_>>()[..] {
        ["alone"] => Some(Share::Alone),
        ["reading"] => Some(Share::Reader),
        ["permits", taken, of] => {
            Some(Share::Permits { taken: taken.parse().ok()?, of: of.parse().ok()? })
        }
        _ => None,
    }
}

/// The other way.
pub(crate) fn share_word(share: Share) -> String {
    match share {
        Share::Permits { taken, of } => format!("permits:{taken}:{of}"),
        Share::Alone => "alone".to_owned(),
        _ => "reading".to_owned(),
    }
}
