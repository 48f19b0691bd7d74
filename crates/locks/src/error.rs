//! The errors of locks and elections.

use std::time::Duration;

use lockkeeper_client::{
    Client, Contact, Error, ErrorCode, Outcome, PathError, Sequence, ServiceError,
    TransactionError, ZnodePath,
};

use crate::profile::{Profile, Usage};
use crate::siblings::is_sibling_of_lock;

/// Why a lock cannot be built with these options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The path is not valid.
    #[error("{0}; name a path like /locks/orders")]
    Path(#[from] PathError),
    /// The path is `/`.
    #[error("'/' cannot be a lock or an election; name a path below it, like /locks/orders")]
    Root,
    /// The path is `/zookeeper` or below it, where the server keeps its quotas and its configuration. Below a chroot,
    /// `/zookeeper` is an ordinary name.
    #[error(
        "{0} is reserved for the server; name a path outside of /zookeeper, like /locks/orders"
    )]
    Reserved(ZnodePath),
    /// The path is, or is below, a node that keeps data for the contenders of a lock.
    #[error("{0} is reserved for the data of another lock; name a path like /locks/orders")]
    Beside(ZnodePath),
    /// No path was given, and at least one is required.
    #[error("no lock was given; name at least one path, like /locks/orders")]
    None,
    /// A lock's key is longer than servers accept.
    #[error(
        "the key takes {bytes} bytes as a znode name, and at most {most} are allowed; use a hash of the key"
    )]
    KeyTooLong {
        /// The length of the name.
        bytes: usize,
        /// The largest possible length.
        most: usize,
    },
    /// The same lock was given twice, and would wait for itself.
    #[error("{0} was given twice; name each lock once")]
    Repeated(ZnodePath),
    /// A semaphore of 0 permits, which could never be acquired.
    #[error("{0} cannot be a semaphore of 0 permits; give it at least 1")]
    NoPermits(ZnodePath),
    /// A semaphore of more permits than Curator programs can count.
    #[error(
        "{path} can have at most {most} permits, because Curator programs count them in 31 bits"
    )]
    TooManyPermits {
        /// The semaphore.
        path: ZnodePath,
        /// The largest possible number of permits.
        most: u32,
    },
}

impl BuildError {
    /// Returns the path if it is valid for a lock.
    pub(crate) fn check(client: &Client, path: &str) -> Result<ZnodePath, BuildError> {
        match Self::check_base(client, path) {
            // The root does not have siblings.
            Ok(path) if path.is_root() => Err(BuildError::Root),
            checked => checked,
        }
    }

    /// Returns the path if locks can be below it.
    pub(crate) fn check_base(client: &Client, path: &str) -> Result<ZnodePath, BuildError> {
        let path = ZnodePath::new(path)?;
        if client.is_servers_own(&path) {
            return Err(BuildError::Reserved(path));
        }
        if !client.is_own_base(&path) {
            return Err(BuildError::Root);
        }
        if path.as_str().split('/').any(is_sibling_of_lock) {
            return Err(BuildError::Beside(path));
        }
        Ok(path)
    }
}

