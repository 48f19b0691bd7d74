//! Programs that have a worker number each and mint ids with it, even after they have lost it, and record these ids.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{
    Client, Failure as _, HolderState, IdLayout, MintError, WorkerId, WorkerIdError, WorkerIds,
    ZnodePath,
};
use tokio::time::{sleep, timeout};

use super::crew::{Die, Workplace, one_after_the_other, standing};
use super::{Scene, retried};
use crate::data_event::DataEvent;
use crate::history::{Share, What};

const WORKERS: &str = "/workers";

/// Four ids in a millisecond, so that a reservation is sometimes used up.
const LAYOUT: IdLayout =
    IdLayout { epoch_unix_ms: 0, time_bits: 57, number_bits: 4, sequence_bits: 2 };

/// Longer than the error of any wall clock.
const DAYS: Duration = Duration::from_secs(2 * 24 * 3600);

/// The interval between two tries after the faults.
const GLANCE: Duration = Duration::from_millis(200);

/// The settings of the worker numbers in a run.
#[derive(Clone, Copy, Debug)]
pub struct NumberTerms {
    numbers: u32,
    max_ahead: Duration,
    /// Whether the run contains no fault that would justify an error.
    is_well: bool,
    /// Whether the nodes of current holders are deleted. Ids are unique even then; numbers are not.
    is_robbed: bool,
}

impl NumberTerms {
    /// Chooses settings at random. `is_well`: no session is lost, and every outage is shorter than a session's
    /// lifetime.
    pub fn any(random: &mut fastrand::Rng, is_well: bool) -> Self {
        let max_ahead = [Duration::from_secs(60), DAYS][random.usize(0..2)];
        let is_robbed = !is_well && random.u8(0..3) == 0;
        Self { numbers: random.u32(1..5), max_ahead, is_well, is_robbed }
    }

    fn workers(&self, client: &Client) -> WorkerIds {
        let builder = WorkerIds::builder(client, WORKERS).numbers(0..self.numbers);
        builder.layout(LAYOUT).max_ahead(self.max_ahead).build().expect("a valid path")
    }
}

/// The role of a program that mints, which successive programs fill.
#[derive(Debug)]
pub struct MintingJob<S> {
    /// Its machine.
    pub place: S,
    /// Its name in the history.
    pub name: String,
    /// The settings of the numbers.
    pub terms: NumberTerms,
}

/// A program that mints ids.
struct Minting {
    scene: Arc<dyn Scene + Send + Sync>,
    client: Client,
    name: String,
    random: fastrand::Rng,
    terms: NumberTerms,
    die: Die,
    cut_off: Box<dyn Fn() + Send + Sync>,
}

impl<S: Workplace> MintingJob<S> {
    /// Returns at the end of the run.
    pub async fn fill(self, random: fastrand::Rng) {
        let life = |life, client, random, die: Die| {
            let program = Minting {
                scene: self.place.scene(),
                client,
                name: format!("{} {life}", self.name),
                random,
                terms: self.terms,
                die,
                cut_off: self.place.cutting_off(),
            };
            program.live()
        };
        one_after_the_other(&self.place, random, life).await;
    }
}

impl Minting {
    async fn live(mut self) {
        let workers = self.terms.workers(&self.client);
        while self.scene.goes_on() {
            self.pause(0.3).await;
            if self.terms.is_robbed && self.random.u8(0..3) == 0 {
                let node = node_of(&self.random.u32(0..self.terms.numbers).to_string());
                let _ = self.client.delete(&node, None).await;
            }
            let limit = self.upto(1.5);
            let acquired = match self.random.u8(0..4) {
                0 => workers.try_acquire().await,
                1 => timeout(limit, workers.acquire()).await.ok().transpose(),
                _ => workers.acquire_timeout(limit).await.map(Some),
            };
            match acquired {
                Ok(Some(worker)) => self.work(worker).await,
                Ok(None) => {}
                Err(error) => self.refused(&error),
            }
        }
    }

    async fn work(&mut self, worker: WorkerId) {
        let (lock, token) = (worker.node().to_string(), worker.token().to_u128());
        self.note(What::Granted { lock: lock.clone(), token, share: Share::Alone });
        for _ in 0..self.random.usize(1..6) {
            self.mint(&worker).await;
            self.claim(&worker);
            if worker.state() != HolderState::Held && self.random.bool() {
                break;
            }
            self.pause(0.2).await;
        }

        let gives_back = What::GaveBack { lock, token };
        match self.random.u8(0..12) {
            0 => {
                self.note(gives_back);
                drop(worker);
            }
            1 if self.scene.goes_on() => {
                self.note(gives_back);
                (self.die)(true);
                std::future::pending::<()>().await;
            }
            2 | 3 if self.scene.goes_on() && !self.terms.is_well => {
                (self.cut_off)();
                for _ in 0..4 {
                    self.pause(1.0).await;
                    self.claim(&worker);
                    self.mint(&worker).await;
                }
                self.give_back(worker, gives_back).await;
            }
            _ => self.give_back(worker, gives_back).await,
        }
    }

