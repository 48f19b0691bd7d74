//! Wakes up whoever waits, in any program.
//!
//! Guarantees  who waits for a notification after the last one that it knows of is woken by it, also
//!             when it comes before the wait, while there is no connection, or between two sessions; and
//!             when servers have lost their data, as numbers begin again then.
//! Not         one wake-up for each notification: several in a row are one, and whoever waits is told
//!             of the last one. No data comes along; see [`Counter`](crate::Counter) for a number.
//! Znodes      `<path>`, persistent: its mzxid is the number of the last notification. It holds no
//!             data; a node that does is refused.
//! Cost        notify: 1 round trip (1 write), and one more before the first. Waiting: 1 round trip, 1
//!             event, and 1 more round trip; many notifications while one is being answered cost no more
//!             than one.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
//! use lockkeeper::Notify;
//!
//! let news = Notify::new(&client, "/news")?;
//! let known = news.last().await?;
//! let sent = news.notify().await?;
//! assert_eq!(news.wait_past(known).await?, sent);
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use lockkeeper_client::{Client, CreateMode, Error, ErrorCode, SessionId, Stat, ZnodePath, Zxid};

use crate::values::error::{ValueError, ValuePathError};
use crate::values::place::Place;
use crate::values::relay::lock;
use crate::values::shown::shown;

/// Wakes up whoever waits, in any program. Cheap to clone.
///
/// Not for work that exactly one of many is to do, which is what locks are for; nor for thousands of
/// waiters in processes of their own, each of which gets an event.
#[derive(Debug)]
pub struct Notify {
    place: Place,
    /// Whether the node is known to be one of notifications.
    checked: Arc<AtomicBool>,
    /// When this handle gave a number last.
    told: Mutex<Moment>,
}

/// What numbers are compared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    session: SessionId,
    /// How often servers had lost their data.
    rewinds: u64,
}

impl Clone for Notify {
    /// With a memory of its own: who waits by one handle may know of numbers that another's is past.
    fn clone(&self) -> Self {
        let told = Mutex::new(*lock(&self.told));
        Self { place: self.place.clone(), checked: Arc::clone(&self.checked), told }
    }
}

impl Notify {
    /// The notifications at a path such as `/app/news`. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        let place = Place::new(client, path)?;
        let told = Mutex::new(Moment::now(&place));
        Ok(Self { place, checked: Arc::default(), told })
    }

    /// The path.
    pub fn path(&self) -> &ZnodePath {
        &self.place.path
    }

    /// Wakes up everyone who waits for more than the last notification. Gives the number of this one.
    ///
    /// # Errors
    /// If the node holds data, a request is refused, or no server can be reached for a whole session
    /// timeout. What is missing above the node is created, as containers.
    ///
    /// # Session loss
    /// It is sent again in the next session.
    ///
    /// # Cancel safety
    /// When dropped, it may have been sent or not.
    pub async fn notify(&self) -> Result<Zxid, ValueError> {
        let Place { client, path } = &self.place;
        self.check().await?;
        // Twice is as good as once, so a lost reply needs no marker.
        loop {
            match client.set_data(path, Bytes::new(), None).await {
                Ok(stat) => return Ok(self.tell(stat.mzxid)),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {}
                Err(error) => {
                    self.place.again_to_write(error).await?;
                    continue;
                }
            }

            match client.create(path, Bytes::new(), CreateMode::Persistent).await {
                Ok(created) => return Ok(self.tell(created.stat.mzxid)),
                Err(error) if error.code() == Some(ErrorCode::NodeExists) => {}
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    self.place.make_parents().await?;
                }
                Err(error) => self.place.again_to_write(error).await?,
            }
        }
    }

    /// Gives the number of the last notification; 0 before the first one. Costs one round trip.
    ///
    /// # Errors
    /// If no server can be reached for a whole session timeout, or the node may not be read.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn last(&self) -> Result<Zxid, ValueError> {
        loop {
            match self.place.client.exists(&self.place.path).await {
                Ok(stat) => return Ok(self.tell(number(stat))),
                Err(error) => self.place.again(error).await?,
            }
        }
    }

    /// Waits until there is a notification with a greater number than `known`, and gives the number of
    /// the last one. Start from [`Notify::last`], and go on from what this returned. When servers have lost
    /// their data since this handle gave a number, it returns at once, with what may be a lower one.
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
        let mut known_in = *lock(&self.told);
        loop {
            match client.exists_watched(path).await {
                Ok((Some(stat), _)) if stat.mzxid > known => return Ok(self.tell(stat.mzxid)),
                Ok((stat, mut watcher)) => {
                    match self.has_begun_again(&mut known_in).await {
                        Ok(true) => return Ok(self.tell(number(stat))),
                        // The end of the session ends the watch too, and the next look is with the next one.
                        Ok(false) => drop(watcher.changed().await),
                        Err(error) => self.place.again(error).await?,
                    }
                }
                Err(error) => self.place.again(error).await?,
            }
            // The usual case: without another watch.
            match client.exists(path).await {
                Ok(Some(stat)) if stat.mzxid > known => return Ok(self.tell(stat.mzxid)),
                Ok(_) => {}
                Err(error) => self.place.again(error).await?,
            }
        }
    }

    /// Whether servers have lost their data since then: a notification may have come whose number is no
    /// greater than one from before.
    async fn has_begun_again(&self, since: &mut Moment) -> Result<bool, Error> {
        let Place { client, path } = &self.place;
        let session = client.session_id();
        if since.session != session {
            // It shows in the first answer of a session, and is known by the one after it.
            client.sync(path).await?;
            since.session = session;
        }
        Ok(since.rewinds != self.place.rewinds())
    }

    /// Gives a number, which is to be compared with later ones.
    fn tell(&self, number: Zxid) -> Zxid {
        *lock(&self.told) = Moment::now(&self.place);
        number
    }

    /// Refuses a node that holds data of something else, before the first write.
    async fn check(&self) -> Result<(), ValueError> {
        if self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.place.read().await? {
            Some((data, _)) if !data.is_empty() => {
                let (path, found) = (self.path().clone(), shown(&data));
                Err(ValueError::Foreign { path, found })
            }
            _ => {
                self.checked.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl Moment {
    fn now(place: &Place) -> Self {
        Self { session: place.client.session_id(), rewinds: place.rewinds() }
    }
}

fn number(stat: Option<Stat>) -> Zxid {
    stat.map_or(Zxid(0), |stat| stat.mzxid)
}