/// Why a lock was not acquired. The attempt leaves no node behind, or its node is about to be
/// deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock did not become free in time, or no server could be reached.
    #[error("{}", too_late(path, *waited, *is_connected))]
    Timeout {
        /// The lock.
        path: ZnodePath,
        /// The time limit.
        waited: Duration,
        /// Whether there was a connection when the time was over. Without one, it is unknown whether the lock was
        /// free.
        is_connected: bool,
    },
    /// The queue contains nodes that are not contenders of this kind of lock and profile, so its order
    /// is unknown. [`Usage::of`](crate::Usage::of) classifies the `names`.
    #[error("{}", in_the_way(path, *profile, names))]
    Foreign {
        /// The lock.
        path: ZnodePath,
        /// The profile of this lock.
        profile: Profile,
        /// The names of the nodes.
        names: Vec<String>,
    },
    /// The node at the path, or a parent, is ephemeral, so it cannot have contenders below it. A program
    /// holds it as an [`ExclusiveNode`](crate::ExclusiveNode) or a name, or uses it for another purpose.
    #[error(
        "{path}, or a node above it, is held as one znode and cannot have a queue; see who holds it with \
         `lockkeeper show`, and use the same kind of lock, or another path"
    )]
    IsNode {
        /// The lock.
        path: ZnodePath,
    },
    /// The lock is blocked by a node that is not ephemeral. It is not deleted with a session, so a wait for
    /// its deletion might never end. No library creates such a node with Curator's or Lockkeeper's names. kazoo
    /// can, so with [`Profile::Kazoo`] the lock waits for it.
    #[error(
        "{path} is blocked by {node}, which is not ephemeral and does not end with a session; delete \
         it if no program uses it"
    )]
    NotEphemeral {
        /// The lock.
        path: ZnodePath,
        /// The node.
        node: ZnodePath,
    },
    /// The sequence numbers of the lock's node are about to overflow. After that, libraries disagree on the order.
    #[error(
        "{path} has used sequence number {sequence} of 2147483647; delete the node when the queue \
         is empty, or use another path"
    )]
    Exhausted {
        /// The lock.
        path: ZnodePath,
        /// The sequence number of the attempt.
        sequence: Sequence,
    },
    /// Another client deleted the contender's node while it waited.
    #[error(
        "{node} was deleted by another client while it waited; acquire again to enter the queue again"
    )]
    NodeDeleted {
        /// The contender's node.
        node: ZnodePath,
    },
    /// The session expired while the contender waited.
    #[error("the session expired while waiting for {path}; acquire again to enter the queue again")]
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
    /// The client is closed: this program closed it, its runtime has ended, or a
    /// server refused its credentials.
    #[error("cannot acquire {path}: the client is closed; connect another one")]
    ClientClosed {
        /// The lock.
        path: ZnodePath,
    },
    /// Each of several attempts failed because of a lost connection, the end of the session, a server that refused the
    /// request temporarily, or another program that deleted or changed a znode at that moment.
    #[error(
        "gave up on {path} after {attempts} attempts: each time, the connection or the session was \
         lost, a server was busy, or another program deleted or changed a znode; acquire again"
    )]
    GaveUp {
        /// The lock.
        path: ZnodePath,
        /// The number of attempts.
        attempts: u32,
    },
    /// More permits were requested than the semaphore has.
    #[error("cannot acquire {wanted} permits of {path}, which has only {permits}")]
    TooMany {
        /// The semaphore.
        path: ZnodePath,
        /// The number of requested permits.
        wanted: u32,
        /// The number of permits of the semaphore.
        permits: u32,
    },
    /// The stored number of permits differs from the number that this handle was created with.
    #[error(
        "{path} has {stored} permits, not {permits}: all programs must use the same number; use {stored}, \
         change the stored number with `set_permits`, or accept it with `accept_other_permits`"
    )]
    OtherPermits {
        /// The semaphore.
        path: ZnodePath,
        /// The number that this handle was created with.
        permits: u32,
        /// The number of permits of the semaphore.
        stored: u32,
    },
    /// 0 permits were requested.
    #[error("cannot acquire 0 permits of {path}; ask for at least 1")]
    NoPermits {
        /// The semaphore.
        path: ZnodePath,
    },
    /// The node for the number of permits contains other data.
    #[error(
        "{node} contains {found:?}, which is not a number of permits; use a separate path for the \
         semaphore, or the profile of the programs that created the node"
    )]
    BadPermits {
        /// The node for the number of permits.
        node: ZnodePath,
        /// The data in it.
        found: String,
    },
    /// The lock was lost before a call that changes the hold had completed, such as an upgrade.
    #[error("{path} was lost before the change of the hold was complete: {reason}")]
    Lost {
        /// The lock.
        path: ZnodePath,
        /// Why it is lost.
        reason: LossReason,
    },
    /// The lock was free, but the replies to several consecutive proofs that it is held came so late that too little
    /// of the lease was left.
    #[error(
        "{path} cannot be held: the last proof took {took:?}, and earlier ones took as long, but less than \
         {most:?} is needed for this session timeout; check the load of the servers, the network and \
         this machine, or use a longer session timeout"
    )]
    LeaseTooShort {
        /// The lock.
        path: ZnodePath,
        /// The duration of the last proof.
        took: Duration,
        /// The time that a proof may take: [`Timing::slowest_answer`](lockkeeper_client::Timing::slowest_answer).
        most: Duration,
    },
    /// The owner has lost the lock since an earlier entry.
    #[error("the owner has lost {path}: {reason}; {}", entries_are_left(*reason))]
    OwnerLost {
        /// The lock.
        path: ZnodePath,
        /// Why it was lost.
        reason: LossReason,
    },
    /// The servers in the connection string do not belong to one service. With
    /// [`ClientBuilder::strict_servers`](lockkeeper_client::ClientBuilder::strict_servers), also if this is unknown.
    #[error("cannot acquire {path}: {source}")]
    Servers {
        /// The lock.
        path: ZnodePath,
        /// The problem with the servers.
        source: ServiceError,
    },
    /// A transaction was refused.
    #[error("cannot acquire {path}: {source}")]
    Refused {
        /// The lock.
        path: ZnodePath,
        /// Why it was refused.
        source: TransactionError,
    },
    /// A request failed.
    #[error("cannot acquire {path}: {source}")]
    Client {
        /// The lock.
        path: ZnodePath,
        /// The failure.
        source: Error,
    },
}

