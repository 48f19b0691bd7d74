//! [`Pool`]: taking a thing, and changing the stored set.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{Client, DefaultAcl, Failure, ZnodePath};
use lockkeeper_locks::OwnerInfo;

use crate::exact::{DEFAULT_MARKERS, Writers};
use crate::pool::core::{PoolCore, ThingSet};
use crate::pool::decide::Quota;
use crate::pool::error::PoolError;
use crate::pool::guard::PoolGuard;
use crate::pool::layout::PoolNodes;
use crate::pool::report::PoolReport;
use crate::pool::take::Wish;
use crate::values::Shared;
use crate::waits::within;

/// Named things, of which a program takes one and learns which: GPUs, test devices, licences, ports. Cheap to clone.
///
/// The things are [given](PoolBuilder::things) by the program, or stored in the pool, where they may be
/// [changed](Pool::change) while it is in use. A handle takes any of them, unless it is limited to
/// [some](Pool::only), or [prefers](Pool::prefer) some.
///
/// # Guarantees
///
/// - A thing has one holder at a time, by lease and by token. A [`PoolGuard`] is good until an exact deadline, and
///   its loss is reported before another program can have the thing. The tokens of a thing grow.
/// - A program never gets a thing that it does not want, or that was removed from the set before.
/// - Waiters are served in the order in which they came: a thing that is given back goes to the first that wants
///   it. No program gets a thing that an earlier waiter wants, unless that waiter is at its limit.
/// - A thing does not stay free while a connected program waits for it and is not at its limit.
/// - A holder never has more things than [its limit](PoolBuilder::at_most), in all programs that name it.
/// - A program that gives up or dies leaves nothing behind.
///
/// # Not guaranteed
///
/// - A program that dies keeps its things, and its place in line, until its session ends.
/// - A thing that is removed from the set stays with its holder until the holder gives it back.
/// - Programs that give different things, or different limits for a holder, get no error. Each applies its own.
/// - If another client deletes the node of a thing, the holder learns it late, from its next heartbeat.
/// - A node that was created by hand at `<path>/held/<thing>` keeps the thing out of use until it is deleted, also
///   if it is persistent. [`Pool::inspect`] shows it with [`SessionId::NONE`](lockkeeper_client::SessionId::NONE).
/// - Servers before 3.6 cannot be asked for several nodes at once.
///
/// # Session loss
///
/// A waiter continues with the next session, at the end of the line. Held things are lost.
///
/// # Znodes
///
/// - `<path>`, `<path>/held` and `<path>/line` are persistent. Missing parents are created as container nodes.
///   The data of `<path>` has the version of the layout. An existing node becomes a pool if it has neither data
///   nor children.
/// - `<path>/held/<thing>` is ephemeral: the claim of a thing. The name is written as
///   [`Locks`](lockkeeper_locks::Locks) writes a key. `<path>/held/<holder>!<number>` is one of the places of a
///   holder with a limit.
/// - `<path>/line/<uuid>-<number>` is ephemeral: a waiter. Its data has what it waits for.
/// - `<path>/things` is the stored set, if there is one: names in their order, as JSON.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral.
///
/// # Cost
///
/// - Taking a free thing costs 2 round trips (1 write); 1 more if waiters want other things.
/// - Waiting costs 4 round trips (1 write) and 2 events: one when the earlier waiters have left, and one when a
///   thing is given back. Each event costs 1 round trip, and taking the thing 1 more (1 write). If all waiters
///   want the same, only one is woken.
/// - A held thing costs 1 read with each heartbeat. Giving it back costs 2 round trips.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Pool;
///
/// let gpus = Pool::builder(&client, "/pools/gpu").things(["0", "1", "2"]).build()?;
/// let mine = gpus.acquire().await?;
/// assert_eq!(mine.name(), "0");
/// let last = gpus.prefer(["2"]).acquire().await?;
/// assert_eq!(last.name(), "2");
/// assert!(gpus.only(["0", "2"]).try_acquire().await?.is_none());
/// assert_eq!(gpus.inspect().await?.free, ["1"]);
/// mine.release().await?;
///
/// // Stored things, which may change.
/// let phones = Pool::new(&client, "/pools/phones")?;
/// phones.change(|names| names.extend(["pixel".to_owned(), "fairphone".to_owned()])).await?;
/// let phone = phones.acquire().await?;
/// println!("{} with token {}", phone.name(), phone.token());
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    core: Arc<PoolCore>,
    wish: Arc<Wish>,
}

