//! What one case has to itself, how it waits, and how it holds.

use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, bail};
use lockkeeper::{Client, Clock, Guard, HolderState, Instant, MultiGuard, MutexGuard, blocking};

use super::Case;

/// For how many leases each lock is held.
pub(super) const LEASES: u32 = 3;

/// How often a holder looks at its deadline, in a lease.
const LOOKS: u32 = 25;

/// A lock's path, and a client on each side.
pub(super) struct Scene {
    pub(super) case: Case,
    /// Of the holder that is looked at.
    pub(super) client: Client,
    /// Of the one that holds before.
    pub(super) other: Client,
    pub(super) path: String,
    pub(super) lease: Duration,
    /// The case's share of a lease, in whole milliseconds.
    pub(super) wait: Duration,
}

impl Scene {
    pub(super) async fn open(case: Case) -> Result<Self> {
        let server = &case.server;
        let client = server.client(case.mode).connect(&server.connect).await?;
        let other = server.client(case.mode).connect(&server.connect).await?;
        let (path, lease) = (server.new_path(), client.timing().lease());
        let wait = (lease * case.share / 100).as_millis();
        let wait = Duration::from_millis(u64::try_from(wait)?);
        Ok(Self { case, client, other, path, lease, wait })
    }

    pub(super) async fn close(self) {
        tokio::join!(self.client.close(), self.other.close());
    }

    /// Waits for a lock, from when `acquire` enters the line until `before` is given back.
    pub(super) async fn behind<H, G, E: Into<anyhow::Error>>(
        &self,
        before: H,
        acquire: impl Future<Output = Result<G, E>>,
    ) -> Result<G> {
        let leave = async {
            self.idle().await;
            drop(before);
            Ok(())
        };
        self.until(leave, acquire).await
    }

    /// Waits for a lock, from when `acquire` enters the line; it is not had before the end of `leave`.
    pub(super) async fn until<G, E: Into<anyhow::Error>>(
        &self,
        leave: impl Future<Output = Result<()>>,
        acquire: impl Future<Output = Result<G, E>>,
    ) -> Result<G> {
        let mut acquire = pin!(acquire);
        // In this order: what enters the line is sent before the wait begins.
        tokio::select! {
            biased;
            early = &mut acquire => {
                early.map_err(Into::into)?;
                bail!("granted during another hold");
            }
            left = leave => left?,
        }
        acquire.await.map_err(Into::into)
    }

    /// Lets the share of a lease pass. It is what a case is about, and stands for no event.
    pub(super) async fn idle(&self) {
        tokio::time::sleep(self.wait).await;
    }
}

/// A held lock of any kind.
pub(super) enum Held {
    One(Box<dyn Deref<Target = Guard> + Send + Sync>),
    Several(MultiGuard),
    /// With the client of a program without async, which has the session.
    Blocking(MutexGuard, #[expect(dead_code, reason = "it ends with the guard")] blocking::Client),
}

macro_rules! of {
    ($held:expr, $guard:ident => $what:expr) => {
        match $held {
            Held::One($guard) => $what,
            Held::Several($guard) => $what,
            Held::Blocking($guard, _) => $what,
        }
    };
}

impl Held {
    pub(super) fn one(guard: impl Deref<Target = Guard> + Send + Sync + 'static) -> Result<Self> {
        Ok(Self::One(Box::new(guard)))
    }

    /// Holds for some leases. For the first half, only the guard's state is asked for: waiting for
    /// the loss makes requests, whose answers could hide that heartbeats are late. Gives the shortest
    /// remainder that was seen, in leases; or why it is lost.
    pub(super) async fn keep(&self, lease: Duration) -> Result<f64, String> {
        let start = Clock.now();
        let least = self.look(start + lease * LEASES / 2, lease).await?;
        let least = tokio::select! {
            biased;
            reason = self.lost() => return Err(reason),
            looked = self.look(start + lease * LEASES, lease) => least.min(looked?),
        };
        // The server's word: whether the node is there, in the end.
        let verified = of!(self, guard => guard.verify().await);
        verified.map_err(|error| format!("not held on the server: {error}"))?;
        Ok(least.as_secs_f64() / lease.as_secs_f64())
    }

    /// Looks at the guard until `end`; gives the shortest remainder, or why it is lost.
    async fn look(&self, end: Instant, lease: Duration) -> Result<Duration, String> {
        let mut least = lease;
        loop {
            if let HolderState::Lost(reason) = of!(self, guard => guard.state()) {
                return Err(reason.to_string());
            }
            let now = Clock.now();
            let deadline = of!(self, guard => guard.deadline());
            least = least.min(deadline.map_or(Duration::ZERO, |deadline| deadline.since(now)));
            if least.is_zero() {
                return Err("its deadline has passed".to_owned());
            }
            if now >= end {
                return Ok(least);
            }
            tokio::time::sleep(lease / LOOKS).await;
        }
    }

    async fn lost(&self) -> String {
        let reason = match self {
            Self::One(guard) => guard.lost().await,
            Self::Several(guard) => guard.lost().await.1,
            Self::Blocking(guard, _) => guard.lost().await,
        };
        format!("told: {reason}")
    }
}
