//! Names that one program has at a time: `worker-7`, a host's name, a tenant's.
//!
//! ```text
//!   mod      Names: claiming; NameClaim: a guard
//!   holder   NameHolder: who has a name
//!   error    why a name was not claimed
//! ```

mod error;
mod holder;

use std::time::Duration;

use lockkeeper_client::retry::retry_anywhere;
use lockkeeper_client::{Client, Error, ErrorCode, SessionId, ZnodePath};

use crate::error::{AcquireError, BuildError, ReleaseError};
use crate::exposure::Warned;
use crate::guard::offers_guard;
use crate::locks::{ExclusiveGuard, ExclusiveNode, Owner, WaitsFor, keys_below, node_of};
use crate::owner_info::OwnerInfo;
use crate::token::FencingToken;

pub use error::ClaimError;
pub use holder::NameHolder;

/// Names below one path, each of which one program has at a time: `worker-7`, a host's name, a tenant's.
///
/// Every claim is one of its own: another one of this program has to wait, too. Cheap to clone.
///
/// # Guarantees
///
/// - A name has one holder at a time, by lease and by token. A claim is a guard, which is good
///   until an exact deadline, and its loss is told before anybody else can have the name.
/// - The tokens of a name grow.
/// - Any text is a name.
///
/// # Not guaranteed
///
/// - The loss is not told first if another client deletes the node. The next heartbeat tells it,
///   and transactions may be applied until then; see
///   [`Guard::transaction`](crate::Guard::transaction).
/// - There is no order among those who wait for a name: the fastest gets it.
/// - A name does not come back after its session is over. Claim it again, with a new token, or use
///   a `Presence`, which needs no token and comes back by itself.
///
/// # Znodes
///
/// `<path>/<name>`, ephemeral, as of an [`ExclusiveNode`]. Its data is [`OwnerInfo`] of the program
/// that has the name. So the children of `<path>` are the names that are taken. The name is written
/// as [`Locks`](crate::Locks) writes a key. `<path>` is a container node.
///
/// # Cost
///
/// - A claim costs 1 round trip. While another program has the name, it costs 1 more, and with each
///   release 1 event and 1 round trip, or 2 for those who were too late.
/// - A held name costs 1 read with each heartbeat.
/// - A release costs 2 round trips.
/// - A look at who has a name, or at all names, costs 1 round trip.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Names;
///
/// let names = Names::builder(&client, "/workers").label("10.0.0.7:80").build()?;
/// let claim = names.claim_any(["worker-1", "worker-2"]).await?.ok_or("both are taken")?;
/// assert_eq!(claim.name(), "worker-1");
/// println!("{} with token {}", claim.name(), claim.token());
///
/// assert!(names.try_claim("worker-1").await?.is_none());
/// let holder = names.holder("worker-1").await?.ok_or("somebody has it")?;
/// assert_eq!(holder.token, claim.token());
/// assert_eq!(names.taken().await?, ["worker-1"]);
/// claim.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Names {
    client: Client,
    path: ZnodePath,
    label: Option<String>,
    warned: Warned,
}

lockkeeper_client::shown_by_path!(Names);

/// The options of [`Names`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct NamesBuilder {
    client: Client,
    path: String,
    label: Option<String>,
}

impl NamesBuilder {
    lockkeeper_client::setters! {
        /// What others read beside the name, such as an address. Default: nothing but host, process and
        /// program.
        pub fn label(self, label: impl Into<String>) => self.label = Some(label.into());

        /// The access control list of the znodes of the names, and of those that are missing above them.
        /// Default: that of the client; see [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(self, acl: &lockkeeper_client::DefaultAcl) =>
            self.client = self.client.with_default_acl(acl);
    }

    /// Builds the handle. No I/O.
    ///
    /// # Errors
    /// If the path cannot have names below it: what holds for a lock's path holds here.
    pub fn build(self) -> Result<Names, BuildError> {
        let path = BuildError::check_base(&self.client, &self.path)?;
        Ok(Names { client: self.client, path, label: self.label, warned: Warned::default() })
    }
}

impl Names {
    /// The names below a path such as `/workers`. No I/O.
    ///
    /// # Errors
    /// If the path cannot have names below it.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of names.
    pub fn builder(client: &Client, path: &str) -> NamesBuilder {
        NamesBuilder { client: client.clone(), path: path.to_owned(), label: None }
    }

    /// The path below which they are.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// Claims a name, and waits while another has it. Costs one round trip if nobody has it, and
    /// [more](Names#cost) while another program does.
    ///
    /// # Errors
    /// [`ClaimError::Foreign`] if there is a node that does not go by itself, now or later while it waits;
    /// otherwise as [`ExclusiveNode::acquire`].
    ///
    /// # Session loss
    /// Same as [`ExclusiveNode::acquire`]: a waiter goes on with the next session.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; a node that was made is deleted in the background.
    pub async fn claim(&self, name: &str) -> Result<NameClaim, ClaimError> {
        Self::claimed(name, self.lock(name)?.acquire().await)
    }

