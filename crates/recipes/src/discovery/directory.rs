//! [`ServiceDirectory`]: the instances of a service, kept up to date.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_client::{Client, Instant, ZnodePath};

use crate::discovery::instances::{InstanceChange, Instances, Listed};
use crate::discovery::pick::{
    Call, Ejection, InstanceLoad, Pick, PickError, Picker, PickerBuilder,
};
use crate::watch::{CacheChanges, CacheError, TreeCache};

/// The options of a [`ServiceDirectory`].
#[derive(Debug)]
#[must_use = "nothing is read before `open`"]
pub struct ServiceDirectoryBuilder {
    client: Client,
    base: String,
    service: String,
    picker: PickerBuilder<Listed>,
}

impl ServiceDirectoryBuilder {
    lockkeeper_client::setters! {
        /// The zone of this client, whose instances are picked first. See [`PickerBuilder::zone`].
        pub fn zone(self, zone: impl Into<String>) => self.picker = self.picker.zone(zone);

        /// When an instance is left out because its calls fail, and for how long. Default:
        /// [`Ejection::default`].
        pub fn ejection(self, ejection: Ejection) => self.picker = self.picker.ejection(ejection);

        /// Where the random numbers of picks come from. See [`PickerBuilder::seed`].
        pub fn seed(self, seed: u64) => self.picker = self.picker.seed(seed);
    }

    /// Reads the instances, and keeps them up to date. There may be none, and not even the service's node.
    /// Costs [two round trips](ServiceDirectory#cost), with a read for each instance.
    ///
    /// # Errors
    /// As [`TreeCacheBuilder::open`](crate::TreeCacheBuilder::open), but an instance that may not be read is
    /// none: [`Instances::unreadable`] names it. If the base is `/` or the servers' own `/zookeeper`.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It begins anew in the next session.
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

        // Of no edition, so that it is read when somebody asks.
        let (edition, read) = (AtomicU64::new(u64::MAX), Mutex::default());
        Ok(ServiceDirectory { inner: Arc::new(Inner { cache, service, edition, read, picker }) })
    }
}

#[derive(Debug)]
struct Inner {
    cache: TreeCache,
    service: ZnodePath,
    /// That of the snapshot that was read last, or of one before it.
    edition: AtomicU64,
    read: Mutex<Arc<Instances>>,
    picker: Picker<Listed>,
}

impl Inner {
    /// The newest instances, which the picker has too.
    fn read(&self) -> MutexGuard<'_, Arc<Instances>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let edition = self.cache.edition();
        if edition != self.edition.load(Ordering::Acquire) {
            // Taken while nobody else can put a newer one in place.
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

    /// A picker of the newest instances.
    fn picker(&self) -> &Picker<Listed> {
        if self.cache.edition() != self.edition.load(Ordering::Acquire) {
            drop(self.read());
        }
        &self.picker
    }
}

/// The instances of a service, as they are now.
///
/// Cheap to clone; clones are the same directory. It ends with the last clone and the last
/// [`DirectoryChanges`].
///
/// # Guarantees
///
/// - An instance that is registered and lives, on servers that answer, is in every directory. One
///   whose node is gone is in none that [is current](ServiceDirectory::is_current).
/// - An instance is never away in between while its node is there, and never goes back to what it
///   was.
/// - The last instances stay while the client is cut off from the servers.
/// - What cannot be read, or may not be, is [named](Instances::unreadable), and concerns nobody
///   else.
///
/// # Not guaranteed
///
/// - An instance may not work: its node is there for a session timeout after its program has ended.
///   So count the outcome of each call, and instances that fail are left out for a while.
/// - Not every state is seen that an instance passed through: several may come as one.
///
/// # Znodes
///
/// A directory creates none. It reads `<base>/<service>/<id>`, by one persistent recursive watch on
/// the service.
///
/// # Cost
///
/// - Opening costs 1 read for each instance, up to 32 in a request, 2 reads besides, and 2 round
///   trips.
/// - A change costs 1 event and 1 read.
/// - A pick costs no round trip and no allocation, and neither does asking what instances there
///   are. The first one after a change looks at all instances, and reads those that have changed.
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
    /// A directory of the service `<base>/<service>`, with options.
    pub fn builder(client: &Client, base: &str, service: &str) -> ServiceDirectoryBuilder {
        ServiceDirectoryBuilder {
            client: client.clone(),
            base: base.to_owned(),
            service: service.to_owned(),
            picker: Picker::builder(),
        }
    }

