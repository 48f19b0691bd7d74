//! [`ServiceDirectory`]: the instances of a service, kept up to date.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_client::{Client, Instant, ZnodePath};

use crate::discovery::instances::{InstanceChange, Instances, ListedInstance};
use crate::discovery::pick::{
    Call, Ejection, InstanceLoad, Pick, PickError, Picker, PickerBuilder,
};
use crate::watch::{CacheChanges, CacheError, TreeCache};

/// Options of a [`ServiceDirectory`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct ServiceDirectoryBuilder {
    client: Client,
    base: String,
    service: String,
    picker: PickerBuilder<ListedInstance>,
}

impl ServiceDirectoryBuilder {
    lockkeeper_client::setters! {
        /// Sets the zone of this client, whose instances are picked first. See [`PickerBuilder::zone`].
        pub fn zone(self, zone: impl Into<String>) => self.picker = self.picker.zone(zone);

        /// Sets when an instance is left out because its calls fail, and for how long. Default:
        /// [`Ejection::default`].
        pub fn ejection(self, ejection: Ejection) => self.picker = self.picker.ejection(ejection);

        /// Sets the seed of the random numbers. See [`PickerBuilder::seed`].
        pub fn seed(self, seed: u64) => self.picker = self.picker.seed(seed);
    }

    /// Reads the instances, and keeps them up to date. The service may have no instances, or no node yet. Costs
    /// [two round trips](ServiceDirectory#cost), with a read for each instance.
    ///
    /// # Errors
    /// As [`TreeCacheBuilder::open`](crate::TreeCacheBuilder::open), but an instance that may not be read is left
    /// out: [`Instances::unreadable`] lists it. If the base is `/` or the servers' own `/zookeeper`.
    ///
    /// # Cancel safety
    /// When dropped, leaves no watch behind.
    ///
    /// # Session loss
    /// Starts over in the next session.
    pub async fn open(self) -> Result<ServiceDirectory, CacheError> {
        let Self { client, base, service, picker } = self;
        let base = ZnodePath::new(&base)?;
        if !client.is_own_base(&base) {
            return Err(CacheError::Reserved(base));
        }
        let service = base.child(&service)?;
        let cache = TreeCache::builder(&client, service.as_str()).max_depth(1).skip_unreadable();
        let cache = cache.open().await?;
        let picker = picker.clock(move || client.now()).build();

        // Without an edition, so that it is read on first use.
        let (edition, read) = (AtomicU64::new(u64::MAX), Mutex::default());
        Ok(ServiceDirectory { inner: Arc::new(Inner { cache, service, edition, read, picker }) })
    }
}

#[derive(Debug)]
struct Inner {
    cache: TreeCache,
    service: ZnodePath,
    /// The edition of the snapshot that was read last, or an earlier one.
    edition: AtomicU64,
    read: Mutex<Arc<Instances>>,
    picker: Picker<ListedInstance>,
}

impl Inner {
    /// The newest instances, which the picker has too.
    fn read(&self) -> MutexGuard<'_, Arc<Instances>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let edition = self.cache.edition();
        if edition != self.edition.load(Ordering::Acquire) {
            // Taken under the lock, so that no other thread can store a newer one first.
            let snapshot = self.cache.snapshot();
            let nodes = snapshot.children(self.service.as_str());
            let before = Arc::clone(&read);
            let hidden = snapshot.unreadable().filter_map(|path| path.rsplit_once('/'));
            let now = before.read(nodes, snapshot.zxid());

            *read = Arc::new(now.without(hidden.map(|(_, name)| name)));
            if !read.are(&before) {
                self.picker.update(read.iter().cloned());
            }
            self.edition.store(edition, Ordering::Release);
        }
        read
    }

    /// A picker with the newest instances.
    fn picker(&self) -> &Picker<ListedInstance> {
        if self.cache.edition() != self.edition.load(Ordering::Acquire) {
            drop(self.read());
        }
        &self.picker
    }
}

/// The current instances of a service.
///
/// Cheap to clone; clones are the same directory. The directory ends with the last clone and the last
/// [`DirectoryChanges`].
///
/// # Guarantees
///
/// - An instance that is registered and lives is in every directory, while servers answer. An instance whose node
///   is gone is in no directory that [is current](ServiceDirectory::is_current).
/// - An instance never disappears while its node exists, and never returns to an older state.
/// - The last instances stay available while the client is disconnected from the servers.
/// - A node that cannot be read, or may not be, is [listed](Instances::unreadable), and does not affect others.
///
/// # Not guaranteed
///
/// - An instance may not work: its node exists for a session timeout after its program has died. So report the
///   outcome of each call, and instances that fail are left out for a while.
/// - Not every state of an instance is reported: several may come as one.
///
/// # Znodes
///
/// A directory creates no nodes. It reads `<base>/<service>/<id>`, with one persistent recursive watch on the
/// service.
///
/// # Cost
///
/// - Opening costs 1 read for each instance, up to 32 in a request, 2 other reads, and 2 round trips.
/// - A change costs 1 event and 1 read.
/// - A pick costs no round trip and no allocation, and neither does reading the list of instances. The first one
///   after a change visits all instances, and decodes those that have changed.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Pick, ServiceDirectory};
///
/// let web = ServiceDirectory::open(&client, "/services", "web").await?;
/// match web.pick(Pick::PowerOfTwo) {
///     Ok(call) => println!("calling {:?}", call.instance().address),
///     Err(error) => println!("{error}"),
/// }
/// # drop(web);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ServiceCache")]
#[doc(alias = "ServiceProvider")]
#[doc(alias = "ServiceDiscovery")]
#[derive(Clone, Debug)]
pub struct ServiceDirectory {
    inner: Arc<Inner>,
}

