//! The profiles of a semaphore: which nodes it consists of, and how a permit is taken in each.

use lockkeeper_client::{SessionId, TransactionError, ZnodePath};

use crate::acquire::lock_options::LockOptions;
use crate::acquire::queue_handle::{QueueHandle, Wait};
use crate::attempt::retry_acquire;
use crate::contender::node::{Contender, Front};
use crate::contender::order::WaitQueue;
use crate::error::{AcquireError, BuildError};
use crate::guard::Guard;
use crate::locks::semaphore::guard::SemaphoreGuard;
use crate::locks::semaphore::permits::Permits;
use crate::permit_format::PermitFormat;
use crate::profile::{GATE, Kind, LEASES, Profile};
use crate::telemetry::acquiring::AcquireSpan;

/// Which nodes a [`Semaphore`](crate::Semaphore) is made of, and how they are named. All parties must
/// use the same profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SemaphoreProfile {
    /// Our own: one queue, in which permits are counted, and one round trip.
    #[default]
    Native,
    /// That of Curator's `InterProcessSemaphoreV2`: the first contender at `<path>/locks` waits for a
    /// free lease below `<path>/leases`. Acquiring costs two round trips, or more.
    /// The number of permits is a convention.
    Curator,
    /// The same, and the number of permits is that of Curator's `SharedCount` at this path. Acquiring
    /// several permits costs one round trip more, to look at it first.
    CuratorCounted(String),
    /// That of kazoo's `Semaphore`: the first contender at `<path>-__lock__` waits until `<path>` has
    /// few enough children. Acquiring costs four round trips, or more. The number of
    /// permits is in the data of `<path>`, and is not changed while programs run.
    Kazoo,
}

impl SemaphoreProfile {
    /// The names of the children that a semaphore in Curator's layout has.
    pub const CURATORS_CHILDREN: [&str; 2] = [LEASES, GATE];
}

/// A semaphore of programs on that library, whose number of permits is a convention for Curator.
impl From<Profile> for SemaphoreProfile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Curator => Self::Curator,
            Profile::Kazoo => Self::Kazoo,
        }
    }
}

/// The queues of a semaphore.
#[derive(Clone, Debug)]
pub(crate) enum SemaphoreQueues {
    Native(QueueHandle),
    Curator { gate: QueueHandle, leases: QueueHandle },
    Kazoo { gate: QueueHandle, leases: QueueHandle },
}

impl SemaphoreQueues {
    pub(crate) fn new(
        options: LockOptions,
        path: String,
        profile: SemaphoreProfile,
        initial: u32,
    ) -> Result<(Self, Permits), BuildError> {
        let at = |path: String, profile, kinds| {
            LockOptions { profile, ..options.clone() }.queue_handle(&path, kinds)
        };
        let native = at(path.clone(), Profile::Curator, &[Kind::Permits(1)])?;
        let here = native.path().clone();
        if initial == 0 {
            return Err(BuildError::NoPermits(here));
        }

        let curator = |node, format: PermitFormat| {
            if initial > format.most() {
                let most = format.most();
                return Err(BuildError::TooManyPermits { path: here.clone(), most });
            }
            let gate = at(format!("{path}/{GATE}"), Profile::Curator, &[Kind::Exclusive])?;
            let leases = at(format!("{path}/{LEASES}"), Profile::Curator, &[Kind::Lease])?;
            let permits = Permits::new(here.clone(), initial, node, format);
            Ok((Self::Curator { gate, leases }, permits))
        };

        match profile {
            SemaphoreProfile::Native => {
                let node = Some(here.clone());
                let permits = Permits::new(here.clone(), initial, node, PermitFormat::Text);
                Ok((Self::Native(native), permits))
            }
            SemaphoreProfile::Curator => curator(None, PermitFormat::SharedCount),
            SemaphoreProfile::CuratorCounted(count) => {
                curator(Some(ZnodePath::new(&count)?), PermitFormat::SharedCount)
            }
            SemaphoreProfile::Kazoo => {
                let gate = at(format!("{path}-__lock__"), Profile::Kazoo, &[Kind::Exclusive])?;
                let leases = at(path, Profile::Kazoo, &[Kind::Lease])?;
                let (node, format) = (Some(here.clone()), PermitFormat::LastingText);
                let permits = Permits::new(here.clone(), initial, node, format);
                Ok((Self::Kazoo { gate, leases }, permits))
            }
        }
    }

    /// Takes permits; `None` if that would need more patience.
    pub(crate) async fn take(
        &self,
        counted: &Permits,
        wanted: u32,
        wait: Wait,
        span: &AcquireSpan,
    ) -> Result<Option<SemaphoreGuard>, AcquireError> {
        match self {
            Self::Native(queue) => {
                let place = Contenders::enter(queue, counted, Kind::Permits(wanted), 1).await?;
                span.entered(&place.queue, &place.last);
                place.hold(counted, wanted, wait).await
            }
            Self::Curator { gate, leases } => {
                // Before a lease is made for each. One that is too many costs less than this look.
                if wanted > 1 {
                    let permits = counted.agreed(&leases.client, None).await?;
                    counted.enough(wanted, permits)?;
                }
                let Some(gate) = gate.take(Kind::Exclusive, wait, span).await? else {
                    return Ok(None);
                };
                let places = Contenders::enter(leases, counted, Kind::Lease, wanted).await?;
                let places = places.all_of(gate.session())?;
                let guard = places.hold(counted, wanted, wait).await;
                // Not before, so that the next one there finds all these leases.
                drop(gate);
                guard
            }
            Self::Kazoo { gate, leases } => {
                let permits = counted.agreed(&leases.client, None).await?;
                counted.enough(wanted, permits)?;
                let Some(gate) = gate.take(Kind::Exclusive, wait, span).await? else {
                    return Ok(None);
                };

                let path = leases.path().clone();
                let lost = |reason| AcquireError::Lost { path: path.clone(), reason };
                let room = room(leases, wanted, permits, wait);
                // The place at the gate outlasts a standstill: what is made behind it is made only
                // while the same node is there.
                let grace = leases.client.session_timeout();
                match gate.run_through(grace, room).await.map_err(lost)?? {
                    Some(()) => fill(leases, &gate, wanted).await.map(Some),
                    None => Ok(None),
                }
            }
        }
    }
}

