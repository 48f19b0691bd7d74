//! Deliberate bugs, to see that the checks find them. They exist only with the feature `mutants`,
//! which nothing but `cargo xtask mutants` turns on; the environment then names the one to wake.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A lease counts from the moment of the answer, and not of the request.
    DeadlineFromAnswer,
    /// Any answer moves a quorum lease: pings, reads and `sync` too.
    DeadlineMovedByPing,
    /// An answer to a `sync` moves a quorum lease.
    DeadlineMovedBySync,
    /// The same as by a ping, and no heartbeat is sent, behind which pings would wait.
    EnsembleTakenForOneServer,
    /// A write counts however long its answer took.
    SlowWriteCounts,
    /// A create whose reply was lost is taken for one that was never applied.
    LostReplyMeansNotApplied,
    /// A delete that must happen is forgotten when the connection is lost before its answer.
    CleanupDroppedAtDisconnect,
    /// Watches are not armed again on the next connection.
    WatchesNotRearmed,
}

impl Mutant {
    #[cfg(feature = "mutants")]
    pub(crate) fn is_awake(self) -> bool {
        static AWAKE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let name = AWAKE.get_or_init(|| std::env::var("LOCKKEEPER_MUTANT").unwrap_or_default());
        *name == format!("{self:?}")
    }

    #[cfg(not(feature = "mutants"))]
    pub(crate) const fn is_awake(self) -> bool {
        let _ = self;
        false
    }
}
