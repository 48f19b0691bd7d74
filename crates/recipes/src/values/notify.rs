//! [`Notify`]: wakes waiting tasks in all programs.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use lockkeeper_client::horizon::{BEHIND_PAUSE, Horizon};
use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, OpResult, Outcome, SessionId, Stat, TransactionError,
    ZnodePath, Zxid,
};

use crate::exact::WriteError;
use crate::exact::shared_write::lock;
use crate::values::error::{ValueError, ValuePathError};
use crate::values::place::Place;
use crate::values::shown::shown;

/// Wakes waiting tasks in all programs. Cheap to clone.
///
/// Use a lock instead for work that only one of many programs must do. Do not use it for thousands of waiters in
/// separate processes, each of which gets an event.
///
/// # Guarantees
///
/// - A wait ends with any notification after the known one, even if that came before the wait, while the connection
///   was lost, or between two sessions; and also when servers have lost their data, because numbers start over
///   then.
/// - Foreign data is refused, and not overwritten.
///
/// # Not guaranteed
///
/// - Notifications are not counted: several in a row may end one wait, which returns the number of the last one.
/// - A notification has no data; see [`Counter`](crate::Counter) for a number.
/// - Foreign data is not safe in a node that is deleted and created again while notifications are sent: once it has
///   been written as often as the old node, it has the same version. A node that was just created never has the
///   version of a node that this library created.
///
/// # Znodes
///
/// `<path>`, persistent: its mzxid is the number of the last notification. It has no data, and a node with data is
/// refused. It is created and written in one transaction, so that its version starts at 1.
///
/// # Cost
///
/// - A notification costs 1 round trip (1 write), and one more before the first. It costs up to 3 more if others
///   have sent one since the last one of this handle and its clones.
/// - A wait costs 1 round trip, 1 event, and 1 more round trip. Any number of notifications until the answer cost
///   the same as one.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Notify;
///
/// let news = Notify::new(&client, "/news")?;
/// let known = news.last().await?;
/// let sent = news.notify().await?;
/// assert_eq!(news.wait_past(known).await?, sent);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Notify {
    place: Place,
    /// The version of the node when it was last read without data. Never 0: a node that was just created has this
    /// version, whatever its data.
    version: Arc<Mutex<Option<i32>>>,
    /// The last number that this handle returned, and the time of its notification. Servers that were wiped may use
    /// the number for another one.
    told: Mutex<Option<(Zxid, i64)>>,
}

lockkeeper_client::shown_by_path!(Notify);

impl Clone for Notify {
    /// With its own last number: another handle may know later numbers.
    fn clone(&self) -> Self {
        let told = Mutex::new(*lock(&self.told));
        Self { place: self.place.clone(), version: Arc::clone(&self.version), told }
    }
}

