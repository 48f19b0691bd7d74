//! A fair semaphore: a number of permits, for as many holders at once. `permits.rs` keeps the number,
//! `profile.rs` takes permits in the way of each profile.

mod guard;
mod permits;
mod profile;

use std::pin::pin;
use std::time::Duration;

use lockkeeper_client::{Client, ZnodePath};

use crate::acquire::lock_options::{LockOptions, lock_options};
use crate::acquire::queue_handle::{Wait, within};
use crate::error::{AcquireError, BuildError, SetPermitsError};
use crate::locks::semaphore::permits::Permits;
use crate::locks::semaphore::profile::SemaphoreQueues;
use crate::telemetry::acquiring::Acquiring;
use crate::telemetry::metric_kind::MetricKind;

pub use crate::locks::semaphore::guard::SemaphoreGuard;
pub use crate::locks::semaphore::profile::SemaphoreProfile;

/// A fair semaphore: a number of permits, shared by all programs that use the same path.
///
/// All must ask for the same number: where it is stored, the first one's counts until
/// [`Semaphore::set_permits`] changes it. A handle with another number is refused
/// ([`AcquireError::OtherPermits`]), unless it [accepts](SemaphoreBuilder::accept_other_permits) the stored
/// one. A handle that has acquired permits follows later changes of the number, and writes a warning to
/// the log at the first; [`Semaphore::permits`] tells the number that is in force. Cheap to clone; clones
/// are the same semaphore.
///
/// # Guarantees
///
/// - The order of arrival is strict, also for those that want several permits at once.
/// - Permits come back when their holder dies.
/// - Those who wait hear of a change of the number.
/// - No contender leaves a znode behind.
///
/// # Not guaranteed
///
/// - The number of permits is not kept for good, with the default profile: when a semaphore has
///   been unused for a while, the number of the next program counts.
/// - A release may wake several contenders: up to n with n permits, or one if holders leave in
///   order of arrival.
///
/// # Znodes
///
/// A contender that wants `k` permits is `<path>/_c_<uuid>-<k>-permits-N`, ephemeral and
/// sequential. The data of `<path>` is the number of permits, as text. [`SemaphoreProfile`] is for
/// semaphores that programs on Curator or kazoo use.
///
/// # Cost
///
/// - An acquire costs 1 round trip; behind others, 1 more and 1 event, and up to n watches with n
///   permits.
/// - A release costs 1 round trip, or none if it is not awaited.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Semaphore;
///
/// let printers = Semaphore::new(&client, "/locks/printers", 3)?;
/// let one = printers.acquire().await?;
/// let two = printers.acquire_many(2).await?;
/// assert!(printers.try_acquire().await?.is_none(), "all three are taken");
///
/// printers.set_permits(4).await?;
/// printers.acquire().await?.release().await?;
/// two.release().await?;
/// one.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    client: Client,
    permits: Permits,
    queues: SemaphoreQueues,
}

lockkeeper_client::shown_by_path!(Semaphore);

/// The options of a [`Semaphore`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct SemaphoreBuilder {
    options: LockOptions,
    path: String,
    permits: u32,
    profile: SemaphoreProfile,
    accepts_other: bool,
}

lock_options!(SemaphoreBuilder: acl, label, user, why);

impl SemaphoreBuilder {
    lockkeeper_client::setters! {
        /// Which nodes it is made of, and how they are named; a [`Profile`](crate::Profile) is one of the
        /// choices. Default: [`SemaphoreProfile::Native`].
        pub fn profile(self, profile: impl Into<SemaphoreProfile>) => self.profile = profile.into();

        /// Uses another number of permits if that is stored already; the number of this handle counts only
        /// where there is none. Without it, [`AcquireError::OtherPermits`] refuses the handle. With
        /// [`SemaphoreProfile::CuratorCounted`] it is always so.
        pub fn accept_other_permits(self) => self.accepts_other = true;
    }

    /// Builds the semaphore. No I/O.
    ///
    /// # Errors
    /// If a path cannot be that of a semaphore, or the number of permits is 0.
    pub fn build(self) -> Result<Semaphore, BuildError> {
        let client = self.options.client.clone();
        let (queues, mut permits) =
            SemaphoreQueues::new(self.options, self.path, self.profile, self.permits)?;
        if self.accepts_other {
            permits.accept_other();
        }
        Ok(Semaphore { client, permits, queues })
    }
}

impl Semaphore {
    /// The semaphore at a path such as `/locks/printers`, with this number of permits. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a semaphore, or the number of permits is 0.
    pub fn new(client: &Client, path: &str, permits: u32) -> Result<Self, BuildError> {
        Self::builder(client, path, permits).build()
    }