/// One or more places in a queue in which permits are counted.
struct Contenders {
    last: Contender,
    others: Vec<Contender>,
    queue: WaitQueue,
    permits: u32,
}

impl Contenders {
    /// Enters the queue at so many places, at least one. Looks how many permits there are in the round trip
    /// of the first.
    async fn enter(
        queue_handle: &QueueHandle,
        counted: &Permits,
        kind: Kind,
        places: u32,
    ) -> Result<Self, AcquireError> {
        let client = &queue_handle.client;
        let asked = counted.node.as_ref().map(|node| client.data(node));

        // Made as they are entered: nobody may wait for as many as were asked for.
        let mut others = Vec::new();
        for _ in 1..places {
            others.push(queue_handle.enter(kind).await?.0);
        }
        let (last, queue) = queue_handle.enter(kind).await?;
        let asked = match asked {
            Some(asked) => Some(asked.await),
            None => None,
        };

        let permits = counted.agreed(client, asked).await?;
        Ok(Self { last, others, queue, permits })
    }

    /// Makes sure that all were entered in the session that is at the gate. Those of an earlier one
    /// are gone, and their permits with them. In a later one another program is at the gate by now,
    /// and enters too: each would wait for leases that the other has.
    fn all_of(self, session: SessionId) -> Result<Self, AcquireError> {
        let foreign = |place: &Contender| place.session() != session;
        if foreign(&self.last) || self.others.iter().any(foreign) {
            return Err(self.last.session_ended());
        }
        Ok(self)
    }

    async fn hold(
        mut self,
        counted: &Permits,
        wanted: u32,
        wait: Wait,
    ) -> Result<Option<SemaphoreGuard>, AcquireError> {
        loop {
            self.queue.set_permits(self.permits);
            counted.enough(wanted, self.permits)?;
            let front = match (self.last.at_front(&self.queue)?, wait) {
                (None, Wait::Never) => return Ok(None),
                (front, _) => front,
            };

            let front = match front {
                Some(front) => front,
                None => tokio::select! {
                    biased;
                    changed = counted.changed(&self.last, self.permits) => {
                        self.permits = changed?;
                        // The old listing may let it in although its own node is gone, which it
                        // need not have been told (`OwnWatch::Late`).
                        self.queue = self.last.list().await?;
                        continue;
                    }
                    front = self.last.wait_in(&mut self.queue) => front?,
                },
            };

            let guard = Guard::grant(self.last, front).await?.with_others(self.others)?;
            return Ok(Some(SemaphoreGuard::new(guard, wanted)));
        }
    }
}

/// Waits until a node has so few children that there is room for more.
async fn room(
    leases: &QueueHandle,
    wanted: u32,
    permits: u32,
    wait: Wait,
) -> Result<Option<()>, AcquireError> {
    let path = leases.path();
    loop {
        let (listing, mut changed) = match leases.client.children_watched(path).await {
            Ok(listed) => listed,
            Err(error) => {
                retry_acquire(path, error).await?;
                continue;
            }
        };

        let queue = leases.settings.read(listing)?;
        if queue.places().len() as u64 + u64::from(wanted) <= u64::from(permits) {
            return Ok(Some(()));
        }
        if wait == Wait::Never {
            return Ok(None);
        }
        let ended = |_| AcquireError::session_ended(&leases.client, path);
        changed.changed().await.map_err(ended)?;
    }
}

/// Creates kazoo's leases, each of them only while the gate is held: a session that has begun
/// since must not go on where the old one was.
async fn fill(
    leases: &QueueHandle,
    gate: &Guard,
    wanted: u32,
) -> Result<SemaphoreGuard, AcquireError> {
    let mut all = Vec::new();
    for _ in 0..wanted {
        let name = leases.client.unique_id().simple().to_string();
        let mut lease = Contender::reserve(&leases.client, &leases.settings, name, &leases.data);
        let created = lease.take_place(|step| step.check(gate.node(), None)).await;
        created.map_err(|error| match error {
            // The node of the semaphore has been deleted, and not the gate.
            TransactionError::Failed { index: 0, .. } => {
                AcquireError::Refused { path: leases.path().clone(), source: error }
            }
            error => leases.not_replaced(gate, error),
        })?;
        all.push(lease);
    }
    let Some(last) = all.pop() else { unreachable!("at least one is wanted") };
    let guard = Guard::grant(last, Front { own: None }).await?.with_others(all)?;
    Ok(SemaphoreGuard::new(guard, wanted))
}
