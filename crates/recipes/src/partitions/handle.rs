//! [`Partitions`]: joining. [`PartitionMember`]: the assignments of a member.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{Client, DefaultAcl, SessionId, ZnodePath};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::for_recipes::node_of;
use tokio::sync::{mpsc, oneshot};

use crate::group::{Group, GroupError, Member};
use crate::partitions::assignment::Assignment;
use crate::partitions::board::Board;
use crate::partitions::book::Book;
use crate::partitions::command::Command;
use crate::partitions::driver::{Driver, MemberTerms};
use crate::partitions::error::PartitionsError;
use crate::partitions::layout::{MemberRecord, PartitionNodes, digest_of_items};
use crate::watch::PresenceError;

/// The default time for the holder of a moving item to finish.
const GRACE: Duration = Duration::from_secs(10);

/// Items that the members of a group share: shards, tenants, parts of a crawl. Each item belongs to one member at a
/// time, and when members come and go, only the necessary items move. Cheap to clone.
///
/// # Guarantees
///
/// - An item has one owner at a time, by lease and by token, whatever the members know of each other. An
///   [`Assignment`] is a guard, which is good until an exact deadline; its loss is reported before another member
///   can have the item.
/// - The tokens of an item grow from owner to owner.
/// - When one of n members leaves, exactly its items move; when one joins, items move to it only: about one in n.
///   The others keep theirs.
/// - The owner of an item that moves has time to finish, and learns of it from [`Assignment::moving`]. The next
///   owner gets the item when it is given back, or that time is over.
/// - An item has an owner, or is about to get one, while a member that has it in its set is in the group; or
///   [`PartitionMember::waited`] has the session of its node.
///
/// # Not guaranteed
///
/// - Members do not have equally many items: hashing decides. Of 1,000 items, each of 10 members has 100, give or
///   take 30.
/// - A member that dies keeps its items until its session ends.
/// - If another client deletes the node of an item, its holder learns of it late, when the event arrives.
/// - Members with different items share nothing with each other, except that an item in both sets has one owner;
///   see [`PartitionMember::members_with_other_items`].
///
/// # Znodes
///
/// - `<path>/members/<name>`, ephemeral, as in a [`Group`]: JSON with the version of the format, the weight, the
///   digest of the items, and the [program](lockkeeper_locks::OwnerInfo).
/// - `<path>/owners/<item>`, ephemeral: the item is held. The item is escaped as a key of
///   [`Locks`](lockkeeper_locks::Locks) is. Its data is JSON with the name of the member.
///
/// `members` and `owners` are container nodes. `docs/rendezvous.md` specifies exactly which member an item belongs
/// to.
///
/// # Cost
///
/// - An item that moves costs 2 writes and 1 event for its next owner. Free items are taken up to 100 in a
///   transaction.
/// - Each owner reads its item's node once with a watch, and twice when it gives the item back.
/// - The heartbeats of a member cost 1 write each, with 1 check in it, for any number of items.
/// - A member that comes or goes costs each member 1 event and 1 read.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Partitions;
///
/// let shards = (0..3).map(|n| format!("shard-{n}"));
/// let partitions = Partitions::builder(&client, "/crawl").items(shards).build()?;
/// let member = partitions.join("host-7").await?;
///
/// let shard = member.next().await?;
/// println!("{} with token {}", shard.item(), shard.token());
/// tokio::select! {
///     // An hour of work.
///     () = async {} => {}
///     until = shard.moving() => println!("another member waits for it; finish until {until}"),
///     reason = shard.lost() => println!("stop at once: {reason}"),
/// }
/// shard.release().await?;
/// member.leave().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "SetPartitioner")]
#[derive(Clone)]
pub struct Partitions {
    client: Client,
    places: PartitionNodes,
    items: Arc<[String]>,
    nodes: Arc<[ZnodePath]>,
    weight: u32,
    grace: Duration,
    settle: Duration,
}

lockkeeper_client::shown_by_path!(Partitions);

/// Options of [`Partitions`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct PartitionsBuilder {
    client: Client,
    path: String,
    items: BTreeSet<String>,
    weight: u32,
    grace: Duration,
    settle: Duration,
}

