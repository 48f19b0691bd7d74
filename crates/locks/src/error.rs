//! What can go wrong.

use std::time::Duration;

use lockkeeper_client::{
    Client, Contact, Error, ErrorCode, Outcome, PathError, Sequence, ServiceError,
    TransactionError, ZnodePath,
};

use crate::beside::is_beside_a_lock;
use crate::profile::{Profile, Usage};

/// Why a lock cannot be made as it was described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// It is no path.
    #[error("{0}; name a path like /locks/orders")]
    Path(#[from] PathError),
    /// It is `/`.
    #[error("'/' cannot be a lock or an election; name a path below it, like /locks/orders")]
    Root,
    /// It is `/zookeeper` or below it, where the server keeps its quotas and its configuration; below a chroot
    /// that is an ordinary name.
    #[error("{0} is the server's own; name a path outside of /zookeeper, like /locks/orders")]
    Reserved(ZnodePath),
    /// It is, or is below, a node that keeps something for the contenders of a lock.
    #[error(
        "{0} is where Lockkeeper keeps what belongs to another lock; name a path like /locks/orders"
    )]
    Beside(ZnodePath),
    /// No path was given where at least one is needed.
    #[error("no lock was named; name at least one, like /locks/orders")]
    None,
    /// A lock's key is longer than servers take.
    #[error("the key needs {bytes} bytes as a name, and {most} are possible; use a hash of it")]
    KeyTooLong {
        /// How long the name would be.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// The same lock was named twice, and would wait for itself.
    #[error("{0} was named twice; name each lock once")]
    Repeated(ZnodePath),
    /// A semaphore of 0 permits, which nobody could ever acquire.
    #[error("{0} cannot be a semaphore of 0 permits; give it at least 1")]
    NoPermits(ZnodePath),
    /// A semaphore of more permits than Curator's programs can count.
    #[error("{path} can have {most} permits at most, as Curator's programs count them in 31 bits")]
    TooManyPermits {
        /// The semaphore.
        path: ZnodePath,
        /// How many permits it may have.
        most: u32,
    },
}

impl BuildError {
    /// The path, if a lock can be there.
    pub(crate) fn check(client: &Client, path: &str) -> Result<ZnodePath, BuildError> {
        match Self::check_base(client, path) {
            // There is nothing beside it.
            Ok(path) if path.is_root() => Err(BuildError::Root),
            checked => checked,
        }
    }

    /// The same if locks can be below it.
    pub(crate) fn check_base(client: &Client, path: &str) -> Result<ZnodePath, BuildError> {
        let path = ZnodePath::new(path)?;
        if client.is_servers_own(&path) {
            return Err(BuildError::Reserved(path));
        }
        if !client.is_own_base(&path) {
            return Err(BuildError::Root);
        }
        if path.as_str().split('/').any(is_beside_a_lock) {
            return Err(BuildError::Beside(path));
        }
        Ok(path)
    }
}

