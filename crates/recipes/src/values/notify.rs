//! [`Notify`]: wakes up whoever waits, in any program.

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

/// Wakes up whoever waits, in any program. Cheap to clone.
///
/// Not for work that exactly one of many is to do, which is what locks are for; nor for thousands of
/// waiters in processes of their own, each of which gets an event.
///
/// # Guarantees
///
/// - Who waits for a notification after the last one that it knows of is woken by it, also when it
///   comes before the wait, while there is no connection, or between two sessions; and when servers
///   have lost their data, as numbers begin again then.
/// - Data of something else is refused, and not overwritten.
///
/// # Not guaranteed
///
/// - There is not one wake-up for each notification: several in a row are one, and whoever waits is
///   told of the last one.
/// - No data comes along; see [`Counter`](crate::Counter) for a number.
/// - Data is not safe in a node that somebody deletes and makes anew while notifications are made: once
///   it has been written as often as the old one, it has the same version. One that was just made
///   never has that of a node that this library made.
///
/// # Znodes
///
/// `<path>`, persistent: its mzxid is the number of the last notification. It holds no data, and a
/// node that does is refused. It is made and written in one transaction, so its version begins at 1.
///
/// # Cost
///
/// - A notification costs 1 round trip (1 write), and one more before the first. It costs up to 3
///   more if others have notified since the last one of this handle and its clones.
/// - A wait costs 1 round trip, 1 event, and 1 more round trip. Many notifications while one is
///   being answered cost no more than one.
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
    /// The version of the node when it was seen last, without data. Never 0: any node that was just made
    /// has that version, with whatever data.
    version: Arc<Mutex<Option<i32>>>,
    /// The number that this handle gave last, and the time of its notification. Servers that were wiped may
    /// give the number to another one.
    told: Mutex<Option<(Zxid, i64)>>,
}

lockkeeper_client::shown_by_path!(Notify);

impl Clone for Notify {
    /// With a memory of its own: who waits by one handle may know of numbers that another's is past.
    fn clone(&self) -> Self {
        let told = Mutex::new(*lock(&self.told));
        Self { place: self.place.clone(), version: Arc::clone(&self.version), told }
    }
}

impl Notify {
    /// The notifications at a path such as `/app/news`. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        let place = Place::new(client, path)?;
        Ok(Self { place, version: Arc::default(), told: Mutex::default() })
    }

    /// The path.
    pub fn path(&self) -> &ZnodePath {
        &self.place.path
    }

    /// Wakes up everyone who waits for more than the last notification. Gives the number of this one, or
    /// of another one that was made meanwhile. Costs one round trip (1 write), and
    /// [up to 3 more](Notify#cost) at first or if others notify, too.
    ///
    /// # Errors
    /// If the node holds data, a request is refused, or no server can be reached for a whole session
    /// timeout. What is missing above the node is created, as containers. The error is
    /// [`ValueError::Unknown`] if a notification that was sent may have been made.
    ///
    /// # Session loss
    /// It is sent again in the next session.
    ///
    /// # Cancel safety
    /// When dropped, it may have been sent or not.
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

    /// Writes the node, if it holds nothing. Twice is as good as once, so a lost reply needs no marker.
    /// Notes an error after which a write may have been applied.
    async fn write(&self, doubt: &mut Option<Error>) -> Result<Zxid, ValueError> {
        let Place { client, path } = &self.place;
        let known = *lock(&self.version);
        // Whether this call has looked behind a write, and so at a server that was not behind it.
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
                    // Another one was made since then. It wakes up whom this one would.
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

    /// Makes the node with a version that no node has which somebody else has just made.
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

    /// Gives the number of the last notification; 0 before the first one. Costs one round trip.
    ///
    /// # Errors
    /// If the node holds data, no server can be reached for a whole session timeout, or the node may not
    /// be read.
    ///
    /// # Session loss
    /// It is read again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn last(&self) -> Result<Zxid, ValueError> {
        let found = self.look().await?;
        Ok(self.tell(found.as_ref()))
    }

    /// Waits until there is a notification with a greater number than `known`, and gives the number of
    /// the last one. Start from [`Notify::last`], and go on from what this returned. When servers have
    /// returned without their data, it gives the number of the last notification that they have, which may
    /// be lower. Costs one round trip if there is one already, and otherwise an event and one more.
    ///
    /// # Errors
    /// As [`Notify::last`].
    ///
    /// # Session loss
    /// It waits on in the next session, and misses nothing.
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
                // The number may be one that another client was told.
                Ordering::Less if synced != session => synced = self.synced().await?,
                Ordering::Less if horizon.is_behind(client, known) => {
                    tokio::time::sleep(BEHIND_PAUSE).await;
                    synced = SessionId::NONE;
                }
                // The servers have another history.
                Ordering::Less => return Ok(self.tell(found.as_ref())),
                Ordering::Equal => {
                    // The end of the session ends the watch too, and the next look is with the next one.
                    drop(watcher.changed().await);
                    // The usual case: without another watch.
                    let found = self.look().await?;
                    if self.compared(found.as_ref(), known).is_gt() {
                        return Ok(self.tell(found.as_ref()));
                    }
                }
            }
        }
    }

    /// What is there, compared with the notification of this number: another one after it, the same or
    /// none, or one that came before it, or that is of servers with another history.
    fn compared(&self, found: Option<&Stat>, known: Zxid) -> Ordering {
        let Some(stat) = found else { return Ordering::Equal };
        let is_another = |(number, mtime)| number == stat.mzxid && mtime != stat.mtime;
        match stat.mzxid.cmp(&known) {
            Ordering::Equal if lock(&self.told).is_some_and(is_another) => Ordering::Greater,
            order => order,
        }
    }

    /// Gives a number, which is to be compared with later ones; 0 without a notification.
    fn tell(&self, found: Option<&Stat>) -> Zxid {
        let Some(stat) = found else { return Zxid(0) };
        *lock(&self.told) = Some((stat.mzxid, stat.mtime));
        stat.mzxid
    }

    /// Has the server catch up with its leader. Gives the session of that.
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

    /// Looks at the node, which has to be one of notifications if it is there.
    async fn look(&self) -> Result<Option<Stat>, ValueError> {
        loop {
            match self.place.client.exists(&self.place.path).await {
                Ok(found) => return self.refuse_foreign(found).await,
                Err(error) => self.place.again(error).await?,
            }
        }
    }

    /// Refuses a node that holds data of something else.
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

/// The error that a server answered to a write, if one did.
fn code(error: &TransactionError) -> Option<ErrorCode> {
    match error {
        TransactionError::Failed { code, .. } => Some(*code),
        TransactionError::Request(error) => error.code(),
        _ => None,
    }
}
