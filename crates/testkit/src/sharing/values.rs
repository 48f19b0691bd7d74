//! Programs that add to a counter, append to a shared list, and follow the list.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{
    Client, Counter, ErrorCode, Outcome, SessionId, Shared, ValueChange, ValueError, ZnodePath,
};
use tokio::time::{sleep, timeout};

use super::{Scene, is_unknown_without_reason, retried};
use crate::data_event::DataEvent;
use crate::history::What;

/// The path of the counter.
pub const COUNTER: &str = "/counter";

/// The path of the list.
pub const LIST: &str = "/list";

/// The parent of the outcome markers.
const MARKERS: &str = "/lockkeeper-outcomes";

/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(2);

/// One task of such a program.
pub struct ValueProgram {
    /// The environment in which it runs.
    pub scene: Arc<dyn Scene + Send + Sync>,
    /// Its client.
    pub client: Client,
    /// Its name in the history.
    pub name: String,
    /// The source of its decisions, which follow from the seed.
    pub random: fastrand::Rng,
}

impl ValueProgram {
    /// Adds 1 repeatedly.
    ///
    /// # Panics
    /// Never: the path of the counter is valid.
    pub async fn add(mut self, counter: Counter) {
        while self.pause().await {
            let (id, session) = (self.unique(), self.client.session_id());
            self.tell(DataEvent::Adds { id });
            match counter.add(1).await {
                Ok(added) => {
                    self.tell(DataEvent::Added { id, after: added.after });
                    if added.before + 1 != added.after {
                        self.inexact(format!("{added:?} of an add of 1"));
                    }
                }
                Err(error) if self.is_unknown(session, &error) => {}
                Err(_) => self.tell(DataEvent::NotAdded { id }),
            }
        }
    }

    /// Appends items to the list.
    pub async fn append(mut self, list: Shared<Vec<u64>>) {
        while self.pause().await {
            let (item, session) = (self.unique(), self.client.session_id());
            self.tell(DataEvent::Appends { item });
            let push =
                |old: Option<&Vec<u64>>| [old.map_or(&[][..], Vec::as_slice), &[item]].concat();
            match list.update(push).await {
                Ok(_) => self.tell(DataEvent::Appended { item }),
                Err(error) if self.is_unknown(session, &error) => {}
                Err(_) => self.tell(DataEvent::NotAppended { item }),
            }
        }
    }

    /// Follows the list: every reported state extends the previous one.
    pub async fn follow(self, list: Shared<Vec<u64>>) {
        let mut changes = list.changes();
        let mut last = Vec::new();

        while self.scene.goes_on() {
            let Ok(news) = timeout(PAUSE, changes.next()).await else { continue };
            match news {
                Ok(ValueChange::Set(now)) => {
                    let now = now.value;
                    if !now.starts_with(&last) || now == last {
                        self.inexact(format!("told {now:?} after {last:?}"));
                    }
                    last = now;
                }
                Ok(ValueChange::Absent) if last.is_empty() => {}
                Ok(other) => self.inexact(format!("told {other:?} after {last:?}")),
                // No server can be reached for a while; it continues.
                Err(_) => sleep(PAUSE).await,
            }
        }

        self.tell(DataEvent::Followed { items: last });
    }

    /// A number that no other program uses, whatever its seed.
    fn unique(&self) -> u64 {
        self.client.unique_id().as_u64_pair().0
    }

    fn is_unknown(&self, session: SessionId, error: &ValueError) -> bool {
        let is_unknown = error.outcome() == Outcome::Unknown;
        let same_session = self.client.session_id() == session;
        if is_unknown && is_unknown_without_reason(error, same_session) {
            self.inexact(format!("unknown in one session: {error:?}"));
        }
        is_unknown
    }

    /// Returns whether there is time for another step.
    async fn pause(&mut self) -> bool {
        sleep(self.scene.pace().mul_f64(self.random.f64())).await;
        self.scene.goes_on()
    }

    fn tell(&self, told: DataEvent) {
        self.scene.note(&self.name, What::Data(told));
    }

    fn inexact(&self, what: String) {
        self.scene.note(&self.name, What::InexactValue(what));
    }
}

/// Reads the final state after all programs have ended, and waits until their outcome markers are gone.
///
/// # Panics
/// Never: the paths are valid.
pub async fn look_at_the_end(scene: &dyn Scene, client: &Client) {
    let counter = Counter::new(client, COUNTER).expect("a valid path");
    let list: Shared<Vec<u64>> = Shared::new(client, LIST).expect("a valid path");

    // A server of an ensemble may lag. If the sync is not answered, the read may be old too.
    let path = ZnodePath::new(COUNTER).expect("a valid path");
    retried(PAUSE, || client.sync(&path)).await;
    let sum = retried(PAUSE, || counter.value()).await;
    let found = retried(PAUSE, || list.get()).await;
    let items = found.map(|found| found.value).unwrap_or_default();

    let markers = ZnodePath::new(MARKERS).expect("a valid path");
    loop {
        match client.children(&markers).await {
            Ok((names, _)) if names.is_empty() => break,
            Err(error) if error.code() == Some(ErrorCode::NoNode) => break,
            _ => sleep(PAUSE).await,
        }
    }

    scene.note("world", What::Data(DataEvent::Remains { sum, items }));
}