/// Why a lock was not acquired. Nothing of the attempt is left behind, or it is about to be
/// deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// It did not become free in time, or no server could be asked whether it is.
    #[error("{}", too_late(path, *waited, *is_connected))]
    Timeout {
        /// The lock.
        path: ZnodePath,
        /// The time that was allowed.
        waited: Duration,
        /// Whether there was a connection at the end of it. Without one, nobody knows whether the lock was
        /// free.
        is_connected: bool,
    },
    /// There are nodes that are not contenders of this kind of lock and profile, so the order of the
    /// queue is unknown. [`Usage::of`](crate::Usage::of) tells what its `names` are.
    #[error("{}", in_the_way(path, *profile, names))]
    Foreign {
        /// The lock.
        path: ZnodePath,
        /// The profile of this lock.
        profile: Profile,
        /// The names of the nodes.
        names: Vec<String>,
    },
    /// The node at the path, or one above it, is ephemeral, so it can have no contenders below it: a program
    /// holds it as an [`ExclusiveNode`](crate::ExclusiveNode) or a name, or uses it for another purpose.
    #[error(
        "{path} is held as one znode, or is below such a lock, so it has no queue; see who holds it with \
         `lockkeeper show`, and use one kind of lock, or another path"
    )]
    IsNode {
        /// The lock.
        path: ZnodePath,
    },
    /// The lock is taken by a node that is not ephemeral: no session's end deletes it, so a wait for
    /// its deletion might never end. No library creates one with the names of Curator or of our own; kazoo
    /// can, so with [`Profile::Kazoo`] it is waited for.
    #[error(
        "{path} is taken by {node}, which is not ephemeral: it does not go with a session; delete \
         it if no program uses it"
    )]
    NotEphemeral {
        /// The lock.
        path: ZnodePath,
        /// The node.
        node: ZnodePath,
    },
    /// The parent's numbers are about to overflow, after which libraries disagree on the order.
    #[error(
        "{path} has given out its number {sequence} of 2147483647; delete the node when the queue \
         is empty, or use another path"
    )]
    Exhausted {
        /// The lock.
        path: ZnodePath,
        /// The number that the attempt got.
        sequence: Sequence,
    },
    /// Another client deleted the contender's node while it waited.
    #[error("{node} was deleted by another client while it waited; acquire again to queue anew")]
    NodeDeleted {
        /// The contender's node.
        node: ZnodePath,
    },
    /// The session expired while the contender waited.
    #[error("the session expired while waiting for {path}; acquire again to queue anew")]
    SessionExpired {
        /// The lock.
        path: ZnodePath,
    },
    /// No server could be reached for a whole session timeout.
    #[error("no server could be reached for a whole session timeout while waiting for {path}")]
    Unreachable {
        /// The lock.
        path: ZnodePath,
    },
    /// The client is closed: by this program, as the runtime in which it was connected has ended, or after a
    /// server refused its credentials.
    #[error("{path} cannot be acquired with a client that is closed; connect another one")]
    ClientClosed {
        /// The lock.
        path: ZnodePath,
    },
    /// Attempt after attempt met a lost connection, the end of the session, a server that refused it for
    /// now, or another program that deleted or changed a znode just then.
    #[error(
        "gave up on {path} after {attempts} attempts, in each of which the connection or the session was \
         lost, a server was busy, or another program deleted or changed a znode just then; acquire again"
    )]
    GaveUp {
        /// The lock.
        path: ZnodePath,
        /// How many attempts there were.
        attempts: u32,
    },
    /// More permits were asked for than the semaphore has.
    #[error("{wanted} permits of {path} can never be had at once, as it has only {permits}")]
    TooMany {
        /// The semaphore.
        path: ZnodePath,
        /// How many were asked for.
        wanted: u32,
        /// How many there are.
        permits: u32,
    },
    /// The semaphore has another number of permits than this handle was made with.
    #[error(
        "{path} has {stored} permits, not {permits}: all programs must use the same number; use {stored}, \
         change the stored number with `set_permits`, or accept it with `accept_other_permits`"
    )]
    OtherPermits {
        /// The semaphore.
        path: ZnodePath,
        /// How many this handle was made with.
        permits: u32,
        /// How many there are.
        stored: u32,
    },
    /// 0 permits were asked for.
    #[error("0 permits of {path} were asked for; ask for at least 1")]
    NoPermits {
        /// The semaphore.
        path: ZnodePath,
    },
    /// Where the number of permits should be, there is something else.
    #[error(
        "{node} holds {found:?} and not a number of permits; use a path of its own for the \
         semaphore, or the profile of the programs that made the node"
    )]
    BadPermits {
        /// The node whose data should say how many permits there are.
        node: ZnodePath,
        /// What it says.
        found: String,
    },
    /// What was held, and was to be held in another way, is lost.
    #[error("{path} was lost before it could be held in another way: {reason}")]
    Lost {
        /// The lock.
        path: ZnodePath,
        /// Why it is lost.
        reason: LossReason,
    },
    /// The lock was free, and several proofs in a row that it is held were answered so late that too little
    /// of the lease was left.
    #[error(
        "{path} cannot be held: a server took {took:?} to prove it, and earlier proofs as long, where \
         {most:?} are too much for this session timeout; check the load of the servers, the network and \
         this machine, or use a longer session timeout"
    )]
    LeaseTooShort {
        /// The lock.
        path: ZnodePath,
        /// How long the last proof took.
        took: Duration,
        /// How long one may take: [`Timing::slowest_answer`](lockkeeper_client::Timing::slowest_answer).
        most: Duration,
    },
    /// The owner had entered before, and has lost the lock since.
    #[error("the owner has lost {path}: {reason}; {}", entries_are_left(*reason))]
    OwnerLost {
        /// The lock.
        path: ZnodePath,
        /// Why it was lost.
        reason: LossReason,
    },
    /// The servers of the connection string are not one service, or, with
    /// [`ClientBuilder::strict_servers`](lockkeeper_client::ClientBuilder::strict_servers), are not known to be one.
    #[error("cannot acquire {path}: {source}")]
    Servers {
        /// The lock.
        path: ZnodePath,
        /// What is wrong with the servers.
        source: ServiceError,
    },
    /// A transaction was refused.
    #[error("cannot acquire {path}: {source}")]
    Refused {
        /// The lock.
        path: ZnodePath,
        /// What was refused.
        source: TransactionError,
    },
    /// A request failed.
    #[error("cannot acquire {path}: {source}")]
    Client {
        /// The lock.
        path: ZnodePath,
        /// What failed.
        source: Error,
    },
}

