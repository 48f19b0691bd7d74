//! [`Pool`]: taking a thing, and the set of those that there are.

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
use crate::pool::look::PoolReport;
use crate::pool::take::Wish;
use crate::values::Shared;
use crate::waits::within;

/// Named things, of which a program takes one and learns which: GPUs, test devices, licences, ports. Cheap to clone.
///
/// The things are [given](PoolBuilder::things) by the program, or stored in the pool, where they may be
/// [changed](Pool::change) while it is in use. A handle takes anything of them, unless it says what is [to be](Pool::only)
/// taken, and what [first](Pool::prefer).
///
/// # Guarantees
///
/// - A thing has one holder at a time, by lease and by token. A [`PoolGuard`] is good until an exact deadline, and its loss is
///   reported before another program can have the thing. The tokens of a thing grow.
/// - A program never gets a thing that it does not want, or that was removed from the set before.
/// - Waiters are served in the order in which they came: a thing that is given back goes to the first that wants it. No program
///   gets a thing that an earlier waiter wants, unless that waiter is at its limit.
/// - A thing does not stay free while a connected program waits for it and is not at its limit.
/// - A holder never has more things than [its limit](PoolBuilder::at_most), in all programs that name it.
/// - A program that gives up or dies leaves nothing behind.
///
/// # Not guaranteed
///
/// - A program that dies keeps its things, and its place in line, until its session ends.
/// - A thing that is removed from the set stays with its holder until the holder gives it back.
/// - Programs that give different things, or different limits for a holder, do not notice it. Each follows its own.
/// - If another client deletes the node of a thing, the holder learns it late, from its next heartbeat.
/// - A node that was created by hand at `<path>/held/<thing>` keeps the thing out of use until it is deleted, also if it is
///   persistent. [`Pool::look`] shows it with [`SessionId::NONE`](lockkeeper_client::SessionId::NONE).
/// - Servers before 3.6 cannot be asked for several nodes at once.
///
/// # Session loss
///
/// A waiter waits on with the next session, at the end of the line. What was held is lost.
///
/// # Znodes
///
/// - `<path>`, `<path>/held` and `<path>/line` are persistent; what is missing above them is made as container nodes. The data
///   of `<path>` has the number of the layout. A node that is there already becomes a pool if it has neither data nor children.
/// - `<path>/held/<thing>` is ephemeral: the claim of a thing. The name is written as [`Locks`](lockkeeper_locks::Locks)
///   writes a key. `<path>/held/<holder>!<number>` is one of the places of a holder with a limit.
/// - `<path>/line/<uuid>-<number>` is ephemeral: a waiter. Its data says what it waits for.
/// - `<path>/things` is the stored set, if there is one: names in their order, as JSON.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral.
///
/// # Cost
///
/// - Taking what is free costs 2 round trips (1 write); 1 more if there are waiters for other things.
/// - Waiting costs 4 round trips (1 write) and 2 events: one when those before have left, and one when a thing is given back.
///   Each costs 1 round trip, and taking the thing 1 more (1 write). If all want the same, no other waiter is woken.
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
/// assert_eq!(gpus.look().await?.free, ["1"]);
/// mine.release().await?;
///
/// // Things that are stored, and may change.
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

