//! The profiles of a semaphore: its nodes in each profile, and how permits are acquired.

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

/// The layout and the names of the nodes of a [`Semaphore`](crate::Semaphore). All programs must
/// use the same profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SemaphoreProfile {
    /// Lockkeeper's own layout: one queue, in which permits are counted. Acquiring costs one round trip.
    #[default]
    Native,
    /// The layout of Curator's `InterProcessSemaphoreV2`: the first contender at `<path>/locks` waits for a
    /// free lease below `<path>/leases`. Acquiring costs two or more round trips.
    /// The number of permits is not stored; it is a convention of the programs.
    Curator,
    /// The same, but the number of permits is stored by Curator's `SharedCount` at this path. Acquiring
    /// several permits costs one more round trip, which reads the number first.
    CuratorCounted(String),
    /// The layout of kazoo's `Semaphore`: the first contender at `<path>-__lock__` waits until `<path>` has
    /// few enough children. Acquiring costs four or more round trips. The number of
    /// permits is the data of `<path>`, and does not change while programs run.
    Kazoo,
}

impl SemaphoreProfile {
    /// The names of the children that a semaphore in Curator's layout has.
    pub const CURATORS_CHILDREN: [&str; 2] = [LEASES, GATE];
}

/// The semaphore of this library. For Curator, the number of permits is a convention of the programs.
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

    /// Acquires permits; `None` if that requires waiting and `wait` is [`Wait::Never`].
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
                // Checked before a lease is created for each permit. For a single permit, creating a lease in
                // excess is cheaper than this check.
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
                // The gate is released only now, so that the next contender finds all these leases.
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
                // The place at the gate survives a suspension: leases are created only
                // while the same gate node exists.
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
    /// Enters the queue with one contender for each wanted permit. Reads the number of permits in the round trip
    /// of the first one.
    async fn enter(
        queue_handle: &QueueHandle,
        counted: &Permits,
        kind: Kind,
        places: u32,
    ) -> Result<Self, AcquireError> {
        let client = &queue_handle.client;
        let asked = counted.node.as_ref().map(|node| client.data(node));

        // Grows as contenders enter, because the requested number may be too large to reserve.
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

    /// Fails unless all contenders entered in the session that holds the gate. Contenders of an earlier session
    /// are gone, and their permits with them. In a later session, another program holds the gate by now
    /// and enters too, so each would wait for leases of the other.
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
                        // The old listing may grant the permits although the own node is gone, because its
                        // deletion may not have been noticed (`OwnWatch::Late`).
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

/// Waits until a node has few enough children.
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

/// Creates kazoo's leases, each only while the gate is held: a session that has started
/// since must not continue where the old one stopped.
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
            // The node of the semaphore has been deleted, but not the gate.
            TransactionError::Failed { index: 0, .. } => {
                AcquireError::Refused { path: leases.path().clone(), source: error }
            }
            error => leases.not_replaced(gate, error),
        })?;
        all.push(lease);
    }
    let Some(last) = all.pop() else { unreachable!("at least one permit is wanted") };
    let guard = Guard::grant(last, Front { own: None }).await?.with_others(all)?;
    Ok(SemaphoreGuard::new(guard, wanted))
}
