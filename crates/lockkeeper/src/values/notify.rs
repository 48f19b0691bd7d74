//! Wakes up whoever waits, in any program.
//!
//! Guarantees  who waits for a notification after the last one that it knows of is woken by it, also
//!             when it comes before the wait, while there is no connection, or between two sessions.
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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lockkeeper_client::{Client, CreateMode, ErrorCode, ZnodePath, Zxid};

use crate::values::error::{ValueError, ValuePathError};
use crate::values::place::Place;
use crate::values::shown::shown;

/// Wakes up whoever waits, in any program. Cheap to clone.
///
/// Not for work that exactly one of many is to do, which is what locks are for; nor for thousands of
/// waiters in processes of their own, each of which gets an event.
#[derive(Clone, Debug)]
pub struct Notify {
    place: Place,
    /// Whether the node is known to be one of notifications.
    checked: Arc<AtomicBool>,
}

impl Notify {
    /// The notifications at a path such as `/app/news`. No I/O.
    ///
    /// # Errors
    /// If the path cannot be that of a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Ok(Self { place: Place::new(client, path)?, checked: Arc::default() })
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
                Ok(stat) => return Ok(stat.mzxid),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {}
                Err(error) => {
                    self.place.again_to_write(error).await?;
                    continue;
                }
            }

            match client.create(path, Bytes::new(), CreateMode::Persistent).await {
                Ok(created) => return Ok(created.stat.mzxid),
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
                Ok(stat) => return Ok(stat.map_or(Zxid(0), |stat| stat.mzxid)),
                Err(error) => self.place.again(error).await?,
            }
        }
    }

    /// Waits until there is a notification with a greater number than `known`, and gives the number of
    /// the last one. Start from [`Notify::last`], and go on from what this returned.
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
        loop {
            match self.place.client.exists_watched(&self.place.path).await {
                Ok((Some(stat), _)) if stat.mzxid > known => return Ok(stat.mzxid),
                // The end of the session ends the watch too, and the next look is with the next one.
                Ok((_, mut watcher)) => drop(watcher.changed().await),
                Err(error) => self.place.again(error).await?,
            }
            // The usual case: without another watch.
            let last = self.last().await?;
            if last > known {
                return Ok(last);
            }
        }
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
