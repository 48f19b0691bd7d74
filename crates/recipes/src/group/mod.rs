//! Groups: which programs are running, visible to all of them.
//!
//! ```text
//!   mod          Group: joining, and watching
//!   membership   Membership: a member in this program
//!   members      Members: the current view of a group, and its changes
//!   view         the members at one moment, and the id of the view (pure)
//!   member       Member: one member in a view
//!   layout       names of members' nodes, in the layouts of Curator and kazoo (pure)
//!   error        why a group cannot be joined or watched
//! ```

mod error;
mod layout;
mod member;
mod members;
mod membership;
mod view;

use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{Client, DefaultAcl, ZnodePath};

use crate::watch::{IsOurs, Presence, WhenTaken};

pub use error::GroupError;
pub use layout::GroupLayout;
pub use member::Member;
pub use members::{GroupUpdate, MemberChanges, Members};
pub use membership::Membership;
pub use view::{GroupView, MemberChange, ViewId};

/// A group at a path: its members are programs that run now. Cheap to clone.
///
/// # Guarantees
///
/// - A member stays until it leaves or its session ends, and comes back with the next session.
///   It never overwrites another member's node.
/// - Every view is the group after one transaction, and has an id ([`ViewId`]). Equal ids mean
///   equal members, on every machine. Of two views, the later one has the larger id, unless the
///   servers return to [an older state](Members).
/// - A live member is in every current view, while servers answer.
///
/// # Not guaranteed
///
/// - One client cannot join twice with one id in Curator's layout: the second member is refused.
/// - Two machines may see different views at the same moment. A view may lag by the latency of an
///   event, and by more while a machine is disconnected. A program that must not act on an old
///   view protects the action with a lock.
/// - Views with equal members may have different ids: they do if a member left and came back.
/// - The death of a member is not known at once: its session has to end first.
///
/// # Znodes
///
/// A member is `<group>/<id>`, ephemeral, as Curator's `GroupMember`; its data is the member's own.
/// `<group>` is a container node. In kazoo's [layouts](GroupLayout), `<group>` is persistent.
///
/// # Cost
///
/// - Joining costs 1 round trip with 1 write and 1 read. Leaving costs 2 round trips and 1 write.
/// - Watching costs 2 round trips at first, with 1 listing and a read for each member, up to 32 in
///   a request.
/// - Each change costs each watcher 1 event and 1 read, for any number of members, and never a
///   listing. If a member joins or changes its data, that member is read. If one leaves, the
///   group's node is read, whose stat has the id of the view.
/// - A member that [replaces an earlier run](MemberBuilder::replaces) causes 2 events when it joins,
///   and 3 to 6 when it replaces, depending on the version of the earlier node.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Group, MemberChange};
///
/// let group = Group::new(&client, "/workers")?;
/// let me = group.join("host-7", "10.0.0.7:80").await?;
///
/// let members = group.watch().await?;
/// let view = members.wait_for(1).await?;
/// let addresses: Vec<_> = view.members().map(|member| member.data).collect();
/// assert_eq!(addresses, ["10.0.0.7:80"]);
///
/// let mut changes = members.changes();
/// me.leave().await?;
/// let update = changes.next().await?;
/// assert!(matches!(&update.changes[..], [MemberChange::Left(member)] if member.id == "host-7"));
/// assert!(update.view.is_empty() && update.view.id() > view.id());
/// # drop((changes, members));
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Group {
    client: Client,
    path: ZnodePath,
    layout: GroupLayout,
}

lockkeeper_client::shown_by_path!(Group);

/// Options of a [`Group`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct GroupBuilder {
    client: Client,
    path: String,
    layout: GroupLayout,
}

impl GroupBuilder {
    lockkeeper_client::setters! {
        /// Sets the layout of members' nodes. All members of one group must use the same one. Default:
        /// [`GroupLayout::CuratorMember`].
        pub fn layout(self, layout: GroupLayout) => self.layout = layout;

        /// Sets the access control list of the members' nodes and of created parents. Default: that of the
        /// client; see [`DefaultAcl`].
        pub fn acl(self, acl: &DefaultAcl) => self.client = self.client.with_default_acl(acl);
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a group.
    pub fn build(self) -> Result<Group, GroupError> {
        let path = ZnodePath::new(&self.path)?;
        if !self.client.is_own_base(&path) {
            return Err(GroupError::Reserved(path));
        }
        Ok(Group { client: self.client, path, layout: self.layout })
    }
}

impl Group {
    /// A group at a path such as `/workers`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a group.
    pub fn new(client: &Client, path: &str) -> Result<Self, GroupError> {
        Self::builder(client, path).build()
    }