lockkeeper_client::shown_by_path!(Pool);

/// Options of a [`Pool`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct PoolBuilder {
    client: Client,
    path: String,
    things: Option<Vec<String>>,
    quota: Option<Quota>,
    label: Option<String>,
}

impl PoolBuilder {
    lockkeeper_client::setters! {
        /// Sets the things, in the order in which they are taken. Other programs may give others. A name may be
        /// any text. Default: the things that are stored in the pool.
        pub fn things(self, names: impl IntoIterator<Item = impl Into<String>>) =>
            self.things = Some(names.into_iter().map(Into::into).collect());

        /// Sets the holder for which things are taken, such as a user, and the maximum number of things of that
        /// holder in all programs that name it: at least 1. A program whose holder is at its limit waits, and
        /// others pass it. Default: no limit.
        pub fn at_most(self, holder: impl Into<String>, limit: u32) =>
            self.quota = Some(Quota { holder: holder.into(), at_most: limit });

        /// Sets a label that others see with a thing of this program. Default: only host, process and program.
        pub fn label(self, label: impl Into<String>) => self.label = Some(label.into());

        /// Sets the access control list of the created nodes. Default: that of the client; see
        /// [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(self, acl: &DefaultAcl) => self.client = self.client.with_default_acl(acl);
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a pool, or a name is too long; [`PoolError::NoPlaces`] for a limit of 0.
    pub fn build(self) -> Result<Pool, PoolError> {
        let Self { client, path, things, quota, label } = self;
        let nodes = PoolNodes::new(PoolError::check_path(&client, &path)?);
        if let Some(Quota { holder, at_most }) = &quota {
            nodes.place(holder, *at_most)?;
            if *at_most == 0 {
                return Err(PoolError::NoPlaces { holder: holder.clone() });
            }
        }
        for thing in things.iter().flatten() {
            nodes.thing(thing)?;
        }

        let set = match things {
            Some(things) => ThingSet::Given(things),
            None => {
                let things = Shared::builder(&client, nodes.things.as_str()).build();
                ThingSet::Stored(things.expect("a child of a pool"))
            }
        };
        let markers = ZnodePath::new(DEFAULT_MARKERS).expect("a constant path");
        let writers = Writers::new(&client, markers);
        let owner = OwnerInfo::current(label);
        let core = PoolCore { client, nodes, set, quota, owner, writers };
        Ok(Pool { core: Arc::new(core), wish: Arc::default() })
    }
}

impl Pool {
    /// A pool at a path such as `/pools/gpu`, whose things are stored there. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a pool.
    pub fn new(client: &Client, path: &str) -> Result<Self, PoolError> {
        Self::builder(client, path).build()
    }

    /// The options of a pool.
    pub fn builder(client: &Client, path: &str) -> PoolBuilder {
        let (client, path) = (client.clone(), path.to_owned());
        PoolBuilder { client, path, things: None, quota: None, label: None }
    }

    /// The pool's path.
    pub fn path(&self) -> &ZnodePath {
        self.core.path()
    }

    /// A handle that takes only these things. A second `only` replaces the first.
    #[must_use = "it is another handle"]
    pub fn only(&self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let only = Some(names.into_iter().map(Into::into).collect());
        self.wishing(Wish { only, ..Wish::clone(&self.wish) })
    }

    /// A handle that takes these things first, in this order, and then the others in theirs. Names that are not
    /// in the pool have no effect. A second `prefer` replaces the first.
    #[must_use = "it is another handle"]
    pub fn prefer(&self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let prefer = names.into_iter().map(Into::into).collect();
        self.wishing(Wish { prefer, ..Wish::clone(&self.wish) })
    }

