//! What a program asks for, a lock or the item of a queue, and what it has then.

use std::slice;
use std::time::Duration;

use lockkeeper::{
    AcquireError, BarrierError, Client, Deaths, DoubleBarrier, Guard, HolderState, Instant, Item,
    Queue, QueueError, Round,
};
use lockkeeper_testkit::history::Share;
use lockkeeper_testkit::locks::{Design, Held, Lock, Sharing, Wait};

use crate::program::{ENDLESS, GaveUp, Phase};
use crate::{BARRIER, QUEUE};

/// What the program of a client asks for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Lock(Design, Sharing),
    Item,
    /// A round of so many parties, for which it waits for so long.
    Round(usize, Option<Duration>),
}

impl Wanted {
    pub(crate) fn open(&self, client: &Client) -> Source {
        match self {
            Self::Lock(design, sharing) => Source::Lock(Box::new(design.open(client, *sharing))),
            Self::Round(parties, patience) => {
                let barrier = DoubleBarrier::builder(client, BARRIER).count(*parties);
                let barrier = barrier.deaths(Deaths::Report).build();
                let name = client.unique_id().simple().to_string();
                Source::Rounds(barrier.expect("a path for a barrier"), name, *patience)
            }
            Self::Item => Source::Queue(Queue::new(client, QUEUE).expect("a path for a queue")),
        }
    }
}

/// Where a program gets what it asks for.
#[derive(Debug)]
pub(crate) enum Source {
    Lock(Box<Lock>),
    Queue(Queue<()>),
    /// As a party of this name, that waits for so long.
    Rounds(DoubleBarrier, String, Option<Duration>),
}

impl Source {
    pub(crate) async fn get(&self, share: Share) -> Result<Owned, GaveUp> {
        match self {
            Self::Lock(lock) => match lock.acquire(share, Wait::Forever).await {
                Ok(held) => Ok(Owned::Lock(held.expect("it waits"))),
                Err(error) => Err(refused(&error)),
            },
            Self::Queue(queue) => queue.take().await.map(Owned::Item).map_err(of_queue),
            Self::Rounds(barrier, name, patience) => {
                let entered = match patience {
                    Some(patience) => barrier.enter_timeout(name, *patience).await,
                    None => barrier.enter(name).await,
                };
                entered.map(Owned::Round).map_err(of_barrier)
            }
        }
    }

    /// Makes what is there before anybody waits: how it is made is a matter of other tests.
    pub(crate) async fn prepare(&self) {
        if let Self::Rounds(barrier, ..) = self {
            barrier.inspect().await.expect("nothing is wrong yet");
        }
    }

    /// Puts the item into the queue.
    pub(crate) async fn put(&self) -> Result<(), GaveUp> {
        let Self::Queue(queue) = self else { unreachable!("nothing is put into a lock") };
        queue.put(&()).await.map(drop).map_err(of_queue)
    }

    /// Whether it has nodes of its own for as long as it is there.
    pub(crate) fn has_nodes(&self) -> bool {
        matches!(self, Self::Queue(_) | Self::Rounds(..))
    }
}

/// What a program has.
#[derive(Debug)]
pub(crate) enum Owned {
    Lock(Held),
    Item(Item<()>),
    Round(Round),
}

impl Owned {
    /// What its owner may believe; of two locks, about the first.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guards()[0]
    }

    pub(crate) fn guards(&self) -> &[Guard] {
        match self {
            Self::Lock(held) => held.guards(),
            Self::Item(item) => slice::from_ref(item),
            Self::Round(round) => slice::from_ref(round),
        }
    }

    pub(crate) fn state(&self) -> HolderState {
        match self {
            Self::Lock(held) => held.state(),
            Self::Item(item) => item.state(),
            Self::Round(round) => round.state(),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Lock(held) => held.deadline(),
            Self::Item(item) => item.deadline(),
            Self::Round(round) => round.deadline(),
        }
    }

    /// What it can become without being given back.
    pub(crate) fn may_become(&self) -> Option<Share> {
        match self {
            Self::Lock(held) => held.may_become(),
            Self::Item(_) | Self::Round(_) => None,
        }
    }

    pub(crate) async fn turn(self) -> Result<Self, GaveUp> {
        match self {
            Self::Lock(held) => match held.turn(ENDLESS).await {
                Ok(held) => Ok(Self::Lock(held)),
                Err(error) => Err(refused(&error)),
            },
            Self::Item(_) | Self::Round(_) => unreachable!("it can become nothing else"),
        }
    }

    /// Gives the lock back, records that the item is done, or leaves the round.
    pub(crate) async fn end(self) -> Phase {
        match self {
            Self::Lock(held) => {
                held.release().await;
                Phase::Done
            }
            Self::Item(item) => match item.done().await {
                Ok(()) => Phase::Done,
                Err(QueueError::Lost { .. }) => Phase::GaveUp(GaveUp::Lost),
                Err(error) => Phase::GaveUp(of_queue(error)),
            },
            Self::Round(round) => match round.leave().await {
                Ok(_) => Phase::Done,
                Err(BarrierError::Lost { .. }) => Phase::GaveUp(GaveUp::Lost),
                Err(error) => Phase::GaveUp(of_barrier(error)),
            },
        }
    }
}

fn refused(error: &AcquireError) -> GaveUp {
    match error {
        AcquireError::TooMany { .. } => GaveUp::TooMany,
        error => GaveUp::Failed(error.to_string()),
    }
}

/// Why a queue is given up; other errors have no reason here.
fn of_queue(error: QueueError) -> GaveUp {
    use QueueError::{Client, Take, Unknown};
    match error {
        Unknown { .. } | Take { .. } | Client { .. } => GaveUp::Failed(error.to_string()),
        error => panic!("{error}"),
    }
}

/// Why a barrier is given up; other errors have no reason here.
fn of_barrier(error: BarrierError) -> GaveUp {
    use BarrierError::{Client, Enter, TimedOut, Unknown};
    match error {
        TimedOut { .. } => GaveUp::TimedOut,
        Unknown { .. } | Enter { .. } | Client { .. } => GaveUp::Failed(error.to_string()),
        error => panic!("{error}"),
    }
}
