//! A fair semaphore: a number of permits, for as many holders at once. `permits.rs` handles the stored number;
//! `profile.rs` acquires permits as each profile requires.

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
/// All programs must use the same number. If the number is stored, the first program's number applies until
/// [`Semaphore::set_permits`] changes it. A handle with another number is refused
/// ([`AcquireError::OtherPermits`]), unless it [accepts](SemaphoreBuilder::accept_other_permits) the stored
/// one. A handle that has acquired permits follows later changes of the number, and logs a warning at
/// the first change. [`Semaphore::permits`] returns the current number. Cheap to clone; clones
/// are the same semaphore.
///
/// # Guarantees
///
/// - The order of arrival is strict, also for contenders that acquire several permits at once.
/// - Permits become free when their holder dies.
/// - Waiters notice a change of the number.
/// - No contender leaves a znode behind.
///
/// # Not guaranteed
///
/// - With the default profile, the number of permits is not kept forever: after a semaphore has
///   been unused for a while, the number of the next program applies.
/// - A release may wake several contenders: up to n with n permits, or one if holders leave in
///   order of arrival.
///
/// # Znodes
///
/// A contender for `k` permits is `<path>/_c_<uuid>-<k>-permits-N`, ephemeral and
/// sequential. The data of `<path>` is the number of permits, as text. [`SemaphoreProfile`] has the layouts for
/// semaphores that are shared with Curator or kazoo programs.
///
/// # Cost
///
/// - An acquire costs 1 round trip; behind others, 1 more and 1 event, and up to n watches with n
///   permits.
/// - A release costs 1 round trip. If it is not awaited, it costs no waiting time.
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
        /// The layout and the names of the nodes. A [`Profile`](crate::Profile) is converted into one of the
        /// layouts. Default: [`SemaphoreProfile::Native`].
        pub fn profile(self, profile: impl Into<SemaphoreProfile>) => self.profile = profile.into();

        /// Accepts another number of permits if one is already stored. The number of this handle then applies only
        /// if none is stored. Without this option, acquiring fails with [`AcquireError::OtherPermits`]. With
        /// [`SemaphoreProfile::CuratorCounted`] the option is always on.
        pub fn accept_other_permits(self) => self.accepts_other = true;
    }

    /// Builds the semaphore. No I/O.
    ///
    /// # Errors
    /// If a path is not valid for a semaphore, or the number of permits is 0.
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
    /// If the path is not valid for a semaphore, or the number of permits is 0.
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
    /// as many watches as there are permits. [`SemaphoreProfile`] has the costs of the other layouts.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire). In addition: if there are fewer permits than requested
    /// ([`AcquireError::TooMany`]), if another number is stored ([`AcquireError::OtherPermits`]), if the stored
    /// data is not a number ([`AcquireError::BadPermits`]), and with kazoo's profile [`AcquireError::Lost`] if the
    /// gate is lost.
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
    /// if there are enough free permits for them. Costs the same as [`Semaphore::acquire`].
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

    /// [`Semaphore::acquire`] with a time limit: `timeout` covers the whole call. Costs the same as
    /// [`Semaphore::acquire`].
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

    /// [`Semaphore::acquire_many`] with a time limit: `timeout` covers the whole call. A limit below 10 ms makes a
    /// single try, like [`Mutex::acquire_timeout`](crate::Mutex::acquire_timeout). Costs the same as
    /// [`Semaphore::acquire_many`].
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

    /// Acquires a permit without waiting; `None` if it would have to wait. Costs one round trip;
    /// [`SemaphoreProfile`] has the costs of the other layouts.
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire`], except the errors of waiting.
    ///
    /// # Session loss
    /// Same as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`Semaphore::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<SemaphoreGuard>, AcquireError> {
        self.try_acquire_many(1).await
    }

    /// Acquires several permits without waiting; `None` if it would have to wait. Costs one round
    /// trip.
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire_many`], except the errors of waiting.
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

    /// The number of permits, held or free. Costs one round trip if the number is stored.
    ///
    /// # Errors
    /// If a request fails, or the stored data is not a number.
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn permits(&self) -> Result<u32, AcquireError> {
        self.permits.current(&self.client, None).await
    }

    /// Changes the number of permits. Waiters notice the change at once. Holders do not lose permits, so
    /// after a reduction more permits may be held for a while than the new number. Costs one round trip.
    ///
    /// # Errors
    /// If the number is 0, the profile does not store it, or a request fails.
    ///
    /// # Session loss
    /// Fails like any [`Reply`](lockkeeper_client::Reply). The number may have been changed.
    ///
    /// # Cancel safety
    /// The request is sent at the first poll. Dropping the future after that does not cancel it.
    pub async fn set_permits(&self, permits: u32) -> Result<(), SetPermitsError> {
        self.permits.set(&self.client, permits).await
    }
}
