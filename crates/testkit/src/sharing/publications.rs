//! Programs that publish editions of any size, go back to earlier ones, and follow them: a follower must not see half
//! of an edition, or an older one after a newer one.
//!
//! Each program first makes sure that the node exists. So the node's version is the number of its last edition, because
//! each publication and each step back is one write. [`crate::checker`] compares what the programs record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper::{
    Client, Codec, CodecError, CreateMode, Editions, Outcome, Publication, SessionId, ValueChange,
    ValueError, ZnodePath,
};
use tokio::time::{sleep, timeout};

use super::editions::KEPT;
use super::{Scene, is_unknown_without_reason, retried};
use crate::data_event::DataEvent;
use crate::history::What;

/// The path of the publication.
pub const PUBLICATION: &str = "/publication";

/// Lengths that fit into a notification, into one part, and into two parts.
const SHORT: usize = 64;
const ONE_PART: usize = 300 * 1024;
const TWO_PARTS: usize = 600 * 1024;

/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(2);

/// How long to wait for an edition before the wait is given up and repeated.
const GLANCE: Duration = Duration::from_secs(5);

/// The time within which a follower sees everything after the last publication.
const PATIENCE: Duration = Duration::from_secs(120);

/// A value of this length, every byte of which identifies its edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edition {
    id: u64,
    len: usize,
}

/// Decodes only complete editions.
#[derive(Clone, Copy, Debug)]
struct Whole;

impl Codec<Edition> for Whole {
    fn encode(&self, edition: &Edition) -> Result<Bytes, CodecError> {
        let mut data = edition.id.to_be_bytes().repeat(edition.len / 8);
        data[8..16].copy_from_slice(&(edition.len as u64).to_be_bytes());
        Ok(data.into())
    }

    fn decode(&self, data: &[u8]) -> Result<Edition, CodecError> {
        let word = |at: usize| {
            data.get(at..at + 8)
                .map_or(0, |word| u64::from_be_bytes(word.try_into().expect("eight bytes")))
        };
        let (id, len) = (word(0), usize::try_from(word(8))?);
        if data.len() < 16 || data.len() != len {
            return Err(format!("{} bytes of the {len} of {id}", data.len()).into());
        }
        match data[16..].chunks_exact(8).all(|word| word == id.to_be_bytes()) {
            true => Ok(Edition { id, len }),
            false => Err(format!("parts of {id} and of another edition").into()),
        }
    }
}

fn path() -> ZnodePath {
    ZnodePath::new(PUBLICATION).expect("a valid path")
}

fn publication(client: &Client) -> Publication<Edition, Whole> {
    let options = Publication::<Edition>::builder(client, PUBLICATION);
    options.codec(Whole).keep(KEPT).build().expect("a valid path")
}

/// Creates the node if it does not exist.
async fn make(client: &Client) {
    let path = path();
    retried(PAUSE, || client.ensure(&path, CreateMode::Persistent)).await;
}

/// The number of an edition, from the version of the node.
fn number(version: i32) -> u64 {
    u64::try_from(version).unwrap_or_default()
}

/// Publishes editions of all lengths, and sometimes republishes one that is kept.
pub async fn publish(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
) {
    make(&client).await;
    let publication = publication(&client);

    let pause = |random: &mut fastrand::Rng| sleep(scene.pace().mul_f64(random.f64()));
    let tell = |told| scene.note(&name, What::Data(told));
    loop {
        pause(&mut random).await;
        if !scene.goes_on() {
            return;
        }

        let last = match random.u8(0..4) {
            0 => publication.current().await.ok().flatten(),
            _ => None,
        };
        let (attempt, session) = (client.unique_id().as_u64_pair().0, client.session_id());

        let published = match last {
            Some(last) => {
                // Other programs publish during the pause.
                if random.bool() {
                    pause(&mut random).await;
                }
                tell(DataEvent::Publishes { attempt, id: last.value.id });
                publication.rollback(number(last.revision.version)).await
            }
            None => {
                let len = [SHORT, SHORT, ONE_PART, TWO_PARTS][random.usize(0..4)];
                let id = random.u64(..);
                tell(DataEvent::Publishes { attempt, id });
                publication.publish(&Edition { id, len }).await.map(Some)
            }
        };

        match published {
            Ok(Some(number)) => tell(DataEvent::Published { attempt, number }),
            // The edition was dropped, so it cannot be republished.
            Ok(None) => tell(DataEvent::NotPublished { attempt }),
            Err(error) if error.outcome() == Outcome::Unknown => {
                let same_session = client.session_id() == session && session != SessionId::NONE;
                if is_unknown_without_reason(&error, same_session) {
                    let what = format!("unknown in one session: {error:?}");
                    scene.note(&name, What::InexactValue(what));
                }
            }
            Err(_) => tell(DataEvent::NotPublished { attempt }),
        }
    }
}