    /// The options of a semaphore.
    pub fn builder(client: &Client, path: &str, permits: u32) -> SemaphoreBuilder {
        let (options, path) = (LockOptions::new(client), path.to_owned());
        let profile = SemaphoreProfile::default();
        SemaphoreBuilder { options, path, permits, profile, accepts_other: false }
    }

    /// The semaphore's path.
    pub fn path(&self) -> &ZnodePath {
        &self.permits.path
    }

    /// Waits in the queue for one permit. Costs one round trip; behind others one more and an event, and up to
    /// as many watches as there are permits. In other layouts than ours it costs what [`SemaphoreProfile`] says.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire); if there are fewer permits than asked for
    /// ([`AcquireError::TooMany`]); if another number is stored ([`AcquireError::OtherPermits`]), or no number
    /// ([`AcquireError::BadPermits`]); and with kazoo's profile [`AcquireError::Lost`] if the gate is lost.
    ///
    /// # Session loss
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue; the node is deleted in the background.
    pub async fn acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.acquire_many(1).await
    }

    /// Waits in the queue for several permits at once: all or none. Contenders behind it wait too, even
    /// if enough permits are left for them. Costs the same as [`Semaphore::acquire`].
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire`], and [`AcquireError::NoPermits`] for 0 permits.
    ///
    /// # Session loss
    /// Same as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Semaphore::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<SemaphoreGuard, AcquireError> {
        loop {
            if let Some(guard) = self.take(permits, Wait::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// [`Semaphore::acquire`] with a time limit: `timeout` covers the whole call. Costs what
    /// [`Semaphore::acquire`] does.
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Semaphore::acquire`].
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<SemaphoreGuard, AcquireError> {
        self.acquire_many_timeout(1, timeout).await
    }

    /// [`Semaphore::acquire_many`] with a time limit: `timeout` covers the whole call. With less
    /// than 10 ms it tries once, as [`Mutex::acquire_timeout`](crate::Mutex::acquire_timeout). Costs what
    /// [`Semaphore::acquire_many`] does.
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire_many`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Semaphore::acquire`].
    pub async fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> Result<SemaphoreGuard, AcquireError> {
        let try_once = self.try_acquire_many(permits);
        within(&self.client, self.path(), timeout, || self.acquire_many(permits), try_once).await
    }

    /// Takes a permit only if that needs no waiting; `None` if it does. Costs one round trip, or what
    /// [`SemaphoreProfile`] says.
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire`], except those of waiting.
    ///
    /// # Session loss
    /// Same as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Semaphore::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<SemaphoreGuard>, AcquireError> {
        self.try_acquire_many(1).await
    }

    /// Takes several permits only if that needs no waiting; `None` if it does. Costs one round
    /// trip.
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire_many`], except those of waiting.
    ///
    /// # Session loss
    /// Same as [`Semaphore::try_acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Semaphore::acquire`].
    pub async fn try_acquire_many(
        &self,
        permits: u32,
    ) -> Result<Option<SemaphoreGuard>, AcquireError> {
        self.take(permits, Wait::Never).await
    }

    async fn take(&self, permits: u32, wait: Wait) -> Result<Option<SemaphoreGuard>, AcquireError> {
        if permits == 0 {
            return Err(AcquireError::NoPermits { path: self.path().clone() });
        }
        let acquiring = Acquiring::new(&self.client, self.path(), MetricKind::Permits);
        let call = pin!(self.queues.take(&self.permits, permits, wait, acquiring.span()));
        acquiring.settle(call).await
    }

    /// How many permits there are, taken or not. Costs one round trip where the number is stored.
    ///
    /// # Errors
    /// If a request fails, or what is stored is no number.
    ///
    /// # Session loss
    /// Does not matter.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn permits(&self) -> Result<u32, AcquireError> {
        self.permits.current(&self.client, None).await
    }

    /// Changes how many permits there are. Those who wait notice at once. Nobody loses a permit:
    /// after a reduction more may be taken for a while than there are. Costs one round trip.
    ///
    /// # Errors
    /// If the number is 0, or is not stored with this profile, or a request fails.
    ///
    /// # Session loss
    /// Fails like any [`Reply`](lockkeeper_client::Reply): the number may have been changed.
    ///
    /// # Cancel safety
    /// It is sent when this is first polled; dropping it later does not take it back.
    pub async fn set_permits(&self, permits: u32) -> Result<(), SetPermitsError> {
        self.permits.set(&self.client, permits).await
    }
}
