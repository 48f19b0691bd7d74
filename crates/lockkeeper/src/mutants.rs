//! Deliberate bugs, to see that the checks find them. They exist only with the feature `mutants`,
//! which nothing but `cargo xtask mutants` turns on; the environment then names the one to wake.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The nearest contender ahead is overlooked, and the one before it watched.
    WatchesWrongPredecessor,
    /// Contenders are ordered by their names, and not by their numbers.
    OrderedByName,
    /// A wait that is given up leaves its node.
    CancelForgetsNode,
    /// A release is tried once, and forgotten when the connection is lost.
    ReleaseForgetsRetry,
    /// The lock is held although the lease has no time left.
    GrantsWithoutLease,
    /// One ahead that has gone already is watched for as if it could still go.
    WatchesByExists,
    /// When the closest one ahead has gone, the lock is held, whoever else may be ahead.
    NeverListsAgain,
    /// A lock is granted by a node of whatever session.
    SkipsOwnershipCheck,
    /// A holder goes on in the next session, as if its node were still there.
    AdoptsOldSessionsNode,
    /// Readers go ahead of writers that wait.
    ReadersPassWriters,
    /// There is one permit more than there is.
    OnePermitTooMany,
    /// The transaction that made a contender is its token, unless it was overtaken itself.
    TokenIsCreation,
    /// Nobody is thought to have come since a holder listed the line, whatever the number of its
    /// next node.
    TrustsAnyNumber,
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
