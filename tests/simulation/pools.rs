//! The test kit's programs that take things of a pool, on the machines of a run. They die and are replaced.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::pools::{self, HolderJob, PoolProgram, PoolTerms};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::queues::Station;
use crate::run::{PATIENCE, Run};
use crate::severity::Severity;
use crate::sharing::{pace, scene};

/// Whether a run has a pool too: one of each severity, on one server and on several.
pub(crate) fn has_pool(seed: u64) -> bool {
    matches!(seed % 32, 3 | 20 | 27 | 28)
}

/// The programs of a run that use a pool.
pub(crate) struct Pools {
    clients: Vec<Client>,
    terms: PoolTerms,
    settles: Arc<Semaphore>,
    jobs: Vec<JoinHandle<()>>,
}

impl Pools {
    pub(crate) fn new(clients: Vec<Client>, run: &Run, random: &mut fastrand::Rng) -> Self {
        let terms = PoolTerms::any(random, run.severity == Severity::Bounded);
        run.note("world", What::Note(format!("{terms:?}")));
        Self { clients, terms, settles: Arc::new(Semaphore::new(0)), jobs: Vec::new() }
    }

    /// What the one does until `end` that changes the set. All others go on for a while then.
    pub(crate) fn tasks(
        &mut self,
        run: &Arc<Run>,
        random: &mut fastrand::Rng,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        for program in 0..self.terms.programs {
            let machine = &run.machines[program % run.machines.len()];
            let place = Station::new(run, machine, end).at_pace(pace(run)).of("a holder");
            let job = HolderJob {
                place,
                name: format!("holder {program}"),
                program,
                terms: self.terms,
                settles: Arc::clone(&self.settles),
            };
            self.jobs.push(tokio::task::spawn_local(job.fill(random.fork())));
        }
        let keeper = self.program(run, end, "keeper", random.fork());
        vec![run.machines[0].run(keeper.keep())]
    }

    fn program(
        &self,
        run: &Arc<Run>,
        end: Duration,
        name: &str,
        random: fastrand::Rng,
    ) -> PoolProgram {
        PoolProgram {
            scene: scene(run, &run.machines[0], end),
            client: self.clients[0].clone(),
            name: name.to_owned(),
            random,
            terms: self.terms,
            settles: Arc::clone(&self.settles),
        }
    }

    /// After the faults: all waiters get a resource, and no node is left.
    pub(crate) async fn all_is_well(mut self, run: &Arc<Run>) {
        let jobs = std::mem::take(&mut self.jobs);
        let world = self.program(run, Duration::ZERO, "world", fastrand::Rng::with_seed(0));
        if timeout(PATIENCE * 8, pools::settle(&world, jobs, PATIENCE)).await.is_err() {
            return run.note("world", What::Stuck("a pool does not settle".into()));
        }
        run.close(self.clients, "a client of a pool").await;
    }
}