impl AcquireError {
    /// Whether another acquire may succeed without any other change.
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

    /// Whether a node of the attempt may still exist. It will be deleted as soon as
    /// the session can reach a server.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NodeDeleted { .. }
            | Self::IsNode { .. }
            | Self::OwnerLost { .. }
            | Self::NoPermits { .. } => Outcome::NotApplied,
            // The node may have been created earlier, by this session or the one that followed it.
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

    /// Whether the attempt is repeated if the caller has given more time: only an outage, or
    /// concurrent actions of other programs, made it fail.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::GaveUp { .. } => true,
            Self::Client { source, .. } => source.is_retryable(),
            Self::Servers { .. } => self.is_retryable(),
            _ => false,
        }
    }

    /// Converts the error of a request.
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

    /// Converts the error that the servers do not belong to one service.
    pub(crate) fn from_service(path: &ZnodePath, source: ServiceError) -> Self {
        match source {
            ServiceError::NodeGone { node } => Self::NodeDeleted { node },
            source => Self::Servers { path: path.clone(), source },
        }
    }

    /// The error for the end of the session in which the contender waited.
    pub(crate) fn session_ended(client: &Client, path: &ZnodePath) -> Self {
        let path = path.clone();
        match client.is_closed() {
            true => Self::ClientClosed { path },
            false => Self::SessionExpired { path },
        }
    }

    /// The result of an attempt that does not wait, while another task of this process blocks it.
    pub(crate) fn unless_closed<T>(client: &Client, path: &ZnodePath) -> Result<Option<T>, Self> {
        match client.is_closed() {
            true => Err(Self::ClientClosed { path: path.clone() }),
            false => Ok(None),
        }
    }

    /// The error for a time limit that is over.
    pub(crate) fn timeout(client: &Client, path: &ZnodePath, waited: Duration) -> Self {
        let is_connected = client.contact() == Contact::Connected;
        Self::Timeout { path: path.clone(), waited, is_connected }
    }
}

/// The message for a time limit that is over.
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

/// What an owner has to do before it can acquire a lost lock again.
fn entries_are_left(reason: LossReason) -> &'static str {
    match reason {
        LossReason::ClientClosed => "connect another one",
        _ => "release its entries before acquiring it again",
    }
}

/// The message for nodes that are not contenders of the lock.
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

/// The first of the names. There may be thousands.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Why a lock is no longer held. A guard that has lost its lock never becomes valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The servers ended the session.
    #[error("the session expired")]
    SessionExpired,
    /// The lease was not renewed in time. The servers may have ended the session since.
    #[error("the lease ran out before a server could renew it")]
    DeadlinePassed,
    /// Another client deleted the holder's node, or a client with the session's identity ended the session before
    /// its lease had run out.
    #[error("the holder's node was deleted by another client")]
    NodeDeleted,
    /// The servers refused to check the holder's node, so its existence cannot be proven. Its access
    /// control list does not let this client read it.
    #[error("the servers do not let this client check the holder's node")]
    CheckRefused,
    /// Another client requested the lock, and then took it by force.
    #[error("it was taken by force after a request to release it")]
    Revoked,
    /// The client was closed.
    #[error("the client was closed")]
    ClientClosed,
    /// The holder released the lock, and this handle outlived it: the work of
    /// [`Election::lead`](crate::Election::lead) has ended.
    #[error("the holder has released it")]
    Released,
    /// It was held for longer than the limit set by the program, such as `max_run` of a queue.
    #[error("it was held for longer than allowed")]
    HeldTooLong,
}

const IN_JEOPARDY: &str = "its lease ran out, and no server has confirmed it since";

/// The lock is not certain to be held for the required time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnsureError {
    /// The lock is lost.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// The lock is in [jeopardy](crate::HolderState::Jeopardy).
    #[error("it is unknown whether the lock is still held: {}", IN_JEOPARDY)]
    Jeopardy,
    /// The lease ends too soon. Verify the guard to renew it, or wait for the next heartbeat.
    #[error("the lease lasts for another {left:?}, but {wanted:?} are required")]
    TooShort {
        /// The remaining time.
        left: Duration,
        /// The required time.
        wanted: Duration,
    },
}

