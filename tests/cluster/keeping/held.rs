//! Holding, and looking at what is left of the lease.

use std::ops::Deref;
use std::time::Duration;

use lockkeeper::{Clock, Guard, Instant, LossReason, MultiGuard, State};

/// For how many leases each lock is held.
pub(crate) const LEASES: u32 = 3;

/// How often a holder looks at its deadline, in a lease.
const LOOKS: u32 = 25;

/// A held lock of any kind.
pub(crate) enum Held {
    One(Box<dyn Deref<Target = Guard> + Send + Sync>),
    Several(MultiGuard),
}

/// How holding ended.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The shortest remainder that was seen, in leases.
    pub(crate) least: f64,
    pub(crate) lost: Option<String>,
}

impl Held {
    pub(crate) fn one(guard: impl Deref<Target = Guard> + Send + Sync + 'static) -> Self {
        Self::One(Box::new(guard))
    }

    /// The guard, if there is only one.
    pub(crate) fn only(&self) -> Option<&Guard> {
        match self {
            Self::One(guard) => Some(guard),
            Self::Several(_) => None,
        }
    }

    /// Holds for some leases. For the first half, only the guard's state is asked for: waiting for
    /// the loss makes requests, whose answers could hide that heartbeats are late.
    pub(crate) async fn keep(&self, lease: Duration) -> Kept {
        let start = Clock.now();
        let mut least = lease;
        let lost = match self.look(start + lease * LEASES / 2, lease, &mut least).await {
            Err(why) => Some(why),
            Ok(()) => tokio::select! {
                biased;
                reason = self.lost() => Some(format!("told: {reason}")),
                looked = self.look(start + lease * LEASES, lease, &mut least) => looked.err(),
            },
        };
        let lost = match lost {
            None => self.verify().await,
            lost => lost,
        };
        Kept { least: least.as_secs_f64() / lease.as_secs_f64(), lost }
    }

    /// Looks at the guard until `end`; why it is lost, if it is.
    async fn look(
        &self,
        end: Instant,
        lease: Duration,
        least: &mut Duration,
    ) -> Result<(), String> {
        loop {
            if let State::Lost(reason) = self.state() {
                *least = Duration::ZERO;
                return Err(reason.to_string());
            }
            let now = Clock.now();
            let left = self.deadline().map_or(Duration::ZERO, |deadline| deadline.since(now));
            *least = left.min(*least);
            if left.is_zero() {
                return Err("its deadline has passed".to_owned());
            }
            if now >= end {
                return Ok(());
            }
            tokio::time::sleep(lease / LOOKS).await;
        }
    }

    fn state(&self) -> State {
        match self {
            Self::One(guard) => guard.state(),
            Self::Several(guard) => guard.state(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::One(guard) => guard.deadline(),
            Self::Several(guard) => guard.deadline(),
        }
    }

    async fn lost(&self) -> LossReason {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::Several(guard) => guard.lost().await.1,
        }
    }

    /// The server's word: whether the node is there, in the end.
    async fn verify(&self) -> Option<String> {
        let verified = match self {
            Self::One(guard) => guard.verify().await,
            Self::Several(guard) => guard.verify().await,
        };
        verified.err().map(|error| format!("not held on the server: {error}"))
    }
}
