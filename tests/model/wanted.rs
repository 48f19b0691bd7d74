//! What a program asks for, a lock or the item of a queue, and what it has then.

use std::slice;

use lockkeeper::{AcquireError, Client, Guard, Instant, Item, Queue, QueueError, State};
use lockkeeper_testkit::history::Share;
use lockkeeper_testkit::locks::{Design, Held, Lock, Patience, Sharing};

use crate::QUEUE;
use crate::program::{ENDLESS, GaveUp, Phase};

/// What the program of a client asks for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Lock(Design, Sharing),
    Item,
}

impl Wanted {
    pub(crate) fn open(&self, client: &Client) -> Source {
        match self {
            Self::Lock(design, sharing) => Source::Lock(Box::new(design.open(client, *sharing))),
            Self::Item => Source::Queue(Queue::new(client, QUEUE).expect("a path for a queue")),
        }
    }
}

/// Where a program gets what it asks for.
#[derive(Debug)]
pub(crate) enum Source {
    Lock(Box<Lock>),
    Queue(Queue<()>),
}

impl Source {
    pub(crate) async fn get(&self, share: Share) -> Result<Owned, GaveUp> {
        match self {
            Self::Lock(lock) => match lock.acquire(share, Patience::Endless).await {
                Ok(held) => Ok(Owned::Lock(held.expect("it waits"))),
                Err(error) => Err(refused(&error)),
            },
            Self::Queue(queue) => queue.take().await.map(Owned::Item).map_err(of_queue),
        }
    }

    /// Puts the item into the queue.
    pub(crate) async fn put(&self) -> Result<(), GaveUp> {
        let Self::Queue(queue) = self else { unreachable!("nothing is put into a lock") };
        queue.put(&()).await.map(drop).map_err(of_queue)
    }

    /// Whether it has nodes of its own for as long as it is there.
    pub(crate) fn has_nodes(&self) -> bool {
        matches!(self, Self::Queue(_))
    }
}

/// What a program has.
#[derive(Debug)]
pub(crate) enum Owned {
    Lock(Held),
    Item(Item<()>),
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
        }
    }

    pub(crate) fn state(&self) -> State {
        match self {
            Self::Lock(held) => held.state(),
            Self::Item(item) => item.state(),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Lock(held) => held.deadline(),
            Self::Item(item) => item.deadline(),
        }
    }

    /// What it can become without being given back.
    pub(crate) fn may_become(&self) -> Option<Share> {
        match self {
            Self::Lock(held) => held.may_become(),
            Self::Item(_) => None,
        }
    }

    pub(crate) async fn turn(self) -> Result<Self, GaveUp> {
        match self {
            Self::Lock(held) => match held.turn(ENDLESS).await {
                Ok(held) => Ok(Self::Lock(held)),
                Err(error) => Err(refused(&error)),
            },
            Self::Item(_) => unreachable!("it can become nothing else"),
        }
    }

    /// Gives the lock back, or records that the item is done.
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
