//! The events that programs record when they share data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use lockkeeper::FencingToken;
use serde::{Deserialize, Serialize};

/// An instance of a service as a directory lists it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Listing {
    /// The name of its node.
    pub id: String,
    /// The transaction that created its node.
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

/// The options of a put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Asked {
    /// Its key.
    pub key: Option<String>,
    /// Whether the items of its key are taken in the order of their puts.
    pub in_order: bool,
    /// Its kind; consumers work on a limited number of items of a kind at once.
    pub kind: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Its delay, in milliseconds.
    pub delay_ms: Option<u64>,
    /// When it is due, in milliseconds since 1970 by the server's clock.
    pub due_unix_ms: Option<u64>,
}

/// An operation on a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "as the methods of a queue are called")]
pub enum Fate {
    PutBack,
    Discard,
}

/// An operation of a program on shared data, or a result that it received. `id` is the program's own number for an add;
/// `item` is unique across programs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "fields of one name mean the same in all variants")]
pub enum DataEvent {
    /// It wrote a version of the tree, which is the version of the top node, in this transaction.
    Wrote { zxid: i64, version: i32 },
    /// A cache showed it the tree as of transaction `zxid`; `mzxid` is the transaction that wrote that version.
    Saw { zxid: i64, version: i32, mzxid: i64 },
    /// It begins to add 1 to the counter.
    Adds { id: u64 },
    /// The add was confirmed, with the resulting sum.
    Added { id: u64, after: i64 },
    /// The add was refused. If neither a confirmation nor a refusal follows, the outcome is unknown.
    NotAdded { id: u64 },
    /// It begins to append an item to the list.
    Appends { item: u64 },
    /// The append was confirmed.
    Appended { item: u64 },
    /// The append was refused.
    NotAppended { item: u64 },
    /// The list as last reported to a follower.
    Followed { items: Vec<u64> },
    /// A directory showed it the instances of a service; according to the directory, these were all instances as of
    /// transaction `zxid`.
    Lists { zxid: i64, listings: Vec<Listing> },
    /// A watcher of a group received a view: its name, and the nodes of the members with their tokens. `watcher` is the
    /// program's own number for this watch: a later watch may begin with an older view.
    View { watcher: u64, id: i64, members: BTreeMap<String, FencingToken> },
    /// It begins to publish an edition, `id`, or to republish one; `attempt` is its own number for the operation.
    Publishes { attempt: u64, id: u64 },
    /// The publication was confirmed, with the number of the edition.
    Published { attempt: u64, number: u64 },
    /// It was refused. If neither a confirmation nor a refusal follows, the outcome is unknown.
    NotPublished { attempt: u64 },
    /// A follower received an edition.
    Edition { number: u64, id: u64 },
    /// The editions in the final state: the content of the last one, and the numbers of those that are kept.
    Kept { last: Option<u64>, numbers: Vec<u64> },
    /// From now on, the server's clock shows this value plus the time since the beginning, in milliseconds. A program
    /// that knows the clock only within bounds records the lower and the upper bound.
    ServerClock { unix_ms: i64 },
    /// It puts no more items while this many exist.
    Bounds { items: u32 },
    /// It is about to put an item with options.
    Asks { item: u64, asked: Asked },
    /// It begins to put items into the queue in one transaction.
    Puts { items: Vec<u64> },
    /// The put was confirmed.
    Put { items: Vec<u64> },
    /// The put was refused. If neither a confirmation nor a refusal follows, the outcome is unknown.
    NotPut { items: Vec<u64> },
    /// It begins to put an item again with the id that it was given, because the outcome of the first put is unknown.
    PutsAgain { item: u64 },
    /// The item is already in the queue, or the put was refused.
    NotPutAgain { item: u64 },
    /// As the only consumer, it begins to take an item and lists the queue.
    LooksForItem,
    /// It took an item, for the `tries`-th time. `put` is the transaction that put the item, if items are to be taken
    /// in that order.
    Takes { item: u64, token: u128, tries: u32, put: Option<i64> },
    /// It is about to put an item back with a delay.
    Delays { item: u64, token: u128, delay_ms: u64 },
    /// It begins to end an item that it took with this token.
    Ends { item: u64, token: u128, how: End },
    /// The end was confirmed.
    Ended { item: u64, token: u128 },
    /// The end was refused. If neither a confirmation nor a refusal follows, the outcome is unknown.
    NotEnded { item: u64, token: u128 },
    /// The end was refused because the item was cancelled.
    EndCancelled { item: u64, token: u128 },
    /// It begins to cancel an item; `attempt` is its own number for the operation.
    Cancels { attempt: u64, item: u64 },
    /// The cancellation was confirmed.
    Cancelled { attempt: u64 },
    /// The item did not exist, or the cancellation was refused. If neither a confirmation nor a refusal follows, the
    /// outcome is unknown.
    NotCancelled { attempt: u64 },
    /// A program that waits for the outcome of an item learned that it is done, with the holder's answer, if any.
    Answered { item: u64, answer: Option<u64> },
    /// It begins to remove a value from the queue; `attempt` is its own number for the operation.
    Removes { attempt: u64 },
    /// It removed the value.
    Removed { attempt: u64, item: u64 },
    /// The queue was empty, or the removal was refused. If neither a confirmation nor a refusal follows, the outcome is
    /// unknown.
    NotRemoved { attempt: u64 },
    /// It begins this operation on a dead letter; `attempt` is its own number for the operation.
    Sends { attempt: u64, item: u64, fate: Fate },
    /// The operation was confirmed.
    Sent { attempt: u64 },
    /// The item was no longer a dead letter, or the operation was refused. If neither a confirmation nor a refusal
    /// follows, the outcome is unknown.
    NotSent { attempt: u64 },
    /// Waiting consumers took this many items, which were put one after the other, and this many events woke them.
    Woke { items: usize, events: usize },
    /// The queue is empty in the final state: the items that are dead letters, and those whose end wrote a node.
    Emptied { dead: Vec<u64>, written: Vec<u64> },
    /// It begins to enter the rounds of a barrier as this party; `entry` is its own number for the operation.
    Enters { entry: u64, party: String },
    /// Its session ended during the call, so it may have entered several times.
    EntersAgain { entry: u64 },
    /// Its entry timed out: it has not entered.
    TimedOut { entry: u64 },
    /// It is inside a round with this node, together with these parties.
    Inside { entry: u64, round: u32, token: u128, node: String, parties: Vec<String> },
    /// The nodes of the parties inside a round, according to the round's own node.
    Named { round: u32, nodes: Vec<String> },
    /// Exactly these parties were reported to have died inside.
    Dead { round: u32, parties: Vec<String> },
    /// It drops its entry, or crashes.
    Drops { entry: u64 },
    /// It begins to leave.
    Leaves { entry: u64 },
    /// It has left; with `together`, all others have left too.
    Left { entry: u64, together: bool },
    /// A round that exists in the final state: the nodes of its parties, of the dead ones, and of those that have left.
    RoundRemains {
        round: u32,
        parties: Vec<String>,
        died: Vec<String>,
        is_over: bool,
        left: Vec<String>,
    },
    /// It begins to count down the latch; `attempt` is its own number for the operation.
    CountsDown { attempt: u64 },
    /// The count-down was confirmed, with the remaining count.
    CountedDown { attempt: u64, left: u64 },
    /// The count-down was refused. If neither a confirmation nor a refusal follows, the outcome is unknown.
    NotCountedDown { attempt: u64 },
    /// It begins to close the latch again.
    Resets,
    /// The initial and the remaining count in the final state.
    LatchRemains { from: u64, left: u64 },
    /// It begins to wait until the latch is open.
    AwaitsLatch { attempt: u64 },
    /// The latch was open.
    PassesLatch { attempt: u64 },
    /// The gate is closed until then, or until a program opens it.
    GateIsShut { until: Option<Duration> },
    /// A program begins to open the gate.
    GateOpens,
    /// It begins to wait until the gate is open.
    AwaitsGate { attempt: u64 },
    /// The gate was open.
    PassesGate { attempt: u64 },
    /// It begins to take one of these things of a pool, for a holder with or without a limit; `attempt` is its own
    /// number for the operation. `tries`: without waiting.
    Wants { attempt: u64, only: BTreeSet<String>, holder: Option<(String, u32)>, tries: bool },
    /// Its session ended during the call, so it may have entered the queue several times.
    WantsAgain { attempt: u64 },
    /// It has taken a thing.
    Took { attempt: u64, thing: String, token: u128 },
    /// The waiters for a thing, and the transactions by which they entered, as tokens.
    Stand { attempts: Vec<(u64, u128)> },
    /// The set of things since a transaction, which is shown as a token.
    Offers { version: i32, since: u128, things: Vec<String> },
    /// It has minted these ids with a number, and some between them.
    Minted { number: u32, token: u128, first: i64, last: i64 },
    /// The final state: the sum and the list.
    Remains { sum: i64, items: Vec<u64> },
}

/// Formats as JSON.
impl fmt::Display for DataEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