impl PartitionsBuilder {
    lockkeeper_client::setters! {
        /// Sets the items, of any text. All members should name the same ones. Default: none.
        pub fn items(self, items: impl IntoIterator<Item = impl Into<String>>) =>
            self.items = items.into_iter().map(Into::into).collect();

        /// Sets this member's weight: its share of the items relative to the others, 1 to 100. Default: 1.
        pub fn weight(self, weight: u32) => self.weight = weight;

        /// Sets how long the holder of an item may continue with it when it must move to another member. Default:
        /// 10 seconds.
        pub fn grace(self, grace: Duration) => self.grace = grace;

        /// Sets how long the members must stay the same before items move, so that members that start together do
        /// not move each other's items repeatedly. If the members never stay the same, items move after ten times
        /// as long. Default: 0.
        pub fn settle(self, settle: Duration) => self.settle = settle;

        /// Sets the access control list of the created nodes. Default: that of the client; see [`DefaultAcl`].
        pub fn acl(self, acl: &DefaultAcl) => self.client = self.client.with_default_acl(acl);
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a group, the weight is not from 1 to 100, or an item is too long for the name
    /// of a node.
    pub fn build(self) -> Result<Partitions, PartitionsError> {
        let path = ZnodePath::new(&self.path)?;
        if !self.client.is_own_base(&path) || path.is_root() {
            return Err(PartitionsError::Reserved(path));
        }
        if !(1..=100).contains(&self.weight) {
            return Err(PartitionsError::Weight(self.weight));
        }

        let places = PartitionNodes::new(path);
        let node = |item: &String| {
            let too_long = |source| PartitionsError::Item { item: item.clone(), source };
            node_of(&places.owners, item).map_err(too_long)
        };
        let nodes: Result<Vec<_>, _> = self.items.iter().map(node).collect();
        Ok(Partitions {
            nodes: nodes?.into(),
            client: self.client,
            places,
            items: self.items.into_iter().collect(),
            weight: self.weight,
            grace: self.grace,
            settle: self.settle,
        })
    }
}

impl Partitions {
    /// The options of a set of items at a path such as `/crawl`.
    pub fn builder(client: &Client, path: &str) -> PartitionsBuilder {
        PartitionsBuilder {
            client: client.clone(),
            path: path.to_owned(),
            items: BTreeSet::new(),
            weight: 1,
            grace: GRACE,
            settle: Duration::ZERO,
        }
    }

    /// The path of the partitions.
    pub fn path(&self) -> &ZnodePath {
        &self.places.path
    }

    /// Joins with a name that no other member has. If an earlier run of this program has the name, the member waits
    /// in the background until its session ends; until then it has no items, and waits for none. If that session
    /// still lives after one and a half session timeouts, in which servers end that of a program that died,
    /// [`PartitionMember::next`] fails with [`PartitionsError::Taken`]. Costs as much as [`Group::join`] and
    /// [`Group::watch`].
    ///
    /// # Errors
    /// If the name is not valid for a node, or the node is refused permanently; or no server can be reached for a
    /// session timeout.
    ///
    /// # Cancel safety
    /// When dropped, leaves no node behind.
    ///
    /// # Session loss
    /// Joins with the next session.
    pub async fn join(&self, name: impl Into<String>) -> Result<PartitionMember, PartitionsError> {
        let (me, digest) = (name.into(), digest_of_items(self.items.iter().map(String::as_str)));
        let record = MemberRecord::new(self.weight, digest);
        let group = Group::new(&self.client, self.places.members.as_str());
        let group = group.map_err(PartitionsError::Join)?;
        let joined = group.join(me.clone(), record.to_data(&OwnerInfo::current(None))).await;
        let membership = joined.map_err(PartitionsError::Join)?;
        let members = group.watch().await.map_err(PartitionsError::View)?;

        let book = Book::new(&me, &self.items, self.grace, self.settle);
        let is_taken = membership.presence().is_taken();
        let board = Arc::new(Board::new(book, membership));
        let (commands, asked) = mpsc::unbounded_channel();
        let terms = MemberTerms {
            client: self.client.clone(),
            places: self.places.clone(),
            me: me.clone(),
            nodes: Arc::clone(&self.nodes),
            items: digest,
            board: Arc::clone(&board),
            commands: commands.clone(),
        };
        let driver = Driver::new(terms, is_taken, members.changes(), asked);
        self.client.tokio_runtime().spawn(driver.run());
        Ok(PartitionMember { name: me, board, commands, path: self.places.path.clone() })
    }
}

/// A member of [`Partitions`]. Dropping it leaves in the background: its items are then
/// [moving](Assignment::moving).
#[must_use = "the member leaves when this is dropped"]
pub struct PartitionMember {
    name: String,
    path: ZnodePath,
    board: Arc<Board>,
    commands: mpsc::UnboundedSender<Command>,
}

lockkeeper_client::impl_debug!(PartitionMember, self => path: self.path, name: self.name);

/// An item that belongs to a member, and that another one still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedItem {
    /// The item.
    pub item: String,
    /// The session of its node; [`SessionId::NONE`] if the node was created by hand, and stays until it is deleted.
    pub session: SessionId,
}