impl AcquireError {
    /// Whether acquiring again may succeed without anything being changed first.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::NodeDeleted { .. }
            | Self::SessionExpired { .. }
            | Self::Unreachable { .. }
            | Self::GaveUp { .. }
            | Self::LeaseTooShort { .. } => true,
            Self::Client { source, .. } => source.is_retryable(),
            Self::Lost { reason, .. } => *reason != LossReason::ClientClosed,
            Self::Servers { source, .. } => matches!(source, ServiceError::Unproven { .. }),
            Self::ClientClosed { .. }
            | Self::Foreign { .. }
            | Self::IsNode { .. }
            | Self::NotEphemeral { .. }
            | Self::Exhausted { .. }
            | Self::OwnerLost { .. }
            | Self::Refused { .. }
            | Self::TooMany { .. }
            | Self::OtherPermits { .. }
            | Self::NoPermits { .. }
            | Self::BadPermits { .. } => false,
        }
    }

    /// Whether something of the attempt may be on the server still; it will be deleted as soon as
    /// the session can talk to one.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NodeDeleted { .. }
            | Self::IsNode { .. }
            | Self::OwnerLost { .. }
            | Self::NoPermits { .. } => Outcome::NotApplied,
            // Its node may have been created before, by this session or the one that followed it.
            Self::Timeout { .. }
            | Self::SessionExpired { .. }
            | Self::Unreachable { .. }
            | Self::ClientClosed { .. }
            | Self::Foreign { .. }
            | Self::NotEphemeral { .. }
            | Self::Exhausted { .. }
            | Self::GaveUp { .. }
            | Self::Lost { .. }
            | Self::LeaseTooShort { .. }
            | Self::TooMany { .. }
            | Self::OtherPermits { .. }
            | Self::BadPermits { .. }
            | Self::Servers { .. }
            | Self::Refused { .. }
            | Self::Client { .. } => Outcome::Unknown,
        }
    }

    /// Whether an attempt whose caller has given more time is to be made again: nothing but an outage, or
    /// what other programs did just then, was in its way.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::GaveUp { .. } => true,
            Self::Client { source, .. } => source.is_retryable(),
            Self::Servers { .. } => self.is_retryable(),
            _ => false,
        }
    }

    /// Turns the error of a request into one about the lock.
    pub(crate) fn from_client(path: &ZnodePath, source: Error) -> Self {
        let path = path.clone();
        if source.is_session_expired() {
            Self::SessionExpired { path }
        } else if source.is_unreachable() {
            Self::Unreachable { path }
        } else if source.is_closed() {
            Self::ClientClosed { path }
        } else if source.code() == Some(ErrorCode::NoChildrenForEphemerals) {
            Self::IsNode { path }
        } else {
            Self::Client { path, source }
        }
    }

    /// The servers are not one service.
    pub(crate) fn from_service(path: &ZnodePath, source: ServiceError) -> Self {
        match source {
            ServiceError::NodeGone { node } => Self::NodeDeleted { node },
            source => Self::Servers { path: path.clone(), source },
        }
    }

    /// The session in which the lock was waited for is over.
    pub(crate) fn session_ended(client: &Client, path: &ZnodePath) -> Self {
        let path = path.clone();
        match client.is_closed() {
            true => Self::ClientClosed { path },
            false => Self::SessionExpired { path },
        }
    }

    /// What an attempt that does not wait says while a task of this program is in its way.
    pub(crate) fn unless_closed<T>(client: &Client, path: &ZnodePath) -> Result<Option<T>, Self> {
        match client.is_closed() {
            true => Err(Self::ClientClosed { path: path.clone() }),
            false => Ok(None),
        }
    }

    /// The time to wait is over.
    pub(crate) fn timeout(client: &Client, path: &ZnodePath, waited: Duration) -> Self {
        let is_connected = client.contact() == Contact::Connected;
        Self::Timeout { path: path.clone(), waited, is_connected }
    }
}