    /// Reads the instances of the service `<base>/<service>`, and keeps them up to date. Costs what
    /// [`ServiceDirectoryBuilder::open`] does.
    ///
    /// # Errors
    /// As [`ServiceDirectoryBuilder::open`].
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It begins anew in the next session.
    pub async fn open(client: &Client, base: &str, service: &str) -> Result<Self, CacheError> {
        Self::builder(client, base, service).open().await
    }

    /// The instances as they are now, also those that are not to be called. They stay without a
    /// connection, and never go back.
    pub fn instances(&self) -> Arc<Instances> {
        Arc::clone(&self.inner.read())
    }

    /// The instance for the next call, which begins now. Those that are not enabled, or of weight 0, get
    /// none. Without a connection it picks among the last instances.
    ///
    /// # Errors
    /// If there is no instance that takes calls.
    pub fn pick(&self, how: Pick<'_>) -> Result<Call<Listed>, PickError> {
        self.inner.picker().pick(how)
    }

    /// The same with none of these instances, for another try after a call has failed: the next picks may give the
    /// same instance until it is [ejected](Ejection), and those of a key do.
    ///
    /// # Errors
    /// As [`ServiceDirectory::pick`], and [`PickError::AllTried`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn call(instance: &lockkeeper::Listed) -> Result<(), std::io::Error> { Ok(()) }
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
        tried: &[Arc<Listed>],
        how: Pick<'_>,
    ) -> Result<Call<Listed>, PickError> {
        self.inner.picker().pick_except(tried, how)
    }

    /// Picks an instance, makes the call, and counts its outcome: `Err` as a failure. Makes no request to
    /// the ZooKeeper servers.
    ///
    /// # Errors
    /// The inner result is that of the call; the outer one is that of [`ServiceDirectory::pick`].
    ///
    /// # Session loss
    /// Has no effect: without a connection it picks among the last instances.
    ///
    /// # Cancel safety
    /// As [`Picker::run`].
    pub async fn run<F, V, E>(
        &self,
        how: Pick<'_>,
        call: impl FnOnce(Arc<Listed>) -> F,
    ) -> Result<Result<V, E>, PickError>
    where
        F: Future<Output = Result<V, E>>,
    {
        self.inner.picker().run(how, call).await
    }

    /// What is known of the calls to each instance. For people to look at: it allocates.
    pub fn loads(&self) -> Vec<InstanceLoad<Listed>> {
        self.inner.picker().loads()
    }

    /// Whether nothing is known that [`ServiceDirectory::instances`] does not show. See
    /// [`TreeCache::is_current`].
    pub fn is_current(&self) -> bool {
        self.inner.cache.is_current()
    }

    /// A time at or after which the instances were just these. By the clock of [`Client::now`].
    pub fn as_of(&self) -> Instant {
        self.inner.cache.as_of()
    }

    /// Why the directory has ended; `None` while it has not. The last instances stay.
    pub fn ended(&self) -> Option<CacheError> {
        self.inner.cache.ended()
    }

    /// What changes from now on. Each caller has changes of its own.
    pub fn changes(&self) -> DirectoryChanges {
        let wakes = self.inner.cache.changes();
        DirectoryChanges { last: self.instances(), directory: self.clone(), wakes }
    }
}

/// The instances, and how they differ from those before.
#[derive(Clone, Debug)]
pub struct DirectoryUpdate {
    /// The instances.
    pub instances: Arc<Instances>,
    /// How they differ from those of the last update, by node; never empty.
    pub changes: Vec<InstanceChange>,
}

/// What changes in a [`ServiceDirectory`]. A slow reader misses no difference: what happened meanwhile
/// comes as one update. Keeps the directory alive.
#[derive(Debug)]
pub struct DirectoryChanges {
    directory: ServiceDirectory,
    last: Arc<Instances>,
    wakes: CacheChanges,
}

impl DirectoryChanges {
    /// Waits until the instances differ from the last ones. Makes no request of its own: the directory
    /// [reads](ServiceDirectory#cost) what has changed, once for all who wait.
    ///
    /// # Errors
    /// Why the directory has ended.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    ///
    /// # Session loss
    /// None is seen: what differs in the next session comes as an update.
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