/// The options of a [`Pool`].
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
        /// The things that there are, in the order in which they are taken. Other programs may give others. Any text is a
        /// name. Default: those that are stored in the pool.
        pub fn things(self, names: impl IntoIterator<Item = impl Into<String>>) =>
            self.things = Some(names.into_iter().map(Into::into).collect());

        /// The holder that things are taken for, such as a user, and how many it has at most, in all programs that name it: at
        /// least 1. A program whose holder is at its limit waits, and others pass it. Default: as many as there are.
        pub fn at_most(self, holder: impl Into<String>, limit: u32) =>
            self.quota = Some(Quota { holder: holder.into(), at_most: limit });

        /// What others read beside a thing that this program has. Default: nothing but host, process and program.
        pub fn label(self, label: impl Into<String>) => self.label = Some(label.into());

        /// The access control list of the znodes that are created. Default: that of the client; see
        /// [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(self, acl: &DefaultAcl) => self.client = self.client.with_default_acl(acl);
    }

    /// Makes the handle. No I/O.
    ///
    /// # Errors
    /// If a pool cannot be at the path, or a name is too long; [`PoolError::NoPlaces`] for a limit of 0.
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
                ThingSet::Stored(things.expect("it is below a pool"))
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
    /// The pool at a path such as `/pools/gpu`, whose things are stored there. No I/O.
    ///
    /// # Errors
    /// If a pool cannot be at the path.
    pub fn new(client: &Client, path: &str) -> Result<Self, PoolError> {
        Self::builder(client, path).build()
    }

    /// The options of a pool.
    pub fn builder(client: &Client, path: &str) -> PoolBuilder {
        let (client, path) = (client.clone(), path.to_owned());
        PoolBuilder { client, path, things: None, quota: None, label: None }
    }

    /// The path.
    pub fn path(&self) -> &ZnodePath {
        self.core.path()
    }

    /// The same pool, of which one of these things is taken, and no other. A second `only` replaces the first.
    #[must_use = "it is another handle"]
    pub fn only(&self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let only = Some(names.into_iter().map(Into::into).collect());
        self.wishing(Wish { only, ..Wish::clone(&self.wish) })
    }

    /// The same pool, of which these things are taken first, in this order, and the others in theirs. Names that are not in
    /// the pool have no effect. A second `prefer` replaces the first.
    #[must_use = "it is another handle"]
    pub fn prefer(&self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let prefer = names.into_iter().map(Into::into).collect();
        self.wishing(Wish { prefer, ..Wish::clone(&self.wish) })
    }

    fn wishing(&self, wish: Wish) -> Self {
        Self { core: Arc::clone(&self.core), wish: Arc::new(wish) }
    }

    /// Takes a thing, and waits until there is one for this program. Costs 2 round trips (1 write) if there is one, and
    /// [more](Pool#cost) if not, and at first.
    ///
    /// # Errors
    /// [`PoolError::NothingWanted`] if none can ever be had: [`Pool::only`] names nothing, or no given thing;
    /// [`PoolError::Foreign`] if the path is not that of a pool.
    /// If a request is refused, no server can be reached for a session timeout, or the client is closed.
    ///
    /// # Session loss
    /// Continues with the next session, at the end of the line.
    ///
    /// # Cancel safety
    /// The place in line is left, and what was taken is given back, in the background.
    pub async fn acquire(&self) -> Result<PoolGuard, PoolError> {
        loop {
            if let Some(guard) = self.core.take(&self.wish, true).await? {
                return Ok(guard);
            }
        }
    }

    /// [`Pool::acquire`], but not for longer than `timeout`, which covers everything, outages too; `None` if there was
    /// nothing for this program: all that it wants was taken, or its holder was at [its limit](PoolBuilder::at_most), which
    /// [`Pool::look`] shows. With less than 10 ms it tries once. Costs what [`Pool::acquire`] does.
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

    /// Takes a thing if one is free and no waiter is to get it; `None` if not. Costs 2 round trips (1 write), and
    /// [more](Pool#cost) if others wait, and at first.
    ///
    /// # Errors
    /// As [`Pool::acquire`].
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// What was taken is given back in the background.
    pub async fn try_acquire(&self) -> Result<Option<PoolGuard>, PoolError> {
        self.core.take(&self.wish, false).await
    }

    /// Reads the holders and the waiters. Costs 2 round trips (2 reads). The pool may have changed since, so do not base a
    /// decision on it that has to be right.
    ///
    /// # Errors
    /// As [`Pool::acquire`].
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn look(&self) -> Result<PoolReport, PoolError> {
        self.core.report().await
    }

    /// The stored things, in their order: an empty list if none were ever stored. Costs 1 round trip (1 read).
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

    /// Changes the stored things: `change` is given those that there are, and is called again if another program was
    /// quicker. An added thing goes to the first waiter that wants it. A removed thing is not given out any more; its
    /// holder keeps it. Costs 3 round trips (2 reads, 1 write), and more at first.
    ///
    /// # Errors
    /// [`PoolError::Given`] if the program gives the things; as [`Shared::update`].
    ///
    /// # Session loss
    /// As [`Shared::update`].
    ///
    /// # Cancel safety
    /// When dropped, they may be changed.
    pub async fn change(
        &self,
        mut change: impl FnMut(&mut Vec<String>),
    ) -> Result<Vec<String>, PoolError> {
        let stored = self.stored()?;
        // Makes the pool, which is what a value would be stored in.
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