impl ServiceDirectory {
    /// The options of a directory of the service `<base>/<service>`.
    pub fn builder(client: &Client, base: &str, service: &str) -> ServiceDirectoryBuilder {
        ServiceDirectoryBuilder {
            client: client.clone(),
            base: base.to_owned(),
            service: service.to_owned(),
            picker: Picker::builder(),
        }
    }

    /// Reads the instances of the service `<base>/<service>`, and keeps them up to date. Costs as much as
    /// [`ServiceDirectoryBuilder::open`].
    ///
    /// # Errors
    /// As [`ServiceDirectoryBuilder::open`].
    ///
    /// # Cancel safety
    /// When dropped, leaves no watch behind.
    ///
    /// # Session loss
    /// Starts over in the next session.
    pub async fn open(client: &Client, base: &str, service: &str) -> Result<Self, CacheError> {
        Self::builder(client, base, service).open().await
    }

    /// The current instances, including those that do not take calls. They stay available without a connection, and
    /// never return to an older state.
    pub fn instances(&self) -> Arc<Instances> {
        Arc::clone(&self.inner.read())
    }

    /// Picks the instance for the next call, which begins now. Instances that are not enabled, or have weight 0,
    /// are not picked. Without a connection it picks from the last instances.
    ///
    /// # Errors
    /// If no instance takes calls.
    pub fn pick(&self, how: Pick<'_>) -> Result<Call<ListedInstance>, PickError> {
        self.inner.picker().pick(how)
    }

    /// Like `pick`, without these instances, for another try after a failed call: the next picks may return the
    /// same instance until it is [ejected](Ejection), and those of a key do.
    ///
    /// # Errors
    /// As [`ServiceDirectory::pick`], and [`PickError::AllTried`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn call(instance: &lockkeeper::ListedInstance) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(web: &lockkeeper::ServiceDirectory) -> Result<(), Box<dyn std::error::Error>> {
    /// use lockkeeper::Pick;
    ///
    /// let mut tried = Vec::new();
    /// loop {
    ///     let picked = web.pick_except(&tried, Pick::key("user-7"))?; // until all were tried
    ///     tried.push(picked.instance().clone());
    ///     if picked.outcome(call(tried.last().unwrap()).await).is_ok() {
    ///         return Ok(());
    ///     }
    /// }
    /// # }
    /// ```
    pub fn pick_except(
        &self,
        tried: &[Arc<ListedInstance>],
        how: Pick<'_>,
    ) -> Result<Call<ListedInstance>, PickError> {
        self.inner.picker().pick_except(tried, how)
    }

    /// Picks an instance, makes the call, and counts its outcome: `Err` as a failure. Makes no request to the
    /// ZooKeeper servers.
    ///
    /// # Errors
    /// The inner result is that of the call; the outer one is that of [`ServiceDirectory::pick`].
    ///
    /// # Session loss
    /// None: without a connection it picks from the last instances.
    ///
    /// # Cancel safety
    /// As [`Picker::run`].
    pub async fn run<F, V, E>(
        &self,
        how: Pick<'_>,
        call: impl FnOnce(Arc<ListedInstance>) -> F,
    ) -> Result<Result<V, E>, PickError>
    where
        F: Future<Output = Result<V, E>>,
    {
        self.inner.picker().run(how, call).await
    }

    /// The recorded load of each instance. For display: it allocates.
    pub fn loads(&self) -> Vec<InstanceLoad<ListedInstance>> {
        self.inner.picker().loads()
    }

    /// Whether [`ServiceDirectory::instances`] includes all known changes. See [`TreeCache::is_current`].
    pub fn is_current(&self) -> bool {
        self.inner.cache.is_current()
    }

    /// A time at which the instances were these, or a later one. By the clock of [`Client::now`].
    pub fn as_of(&self) -> Instant {
        self.inner.cache.as_of()
    }

    /// Why the directory has ended; `None` while it runs. The last instances stay available.
    pub fn ended(&self) -> Option<CacheError> {
        self.inner.cache.ended()
    }

    /// The changes from now on. Each caller has its own reader.
    pub fn changes(&self) -> DirectoryChanges {
        let wakes = self.inner.cache.changes();
        DirectoryChanges { last: self.instances(), directory: self.clone(), wakes }
    }
}

/// The instances, and their differences from the previous ones.
#[derive(Clone, Debug)]
pub struct DirectoryUpdate {
    /// The instances.
    pub instances: Arc<Instances>,
    /// The differences from those of the last update, by node; never empty.
    pub changes: Vec<InstanceChange>,
}

/// The changes of a [`ServiceDirectory`]. A slow reader misses no difference: all changes since its last update
/// come as one update. Keeps the directory alive.
#[derive(Debug)]
pub struct DirectoryChanges {
    directory: ServiceDirectory,
    last: Arc<Instances>,
    wakes: CacheChanges,
}

impl DirectoryChanges {
    /// Waits until the instances differ from the last ones. Makes no request of its own: the directory
    /// [reads](ServiceDirectory#cost) each change once for all readers.
    ///
    /// # Errors
    /// Why the directory has ended.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    ///
    /// # Session loss
    /// Not reported by itself: differences in the next session come as an update.
    pub async fn next(&mut self) -> Result<DirectoryUpdate, CacheError> {
        loop {
            let instances = self.directory.instances();
            let changes = instances.changes_since(&self.last);
            self.last = Arc::clone(&instances);
            if !changes.is_empty() {
                return Ok(DirectoryUpdate { instances, changes });
            }
            self.wakes.next().await?;
        }
    }
}
