//! Names that one program holds at a time, such as `worker-7`, or the name of a host or a tenant.
//!
//! ```text
//!   mod      Names: claiming; NameClaim: a guard
//!   holder   NameHolder: the holder of a name
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

/// Names below one path, each held by one program at a time, such as `worker-7`, or the name of a host or a tenant.
///
/// Claims are independent: a second claim of the same program has to wait too. Cheap to clone.
///
/// # Guarantees
///
/// - A name has one holder at a time, by lease and by token. A claim is a guard with an exact
///   deadline, and its loss is reported before another program can hold the name.
/// - The token of each later claim of a name is larger.
/// - Any text can be a name.
///
/// # Not guaranteed
///
/// - If another client deletes the node, the loss is not reported before another program can hold the name. The next
///   heartbeat reports it, and transactions may be applied until then; see
///   [`Guard::transaction`](crate::Guard::transaction).
/// - Waiters are not ordered: the fastest one gets the name.
/// - A claim is not restored after its session is over. Claim the name again, with a new token, or use
///   a `Presence`, which does not have a token and is restored automatically.
///
/// # Znodes
///
/// `<path>/<name>`, ephemeral, like that of an [`ExclusiveNode`]. Its data is the [`OwnerInfo`] of the
/// holder's program. So the children of `<path>` are the held names. The name is encoded
/// as [`Locks`](crate::Locks) encodes a key. `<path>` is a container node.
///
/// # Cost
///
/// - A claim costs 1 round trip. While another program holds the name, it costs 1 more, and for each
///   release 1 event and 1 round trip, or 2 if another waiter was faster.
/// - A held name costs 1 read with each heartbeat.
/// - A release costs 2 round trips.
/// - Reading the holder of a name, or all held names, costs 1 round trip.
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
/// let holder = names.holder("worker-1").await?.ok_or("not held")?;
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
        /// A label that other programs can read, such as an address. Default: only host, process and
        /// program.
        pub fn label(self, label: impl Into<String>) => self.label = Some(label.into());

        /// The access control list of the names' znodes and of missing parent znodes.
        /// Default: the client's; see [`DefaultAcl`](lockkeeper_client::DefaultAcl).
        pub fn acl(self, acl: &lockkeeper_client::DefaultAcl) =>
            self.client = self.client.with_default_acl(acl);
    }

    /// Builds the handle. No I/O.
    ///
    /// # Errors
    /// If the path is not valid as a parent of names. The rules are those of a lock's path.
    pub fn build(self) -> Result<Names, BuildError> {
        let path = BuildError::check_base(&self.client, &self.path)?;
        Ok(Names { client: self.client, path, label: self.label, warned: Warned::default() })
    }
}

impl Names {
    /// The names below a path such as `/workers`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid as a parent of names.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of the names.
    pub fn builder(client: &Client, path: &str) -> NamesBuilder {
        NamesBuilder { client: client.clone(), path: path.to_owned(), label: None }
    }

    /// The path below which the names are.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// Claims a name, and waits while another program holds it. Costs one round trip if the name is free, and
    /// [more](Names#cost) otherwise.
    ///
    /// # Errors
    /// [`ClaimError::Foreign`] if the path has a node that is not ephemeral, now or later during the wait.
    /// Otherwise the same as [`ExclusiveNode::acquire`].
    ///
    /// # Session loss
    /// Same as [`ExclusiveNode::acquire`]: a waiter continues with the next session.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. A node that was created is deleted in the background.
    pub async fn claim(&self, name: &str) -> Result<NameClaim, ClaimError> {
        Self::claimed(name, self.lock(name)?.acquire().await)
    }

    /// [`Names::claim`] with a time limit: `timeout` covers the whole call. Costs the same as
    /// [`Names::claim`].
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

    /// Claims a name only if it is free; `None` otherwise. Costs one round trip.
    ///
    /// # Errors
    /// Same as [`Names::claim`], except the errors of waiting. Any node at the path counts as a holder.
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

    /// Claims a name, and fails if it is held. Costs one round trip, and one more to read the holder.
    ///
    /// # Errors
    /// Same as [`Names::claim`], [`ClaimError::Taken`], and [`ClaimError::Unseen`] if the holder cannot be read.
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
            // If there is no holder, it has left since.
            if let Some(holder) = self.look_at(lock.path()).await? {
                return Err(ClaimError::Taken { name: name.to_owned(), by: Box::new(holder) });
            }
        }
    }

    /// Claims the first of these names that is free; `None` if all are held. Costs one round trip
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

    /// The holder of a name; `None` if it is free. Costs one round trip. The holder may have lost the name since,
    /// so do not rely on the result in place of a claim.
    ///
    /// # Errors
    /// [`ClaimError::Unseen`], [`ClaimError::Foreign`], and [`ClaimError::Name`] for a name that is too long.
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn holder(&self, name: &str) -> Result<Option<NameHolder>, ClaimError> {
        self.look_at(&node_of(&self.path, name)?).await
    }

    /// The held names, in arbitrary order. Costs one round trip.
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

    /// The result of acquiring the lock on a name, as a claim.
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
        // Named by the client's ids, which makes simulations repeatable.
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
#[must_use = "the name is released when the claim is dropped"]
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

    /// Releases the name, and waits until a server has confirmed it. Costs two round trips.
    ///
    /// # Errors
    /// Same as [`Guard::release`](crate::Guard::release).
    ///
    /// # Session loss
    /// The release fails, because the name was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }
}

offers_guard!(NameClaim, self => &self.guard);
