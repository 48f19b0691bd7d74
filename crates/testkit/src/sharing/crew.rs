//! Who uses a queue on each machine; and consumers that come in the place of those who have died.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, Guard, State};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Scene;
use super::queues::{Consumer, Orders, QueueProgram, Terms};
use crate::gate::Gate;
use crate::history::What;

/// After which another program comes in the place of one that has died, at most.
const VACANCY: Duration = Duration::from_millis(1_500);

/// What is done to a queue beside working on its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Puts items.
    Puts,
    /// Takes values at most once.
    Removes,
    /// Fills segments.
    Winds,
    /// Sees to the dead letters.
    SeesToLetters,
    /// Cancels items.
    Cancels,
    /// Deletes outcome markers.
    DeletesMarkers,
}

impl Role {
    /// Those that the client of a machine has.
    pub fn of(terms: &Terms, machine: usize) -> Vec<Self> {
        let all = [
            (Self::Puts, true),
            (Self::Removes, terms.at_most_once && machine == 0),
            (Self::Winds, terms.winds && machine == 1),
            (Self::SeesToLetters, terms.has_clerk && machine == 2),
            (Self::Cancels, terms.has_cancels()),
            (Self::DeletesMarkers, terms.loses_markers),
        ];
        all.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(role, _)| role).collect()
    }

    /// What its program is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Puts => "put",
            Self::Removes => "once",
            Self::Winds => "wind",
            Self::SeesToLetters => "clerk",
            Self::Cancels => "cancel",
            Self::DeletesMarkers => "markers",
        }
    }
}

impl QueueProgram {
    /// Does that until the end.
    pub async fn play(self, role: Role) {
        match role {
            Role::Puts => self.put().await,
            Role::Removes => self.remove().await,
            Role::Winds => self.wind().await,
            Role::SeesToLetters => self.see_to_letters().await,
            Role::Cancels => self.cancel().await,
            Role::DeletesMarkers => self.delete_markers().await,
        }
    }
}

/// A machine on which one consumer after the other works. All run on one thread.
pub trait Workplace {
    /// Where they run.
    fn scene(&self) -> Arc<dyn Scene + Send + Sync>;

    /// Runs a program there.
    fn run(&self, program: impl Future<Output = ()> + 'static) -> JoinHandle<()>;

    /// A client whose own tasks go through this gate, as soon as a server can be reached.
    fn client(&self, gate: &Arc<Gate>) -> impl Future<Output = Client>;

    /// What cuts the machine off, for a little longer than a session lives.
    fn cutting_off(&self) -> Box<dyn Fn() + Send + Sync>;

    /// The latest client has died, with its program.
    fn has_died(&self) {}

    /// The last program has ended.
    fn close(&self, client: Client) -> impl Future<Output = ()>;
}

/// The job of a consumer, which one program after the other has.
#[derive(Debug)]
pub struct ConsumerJob<S> {
    /// Its machine.
    pub place: S,
    /// What it is called.
    pub name: String,
    /// What all programs of the queue know.
    pub orders: Arc<Orders>,
    /// What the queue is like.
    pub terms: Terms,
}

impl<S: Workplace> ConsumerJob<S> {
    /// Returns when the queue is empty for good, or the last one has died.
    pub async fn fill(self, random: fastrand::Rng) {
        let life = |life, client, random, die| {
            let program = QueueProgram {
                scene: self.place.scene(),
                client,
                name: format!("{} {life}", self.name),
                random: Mutex::new(random),
                terms: self.terms,
                orders: Arc::clone(&self.orders),
            };
            Consumer { program, die, cut_off: self.place.cutting_off() }.consume()
        };
        one_after_the_other(&self.place, random, life).await;
    }
}

/// What a holder may say of what it holds now: that it is lost, or until when nobody else has it.
pub(super) fn standing(scene: &dyn Scene, lock: String, guard: &Guard) -> Option<What> {
    let token = guard.token().to_u128();
    // Asked for first: what it says must be true although time has passed since.
    let deadline = guard.deadline();
    match (guard.state(), deadline) {
        (State::Lost(reason), _) => Some(What::Lost { lock, token, reason: format!("{reason:?}") }),
        (_, Some(deadline)) => {
            let until = scene.true_time(deadline)?;
            Some(What::Claimed { lock, token, until })
        }
        _ => None,
    }
}

/// Kills a program. `true`: another one comes in its place.
pub(super) type Die = Box<dyn Fn(bool) + Send + Sync>;

/// Runs programs at a place, each when the one before it has died, until one ends by itself, or dies and is not replaced.
/// `life` makes one, by its number, from 0.
pub(super) async fn one_after_the_other<S: Workplace, P>(
    place: &S,
    mut random: fastrand::Rng,
    life: impl Fn(u32, Client, fastrand::Rng, Die) -> P,
) where
    P: Future<Output = ()> + 'static,
{
    for number in 0.. {
        let (gate, has_died) = (Arc::<Gate>::default(), Arc::<Notify>::default());
        let client = place.client(&gate).await;
        let is_replaced = Arc::new(AtomicBool::new(false));
        let (closing, died) = (Arc::clone(&gate), Arc::clone(&has_died));
        let replaced = Arc::clone(&is_replaced);
        let die = Box::new(move |by_another| {
            closing.close();
            replaced.store(by_another, Ordering::Relaxed);
            died.notify_one();
        });
        let work = place.run(gate.through(life(number, client.clone(), random.fork(), die)));

        tokio::select! {
            biased;
            () = has_died.notified() => {
                place.has_died();
                if !is_replaced.load(Ordering::Relaxed) {
                    return;
                }
                sleep(VACANCY.mul_f64(random.f64())).await;
            }
            ended = work => {
                if let Err(error) = ended {
                    place.scene().note("world", What::Stuck(format!("a task ended: {error}")));
                }
                return place.close(client).await;
            }
        }
    }
}
