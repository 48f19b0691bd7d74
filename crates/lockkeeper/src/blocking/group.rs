//! Groups whose methods wait.
//!
//! ```
//! # let (send, servers) = std::sync::mpsc::channel();
//! # let (done, wait) = tokio::sync::oneshot::channel::<()>();
//! # let server = std::thread::spawn(move || {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! #         let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
//! #         send.send(engine.connect_string()).unwrap();
//! #         wait.await.ok();
//! #     })
//! # });
//! # let servers = servers.recv()?;
//! use lockkeeper::blocking::{Client, Group};
//!
//! let client = Client::connect(&servers)?;
//! let group = Group::new(&client, "/workers")?;
//! let members = group.watch()?;
//! let me = group.join("host-7", "10.0.0.7:80")?;
//! assert!(members.wait_for(1)?.member("host-7").is_some());
//!
//! let mut changes = members.changes();
//! me.leave()?;
//! assert!(changes.next()?.view.is_empty());
//! # drop((changes, members, group, client));
//! # done.send(()).ok();
//! # server.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Error, Instant, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::runtime::Runtime;
use crate::group::{self, GroupBuilder, GroupError, GroupUpdate, GroupView, MemberBuilder, ViewId};
use crate::token::FencingToken;
use crate::watch::PresenceState;

/// As [`crate::Group`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Group {
    group: group::Group,
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
        Ok(Self { group: options.build()?, runtime: Arc::clone(&client.runtime) })
    }

    /// The group for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &group::Group {
        &self.group
    }

    /// As [`crate::Group::path`].
    pub fn path(&self) -> &ZnodePath {
        self.group.path()
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
        self.group.member(id)
    }

    /// As [`MemberBuilder::join`], and waits. The options must be of the same client.
    ///
    /// # Errors
    /// As [`MemberBuilder::join`].
    pub fn join_with(&self, options: MemberBuilder) -> Result<Membership, GroupError> {
        let membership = self.runtime.wait(options.join())?;
        Ok(Membership { membership, runtime: Arc::clone(&self.runtime) })
    }

    /// As [`crate::Group::watch`], and waits.
    ///
    /// # Errors
    /// As [`crate::Group::watch`].
    pub fn watch(&self) -> Result<Members, GroupError> {
        let members = self.runtime.wait(self.group.watch())?;
        Ok(Members { members, runtime: Arc::clone(&self.runtime) })
    }
}

/// As [`crate::Membership`].
#[must_use = "the member leaves when this is dropped"]
#[derive(Debug)]
pub struct Membership {
    // Dropped before the runtime, which deletes its node.
    membership: group::Membership,
    runtime: Arc<Runtime>,
}

impl Membership {
    /// As [`crate::Membership::id`].
    pub fn id(&self) -> &str {
        self.membership.id()
    }

    /// As [`crate::Membership::node`].
    pub fn node(&self) -> &ZnodePath {
        self.membership.node()
    }

    /// As [`crate::Membership::token`].
    pub fn token(&self) -> Option<FencingToken> {
        self.membership.token()
    }

    /// As [`crate::Membership::state`].
    pub fn state(&self) -> PresenceState {
        self.membership.state()
    }

    /// Waits until the state differs from `last`, and gives it.
    pub fn wait_changed(&self, last: &PresenceState) -> PresenceState {
        self.runtime.wait_changed(self.membership.changes(), last)
    }

    /// As [`crate::Membership::leave`], and waits.
    ///
    /// # Errors
    /// As [`crate::Membership::leave`].
    pub fn leave(self) -> Result<(), Error> {
        let Self { membership, runtime } = self;
        runtime.wait(membership.leave())
    }
}

/// As [`crate::Members`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Members {
    // Dropped before the runtime, which ends its watch.
    members: group::Members,
    runtime: Arc<Runtime>,
}

impl Members {
    /// As [`crate::Members::view`].
    pub fn view(&self) -> GroupView {
        self.members.view()
    }

    /// As [`crate::Members::view_id`].
    pub fn view_id(&self) -> ViewId {
        self.members.view_id()
    }

    /// As [`crate::Members::is_current`].
    pub fn is_current(&self) -> bool {
        self.members.is_current()
    }

    /// As [`crate::Members::as_of`].
    pub fn as_of(&self) -> Instant {
        self.members.as_of()
    }

    /// As [`crate::Members::ended`].
    pub fn ended(&self) -> Option<GroupError> {
        self.members.ended()
    }

    /// As [`crate::Members::wait_for`].
    ///
    /// # Errors
    /// As [`crate::Members::wait_for`].
    pub fn wait_for(&self, n: usize) -> Result<GroupView, GroupError> {
        self.runtime.wait(self.members.wait_for(n))
    }

    /// As [`crate::Members::wait_for_timeout`].
    ///
    /// # Errors
    /// As [`crate::Members::wait_for_timeout`].
    pub fn wait_for_timeout(
        &self,
        n: usize,
        timeout: Duration,
    ) -> Result<Option<GroupView>, GroupError> {
        self.runtime.wait(self.members.wait_for_timeout(n, timeout))
    }

    /// As [`crate::Members::changes`].
    pub fn changes(&self) -> MemberChanges {
        MemberChanges { changes: self.members.changes(), runtime: Arc::clone(&self.runtime) }
    }
}

/// As [`crate::MemberChanges`].
#[derive(Debug)]
pub struct MemberChanges {
    changes: group::MemberChanges,
    runtime: Arc<Runtime>,
}

impl MemberChanges {
    /// As [`crate::MemberChanges::view`].
    pub fn view(&self) -> GroupView {
        self.changes.view()
    }

    /// As [`crate::MemberChanges::next`], and waits.
    ///
    /// # Errors
    /// As [`crate::MemberChanges::next`].
    #[expect(clippy::should_implement_trait, reason = "the name that the async side has")]
    pub fn next(&mut self) -> Result<GroupUpdate, GroupError> {
        self.runtime.wait(self.changes.next())
    }
}