    /// The options of a group.
    pub fn builder(client: &Client, path: &str) -> GroupBuilder {
        let (client, path) = (client.clone(), path.to_owned());
        GroupBuilder { client, path, layout: GroupLayout::default() }
    }

    /// The group's path.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// Joins with an id, and with data for the other members, such as an address. Keep the data short, because
    /// all watchers read it. If another member has this id, the call returns, and the member joins in the
    /// background when the other one has left ([`Membership::state`] shows it); [`Group::member`] has other
    /// choices. Costs as much as [`PresenceBuilder::start`](crate::PresenceBuilder::start).
    ///
    /// # Errors
    /// If the id is not valid for a node, or the node is refused permanently; or no server can be reached for a
    /// session timeout.
    ///
    /// # Cancel safety
    /// When dropped, leaves no node behind.
    ///
    /// # Session loss
    /// Joins with the next session.
    pub async fn join(
        &self,
        id: impl Into<String>,
        data: impl Into<Bytes>,
    ) -> Result<Membership, GroupError> {
        self.member(id).data(data).join().await
    }

    /// The options of a member that has not joined yet.
    pub fn member(&self, id: impl Into<String>) -> MemberBuilder {
        let (group, id, data) = (self.clone(), id.into(), Bytes::new());
        MemberBuilder { group, id, data, when_taken: WhenTaken::default(), is_ours: None }
    }

    /// Starts to watch the members. Needs neither a membership nor an existing group. Costs [two round
    /// trips](Group#cost), with a read for each member.
    ///
    /// # Errors
    /// If the group's node may not be read, the group has more nodes than can be listed, or no server can be
    /// reached for a session timeout. Servers before 3.6 cannot watch a group.
    ///
    /// # Cancel safety
    /// When dropped, leaves no node behind.
    ///
    /// # Session loss
    /// Starts over in the next session.
    pub async fn watch(&self) -> Result<Members, GroupError> {
        Members::open(&self.client, &self.path, self.layout).await
    }
}

/// Options of a [`Membership`].
#[derive(Clone)]
#[must_use = "the member does not join before `join`"]
pub struct MemberBuilder {
    group: Group,
    id: String,
    data: Bytes,
    when_taken: WhenTaken,
    is_ours: Option<IsOurs>,
}

impl MemberBuilder {
    lockkeeper_client::setters! {
        /// Sets the member's data. Default: empty.
        pub fn data(self, data: impl Into<Bytes>) => self.data = data.into();

        /// Sets what to do if another member has this id. Default: [`WhenTaken::Wait`].
        pub fn when_taken(self, what: WhenTaken) => self.when_taken = what;

        /// Recognises, by the data of its node, an earlier run of this program: its node is replaced at once in
        /// one transaction, without waiting for its session to end. The earlier run must have joined with this
        /// option too. The option has no effect in the layouts of kazoo, in which each run has its own node: the
        /// earlier node stays until its session ends.
        pub fn replaces(self, is_ours: impl Fn(&[u8]) -> bool + Send + Sync + 'static) =>
            self.is_ours = Some(Arc::new(is_ours));
    }

    /// Joins. Costs what [`Group::join`] does.
    ///
    /// # Errors
    /// As [`Group::join`]; and if another member has this id, with [`WhenTaken::Fail`].
    ///
    /// # Cancel safety
    /// As [`Group::join`].
    ///
    /// # Session loss
    /// As [`Group::join`].
    pub async fn join(self) -> Result<Membership, GroupError> {
        let Group { client, path, layout } = &self.group;
        let (node, data) = layout.place(path, &self.id, self.data, client.unique_id())?;
        let options = Presence::builder(client, node.as_str()).data(data);
        let options = options.when_taken(self.when_taken).parents(layout.parents());
        let options = match self.is_ours {
            Some(is_ours) => options.replaces(move |data| is_ours(data)),
            // One event for each watcher.
            None => options.marked(false),
        };
        let presence = options.start().await.map_err(GroupError::Join)?;
        Ok(Membership::new(self.id, node, presence))
    }
}

lockkeeper_client::impl_debug!(MemberBuilder, self => group: self.group.path, id: self.id);
