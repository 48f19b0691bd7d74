//! The test kit's programs that share items, on the machines of a run: members that die and are replaced.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::partitions::{self, PartitionOrders, PartitionTerms, SharerJob};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::queues::Station;
use crate::run::{PATIENCE, Run};
use crate::severity::Severity;
use crate::sharing::{pace, scene};

/// Whether a run has partitions too: some of each severity, with little else.
pub(crate) fn has_partitions(seed: u64) -> bool {
    matches!(seed % 32, 10 | 26 | 11 | 27)
}

/// The programs of a run that share items.
pub(crate) struct Sharers {
    client: Client,
    orders: Arc<PartitionOrders>,
    terms: PartitionTerms,
    jobs: Vec<JoinHandle<()>>,
}

impl Sharers {
    /// What they do until `end`; then they settle.
    pub(crate) fn new(
        client: Client,
        run: &Arc<Run>,
        random: &mut fastrand::Rng,
        end: Duration,
    ) -> Self {
        let terms = PartitionTerms::any(random, run.severity == Severity::Bounded);
        run.note("world", What::Note(format!("{terms:?}")));
        let orders = Arc::<PartitionOrders>::default();
        let jobs = (0..terms.programs).map(|program| {
            let machine = &run.machines[program % run.machines.len()];
            let place = Station::new(run, machine, end).at_pace(pace(run)).of("a member");
            let orders = Arc::clone(&orders);
            let name = format!("sharer {program}");
            let job = SharerJob { place, name, program, terms, orders };
            tokio::task::spawn_local(job.fill(random.fork()))
        });
        let jobs = jobs.collect();
        Self { client, orders, terms, jobs }
    }

    /// After the faults: every item has an owner, and moves only if it must.
    pub(crate) async fn all_is_well(self, run: &Arc<Run>) {
        let Self { client, orders, terms, jobs } = self;
        let scene = scene(run, &run.machines[0], Duration::ZERO);
        let settled = partitions::settle(&scene, &client, terms, &orders, jobs, PATIENCE);
        if timeout(PATIENCE * 8, settled).await.is_err() {
            return run.note("world", What::Stuck("partitions do not settle".into()));
        }
        run.close([client], "the client that looks at partitions").await;
    }
}
