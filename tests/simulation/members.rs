//! The test kit's members of a group, on the machines of a run: one of each machine that stays, and one that
//! comes and goes.
//!
//! A member that stays through all faults is in every view at the end. If no session ends, it
//! has not left in between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::groups::{self, Stays};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::run::{PATIENCE, Run};
use crate::severity::Severity;
use crate::sharing::at_pace_of_register;

/// The clients of a run that are members.
pub(crate) struct Members {
    clients: Vec<Client>,
    /// Those that stay, when each has seen all of them.
    met: Arc<Mutex<Vec<Stays>>>,
}

impl Members {
    pub(crate) fn new(clients: Vec<Client>) -> Self {
        Self { clients, met: Arc::default() }
    }

    /// What all of them do until `end`.
    pub(crate) fn tasks(
        &self,
        run: &Arc<Run>,
        random: &mut fastrand::Rng,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        let id = |index: usize| format!("stays-{index}");
        let ids: Vec<_> = (0..self.clients.len()).map(id).collect();
        let mut tasks = Vec::new();
        for (index, (machine, client)) in run.machines.iter().zip(&self.clients).enumerate() {
            let scene = || at_pace_of_register(run, end);
            let name = |what| format!("client {index}.{what}");
            let guest = groups::come_and_go(scene(), name("g"), client.clone(), random.fork());
            tasks.push(machine.run(guest));

            let member = groups::stay(scene(), name("m"), client.clone(), id(index), ids.clone());
            let met = Arc::clone(&self.met);
            tasks.push(machine.run(async move {
                let stays = member.await;
                met.lock().expect("the lock is not poisoned").extend(stays);
            }));
        }
        tasks
    }

    /// After the faults: all members leave, and all watchers see that.
    pub(crate) async fn all_is_well(self, run: &Run) {
        let met = std::mem::take(&mut *self.met.lock().expect("the lock is not poisoned"));
        let mut watchers = Vec::new();
        for Stays { membership, joined, watcher } in met {
            let (id, token) = (membership.id().to_owned(), membership.token());
            if run.severity == Severity::Bounded && token != joined {
                let what = format!("{id} joined with {joined:?}, and has {token:?}");
                run.note("world", What::LostPresence(what));
            }
            if timeout(PATIENCE, membership.leave()).await.is_err() {
                return run.note("world", What::Stuck(format!("{id} does not leave")));
            }
            watchers.push(watcher);
        }
        for watcher in &mut watchers {
            watcher.part().await;
        }
        run.close(self.clients, "a client of a group").await;
    }
}
