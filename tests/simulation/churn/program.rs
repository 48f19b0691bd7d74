//! A program that is a member, and how it leaves.

use std::rc::Rc;
use std::time::Duration;

use lockkeeper::{Assignment, PartitionMember, PartitionsError};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::judge::Judge;

/// After what time a program looks after its items, at most.
const GLANCE: Duration = Duration::from_millis(200);

/// How a program leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Leaving {
    /// It leaves, and waits until all items are released.
    Leaves,
    /// It drops its member.
    Drops,
    /// It dies, and its session ends later.
    Dies,
    /// It cannot reach the server until its session has ended.
    IsCutOff,
}

impl Leaving {
    pub(super) fn any(random: &mut fastrand::Rng) -> Self {
        [Self::Leaves, Self::Drops, Self::Dies, Self::IsCutOff][random.usize(..4)]
    }
}

/// A program that is a member.
pub(super) struct Program {
    pub(super) who: usize,
    pub(super) judge: Rc<Judge>,
    pub(super) random: fastrand::Rng,
}

impl Program {
    /// Holds the items of the member, and releases items that move, until it gets a command to leave.
    pub(super) async fn work(
        mut self,
        member: PartitionMember,
        mut told: oneshot::Receiver<Leaving>,
    ) {
        let leaving = loop {
            let glance = self.glance();
            tokio::select! {
                biased;
                leaving = &mut told => break leaving,
                next = member.next() => self.got(next).await,
                () = sleep(glance) => {}
            }
            self.look_after().await;
        };

        match leaving {
            Ok(Leaving::Drops) => {
                drop(member);
                while !self.judge.has_nothing(self.who) {
                    sleep(self.glance()).await;
                    self.look_after().await;
                }
            }
            _ => self.leave(member).await,
        }
    }

    async fn leave(&mut self, member: PartitionMember) {
        let mut leaving = std::pin::pin!(member.leave());
        loop {
            let glance = self.glance();
            tokio::select! {
                biased;
                left = &mut leaving => {
                    if let Err(error) = left {
                        self.judge.refused(self.who, error.to_string());
                    }
                    break;
                }
                () = sleep(glance) => self.look_after().await,
            }
        }
        if !self.judge.has_nothing(self.who) {
            self.judge.wrong(format!("program {} has left, and has something", self.who));
        }
    }

    async fn got(&mut self, next: Result<Assignment, PartitionsError>) {
        match next {
            Ok(assignment) => self.judge.granted(self.who, assignment),
            Err(error) => {
                self.judge.refused(self.who, error.to_string());
                // One that stays comes again at once.
                sleep(self.glance()).await;
            }
        }
    }

    /// Gives back what is to move, in one of two ways, and what is lost.
    async fn look_after(&mut self) {
        for assignment in self.judge.given_back(self.who) {
            match self.random.bool() {
                true => drop(assignment),
                // One that is lost cannot be released.
                false => drop(assignment.release().await),
            }
        }
    }

    fn glance(&mut self) -> Duration {
        GLANCE.mul_f64(self.random.f64())
    }
}