/// Follows the editions until it has seen everything: every edition that it receives is complete and later than the
/// previous one.
pub async fn follow(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
) {
    make(&client).await;
    let editions = publication(&client).follow();
    let mut follower = Follower { scene, name, editions, newest: 0 };
    while follower.scene.goes_on() {
        if let Ok(false) = timeout(GLANCE.mul_f64(random.f64()), follower.next()).await {
            // No server can be reached for a while; it continues.
            sleep(PAUSE).await;
        }
        // Falls behind, so that editions are dropped before it reads them.
        if random.bool() {
            sleep(follower.scene.pace().mul_f64(random.f64())).await;
        }
    }
    follower.catch_up(&client).await;
}

/// A follower of the editions.
struct Follower {
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    editions: Editions<Edition, Whole>,
    /// The number of the last edition that it received.
    newest: u64,
}

impl Follower {
    /// Takes the next edition; returns whether there was one.
    async fn next(&mut self) -> bool {
        match self.editions.next().await {
            Ok(ValueChange::Set(now)) => {
                let number = number(now.revision.version);
                if number <= self.newest {
                    self.wrong(format!("sees edition {number} after {}", self.newest));
                }

                self.newest = number;
                let told = DataEvent::Edition { number, id: now.value.id };
                self.scene.note(&self.name, What::Data(told));
                true
            }
            Ok(ValueChange::Absent) if self.newest == 0 => true,
            Ok(other) => {
                self.wrong(format!("sees {other:?} after edition {}", self.newest));
                true
            }
            Err(error @ ValueError::Undecodable { .. }) => {
                self.wrong(format!("after edition {}: {error:?}", self.newest));
                true
            }
            Err(_) => false,
        }
    }

    /// Waits until it has seen the server's edition, after the last publication.
    async fn catch_up(&mut self, client: &Client) {
        let seen = async {
            loop {
                let _ = timeout(PAUSE, self.next()).await;
                if let Ok((_, stat)) = client.data(&path()).await
                    && number(stat.version) == self.newest
                {
                    return;
                }
            }
        };
        if timeout(PATIENCE, seen).await.is_err() {
            self.wrong(format!("still sees edition {}", self.newest));
        }
    }

    fn wrong(&self, what: String) {
        self.scene.note(&self.name, What::InexactValue(what));
    }
}

/// Reads the final state after all programs have ended.
pub async fn look_at_the_end(scene: &dyn Scene, client: &Client) {
    make(client).await;
    let publication = publication(client);
    // Only a reader that asks for the newest state is certain to see the last writes.
    let path = path();
    retried(PAUSE, || client.sync(&path)).await;

    loop {
        match (publication.editions().await, publication.current().await) {
            (Ok(numbers), Ok(last)) => {
                let last = last.map(|last| last.value.id);
                return scene.note("world", What::Data(DataEvent::Kept { last, numbers }));
            }
            (Err(error @ ValueError::Undecodable { .. }), _)
            | (_, Err(error @ ValueError::Undecodable { .. })) => {
                return scene.note("world", What::InexactValue(format!("the last one: {error:?}")));
            }
            _ => sleep(PAUSE).await,
        }
    }
}