/// What a wait that took too long was for.
fn too_late(path: &ZnodePath, waited: Duration, is_connected: bool) -> String {
    match is_connected {
        true => format!(
            "{path} was not acquired within {waited:?}; see who holds it with `lockkeeper show {path}`"
        ),
        false => format!(
            "{path} was not acquired within {waited:?}, and there is no connection to a server; check that \
             the servers run and can be reached"
        ),
    }
}

/// What an owner that has lost a lock is to do before it acquires it again.
fn entries_are_left(reason: LossReason) -> &'static str {
    match reason {
        LossReason::ClientClosed => "connect another one",
        _ => "release its entries before acquiring it again",
    }
}

/// What is where the contenders of a lock should be.
fn in_the_way(path: &ZnodePath, own: Profile, names: &[String]) -> String {
    let listed = listed(names);
    match Usage::of(names) {
        Some((profile, usage)) if profile != own => format!(
            "{path} is in use as {usage} with the profile {profile:?} ({listed}), and this lock has \
             the profile {own:?}; use one profile, or another path"
        ),
        Some((_, usage)) => format!(
            "{path} is in use as {usage} ({listed}), which is another kind of lock; use the same \
             kind, or another path"
        ),
        None => format!(
            "{path} has children that are not contenders ({listed}); use a path of its own for each lock \
             and each election, with nothing else below it"
        ),
    }
}

/// The first of some names: there may be thousands.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Why a lock is no longer held. Once lost, a guard never becomes valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The servers ended the session.
    #[error("the session expired")]
    SessionExpired,
    /// The lease was not renewed in time; the servers may have ended the session since.
    #[error("the lease ran out before a server could renew it")]
    DeadlinePassed,
    /// Another client deleted the holder's node; or one with the session's identity ended the session before
    /// its lease had run out.
    #[error("the holder's node was deleted by another client")]
    NodeDeleted,
    /// The servers refused to check the holder's node, so nothing can prove that it is there: its access
    /// control list does not let this client read it.
    #[error("the servers do not let this client check the holder's node")]
    CheckRefused,
    /// Another client asked for the lock, and then took it by force.
    #[error("it was taken by force, after a request to give it back")]
    Revoked,
    /// The client was closed.
    #[error("the client was closed")]
    ClientClosed,
    /// The holder gave it back, and this handle of it is left over: the work of
    /// [`Election::lead`](crate::Election::lead) has ended.
    #[error("the holder has released it")]
    Released,
    /// It was held for longer than its user allows: `max_run` of a queue.
    #[error("it was held for longer than it may be")]
    HeldTooLong,
}

const IN_JEOPARDY: &str = "its lease ran out, and no server has proven it since";

/// A lock does not hold for as long as is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnsureError {
    /// It is lost.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// It is in [jeopardy](crate::State::Jeopardy).
    #[error("nobody knows whether the lock is still held: {}", IN_JEOPARDY)]
    Jeopardy,
    /// The lease ends too soon. Verify the guard to renew it, or wait for the next heartbeat.
    #[error("the lease lasts for {left:?} more, less than the {wanted:?} that are needed")]
    TooShort {
        /// What is left.
        left: Duration,
        /// What was asked for.
        wanted: Duration,
    },
}

/// It is not certain that a lock is held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// It is lost.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// It is in [jeopardy](crate::State::Jeopardy).
    #[error("nobody knows whether the lock is still held: {}", IN_JEOPARDY)]
    Jeopardy,
    /// No server confirmed it; the guard may be valid until its deadline.
    #[error("the lock could not be verified: {0}")]
    Unknown(#[from] Error),
    /// A server refused to check the holder's node, so nobody confirmed it; the guard may be valid until its
    /// deadline.
    #[error("the lock could not be verified: {0}")]
    Refused(TransactionError),
}

/// A release was not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before; others may have held it since.
    #[error("the lock had been lost before it was released: {0}")]
    Lost(LossReason),
    /// No server has confirmed it yet. It goes on in the background until one does or the session
    /// is over.
    #[error("the release is not confirmed yet: {0}")]
    Unconfirmed(#[from] Error),
    /// There was nothing to release.
    #[error(
        "{path} is not held by {owner}; {}",
        holder.as_ref().map_or("nobody holds it".to_owned(), |holder| format!("{holder} holds it"))
    )]
    NotHeld {
        /// The lock.
        path: ZnodePath,
        /// Who wanted to release it.
        owner: String,
        /// Who holds it, if anybody does.
        holder: Option<String>,
    },
}

