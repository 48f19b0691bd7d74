//! What one case has to itself, how it waits, and how it holds.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lockkeeper::{AcquireError, Client, Clock, Guard, Instant, MultiGuard, State};

use super::Case;
use super::servers::KeepingServers;

/// For how many leases each lock is held.
pub(super) const LEASES: u32 = 3;

/// How often a holder looks at its deadline, in a lease.
const LOOKS: u32 = 25;

/// A lock's path, and a client on each side.
pub(super) struct Scene {
    pub(super) case: Case,
    pub(super) servers: Arc<KeepingServers>,
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
    pub(super) async fn open(case: Case, servers: Arc<KeepingServers>) -> Result<Self> {
        let connect = servers.connect_string(case.server);
        let client = servers.client(case.mode).connect(connect).await?;
        let other = servers.client(case.mode).connect(connect).await?;
        let (path, lease) = (servers.new_path(), client.timing().lease());
        let wait = (lease * case.share / 100).as_millis();
        let wait = Duration::from_millis(u64::try_from(wait)?);
        Ok(Self { case, servers, client, other, path, lease, wait })
    }

    pub(super) async fn close(self) {
        tokio::join!(self.client.close(), self.other.close());
    }

    /// Waits for a lock, from when `acquire` enters the line until `before` is given back.
    pub(super) async fn behind<H, G>(
        &self,
        before: H,
        acquire: impl Future<Output = Result<G, AcquireError>>,
    ) -> Result<G> {
        let mut acquire = pin!(acquire);
        // In this order: what enters the line is sent before the wait begins.
        tokio::select! {
            biased;
            early = &mut acquire => {
                early?;
                bail!("granted while somebody else held it");
            }
            () = self.idle() => {}
        }
        drop(before);
        Ok(acquire.await?)
    }

    /// Waits for a lock whose holder vanishes at once: its lock delay is the wait.
    pub(super) async fn after_delay<G>(
        &self,
        before: &Guard,
        acquire: impl Future<Output = Result<G, AcquireError>>,
    ) -> Result<G> {
        let start = Clock.now();
        let vanish = async {
            // As if its session had expired: what marks the delay stays.
            self.other.delete(before.node(), None).await?;
            Ok(())
        };
        let (guard, ()) = tokio::try_join!(async { anyhow::Ok(acquire.await?) }, vanish)?;
        let waited = Clock.now().since(start);
        ensure!(waited >= self.wait, "granted after {waited:?}, with a delay of {:?}", self.wait);
        Ok(guard)
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
}

/// How holding ended.
pub(super) struct Kept {
    /// The shortest remainder that was seen, in leases.
    pub(super) least: f64,
    pub(super) lost: Option<String>,
}

macro_rules! of {
    ($held:expr, $guard:ident => $what:expr) => {
        match $held {
            Held::One($guard) => $what,
            Held::Several($guard) => $what,
        }
    };
}

impl Held {
    pub(super) fn one(guard: impl Deref<Target = Guard> + Send + Sync + 'static) -> Result<Self> {
        Ok(Self::One(Box::new(guard)))
    }

    /// Holds for some leases. For the first half, only the guard's state is asked for: waiting for
    /// the loss makes requests, whose answers could hide that heartbeats are late.
    pub(super) async fn keep(&self, lease: Duration) -> Kept {
        let start = Clock.now();
        let mut least = lease;
        let lost = match self.look(start + lease * LEASES / 2, lease, &mut least).await {
            Err(why) => Some(why),
            Ok(()) => tokio::select! {
                biased;
                reason = self.lost() => Some(reason),
                looked = self.look(start + lease * LEASES, lease, &mut least) => looked.err(),
            },
        };
        let lost = match lost {
            // The server's word: whether the node is there, in the end.
            None => of!(self, guard => guard.verify().await)
                .err()
                .map(|error| format!("not held on the server: {error}")),
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
            if let State::Lost(reason) = of!(self, guard => guard.state()) {
                *least = Duration::ZERO;
                return Err(reason.to_string());
            }
            let now = Clock.now();
            let deadline = of!(self, guard => guard.deadline());
            let left = deadline.map_or(Duration::ZERO, |deadline| deadline.since(now));
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

    async fn lost(&self) -> String {
        let reason = match self {
            Self::One(guard) => guard.lost().await,
            Self::Several(guard) => guard.lost().await.1,
        };
        format!("told: {reason}")
    }
}