/// Why the lock could not be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The lock is lost.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// The lock is in [jeopardy](crate::HolderState::Jeopardy).
    #[error("it is unknown whether the lock is still held: {}", IN_JEOPARDY)]
    Jeopardy,
    /// No server confirmed the lock. The guard may be valid until its deadline.
    #[error("the lock could not be verified: {0}")]
    Unknown(#[from] Error),
    /// A server refused to check the holder's node, so the lock is not confirmed. The guard may be valid until its
    /// deadline.
    #[error("the lock could not be verified: {0}")]
    Refused(TransactionError),
}

/// Why a release failed, or is not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was already lost. Others may have held it since.
    #[error("the lock was lost before it was released: {0}")]
    Lost(LossReason),
    /// No server has confirmed the release yet. It continues in the background until a server confirms it or the
    /// session ends.
    #[error("the release is not confirmed yet: {0}")]
    Unconfirmed(#[from] Error),
    /// The owner does not hold the lock.
    #[error(
        "{path} is not held by {owner}; {}",
        holder.as_ref().map_or("it is free".to_owned(), |holder| format!("{holder} holds it"))
    )]
    NotHeld {
        /// The lock.
        path: ZnodePath,
        /// The owner that tried to release it.
        owner: String,
        /// The holder, if any.
        holder: Option<String>,
    },
}

/// Why the number of a semaphore's permits was not changed, or may not have been changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetPermitsError {
    /// With this profile the number is not stored, and each program sets its own.
    #[error(
        "the number of permits of {path} is not stored: each program that uses it sets it \
         itself; change it in all of them"
    )]
    Fixed {
        /// The semaphore.
        path: ZnodePath,
    },
    /// The new number was 0.
    #[error(
        "the number of permits of {path} cannot be 0, because no permit could ever be acquired"
    )]
    Zero {
        /// The semaphore.
        path: ZnodePath,
    },
    /// The new number was larger than Curator programs can count.
    #[error(
        "{path} can have at most {most} permits, because Curator programs count them in 31 bits"
    )]
    TooMany {
        /// The semaphore.
        path: ZnodePath,
        /// The largest possible number of permits.
        most: u32,
    },
    /// A request failed.
    #[error("cannot change the number of permits: {0}")]
    Client(#[from] Error),
}

/// Why the leader of an election cannot be observed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The election contains nodes that are not candidates, so the first candidate is unknown.
    #[error(
        "{path} has children that are not candidates: {}; use a separate path for the election, or \
         the layout of the programs that created them",
        listed(names)
    )]
    Foreign {
        /// The election.
        path: ZnodePath,
        /// The names of the nodes.
        names: Vec<String>,
    },
    /// The first node is not ephemeral, so it does not belong to a candidate's session, and no candidate leads
    /// until it is deleted. With [`ElectionLayout::Kazoo`](crate::ElectionLayout::Kazoo) it counts as a candidate,
    /// because kazoo can create such nodes.
    #[error(
        "{path} cannot have a leader until {node} is deleted: it is not ephemeral, so it is not a candidate's; \
         delete it if no program uses it"
    )]
    NotEphemeral {
        /// The election.
        path: ZnodePath,
        /// The node.
        node: ZnodePath,
    },
    /// A request was refused, or the client was closed.
    #[error("cannot read the leader of {path}: {source}")]
    Client {
        /// The election.
        path: ZnodePath,
        /// The failure.
        source: Error,
    },
}

/// Why a leader's value was not proclaimed, or may not have been proclaimed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProclaimError {
    /// Leadership is lost.
    #[error("leadership is lost: {0}")]
    Lost(LossReason),
    /// The node for the value contains other data, which was not overwritten.
    #[error("{node} contains data that is not a leader's value; use another path for the election")]
    Foreign {
        /// The node for the value.
        node: ZnodePath,
    },
    /// Servers seem to close the connection at each write of the value, which has 256 KiB or more. No further
    /// try is made. Observers may see the value nevertheless, if only the replies were lost. Concurrent calls write
    /// the value of the last call, so the value that is too long may be that of another call.
    #[error(
        "the connection was lost {tries} times in a row when {node} was written with {bytes} bytes; servers \
         close it if a request exceeds jute.maxbuffer: make the value shorter, or raise the limit \
         on all of them"
    )]
    TooLong {
        /// The node for the value.
        node: ZnodePath,
        /// The length of the data, in bytes.
        bytes: usize,
        /// The number of tries.
        tries: u32,
    },
    /// A request failed, or was refused.
    #[error("cannot proclaim: {0}")]
    Refused(TransactionError),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the error of a read-write lock on the path of a mutex named children that "are no Curator contenders",
    /// although they were. The error for a directory with 10,000 children filled the terminal.
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