/// The number of a semaphore's permits was not changed, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetPermitsError {
    /// With this profile each program has a number of its own.
    #[error(
        "the number of permits of {path} is a convention of the programs that use it, which \
         read it once: change it in all of them"
    )]
    Fixed {
        /// The semaphore.
        path: ZnodePath,
    },
    /// The number was to be 0.
    #[error("the number of permits of {path} cannot be 0, as nobody could ever acquire one")]
    Zero {
        /// The semaphore.
        path: ZnodePath,
    },
    /// The number was to be larger than Curator's programs can count.
    #[error("{path} can have {most} permits at most, as Curator's programs count them in 31 bits")]
    TooMany {
        /// The semaphore.
        path: ZnodePath,
        /// How many permits it may have.
        most: u32,
    },
    /// A request failed.
    #[error("cannot change the number of permits: {0}")]
    Client(#[from] Error),
}

/// Why it cannot be seen who leads an election.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// There are nodes that are no candidates, so nobody can say who is first.
    #[error(
        "{path} has children that are not candidates: {}; use a path of its own for the election, or \
         the layout of the programs that made them",
        listed(names)
    )]
    Foreign {
        /// The election.
        path: ZnodePath,
        /// The names of the nodes.
        names: Vec<String>,
    },
    /// The first node is not ephemeral, so no candidate's session owns it and nobody leads before it is
    /// deleted. With [`ElectionLayout::Kazoo`](crate::ElectionLayout::Kazoo) it is a candidate: kazoo can
    /// create such nodes.
    #[error(
        "nobody leads {path} before {node} is deleted: it is not ephemeral, so it is not a candidate's; \
         delete it if no program uses it"
    )]
    NotEphemeral {
        /// The election.
        path: ZnodePath,
        /// The node.
        node: ZnodePath,
    },
    /// A request was refused, or the client was closed.
    #[error("cannot see who leads {path}: {source}")]
    Client {
        /// The election.
        path: ZnodePath,
        /// What failed.
        source: Error,
    },
}

/// A leader's value was not proclaimed, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProclaimError {
    /// Leadership is lost.
    #[error("leadership is lost: {0}")]
    Lost(LossReason),
    /// Where the value should be, there is something else; it was not overwritten.
    #[error(
        "{node} has something else in it than a leader's value; use another path for the election"
    )]
    Foreign {
        /// The node for the value.
        node: ZnodePath,
    },
    /// Servers seem to close the connection whenever the value comes, of 256 KiB or more. It was given up.
    /// Observers may be told it all the same, if only the answers were lost. Calls at the same time write the
    /// value of the last one, so it may be another's that is too long.
    #[error(
        "the connection was lost {tries} times in a row when {node} was written with {bytes} bytes; servers \
         close it if that is more than they take at once (jute.maxbuffer): make the value shorter, or raise \
         that on all of them"
    )]
    TooLong {
        /// The node for the value.
        node: ZnodePath,
        /// How long the data is, in bytes.
        bytes: usize,
        /// How often it was tried.
        tries: u32,
    },
    /// A request failed, or was refused.
    #[error("cannot proclaim: {0}")]
    Refused(TransactionError),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read-write lock on the path of a mutex complained of "no Curator contenders", of which there
    /// were some; and a folder with 10,000 children filled the terminal.
    #[test]
    fn what_is_in_the_way_is_said() {
        let says = |names: &[&str], parts: &[&str]| {
            let path = ZnodePath::new("/locks/orders").expect("it is a path");
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let error = AcquireError::Foreign { path, profile: Profile::Curator, names };
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
        };
        says(&["_c_x-lock-0000000001"], &["in use as a mutex (_c_x-lock-", "another kind of lock"]);
        says(&["_c_x-__READ__0000000001"], &["in use as a read-write lock"]);
        says(
            &["x__lock__0000000001"],
            &["a mutex with the profile Kazoo", "has the profile Curator"],
        );
        says(&["config"], &["not contenders (config)", "each lock and each election"]);
        says(&["a", "b", "c", "d", "e"], &["(a, b, c and 2 more)"]);
    }
}
