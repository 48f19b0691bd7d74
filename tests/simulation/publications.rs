//! Clients that publish editions of any size, go back to earlier ones, and follow; and what must come of
//! that: nobody sees half of an edition, or an older one after a newer one, and each edition that was
//! confirmed has a number of its own.
//!
//! The node is there from the beginning. So its version is the number of its last edition, if each is one
//! write, and so is each step back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper::{
    Client, Codec, CodecError, CreateMode, Editions, Outcome, Publication, ValueChange, ZnodePath,
};
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::is_unknown_without_reason;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::run::{PATIENCE, Run};

const PUBLICATION: &str = "/publication";

/// Few, so that editions are dropped while somebody reads them.
const KEPT: u16 = 2;

/// Between two editions of one client, at most.
const PAUSE: Duration = Duration::from_millis(2_500);

/// Lengths that come along with the news, that are one part, and that are two.
const SHORT: usize = 64;
const ONE_PART: usize = 300 * 1024;
const TWO_PARTS: usize = 600 * 1024;

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

/// What the clients were told.
#[derive(Debug, Default)]
struct Told {
    /// By number, which edition it is.
    editions: BTreeMap<u64, u64>,
    /// Editions of which nobody knows whether they were published.
    unknown: Vec<u64>,
    /// What followers saw: numbers and editions.
    seen: BTreeSet<(u64, u64)>,
}

/// The publication of a run.
pub(crate) struct Publications {
    told: Arc<Mutex<Told>>,
}

impl Publications {
    /// Makes the node.
    pub(crate) async fn new(client: &Client) -> Self {
        let path = ZnodePath::new(PUBLICATION).expect("a path");
        while client.ensure(&path, CreateMode::Persistent).await.is_err() {
            sleep(PAUSE).await;
        }
        Self { told: Arc::default() }
    }

    /// What one client does until `end`.
    pub(crate) fn tasks(
        &self,
        run: &Arc<Run>,
        index: usize,
        client: &Client,
        mut random: fastrand::Rng,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        let mut program = |name| Program {
            run: Arc::clone(run),
            client: client.clone(),
            publication: publication(client),
            name: format!("client {index}.{name}"),
            told: Arc::clone(&self.told),
            random: random.fork(),
            end,
        };
        let machine = &run.machines[index];
        vec![machine.run(program("publish").publish()), machine.run(program("read").follow())]
    }

    /// After the faults: what there is must be what everyone was told.
    pub(crate) async fn judge(&self, run: &Run, client: &Client) {
        let publication = publication(client);
        let read = async {
            loop {
                let (numbers, last) = (publication.editions().await, publication.current().await);
                match (numbers, last) {
                    (Ok(numbers), Ok(last)) => return (numbers, last.map(|last| last.value.id)),
                    _ => sleep(PAUSE).await,
                }
            }
        };
        let wrong = match timeout(PATIENCE, read).await {
            Ok((numbers, last)) => self.compare(&numbers, last),
            Err(_) => {
                return run.note("world", What::Stuck("the publication cannot be read".into()));
            }
        };
        if let Err(wrong) = wrong {
            let told = self.told.lock().expect("nobody panics with it");
            run.note("world", What::InexactValue(format!("{wrong}; told: {told:?}")));
        }
    }

    fn compare(&self, numbers: &[u64], last: Option<u64>) -> Result<(), String> {
        let told = self.told.lock().expect("nobody panics with it");
        let newest = numbers.last().copied().unwrap_or(0);
        let (least, most) = (told.editions.len(), told.editions.len() + told.unknown.len());
        if !(least..=most).contains(&usize::try_from(newest).expect("few")) {
            return Err(format!("{newest} editions, of which {least} to {most} were published"));
        }
        if numbers.windows(2).any(|pair| pair[0] + 1 != pair[1]) || numbers.len() > KEPT.into() {
            return Err(format!("{numbers:?} are kept"));
        }

        let end = last.map(|last| (newest, last));
        for (number, id) in told.seen.iter().copied().chain(end) {
            match told.editions.get(&number) {
                Some(known) if *known == id => {}
                None if told.unknown.contains(&id) => {}
                known => return Err(format!("edition {number} was {id}, told was {known:?}")),
            }
        }
        Ok(())
    }
}

