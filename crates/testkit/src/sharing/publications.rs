//! Programs that publish editions of any size, go back to earlier ones, and follow: nobody must see half of
//! an edition, or an older one after a newer one.
//!
//! Each makes sure first that the node is there. So the node's version is the number of its last edition, if
//! each is one write, and so is each step back. What they are told of editions, [`crate::checker`] compares.

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
use crate::history::What;
use crate::told::Told;

/// Where the editions are.
pub const PUBLICATION: &str = "/publication";

/// Lengths that come along with the news, that are one part, and that are two.
const SHORT: usize = 64;
const ONE_PART: usize = 300 * 1024;
const TWO_PARTS: usize = 600 * 1024;

/// How long to wait for something else to come.
const PAUSE: Duration = Duration::from_secs(2);

/// How long to wait for an edition, at most, before the wait is given up and begun again.
const GLANCE: Duration = Duration::from_secs(5);

/// In which somebody has seen everything, when nobody publishes any more.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is published: of this length, and all of it says which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edition {
    id: u64,
    len: usize,
}

/// Reads nothing but whole editions.
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
    ZnodePath::new(PUBLICATION).expect("a path")
}

fn publication(client: &Client) -> Publication<Edition, Whole> {
    let options = Publication::<Edition>::builder(client, PUBLICATION);
    options.codec(Whole).keep(KEPT).build().expect("a path")
}

/// Makes the node, if it is not there.
async fn make(client: &Client) {
    let path = path();
    retried(PAUSE, || client.ensure(&path, CreateMode::Persistent)).await;
}

/// The number of an edition, by the version of the node.
fn number(version: i32) -> u64 {
    u64::try_from(version).unwrap_or_default()
}

/// Publishes editions of all lengths, and now and then one again that is there.
pub async fn publish(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
) {
    make(&client).await;
    let publication = publication(&client);

    let pause = |random: &mut fastrand::Rng| sleep(scene.pace().mul_f64(random.f64()));
    let tell = |told| scene.note(&name, What::Told(told));
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
                // Others publish meanwhile.
                if random.bool() {
                    pause(&mut random).await;
                }
                tell(Told::Publishes { attempt, id: last.value.id });
                publication.rollback(number(last.revision.version)).await
            }
            None => {
                let len = [SHORT, SHORT, ONE_PART, TWO_PARTS][random.usize(0..4)];
                let id = random.u64(..);
                tell(Told::Publishes { attempt, id });
                publication.publish(&Edition { id, len }).await.map(Some)
            }
        };

        match published {
            Ok(Some(number)) => tell(Told::Published { attempt, number }),
            // Dropped meanwhile, so there is nothing to go back to.
            Ok(None) => tell(Told::NotPublished { attempt }),
            Err(error) if error.outcome() == Outcome::Unknown => {
                let same_session = client.session_id() == session && session != SessionId::NONE;
                if is_unknown_without_reason(&error, same_session) {
                    let what = format!("unknown in one session: {error:?}");
                    scene.note(&name, What::InexactValue(what));
                }
            }
            Err(_) => tell(Told::NotPublished { attempt }),
        }
    }
}

/// Follows them, and in the end until it has seen everything: every edition that it is told is whole, and a
/// later one than the one before.
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
            // Without a server for a while; it goes on.
            sleep(PAUSE).await;
        }
        // Behind the others, whose editions are dropped meanwhile.
        if random.bool() {
            sleep(follower.scene.pace().mul_f64(random.f64())).await;
        }
    }
    follower.catch_up(&client).await;
}

/// Who looks at editions.
struct Follower {
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    editions: Editions<Edition, Whole>,
    /// The number of the last one that it was told.
    newest: u64,
}

impl Follower {
    /// Takes what comes next; tells whether anything did.
    async fn next(&mut self) -> bool {
        match self.editions.next().await {
            Ok(ValueChange::Set(now)) => {
                let number = number(now.revision.version);
                if number <= self.newest {
                    self.wrong(format!("sees edition {number} after {}", self.newest));
                }

                self.newest = number;
                let told = Told::Edition { number, id: now.value.id };
                self.scene.note(&self.name, What::Told(told));
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

    /// Waits until it has seen the edition that the server has, when nobody publishes any more.
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

/// Reads what there is when all programs have ended.
pub async fn look_at_the_end(scene: &dyn Scene, client: &Client) {
    make(client).await;
    let publication = publication(client);
    // Only whoever has asked for the newest state knows that the last writes are in it.
    let path = path();
    retried(PAUSE, || client.sync(&path)).await;

    loop {
        match (publication.editions().await, publication.current().await) {
            (Ok(numbers), Ok(last)) => {
                let last = last.map(|last| last.value.id);
                return scene.note("world", What::Told(Told::Kept { last, numbers }));
            }
            (Err(error @ ValueError::Undecodable { .. }), _)
            | (_, Err(error @ ValueError::Undecodable { .. })) => {
                return scene.note("world", What::InexactValue(format!("the last one: {error:?}")));
            }
            _ => sleep(PAUSE).await,
        }
    }
}
