//! [`Partitions`]: joining. [`PartitionMember`]: what a member gets.

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

/// How long the holder of an item has to finish when it moves, unless a builder says otherwise.
const GRACE: Duration = Duration::from_secs(10);

/// Items that the members of a group share: shards, tenants, parts of a crawl. Each item belongs to one member at a time, and
/// when members come and go, only the items move that must. Cheap to clone.
///
/// # Guarantees
///
/// - An item has one owner at a time, by lease and by token, whatever the members believe of each other. An
///   [`Assignment`] is a guard, which is good until an exact deadline; its loss is reported before another member can have the
///   item.
/// - The tokens of an item grow from owner to owner.
/// - When one of n members leaves, exactly its items move; when one joins, items move to it only: about one in n. The
///   others go on with theirs.
/// - The owner of an item that moves has a time to finish, and learns it from [`Assignment::moving`]. The next one has the item
///   once it is given back, or that time is over.
/// - An item has an owner, or is about to get one, while a member is there that has it in its set; or
///   [`PartitionMember::waited`] names the session that has its node.
///
/// # Not guaranteed
///
/// - Members do not have equally many items: hashing decides. Of 1,000 items, each of 10 members has 100, give or take 30.
/// - A member that dies has its items until its session ends.
/// - If another client deletes the node of an item, its holder learns it late, as soon as the event arrives.
/// - Members with other items share nothing with each other, except that an item in both sets has one owner; see
///   [`PartitionMember::members_with_other_items`].
///
/// # Znodes
///
/// - `<path>/members/<name>`, ephemeral, as in a [`Group`]: JSON with the number of the format, the weight, the digest of
///   the items, and the [program](lockkeeper_locks::OwnerInfo).
/// - `<path>/owners/<item>`, ephemeral: the item is held. The item is written as [`Locks`](lockkeeper_locks::Locks) writes a
///   key. Its data is JSON with the name of the member.
///
/// `members` and `owners` are container nodes. Which member an item belongs to is said by `docs/rendezvous.md`, byte for byte.
///
/// # Cost
///
/// - An item that moves costs 2 writes and 1 event for its next owner. Items that are free are taken up to 100 in a
///   transaction.
/// - Each owner reads its item's node once with a watch, and twice when it gives the item back.
/// - The heartbeats of a member cost 1 write each, with 1 check in it, however many items it has.
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

/// The options of [`Partitions`].
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
        /// The items, of any text. All members should name the same ones. Default: none.
        pub fn items(self, items: impl IntoIterator<Item = impl Into<String>>) =>
            self.items = items.into_iter().map(Into::into).collect();

        /// How many items this member gets, compared to the others: 1 to 100. Default: 1.
        pub fn weight(self, weight: u32) => self.weight = weight;

        /// How long the holder of an item may go on with it when it is to go to another member. Default: 10 seconds.
        pub fn grace(self, grace: Duration) => self.grace = grace;

        /// For how long the members have to stay the same before items move, so that those that start together do
        /// not move each other's items again and again. A group that never stays the same is waited for ten times as
        /// long. Default: 0.
        pub fn settle(self, settle: Duration) => self.settle = settle;

        /// The access control list of the znodes. Default: that of the client; see [`DefaultAcl`].
        pub fn acl(self, acl: &DefaultAcl) => self.client = self.client.with_default_acl(acl);
    }

    /// Makes the handle. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a group, the weight is not from 1 to 100, or an item is longer than the name of a
    /// node may be.
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
    /// Items to share at a path such as `/crawl`.
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

    /// The path.
    pub fn path(&self) -> &ZnodePath {
        &self.places.path
    }

    /// Joins with a name that no other member has. An earlier life of this program that had the name is waited for in the
    /// background, until its session ends. Until then this member has no items, and waits for none. If the session still lives
    /// after one and a half session timeouts, which is when servers have ended that of a program that died,
    /// [`PartitionMember::next`] fails with [`PartitionsError::Taken`]. Costs what [`Group::join`] and [`Group::watch`] do.
    ///
    /// # Errors
    /// If no node can be named like that, or is refused for good; or no server can be reached for a session timeout.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It joins with the next session.
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

/// A member of [`Partitions`]. Dropping it leaves in the background: what it has is then [moving](Assignment::moving).
#[must_use = "the member leaves when this is dropped"]
pub struct PartitionMember {
    name: String,
    path: ZnodePath,
    board: Arc<Board>,
    commands: mpsc::UnboundedSender<Command>,
}

lockkeeper_client::impl_debug!(PartitionMember, self => path: self.path, name: self.name);

/// An item that belongs to a member, and that another one still has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedItem {
    /// The item.
    pub item: String,
    /// The session of its node; [`SessionId::NONE`] if the node was created by hand, and stays until it is deleted.
    pub session: SessionId,
}

impl PartitionMember {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the next item that this member gets. An item that is not asked for here is given back by itself when it
    /// is to go to another member. Makes no request.
    ///
    /// # Errors
    /// [`PartitionsError::Take`] if an item cannot be taken, and [`PartitionsError::Taken`] if another program is the
    /// member of this name: both are tried again, so call it again. Any other error stays.
    ///
    /// # Session loss
    /// All assignments are lost. The member joins with the next session, and gets items with new tokens.
    ///
    /// # Cancel safety
    /// Safe: no item is lost.
    pub async fn next(&self) -> Result<Assignment, PartitionsError> {
        self.board.next().await
    }

    /// The items that this member has, asked for or not, in their order. Asks no server.
    pub fn owned(&self) -> Vec<String> {
        self.board.lock().book.owned().map(str::to_owned).collect()
    }

    /// The items that belong to this member, and that others still have. Asks no server.
    pub fn waited(&self) -> Vec<WaitedItem> {
        let state = self.board.lock();
        let waited = state.book.waited();
        waited.map(|(item, session)| WaitedItem { item: item.to_owned(), session }).collect()
    }

    /// The members that have other items than this one, or that this version cannot read. They share nothing with it. During
    /// a change of the items there are such members: those that have the new set take an item of both sets as soon as its
    /// owner gives it back. Asks no server.
    pub fn members_with_other_items(&self) -> Vec<Member> {
        self.board.lock().others.clone()
    }

    /// Leaves: what this member has is [moving](Assignment::moving), and others may have it when it is given back. Returns
    /// when all is given back, which takes the [grace](PartitionsBuilder::grace) at most, and then what a holder may still
    /// believe. Costs 2 round trips, and 2 for each item that was not asked for.
    ///
    /// # Errors
    /// If the member's node cannot be deleted, or no server could be reached for a session timeout: it continues in the
    /// background then.
    ///
    /// # Session loss
    /// The member has left with its session.
    ///
    /// # Cancel safety
    /// It leaves in the background.
    pub async fn leave(self) -> Result<(), PartitionsError> {
        let (done, is_done) = oneshot::channel();
        // Others wait for its items then, and have them at once.
        let membership = self.board.take_membership();
        // Without its task, nothing of it is left.
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
        // Without its task, it has left.
        let _ = self.commands.send(Command::Leave(None));
    }
}
