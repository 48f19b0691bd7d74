//! Groups whose methods wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Error, Instant, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::forward::{same, waits, waits_for_end, waits_mut};
use crate::blocking::runtime::Runtime;
use crate::group::{self, GroupBuilder, GroupError, GroupUpdate, GroupView, MemberBuilder, ViewId};
use crate::token::FencingToken;
use crate::watch::PresenceState;

/// A [`crate::Group`] whose methods wait. What it guarantees and costs is described there. Cheap to
/// clone.
///
/// # Examples
///
/// ```
/// # let (send, servers) = std::sync::mpsc::channel();
/// # let (done, wait) = tokio::sync::oneshot::channel::<()>();
/// # let server = std::thread::spawn(move || {
/// #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// #         let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
/// #         send.send(engine.connect_string()).unwrap();
/// #         wait.await.ok();
/// #     })
/// # });
/// # let servers = servers.recv()?;
/// use lockkeeper::blocking::{Client, Group};
///
/// let client = Client::connect(&servers)?;
/// let group = Group::new(&client, "/workers")?;
/// let members = group.watch()?;
/// let me = group.join("host-7", "10.0.0.7:80")?;
/// assert!(members.wait_for(1)?.member("host-7").is_some());
///
/// let mut changes = members.changes();
/// me.leave()?;
/// assert!(changes.next()?.view.is_empty());
/// # drop((changes, members, group, client));
/// # done.send(()).ok();
/// # server.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    inner: group::Group,
    runtime: Arc<Runtime>,
}

impl Group {
    /// As [`crate::Group::new`]. No I/O.
    ///
    /// # Errors
    /// As [`crate::Group::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, GroupError> {
        Self::build(client, Self::builder(client, path))
    }

    /// The options of a group, for [`Group::build`].
    pub fn builder(client: &Client, path: &str) -> GroupBuilder {
        group::Group::builder(client.as_async(), path)
    }

    /// As [`GroupBuilder::build`]. The options must be of the same client. No I/O.
    ///
    /// # Errors
    /// As [`GroupBuilder::build`].
    pub fn build(client: &Client, options: GroupBuilder) -> Result<Self, GroupError> {
        Ok(Self { inner: options.build()?, runtime: Arc::clone(&client.runtime) })
    }

    /// The group for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &group::Group {
        &self.inner
    }

    /// As [`crate::Group::join`], and waits.
    ///
    /// # Errors
    /// As [`crate::Group::join`].
    pub fn join(
        &self,
        id: impl Into<String>,
        data: impl Into<Bytes>,
    ) -> Result<Membership, GroupError> {
        self.join_with(self.member(id).data(data))
    }

    /// The options of a member, for [`Group::join_with`].
    pub fn member(&self, id: impl Into<String>) -> MemberBuilder {
        self.inner.member(id)
    }

    /// As [`MemberBuilder::join`], and waits. The options must be of the same client.
    ///
    /// # Errors
    /// As [`MemberBuilder::join`].
    pub fn join_with(&self, options: MemberBuilder) -> Result<Membership, GroupError> {
        let inner = self.runtime.wait(options.join())?;
        Ok(Membership { inner, runtime: Arc::clone(&self.runtime) })
    }

    /// As [`crate::Group::watch`], and waits.
    ///
    /// # Errors
    /// As [`crate::Group::watch`].
    pub fn watch(&self) -> Result<Members, GroupError> {
        let inner = self.runtime.wait(self.inner.watch())?;
        Ok(Members { inner, runtime: Arc::clone(&self.runtime) })
    }
}

same! { Group, "Group": path() -> &ZnodePath; }

/// As [`crate::Membership`].
#[must_use = "the member leaves when this is dropped"]
#[derive(Debug)]
pub struct Membership {
    // Dropped before the runtime, which deletes its node.
    inner: group::Membership,
    runtime: Arc<Runtime>,
}

impl Membership {
    /// Waits until the state differs from `last`, and gives it.
    pub fn wait_changed(&self, last: &PresenceState) -> PresenceState {
        self.runtime.wait_changed(self.inner.changes(), last)
    }
}

same! { Membership, "Membership":
    id() -> &str;
    node() -> &ZnodePath;
    token() -> Option<FencingToken>;
    state() -> PresenceState;
}

waits_for_end! { Membership, "Membership": leave() -> Result<(), Error>; }

/// As [`crate::Members`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Members {
    // Dropped before the runtime, which ends its watch.
    inner: group::Members,
    runtime: Arc<Runtime>,
}

impl Members {
    /// As [`crate::Members::changes`].
    pub fn changes(&self) -> MemberChanges {
        MemberChanges { inner: self.inner.changes(), runtime: Arc::clone(&self.runtime) }
    }
}

same! { Members, "Members":
    view() -> GroupView;
    view_id() -> ViewId;
    is_current() -> bool;
    as_of() -> Instant;
    ended() -> Option<GroupError>;
}

waits! { Members, "Members":
    wait_for(n: usize) -> Result<GroupView, GroupError>;
    wait_for_timeout(n: usize, timeout: Duration) -> Result<Option<GroupView>, GroupError>;
}

/// As [`crate::MemberChanges`].
#[derive(Debug)]
pub struct MemberChanges {
    inner: group::MemberChanges,
    runtime: Arc<Runtime>,
}

same! { MemberChanges, "MemberChanges": view() -> GroupView; }

waits_mut! { MemberChanges, "MemberChanges":
    #[expect(clippy::should_implement_trait, reason = "the name that the async side has")]
    next() -> Result<GroupUpdate, GroupError>;
}
