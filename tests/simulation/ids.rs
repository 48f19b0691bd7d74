//! The test kit's programs that mint ids, on the machines of a run.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::ids::{self, MintingJob, NumberTerms};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::queues::Station;
use crate::run::{PATIENCE, Run};
use crate::severity::Severity;
use crate::sharing::{PAUSE, Until, pace};

/// Whether a run has programs that mint ids: some of each severity, on one server and on several.
pub(crate) fn has_ids(seed: u64) -> bool {
    matches!(seed % 32, 11 | 27)
}

/// The programs of a run that mint ids.
pub(crate) struct Ids {
    client: Client,
    terms: NumberTerms,
}

impl Ids {
    pub(crate) fn new(client: Client, run: &Run, random: &mut fastrand::Rng) -> Self {
        let terms = NumberTerms::any(random, run.severity == Severity::Bounded);
        run.note("world", What::Note(format!("{terms:?}")));
        Self { client, terms }
    }

    /// What they do until `end`: two on each machine.
    pub(crate) fn tasks(
        &self,
        run: &Arc<Run>,
        random: &mut fastrand::Rng,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        let jobs = (0..run.machines.len() * 2).map(|program| {
            let machine = &run.machines[program % run.machines.len()];
            let place = Station::new(run, machine, end).at_pace(pace(run)).of("a worker");
            let job = MintingJob { place, name: format!("worker {program}"), terms: self.terms };
            tokio::task::spawn_local(job.fill(random.fork()))
        });
        jobs.collect()
    }

    /// After the faults: each number can be had, and none is held then.
    pub(crate) async fn all_is_well(self, run: &Arc<Run>) {
        let scene = Until::new(run, Duration::ZERO, PAUSE);
        if timeout(PATIENCE, ids::settle(&scene, &self.client, self.terms)).await.is_err() {
            run.note("world", What::Stuck("numbers cannot be had, or are not given back".into()));
        }
        run.close([self.client], "a client of numbers").await;
    }
}