    async fn give_back(&self, worker: WorkerId, gives_back: What) {
        self.note(gives_back);
        // The release continues in the background if no server answers.
        let _ = worker.release().await;
    }

    /// Mints a few ids, or all that are reserved and more.
    async fn mint(&mut self, worker: &WorkerId) {
        let many = self.random.usize(1..40);
        let mut ids: Vec<i64> = Vec::new();
        // Uniqueness does not depend on the deadline.
        ids.extend((0..many).map_while(|_| worker.mint_unchecked().ok()));
        if self.random.u8(0..8) == 0 {
            ids.extend((0..15_000).map_while(|_| worker.mint().ok()));
        }

        if self.random.u8(0..3) == 0 {
            let longest = self.upto(1.0);
            match timeout(longest, worker.next()).await {
                Ok(Ok(id)) => ids.push(id),
                // The next holder's first reservation follows the loss, which the session reports first.
                Ok(Err(error @ MintError::Ended(_))) if !self.terms.is_robbed => {
                    self.wrong(format!("mints no more: {error}"));
                }
                _ => {}
            }
        }

        // The ids between the first and the last of a row follow from these two.
        let number = worker.number();
        if !ids.is_sorted_by(|one, next| one < next) {
            self.wrong(format!("ids do not grow: {ids:?}"));
        }
        if let Some(id) = ids.iter().find(|id| LAYOUT.parts(**id).number != number) {
            self.wrong(format!("{id} is not of number {number}"));
        }
        if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
            let token = if self.terms.is_robbed { 0 } else { worker.token().to_u128() };
            self.tell(DataEvent::Minted { number, token, first: *first, last: *last });
        }
    }

    /// Records until when no other program has the number.
    fn claim(&self, worker: &WorkerId) {
        if let Some(what) = standing(&*self.scene, worker.node().to_string(), worker) {
            self.note(what);
        }
    }

    fn refused(&self, error: &WorkerIdError) {
        let passes = error.is_retryable() || matches!(error, WorkerIdError::Client { .. });
        match passes {
            true => self.scene.note(&self.name, What::Note(format!("has no number: {error}"))),
            false => self.wrong(format!("has no number: {error}")),
        }
    }

    /// Records the holder of a number. Each number has one holder unless its node is deleted.
    fn note(&self, what: What) {
        if !self.terms.is_robbed {
            self.scene.note(&self.name, what);
        }
    }

    fn wrong(&self, what: String) {
        self.scene.note(&self.name, What::WrongId(what));
    }

    fn tell(&self, told: DataEvent) {
        self.scene.note(&self.name, What::Data(told));
    }

    fn upto(&mut self, share: f64) -> Duration {
        self.scene.pace().mul_f64(share * self.random.f64())
    }

    async fn pause(&mut self, share: f64) {
        sleep(self.upto(share)).await;
    }
}

/// After the faults: each program that comes gets each number and mints with it; afterwards no number is held.
pub async fn settle(scene: &dyn Scene, client: &Client, terms: NumberTerms) {
    // A number that a fast clock has put ahead can be used by a handle that allows this.
    let workers = NumberTerms { max_ahead: DAYS, ..terms }.workers(client);
    let mut held = Vec::new();
    for _ in 0..terms.numbers {
        let worker = retried(GLANCE, || workers.acquire()).await;
        if let Ok(id) = worker.next().await {
            let token = if terms.is_robbed { 0 } else { worker.token().to_u128() };
            let number = worker.number();
            scene.note(
                "world",
                What::Data(DataEvent::Minted { number, token, first: id, last: id }),
            );
        }
        held.push(worker);
    }
    drop(held);

    loop {
        match client.children(&node_of("0").parent().expect("not the root")).await {
            Ok((names, _)) if !names.is_empty() => {}
            _ => return,
        }
        sleep(GLANCE).await;
    }
}

fn node_of(number: &str) -> ZnodePath {
    ZnodePath::new(&format!("{WORKERS}/held/{number}")).expect("a valid path")
}
