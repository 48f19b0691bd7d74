//! Groups: programs that are there, and everybody can see which.
//!
//! ```text
//!   mod          Group: joining, and watching
//!   membership   Membership: being a member
//!   members      Members: the views of a group, as they change
//!   view         who is there at one moment, and the name of that (pure)
//!   member       Member: what is seen of one
//!   layout       how members are named, so that Curator and kazoo programs take part (pure)
//!   error        why a group cannot be joined or seen
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

/// A group at a path: programs that are there, and everybody can see which. Cheap to clone.
///
/// # Guarantees
///
/// - A member is there until it leaves or its session ends, and comes back with the next session.
///   It never writes over another's node.
/// - Every view is the group after one transaction, and has a name ([`ViewId`]). Equal names mean
///   equal members, on every machine. Of two views, the later one has the larger name, unless the
///   servers themselves [go back](Members).
/// - A member that lives, on servers that answer, is in every view that is current.
///
/// # Not guaranteed
///
/// - One client cannot be two members with one id in Curator's layout: the second one is refused.
/// - Two machines may see different views at the same moment. A view may be old by the time that an
///   event takes, and by more while a machine is cut off. A program that must not act on an old
///   view guards the act with a lock.
/// - Views with equal members may have different names: they do if somebody left and came back.
/// - The death of a member is not known at once: its session has to end first.
///
/// # Znodes
///
/// A member is `<group>/<id>`, ephemeral, as Curator's `GroupMember`; its data is what the member
/// tells. `<group>` is a container node. In kazoo's [layouts](GroupLayout), `<group>` is
/// persistent.
///
/// # Cost
///
/// - Joining costs 1 round trip with 1 write and 1 read. Leaving costs 2 round trips and 1 write.
/// - Watching costs 2 round trips to begin, with 1 listing and a read for each member, up to 32 in
///   a request.
/// - Each change costs each watcher 1 event and 1 read, however many members there are, and never a
///   listing. If a member joins or changes its data, that member is read. If one leaves, the
///   group's node is read, whose stat has the name of the view.
/// - A member that [replaces its earlier life](MemberBuilder::replaces) is 2 events when it joins,
///   and 3 to 6 when it replaces, by the version of the node before.
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

/// The options of a [`Group`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct GroupBuilder {
    client: Client,
    path: String,
    layout: GroupLayout,
}

impl GroupBuilder {
    lockkeeper_client::setters! {
        /// How members are named. All members of one group must use the same layout. Default:
        /// [`GroupLayout::CuratorMember`].
        pub fn layout(self, layout: GroupLayout) => self.layout = layout;

        /// The access control list of the members' nodes, and of those that are missing above them.
        /// Default: that of the client; see [`DefaultAcl`].
        pub fn acl(self, acl: &DefaultAcl) => self.client = self.client.with_default_acl(acl);
    }

    /// Makes the group. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a group.
    pub fn build(self) -> Result<Group, GroupError> {
        let path = ZnodePath::new(&self.path)?;
        if !self.client.is_own_base(&path) {
            return Err(GroupError::Reserved(path));
        }
        Ok(Group { client: self.client, path, layout: self.layout })
    }
}

impl Group {
    /// The group at a path such as `/workers`. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a group.
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

    /// Joins with an id, and with data that the other members can read, such as an address: short, as
    /// everybody reads it. If somebody else is there with this id, it waits in the background until
    /// that one has left ([`Membership::state`] says so); see [`Group::member`] for other ways. Costs
    /// what [`PresenceBuilder::start`](crate::PresenceBuilder::start) does.
    ///
    /// # Errors
    /// If no node can be named like that, or is refused for good; or no server can be reached for a session
    /// timeout.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It joins with the next session.
    pub async fn join(
        &self,
        id: impl Into<String>,
        data: impl Into<Bytes>,
    ) -> Result<Membership, GroupError> {
        self.member(id).data(data).join().await
    }

    /// A member that has not joined yet, with options.
    pub fn member(&self, id: impl Into<String>) -> MemberBuilder {
        let (group, id, data) = (self.clone(), id.into(), Bytes::new());
        MemberBuilder { group, id, data, when_taken: WhenTaken::default(), is_ours: None }
    }

    /// Looks who is there, and goes on looking. Needs no membership, and no node for the group. Costs
    /// [two round trips](Group#cost), with a read for each member.
    ///
    /// # Errors
    /// If the group's node may not be read, there are more than can be listed, or no server can be reached
    /// for a session timeout. Servers before 3.6 cannot watch a group.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It begins anew in the next session.
    pub async fn watch(&self) -> Result<Members, GroupError> {
        Members::open(&self.client, &self.path, self.layout).await
    }
}

/// The options of a [`Membership`].
#[derive(Clone)]
#[must_use = "nobody joins before `join`"]
pub struct MemberBuilder {
    group: Group,
    id: String,
    data: Bytes,
    when_taken: WhenTaken,
    is_ours: Option<IsOurs>,
}

impl MemberBuilder {
    lockkeeper_client::setters! {
        /// What the member tells. Default: nothing.
        pub fn data(self, data: impl Into<Bytes>) => self.data = data.into();

        /// What to do when somebody else is there with this id. Default: [`WhenTaken::Wait`].
        pub fn when_taken(self, what: WhenTaken) => self.when_taken = what;

        /// How an earlier life of this program is known by the data of its node: it is replaced at once, in
        /// one transaction, and not waited for. The earlier life must have joined with this option too. It
        /// does nothing in the layouts of kazoo, in which each life has a node of its own: the earlier one
        /// is there until its session ends.
        pub fn replaces(self, is_ours: impl Fn(&[u8]) -> bool + Send + Sync + 'static) =>
            self.is_ours = Some(Arc::new(is_ours));
    }

    /// Joins. Costs what [`Group::join`] does.
    ///
    /// # Errors
    /// As [`Group::join`]; and if somebody is there with this id, under [`WhenTaken::Fail`].
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