    /// [`Names::claim`] with a time limit: `timeout` covers the whole call. Costs what
    /// [`Names::claim`] does.
    ///
    /// # Errors
    /// Same as [`Names::claim`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`Names::claim`].
    ///
    /// # Cancel safety
    /// Same as [`Names::claim`].
    pub async fn claim_timeout(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<NameClaim, ClaimError> {
        Self::claimed(name, self.lock(name)?.acquire_timeout(timeout).await)
    }

    /// Claims a name only if nobody has it; `None` if somebody does. Costs one round trip.
    ///
    /// # Errors
    /// Same as [`Names::claim`], except those of waiting: whatever is there, it is somebody's.
    ///
    /// # Session loss
    /// Same as [`Names::claim`].
    ///
    /// # Cancel safety
    /// Same as [`Names::claim`].
    pub async fn try_claim(&self, name: &str) -> Result<Option<NameClaim>, ClaimError> {
        let guard = self.lock(name)?.try_acquire().await?;
        Ok(guard.map(|guard| NameClaim::new(name, guard)))
    }

    /// Claims a name, and fails if somebody has it. Costs one round trip, and one more to tell who.
    ///
    /// # Errors
    /// Same as [`Names::claim`], [`ClaimError::Taken`], and [`ClaimError::Unseen`] if it cannot be seen by whom.
    ///
    /// # Session loss
    /// Same as [`Names::claim`].
    ///
    /// # Cancel safety
    /// Same as [`Names::claim`].
    pub async fn claim_now(&self, name: &str) -> Result<NameClaim, ClaimError> {
        loop {
            let lock = self.lock(name)?;
            if let Some(guard) = lock.try_acquire().await? {
                return Ok(NameClaim::new(name, guard));
            }
            // Gone again since, if there is none.
            if let Some(holder) = self.look_at(lock.path()).await? {
                return Err(ClaimError::Taken { name: name.to_owned(), by: Box::new(holder) });
            }
        }
    }

    /// Claims the first of these names that nobody has; `None` if all are taken. Costs one round trip
    /// for each name that it tries.
    ///
    /// # Errors
    /// Same as [`Names::try_claim`].
    ///
    /// # Session loss
    /// Same as [`Names::claim`].
    ///
    /// # Cancel safety
    /// Same as [`Names::claim`].
    pub async fn claim_any<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Option<NameClaim>, ClaimError> {
        for name in names {
            let claim = self.try_claim(name.as_ref()).await?;
            if claim.is_some() {
                return Ok(claim);
            }
        }
        Ok(None)
    }

    /// Who has a name; `None` if nobody does. Costs one round trip. The holder may have lost it since,
    /// so nothing may be done on the strength of this.
    ///
    /// # Errors
    /// [`ClaimError::Unseen`], [`ClaimError::Foreign`], and [`ClaimError::Name`] for one that is too long.
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn holder(&self, name: &str) -> Result<Option<NameHolder>, ClaimError> {
        self.look_at(&node_of(&self.path, name)?).await
    }

    /// The names that are taken, in no order. Costs one round trip.
    ///
    /// # Errors
    /// If the request fails.
    ///
    /// # Session loss
    /// Fails like any [`Reply`](lockkeeper_client::Reply).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn taken(&self) -> Result<Vec<String>, Error> {
        keys_below(&self.client, &self.path).await
    }

    /// The lock on a name, with an owner of its own.
    fn claimed(
        name: &str,
        acquired: Result<ExclusiveGuard, AcquireError>,
    ) -> Result<NameClaim, ClaimError> {
        match acquired {
            Ok(guard) => Ok(NameClaim::new(name, guard)),
            Err(AcquireError::NotEphemeral { node, .. }) => Err(ClaimError::Foreign { node }),
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self, name: &str) -> Result<ExclusiveNode, BuildError> {
        let node = node_of(&self.path, name)?;
        let options = ExclusiveNode::builder(&self.client, node.as_str());
        // Named by the client's ids, so that a simulation can be repeated.
        let owner = Owner::new(self.client.unique_id().to_string());
        let options = options.owner(&owner).waits_for(WaitsFor::Ephemeral).warned(&self.warned);
        match &self.label {
            Some(label) => options.label(label).build(),
            None => options.build(),
        }
    }

    async fn look_at(&self, node: &ZnodePath) -> Result<Option<NameHolder>, ClaimError> {
        loop {
            let error = match self.client.data(node).await {
                Ok((_, stat)) if stat.ephemeral_owner == SessionId::NONE => {
                    return Err(ClaimError::Foreign { node: node.clone() });
                }
                Ok((data, stat)) => {
                    let info = OwnerInfo::from_data(&data);
                    let token = FencingToken::new(stat.czxid);
                    return Ok(Some(NameHolder { info, token, session: stat.ephemeral_owner }));
                }
                Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(None),
                Err(error) => error,
            };

            let unseen = |source| ClaimError::Unseen { node: node.clone(), source };
            retry_anywhere(error).await.map_err(unseen)?;
        }
    }
}

/// The right to one of the [`Names`]. What its holder may believe and do is described at
/// [`Guard`](crate::Guard).
#[must_use = "the name is given back when it is dropped"]
pub struct NameClaim {
    name: String,
    guard: ExclusiveGuard,
}

impl NameClaim {
    fn new(name: &str, guard: ExclusiveGuard) -> Self {
        Self { name: name.to_owned(), guard }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the name back, and waits until a server has confirmed it. Costs two round trips.
    ///
    /// # Errors
    /// Same as [`Guard::release`](crate::Guard::release).
    ///
    /// # Session loss
    /// The release fails; the name was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }
}

offers_guard!(NameClaim, self => &self.guard);