fn publication(client: &Client) -> Publication<Edition, Whole> {
    let options = Publication::<Edition>::builder(client, PUBLICATION);
    options.codec(Whole).keep(KEPT).build().expect("a path")
}

/// One task of a client.
struct Program {
    run: Arc<Run>,
    client: Client,
    publication: Publication<Edition, Whole>,
    name: String,
    told: Arc<Mutex<Told>>,
    random: fastrand::Rng,
    end: Duration,
}

impl Program {
    async fn publish(mut self) {
        loop {
            sleep(PAUSE.mul_f64(self.random.f64())).await;
            if self.run.now() >= self.end {
                return;
            }
            let session = self.client.session_id();
            let earlier = self.told().editions.last_key_value().map(|(number, id)| (*number, *id));
            let (id, published) = match earlier {
                Some((number, id)) if self.random.u8(0..4) == 0 => {
                    let back = self.publication.rollback(number).await;
                    (id, back.transpose())
                }
                _ => {
                    let len = [SHORT, SHORT, ONE_PART, TWO_PARTS][self.random.usize(0..4)];
                    let id = self.random.u64(..);
                    (id, Some(self.publication.publish(&Edition { id, len }).await))
                }
            };
            match published {
                // Dropped meanwhile, so there is nothing to go back to.
                None => {}
                Some(Ok(number)) => {
                    let other = self.told().editions.insert(number, id);
                    if other.is_some() {
                        self.wrong(format!("two editions have the number {number}"));
                    }
                }
                Some(Err(error)) if error.outcome() == Outcome::Unknown => {
                    if is_unknown_without_reason(&error, self.client.session_id() == session) {
                        self.wrong(format!("unknown in one session: {error:?}"));
                    }
                    self.told().unknown.push(id);
                }
                Some(Err(_)) => {}
            }
        }
    }

    /// Every edition that it is told is whole, and a later one than the one before.
    async fn follow(mut self) {
        let mut editions = self.publication.follow();
        let mut last = 0;
        while self.run.now() < self.end {
            let patience = PAUSE.mul_f64(2.0 * self.random.f64());
            if let Ok(false) = timeout(patience, self.next(&mut editions, &mut last)).await {
                // Without a server for a while; it goes on.
                sleep(PAUSE).await;
            }
            // Behind the others, whose editions are dropped meanwhile.
            if self.random.bool() {
                sleep(PAUSE.mul_f64(self.random.f64())).await;
            }
        }

        // And then until it has seen everything.
        let path = ZnodePath::new(PUBLICATION).expect("a path");
        let catch_up = async {
            loop {
                let _ = timeout(PAUSE, self.next(&mut editions, &mut last)).await;
                if let Ok((_, stat)) = self.client.data(&path).await
                    && u64::try_from(stat.version).is_ok_and(|version| version == last)
                {
                    return;
                }
            }
        };
        if timeout(PATIENCE, catch_up).await.is_err() {
            self.run.note(&self.name, What::Stuck(format!("still sees edition {last}")));
        }
    }

    /// Takes what comes next; tells whether anything did.
    async fn next(&self, editions: &mut Editions<Edition, Whole>, last: &mut u64) -> bool {
        match editions.next().await {
            Ok(ValueChange::Set(now)) => {
                let number = u64::try_from(now.revision.version).unwrap_or_default();
                if number <= *last {
                    self.wrong(format!("sees edition {number} after {last}"));
                }
                *last = number;
                self.told().seen.insert((number, now.value.id));
                true
            }
            Ok(ValueChange::Absent) if *last == 0 => true,
            Ok(other) => {
                self.wrong(format!("sees {other:?} after edition {last}"));
                true
            }
            Err(_) => false,
        }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().expect("nobody panics with it")
    }

    fn wrong(&self, what: String) {
        self.run.note(&self.name, What::InexactValue(what));
    }
}