impl Notify {
    /// Notifications at a path such as `/app/news`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        let place = Place::new(client, path)?;
        Ok(Self { place, version: Arc::default(), told: Mutex::default() })
    }

    /// The path.
    pub fn path(&self) -> &ZnodePath {
        &self.place.path
    }

    /// Wakes all tasks that wait for a later notification than the last one. Returns the number of this
    /// notification, or of another one that was sent at the same time. Costs one round trip (1 write), and [up to 3
    /// more](Notify#cost) at first or if others send notifications too.
    ///
    /// # Errors
    /// If the node has data, a request is refused, or no server can be reached for a session timeout. Missing
    /// parents of the node are created, as containers. The error is [`ValueError::Unknown`] if the notification may
    /// have been made.
    ///
    /// # Session loss
    /// Sent again in the next session.
    ///
    /// # Cancel safety
    /// When dropped, the notification may have been sent or not.
    pub async fn notify(&self) -> Result<Zxid, ValueError> {
        let mut doubt = None;
        self.write(&mut doubt).await.map_err(|error| match doubt {
            Some(doubt) => {
                let source = TransactionError::Request(doubt);
                ValueError::Unknown { path: self.path().clone(), source }
            }
            None => error,
        })
    }

    /// Writes the node, if it has no data. A repeated write is harmless, so a lost reply needs no marker. Records
    /// an error after which a write may have been applied.
    async fn write(&self, doubt: &mut Option<Error>) -> Result<Zxid, ValueError> {
        let Place { client, path } = &self.place;
        let known = *lock(&self.version);
        // Whether this call has read after a write, and so from a server that included it.
        let mut has_looked = false;
        let mut version = match known {
            Some(version) => Some(version),
            None => self.look().await?.map(|stat| stat.version),
        };

        loop {
            let written = match version {
                Some(version) => {
                    let written = client.set_data(path, Bytes::new(), Some(version)).await;
                    written.map_err(TransactionError::from)
                }
                None => self.make().await,
            };
            let error = match written {
                Ok(stat) => return Ok(self.wrote(&stat)),
                Err(error) => error,
            };

            match code(&error) {
                Some(ErrorCode::NoNode) if version.is_some() => version = None,
                Some(ErrorCode::NoNode) => self.place.make_parents().await?,
                Some(ErrorCode::BadVersion | ErrorCode::NodeExists) => match self.look().await? {
                    // A later notification exists. It wakes all tasks that this one would wake.
                    Some(stat) if has_looked => return Ok(self.wrote(&stat)),
                    found => (version, has_looked) = (found.map(|stat| stat.version), true),
                },
                _ => match error {
                    TransactionError::Request(error) => {
                        if error.outcome() == Outcome::Unknown {
                            *doubt = Some(error.clone());
                        }
                        self.place.again_to_write(error).await?;
                    }
                    refused => {
                        return Err(ValueError::write(path, WriteError::NotApplied(refused)));
                    }
                },
            }
        }
    }

    /// Creates the node with a version that a node just created by another program does not have.
    async fn make(&self) -> Result<Stat, TransactionError> {
        let Place { client, path } = &self.place;
        let made = client.transaction().create(path, Bytes::new(), CreateMode::Persistent);
        let (results, zxid) = made.set_data(path, Bytes::new(), Some(0)).commit_numbered().await?;
        Ok(match results.last() {
            Some(OpResult::SetData(stat)) => *stat,
            _ => Stat { version: 1, ..Stat::of_new(zxid, SessionId::NONE) },
        })
    }

    fn wrote(&self, stat: &Stat) -> Zxid {
        *lock(&self.version) = Some(stat.version).filter(|version| *version != 0);
        self.tell(Some(stat))
    }

    /// Returns the number of the last notification; 0 before the first one. Costs one round trip.
    ///
    /// # Errors
    /// If the node has data, no server can be reached for a session timeout, or the node may not be read.
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn last(&self) -> Result<Zxid, ValueError> {
        let found = self.look().await?;
        Ok(self.tell(found.as_ref()))
    }

    /// Waits until a notification has a greater number than `known`, and returns the number of the last one. Start
    /// with [`Notify::last`], and continue with the returned numbers. When servers have lost their data, it returns
    /// the number of the last notification that they have, which may be lower. Costs one round trip if one exists
    /// already, and otherwise an event and one more.
    ///
    /// # Errors
    /// As [`Notify::last`].
    ///
    /// # Session loss
    /// Continues in the next session, and misses none.
    ///
    /// # Cancel safety
    /// Safe: call it again with the same number.
    pub async fn wait_past(&self, known: Zxid) -> Result<Zxid, ValueError> {
        let Place { client, path } = &self.place;
        let mut synced = SessionId::NONE;
        loop {
            let horizon = Horizon::of(client);
            let (found, mut watcher) = match client.exists_watched(path).await {
                Ok((found, watcher)) => (self.refuse_foreign(found).await?, watcher),
                Err(error) => {
                    self.place.again(error).await?;
                    continue;
                }
            };

            let session = client.session_id();
            match self.compared(found.as_ref(), known) {
                Ordering::Greater => return Ok(self.tell(found.as_ref())),
                // The number may come from another client.
                Ordering::Less if synced != session => synced = self.synced().await?,
                Ordering::Less if horizon.is_behind(client, known) => {
                    tokio::time::sleep(BEHIND_PAUSE).await;
                    synced = SessionId::NONE;
                }
                // The servers have another history.
                Ordering::Less => return Ok(self.tell(found.as_ref())),
                Ordering::Equal => {
                    // The end of the session ends the watch too, and the next read uses the next session.
                    drop(watcher.changed().await);
                    // The usual case: needs no other watch.
                    let found = self.look().await?;
                    if self.compared(found.as_ref(), known).is_gt() {
                        return Ok(self.tell(found.as_ref()));
                    }
                }
            }
        }
    }

    /// Compares the current state with the notification of this number: a later one (greater), the same or none
    /// (equal), or an earlier one, or another history (less).
    fn compared(&self, found: Option<&Stat>, known: Zxid) -> Ordering {
        let Some(stat) = found else { return Ordering::Equal };
        let is_another = |(number, mtime)| number == stat.mzxid && mtime != stat.mtime;
        match stat.mzxid.cmp(&known) {
            Ordering::Equal if lock(&self.told).is_some_and(is_another) => Ordering::Greater,
            order => order,
        }
    }

    /// Returns a number that later states are compared with; 0 without a notification.
    fn tell(&self, found: Option<&Stat>) -> Zxid {
        let Some(stat) = found else { return Zxid(0) };
        *lock(&self.told) = Some((stat.mzxid, stat.mtime));
        stat.mzxid
    }

    /// Lets the server catch up with its leader, and returns the session of the `sync`.
    async fn synced(&self) -> Result<SessionId, ValueError> {
        let Place { client, path } = &self.place;
        loop {
            let session = client.session_id();
            match client.sync(path).await {
                Ok(()) => return Ok(session),
                Err(error) => self.place.again(error).await?,
            }
        }
    }

    /// Reads the node, which must have no data if it exists.
    async fn look(&self) -> Result<Option<Stat>, ValueError> {
        loop {
            match self.place.client.exists(&self.place.path).await {
                Ok(found) => return self.refuse_foreign(found).await,
                Err(error) => self.place.again(error).await?,
            }
        }
    }

    /// Fails if the node has foreign data.
    async fn refuse_foreign(&self, found: Option<Stat>) -> Result<Option<Stat>, ValueError> {
        if found.is_none_or(|stat| stat.data_length == 0) {
            return Ok(found);
        }
        match self.place.read().await? {
            Some((data, _)) if !data.is_empty() => {
                let (path, found) = (self.path().clone(), shown(&data));
                Err(ValueError::Foreign { path, found })
            }
            now => Ok(now.map(|(_, stat)| stat)),
        }
    }
}

/// The error code with which a server answered a write, if any.
fn code(error: &TransactionError) -> Option<ErrorCode> {
    match error {
        TransactionError::Failed { code, .. } => Some(*code),
        TransactionError::Request(error) => error.code(),
        _ => None,
    }
}
