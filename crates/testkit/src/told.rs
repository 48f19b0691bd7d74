//! What programs that share data say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use lockkeeper::FencingToken;
use serde::{Deserialize, Serialize};

/// An instance of a service, as a directory lists it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Listing {
    /// The name of its node.
    pub id: String,
    /// The transaction that made its node.
    pub czxid: i64,
    /// Its weight, which grows with each change.
    pub weight: u32,
}

/// How a consumer ends an item of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "as the methods of an item are called")]
pub enum End {
    Done,
    Retry,
    Bury,
}

/// What a put asks for beside the item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Asked {
    /// Its key.
    pub key: Option<String>,
    /// Whether the items of its key are taken in the order of puts.
    pub in_order: bool,
    /// Its kind, of which consumers work on a few items at once.
    pub kind: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// How much later it is due, in milliseconds.
    pub delay_ms: Option<u64>,
    /// When it is due, in milliseconds since 1970 by the server's clock.
    pub due_unix_ms: Option<u64>,
}

/// What is done to a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "as the methods of a queue are called")]
pub enum Fate {
    PutBack,
    Discard,
}

/// Something that a program did to shared data, or was told of it. `id` is the program's own number for
/// an add, `item` one that nobody else has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "fields of one name mean the same in all variants")]
pub enum Told {
    /// It wrote a version of the tree, which is that of the node at the top, by this transaction.
    Wrote { zxid: i64, version: i32 },
    /// A cache showed it the tree of the transaction `zxid`, as the cache says; `mzxid` is the one that
    /// wrote that version.
    Saw { zxid: i64, version: i32, mzxid: i64 },
    /// It begins to add 1 to the counter.
    Adds { id: u64 },
    /// The add was confirmed, with the sum after it.
    Added { id: u64, after: i64 },
    /// The add was refused. Without this and the one above, nobody knows.
    NotAdded { id: u64 },
    /// It begins to append an item to the list.
    Appends { item: u64 },
    /// That was confirmed.
    Appended { item: u64 },
    /// That was refused.
    NotAppended { item: u64 },
    /// The list, as a follower was told of it last.
    Followed { items: Vec<u64> },
    /// A directory showed it the instances of a service, which were just these after this transaction, as
    /// the directory says.
    Lists { zxid: i64, listings: Vec<Listing> },
    /// A watcher of a group was told a view: its name, and the nodes of the members with their tokens.
    /// `watcher` is its own number for this watch: a later one may begin with an older view.
    View { watcher: u64, id: i64, members: BTreeMap<String, FencingToken> },
    /// It begins to publish an edition, `id`, or one again that was there; `attempt` is its own number for it.
    Publishes { attempt: u64, id: u64 },
    /// That was confirmed, with the number of the edition.
    Published { attempt: u64, number: u64 },
    /// It was refused. Without this and the one above, nobody knows.
    NotPublished { attempt: u64 },
    /// A follower was told of an edition.
    Edition { number: u64, id: u64 },
    /// The editions that there were in the end: what is in the last one, and the numbers of those that are
    /// kept.
    Kept { last: Option<u64>, numbers: Vec<u64> },
    /// From now on, the server's clock shows this and the time that has passed since the beginning, in milliseconds. Who
    /// knows it within bounds says the least and the most.
    ServerClock { unix_ms: i64 },
    /// It puts nothing while there are so many items.
    Bounds { items: u32 },
    /// It is about to put an item with options.
    Asks { item: u64, asked: Asked },
    /// It begins to put items into the queue, all at once.
    Puts { items: Vec<u64> },
    /// That was confirmed.
    Put { items: Vec<u64> },
    /// That was refused. Without this and the one above, nobody knows.
    NotPut { items: Vec<u64> },
    /// It begins to put an item again, by the id that it was given: nobody knows what came of it before.
    PutsAgain { item: u64 },
    /// It is in the queue already, or that was refused.
    NotPutAgain { item: u64 },
    /// It begins to take an item, and nobody else takes any: it lists what is there.
    LooksForItem,
    /// It took an item, the `tries`-th time that it was taken. `put` is the transaction that put it, where items
    /// are to be taken in that order.
    Takes { item: u64, token: u128, tries: u32, put: Option<i64> },
    /// It is about to put an item back, for later.
    Delays { item: u64, token: u128, delay_ms: u64 },
    /// It begins to end an item that it took with this token.
    Ends { item: u64, token: u128, how: End },
    /// That was confirmed.
    Ended { item: u64, token: u128 },
    /// It was refused. Without this and the one above, nobody knows.
    NotEnded { item: u64, token: u128 },
    /// It was refused, as somebody has cancelled the item.
    EndCancelled { item: u64, token: u128 },
    /// It begins to cancel an item; `attempt` is its own number for it.
    Cancels { attempt: u64, item: u64 },
    /// That was confirmed.
    Cancelled { attempt: u64 },
    /// There was none, or that was refused. Without this and the one above, nobody knows.
    NotCancelled { attempt: u64 },
    /// Whoever has asked for an item was told that it is done, and what its holder has answered, if anything.
    Answered { item: u64, answer: Option<u64> },
    /// It begins to take a value out of the queue; `attempt` is its own number for it.
    Removes { attempt: u64 },
    /// It has it.
    Removed { attempt: u64, item: u64 },
    /// There was nothing, or that was refused. Without this and the one above, nobody knows.
    NotRemoved { attempt: u64 },
    /// It begins to do this to an item that is a dead letter; `attempt` is its own number for it.
    Sends { attempt: u64, item: u64, fate: Fate },
    /// That was confirmed.
    Sent { attempt: u64 },
    /// It was no dead letter any more, or that was refused. Without this and the one above, nobody knows.
    NotSent { attempt: u64 },
    /// Consumers that waited took so many items, which were put one after the other. So many events told them.
    Woke { items: usize, events: usize },
    /// The queue was empty in the end: the items that are dead letters, and those whose end wrote a node.
    Emptied { dead: Vec<u64>, written: Vec<u64> },
    /// It begins to enter the rounds of a barrier, as this party; `entry` is its own number for it.
    Enters { entry: u64, party: String },
    /// Its session has ended meanwhile, so that it may have come several times.
    EntersAgain { entry: u64 },
    /// It was told that it has not entered, as it was too late.
    TimedOut { entry: u64 },
    /// It is inside a round, by this node, together with these parties.
    Inside { entry: u64, round: u32, token: u128, node: String, parties: Vec<String> },
    /// The nodes of those who are inside a round, as the round's own node says.
    Named { round: u32, nodes: Vec<String> },
    /// It was told that these have died inside, and nobody else.
    Dead { round: u32, parties: Vec<String> },
    /// It drops what it has, or dies.
    Drops { entry: u64 },
    /// It begins to leave.
    Leaves { entry: u64 },
    /// It has left, and all others have too if `together`.
    Left { entry: u64, together: bool },
    /// A round that is there in the end: the nodes of its parties, of those who have died, and of those who have left.
    RoundRemains {
        round: u32,
        parties: Vec<String>,
        died: Vec<String>,
        is_over: bool,
        left: Vec<String>,
    },
    /// It begins to count down the latch; `attempt` is its own number for it.
    CountsDown { attempt: u64 },
    /// That was confirmed, and so much is left.
    CountedDown { attempt: u64, left: u64 },
    /// That was refused. Without this and the one above, nobody knows.
    NotCountedDown { attempt: u64 },
    /// It begins to close the latch again.
    Resets,
    /// So much is left of what there was.
    LatchRemains { from: u64, left: u64 },
    /// It begins to wait until the latch is open.
    AwaitsLatch { attempt: u64 },
    /// It was.
    PassesLatch { attempt: u64 },
    /// The gate is closed until then, or until somebody opens it.
    GateIsShut { until: Option<Duration> },
    /// Somebody begins to open it.
    GateOpens,
    /// It begins to wait until the gate is open.
    AwaitsGate { attempt: u64 },
    /// It was.
    PassesGate { attempt: u64 },
    /// It begins to take one of these things of a pool, for a holder with a limit or not; `attempt` is its own number for it.
    /// `tries`: without a wait.
    Wants { attempt: u64, only: BTreeSet<String>, holder: Option<(String, u32)>, tries: bool },
    /// Its session has ended meanwhile, so that it may have come several times.
    WantsAgain { attempt: u64 },
    /// It has one.
    Took { attempt: u64, thing: String, token: u128 },
    /// Those who wait for a thing, and the transactions, as tokens, by which they came.
    Stand { attempts: Vec<(u64, u128)> },
    /// The set was this one from a transaction on, which is shown as a token.
    Offers { version: i32, since: u128, things: Vec<String> },
    /// It has minted these ids with a number, and some between them.
    Minted { number: u32, token: u128, first: i64, last: i64 },
    /// What there was in the end: the sum, and the list.
    Remains { sum: i64, items: Vec<u64> },
}

/// As JSON.
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