    fn wishing(&self, wish: Wish) -> Self {
        Self { core: Arc::clone(&self.core), wish: Arc::new(wish) }
    }

    /// Takes a thing, and waits until one is free for this program. Costs 2 round trips (1 write) if one is free,
    /// and [more](Pool#cost) otherwise, and on first use.
    ///
    /// # Errors
    /// [`PoolError::NothingWanted`] if no thing can ever be taken: [`Pool::only`] has no names, or none of the
    /// given things; [`PoolError::Foreign`] if the path is not that of a pool. If a request is refused, no server
    /// can be reached for a session timeout, or the client is closed.
    ///
    /// # Session loss
    /// Continues with the next session, at the end of the line.
    ///
    /// # Cancel safety
    /// When dropped, the program leaves the line and gives back a taken thing, in the background.
    pub async fn acquire(&self) -> Result<PoolGuard, PoolError> {
        loop {
            if let Some(guard) = self.core.take(&self.wish, true).await? {
                return Ok(guard);
            }
        }
    }

    /// [`Pool::acquire`], with a time limit that includes outages; `None` if no thing was free for this program
    /// in time: all that it wants were held, or its holder was at [its limit](PoolBuilder::at_most), which
    /// [`Pool::inspect`] shows. With less than 10 ms it tries once. Costs the same as [`Pool::acquire`].
    ///
    /// # Errors
    /// As [`Pool::acquire`], except for outages.
    ///
    /// # Session loss
    /// As [`Pool::acquire`].
    ///
    /// # Cancel safety
    /// As [`Pool::acquire`].
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<Option<PoolGuard>, PoolError> {
        let client = &self.core.client;
        within(client, timeout, self.try_acquire(), || self.acquire(), Failure::is_retryable).await
    }

    /// Takes a thing if one is free and no waiter is entitled to it; `None` otherwise. Costs 2 round trips (1
    /// write), and [more](Pool#cost) if others wait, and on first use.
    ///
    /// # Errors
    /// As [`Pool::acquire`].
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// When dropped, a taken thing is given back in the background.
    pub async fn try_acquire(&self) -> Result<Option<PoolGuard>, PoolError> {
        self.core.take(&self.wish, false).await
    }

    /// Reads the holders and the waiters. Costs 2 round trips (2 reads). The pool may have changed since: use the
    /// result for display only.
    ///
    /// # Errors
    /// As [`Pool::acquire`].
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn inspect(&self) -> Result<PoolReport, PoolError> {
        self.core.report().await
    }

    /// The stored things, in their order; an empty list if none were ever stored. Costs 1 round trip (1 read).
    ///
    /// # Errors
    /// [`PoolError::Given`] if the program gives the things; as [`Shared::get`].
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn things(&self) -> Result<Vec<String>, PoolError> {
        Ok(self.stored()?.get().await?.map(|found| found.value).unwrap_or_default())
    }

    /// Changes the stored things: `change` gets the current ones, and is called again if another program was
    /// faster. An added thing goes to the first waiter that wants it. A removed thing is not given out any more;
    /// its holder keeps it. Costs 3 round trips (2 reads, 1 write), and more on first use.
    ///
    /// # Errors
    /// [`PoolError::Given`] if the program gives the things; as [`Shared::update`].
    ///
    /// # Session loss
    /// As [`Shared::update`].
    ///
    /// # Cancel safety
    /// When dropped, the things may be changed.
    pub async fn change(
        &self,
        mut change: impl FnMut(&mut Vec<String>),
    ) -> Result<Vec<String>, PoolError> {
        let stored = self.stored()?;
        // Creates the pool, so that its node is not created for the value alone.
        self.core.view().await?;
        let changed = stored.update(|things| {
            let mut things = things.cloned().unwrap_or_default();
            change(&mut things);
            things
        });
        Ok(changed.await?.value)
    }

    fn stored(&self) -> Result<&Shared<Vec<String>>, PoolError> {
        match &self.core.set {
            ThingSet::Stored(things) => Ok(things),
            ThingSet::Given(_) => Err(PoolError::Given { path: self.path().clone() }),
        }
    }
}
