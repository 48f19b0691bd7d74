//! Locks whose methods wait, and how they are made.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{DefaultAcl, Error, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::forward::{guards, options, same, waits};
use crate::blocking::guard::Guard;
use crate::blocking::runtime::Runtime;
use crate::error::{AcquireError, BuildError, ReleaseError, SetPermitsError};
use crate::locks::{self, Owner, SemaphoreProfile};
use crate::profile::Profile;

/// Any lock of this crate, whose methods wait. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lock<L> {
    inner: L,
    runtime: Arc<Runtime>,
}

/// A [`crate::Mutex`] whose methods wait. What it guarantees and costs is described there.
pub type Mutex = Lock<locks::Mutex>;
/// A [`crate::ReentrantMutex`] whose methods wait. What it guarantees and costs is described there.
pub type ReentrantMutex = Lock<locks::ReentrantMutex>;
/// A [`crate::ExclusiveNode`] whose methods wait. What it guarantees and costs is described there.
pub type ExclusiveNode = Lock<locks::ExclusiveNode>;
/// A [`crate::MultiLock`] whose methods wait. What it guarantees and costs is described there.
pub type MultiLock = Lock<locks::MultiLock>;
/// A [`crate::RwLock`] whose methods wait. What it guarantees and costs is described there.
pub type RwLock = Lock<locks::RwLock>;
/// A [`crate::Semaphore`] whose methods wait. What it guarantees and costs is described there.
pub type Semaphore = Lock<locks::Semaphore>;

impl<L> Lock<L> {
    /// The lock for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &L {
        &self.inner
    }
}

// ----- how they are made ----------------------------------------------------------------------

/// The options of any lock of this crate.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct Builder<B> {
    inner: B,
    runtime: Arc<Runtime>,
}

impl<B> Builder<B> {
    fn new(client: &Client, inner: B) -> Self {
        Self { inner, runtime: Arc::clone(&client.runtime) }
    }
}

/// The options of each lock, and how it is made with the default ones.
macro_rules! made {
    ($($lock:ident $builder:ident $(<$life:lifetime>)? ($($at:ident: $place:ty),*) {
        $($option:ident($($argument:ident: $kind:ty),*);)*
    })*) => { $(
        #[doc = concat!("As [`crate::", stringify!($builder), "`].")]
        pub type $builder = Builder<locks::$builder>;

        impl $lock {
            #[doc = concat!("As [`crate::", stringify!($lock), "::new`]. No I/O.")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn new$(<$life>)?(client: &Client, $($at: $place),*) -> Result<Self, BuildError> {
                Self::builder(client, $($at),*).build()
            }

            /// The options of a lock.
            pub fn builder$(<$life>)?(client: &Client, $($at: $place),*) -> $builder {
                Builder::new(client, locks::$lock::builder(client.as_async(), $($at),*))
            }
        }

        options! { $builder: $($option($($argument: $kind),*);)* }

        impl $builder {
            /// Makes the lock. No I/O.
            ///
            /// # Errors
            #[doc = concat!("As [`crate::", stringify!($builder), "::build`].")]
            pub fn build(self) -> Result<$lock, BuildError> {
                Ok(Lock { inner: self.inner.build()?, runtime: self.runtime })
            }
        }
    )* };
}

made! {
    Mutex MutexBuilder(path: &str) {
        profile(profile: Profile);
        acl(acl: &DefaultAcl);
        label(label: impl Into<String>);
        user(user: impl Into<String>);
        why(why: impl Into<String>);
        linger(period: Duration);
        cohort(holders: u32, time: Duration);
        lock_delay(delay: Duration);
        obey_lock_delay();
    }
    ReentrantMutex ReentrantMutexBuilder(path: &str) {
        profile(profile: Profile);
        acl(acl: &DefaultAcl);
        label(label: impl Into<String>);
        user(user: impl Into<String>);
        why(why: impl Into<String>);
        linger(period: Duration);
        cohort(holders: u32, time: Duration);
        lock_delay(delay: Duration);
        obey_lock_delay();
    }
    RwLock RwLockBuilder(path: &str) {
        profile(profile: Profile);
        acl(acl: &DefaultAcl);
        label(label: impl Into<String>);
        user(user: impl Into<String>);
        why(why: impl Into<String>);
    }
    Semaphore SemaphoreBuilder(path: &str, permits: u32) {
        profile(profile: impl Into<SemaphoreProfile>);
        accept_other_permits();
        acl(acl: &DefaultAcl);
        label(label: impl Into<String>);
        user(user: impl Into<String>);
        why(why: impl Into<String>);
    }
    ExclusiveNode ExclusiveNodeBuilder(path: &str) {
        acl(acl: &DefaultAcl);
        label(label: impl Into<String>);
        user(user: impl Into<String>);
        why(why: impl Into<String>);
        owner(owner: &Owner);
    }
    MultiLock MultiLockBuilder<'a>(paths: impl IntoIterator<Item = &'a str>) {
        profile(profile: Profile);
        acl(acl: &DefaultAcl);
        label(label: impl Into<String>);
        obey_lock_delay();
        user(user: impl Into<String>);
        why(why: impl Into<String>);
    }
}

