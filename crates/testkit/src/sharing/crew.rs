//! The users of a queue on each machine, and the consumers that replace crashed ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, Guard, HolderState};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Scene;
use super::queues::{Consumer, Orders, QueueProgram, Terms};
use crate::gate::Gate;
use crate::history::What;

/// The longest time after which a crashed program is replaced.
const VACANCY: Duration = Duration::from_millis(1_500);

/// What a program does to a queue, apart from working on its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Puts items.
    Puts,
    /// Removes values, with delivery at most once.
    Removes,
    /// Fills segments.
    Winds,
    /// Puts dead letters back or discards them.
    SeesToLetters,
    /// Cancels items.
    Cancels,
    /// Deletes outcome markers.
    DeletesMarkers,
}

impl Role {
    /// The roles of the client of a machine.
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

    /// The name of a program with this role.
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
    /// Plays a role until the end of the run.
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

/// A machine on which successive consumers work. All run on one thread.
pub trait Workplace {
    /// The environment in which they run.
    fn scene(&self) -> Arc<dyn Scene + Send + Sync>;

    /// Runs a program on the machine.
    fn run(&self, program: impl Future<Output = ()> + 'static) -> JoinHandle<()>;

    /// Connects a client whose own tasks pass through this gate, as soon as a server can be reached.
    fn client(&self, gate: &Arc<Gate>) -> impl Future<Output = Client>;

    /// A function that cuts the machine off for a little longer than a session lives.
    fn cutting_off(&self) -> Box<dyn Fn() + Send + Sync>;

    /// The latest client has crashed together with its program.
    fn has_died(&self) {}

    /// The last program has ended.
    fn close(&self, client: Client) -> impl Future<Output = ()>;
}

/// The role of a consumer, which successive programs fill.
#[derive(Debug)]
pub struct ConsumerJob<S> {
    /// Its machine.
    pub place: S,
    /// Its name in the history.
    pub name: String,
    /// The state that all programs of the queue share.
    pub orders: Arc<Orders>,
    /// The settings of the queue.
    pub terms: Terms,
}

impl<S: Workplace> ConsumerJob<S> {
    /// Returns when the queue is empty for good, or when the last consumer has crashed.
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

/// What a holder may record about its lock: that it is lost, or until when no other program has it.
pub(super) fn standing(scene: &dyn Scene, lock: String, guard: &Guard) -> Option<What> {
    let token = guard.token().to_u128();
    // Read first: its answer must be true although time has passed since.
    let deadline = guard.deadline();
    match (guard.state(), deadline) {
        (HolderState::Lost(reason), _) => {
            Some(What::Lost { lock, token, reason: format!("{reason:?}") })
        }
        (_, Some(deadline)) => {
            let until = scene.true_time(deadline)?;
            Some(What::Claimed { lock, token, until })
        }
        _ => None,
    }
}

/// Kills a program. `true`: it is replaced.
pub(super) type Die = Box<dyn Fn(bool) + Send + Sync>;

/// Runs programs on a machine, each after the previous one has crashed, until one ends by itself or crashes without a
/// replacement. `life` creates the program with this number, from 0.
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