impl PartitionMember {
    /// The member's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the next item that this member gets. An item that was not received by a call is given back
    /// automatically when it must move to another member. Makes no request.
    ///
    /// # Errors
    /// [`PartitionsError::Take`] if an item cannot be taken, and [`PartitionsError::Taken`] if another program is
    /// the member of this name: both are tried again, so call `next` again. Other errors are permanent.
    ///
    /// # Session loss
    /// All assignments are lost. The member joins with the next session, and gets items with new tokens.
    ///
    /// # Cancel safety
    /// Safe: no item is lost.
    pub async fn next(&self) -> Result<Assignment, PartitionsError> {
        self.board.next().await
    }

    /// The items that this member holds, received or not, in their order. Makes no request.
    pub fn owned(&self) -> Vec<String> {
        self.board.lock().book.owned().map(str::to_owned).collect()
    }

    /// The items that belong to this member, and that others still hold. Makes no request.
    pub fn waited(&self) -> Vec<WaitedItem> {
        let state = self.board.lock();
        let waited = state.book.waited();
        waited.map(|(item, session)| WaitedItem { item: item.to_owned(), session }).collect()
    }

    /// The members that have other items than this one, or that this version cannot read. They share nothing with
    /// it. There are such members while the items are changed: those that have the new set take an item of both
    /// sets as soon as its owner gives it back. Makes no request.
    pub fn members_with_other_items(&self) -> Vec<Member> {
        self.board.lock().others.clone()
    }

    /// Leaves: this member's items are [moving](Assignment::moving), and others may take them when they are given
    /// back. Returns when all are given back, which takes at most the [grace](PartitionsBuilder::grace) and the
    /// remaining lease. Costs 2 round trips, and 2 for each item that was not received.
    ///
    /// # Errors
    /// If the member's node cannot be deleted, or no server could be reached for a session timeout: then the delete
    /// continues in the background.
    ///
    /// # Session loss
    /// The member has left with its session.
    ///
    /// # Cancel safety
    /// When dropped, the member leaves in the background.
    pub async fn leave(self) -> Result<(), PartitionsError> {
        let (done, is_done) = oneshot::channel();
        // The next owners wait for its items from now on, and get them without delay.
        let membership = self.board.take_membership();
        // If its task has ended, nothing is left to give back.
        let _ = self.commands.send(Command::Leave(Some(done)));
        let left = match membership {
            Some(membership) => membership.leave().await,
            None => Ok(()),
        };
        let _ = is_done.await;
        left.map_err(|error| PartitionsError::Join(GroupError::Join(PresenceError::Request(error))))
    }
}

impl Drop for PartitionMember {
    fn drop(&mut self) {
        // At once, so that the program can join again.
        drop(self.board.take_membership());
        // If its task has ended, the member has left.
        let _ = self.commands.send(Command::Leave(None));
    }
}