// ----- how they are held ----------------------------------------------------------------------

guards! { Mutex => locks::MutexGuard, AcquireError:
    acquire(); acquire_timeout(timeout: Duration); => Option: try_acquire();
}
guards! { ReentrantMutex => locks::ReentrantGuard, AcquireError:
    acquire(owner: &Owner); acquire_timeout(owner: &Owner, timeout: Duration);
    => Option: try_acquire(owner: &Owner);
}
guards! { ExclusiveNode => locks::ExclusiveGuard, AcquireError:
    acquire(); acquire_timeout(timeout: Duration); => Option: try_acquire();
}
guards! { MultiLock => locks::MultiGuard, AcquireError:
    acquire(); acquire_timeout(timeout: Duration); => Option: try_acquire();
}
guards! { RwLock => locks::RwLockReadGuard, AcquireError:
    read(); read_timeout(timeout: Duration); => Option: try_read();
}
guards! { RwLock => locks::RwLockWriteGuard, AcquireError:
    write(); write_timeout(timeout: Duration); => Option: try_write();
}
guards! { RwLock => locks::RwLockUpgradeableGuard, AcquireError:
    upgradeable_read(); upgradeable_read_timeout(timeout: Duration);
    => Option: try_upgradeable_read();
}
guards! { Semaphore => locks::SemaphoreGuard, AcquireError:
    acquire(); acquire_timeout(timeout: Duration);
    acquire_many(permits: u32); acquire_many_timeout(permits: u32, timeout: Duration);
    => Option: try_acquire(); try_acquire_many(permits: u32);
}

same! { Mutex, "Mutex": path() -> &ZnodePath; lock_delay_left() -> Option<Duration>; }
same! { RwLock, "RwLock": path() -> &ZnodePath; }
same! { Semaphore, "Semaphore": path() -> &ZnodePath; }
same! {
    MultiLock, "MultiLock":
    paths() -> impl Iterator<Item = &ZnodePath>; lock_delay_left() -> Option<Duration>;
}
same! { ExclusiveNode, "ExclusiveNode": path() -> &ZnodePath; owner() -> &Owner; }
same! { ReentrantMutex, "ReentrantMutex": path() -> &ZnodePath; entries(owner: &Owner) -> usize; }

waits! { ReentrantMutex, "ReentrantMutex": release(owner: &Owner) -> Result<(), ReleaseError>; }
waits! { Semaphore, "Semaphore":
    permits() -> Result<u32, AcquireError>;
    set_permits(permits: u32) -> Result<(), SetPermitsError>;
}

// ----- a lock for any key ---------------------------------------------------------------------

/// The locks below one path, by key, as [`crate::Locks`]. What it guarantees and costs is described
/// there. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Locks {
    inner: locks::Locks,
    runtime: Arc<Runtime>,
}

impl Locks {
    /// The locks below a path such as `/locks/orders`. No I/O.
    ///
    /// # Errors
    /// As [`crate::Locks::new`].
    pub fn new(client: &Client, prefix: &str) -> Result<Self, BuildError> {
        Self::with(client, prefix, |lock| lock)
    }

    /// The same, with options for each of them. No I/O.
    ///
    /// # Errors
    /// As [`crate::Locks::with`].
    pub fn with(
        client: &Client,
        prefix: &str,
        configure: impl Fn(locks::MutexBuilder) -> locks::MutexBuilder + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        let inner = locks::Locks::with(client.as_async(), prefix, configure)?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// As [`crate::Locks::keep_idle`].
    #[must_use]
    pub fn keep_idle(self, handles: usize) -> Self {
        Self { inner: self.inner.keep_idle(handles), runtime: self.runtime }
    }

    /// The registry for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &locks::Locks {
        &self.inner
    }

    /// The lock of a key. No I/O.
    ///
    /// # Errors
    /// As [`crate::Locks::get`].
    pub fn get(&self, key: &str) -> Result<Mutex, BuildError> {
        Ok(Lock { inner: self.inner.get(key)?, runtime: Arc::clone(&self.runtime) })
    }
}

same! { Locks, "Locks": path(key: &str) -> Result<ZnodePath, BuildError>; }
waits! { Locks, "Locks": keys() -> Result<Vec<String>, Error>; }
