//! The test kit's programs that wait for each other, on the machines of a run: parties that die and are replaced, and
//! on each machine one client for a latch and a gate.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::barriers::{
    self, BarrierOrders, BarrierProgram, BarrierTerms, PartyJob,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::queues::Station;
use crate::run::{PATIENCE, Run};
use crate::severity::Severity;
use crate::sharing::{pace, scene};

/// Whether a run has barriers too: some of each severity, on one server and on several. On one, there is little else.
pub(crate) fn has_barriers(seed: u64) -> bool {
    matches!(seed % 32, 6 | 15 | 24 | 31)
}

/// The programs of a run that use barriers.
pub(crate) struct Barriers {
    clients: Vec<Client>,
    orders: Arc<BarrierOrders>,
    terms: BarrierTerms,
    parties: Vec<JoinHandle<()>>,
    of_latch: Vec<JoinHandle<()>>,
    of_gate: Vec<JoinHandle<()>>,
}

impl Barriers {
    pub(crate) fn new(clients: Vec<Client>, run: &Run, random: &mut fastrand::Rng) -> Self {
        let terms = BarrierTerms::any(random, run.severity == Severity::Bounded);
        run.note("world", What::Note(format!("{terms:?}")));
        let (parties, of_latch, of_gate) = Default::default();
        Self { clients, orders: Arc::default(), terms, parties, of_latch, of_gate }
    }

    /// What those do until `end` that count down, close and open. All others go on until all is over.
    pub(crate) fn tasks(
        &mut self,
        run: &Arc<Run>,
        random: &mut fastrand::Rng,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        for program in 0..self.terms.programs {
            let machine = &run.machines[program % run.machines.len()];
            let pace = pace(run);
            let place = Station::new(run, machine, end).at_pace(pace).of("a party");
            let job = PartyJob {
                place,
                name: format!("party {program}"),
                program,
                terms: self.terms,
                orders: Arc::clone(&self.orders),
            };
            self.parties.push(tokio::task::spawn_local(job.fill(random.fork())));
        }

        let mut tasks = Vec::new();
        for (index, (machine, client)) in run.machines.iter().zip(&self.clients).enumerate() {
            let mut program = |what: &str| BarrierProgram {
                scene: scene(run, machine, end),
                client: client.clone(),
                name: format!("client {index}.{what}"),
                random: random.fork(),
                terms: self.terms,
                orders: Arc::clone(&self.orders),
            };
            tasks.push(machine.run(program("count 0").count_down()));
            tasks.push(machine.run(program("count 1").count_down()));
            self.of_latch.push(machine.run(program("latch").wait_for_latch()));
            self.of_gate.push(machine.run(program("gate").wait_at_gate()));
            if index == 0 {
                tasks.push(machine.run(program("reset").reset()));
                tasks.push(machine.run(program("keeper").keep_gate()));
            }
        }
        tasks
    }

    /// After the faults: all waiting calls return, and no node is left.
    pub(crate) async fn all_is_well(self, run: &Arc<Run>) {
        let mut program = BarrierProgram {
            scene: scene(run, &run.machines[0], Duration::ZERO),
            client: self.clients[0].clone(),
            name: "world".to_owned(),
            random: fastrand::Rng::with_seed(0),
            terms: self.terms,
            orders: self.orders,
        };
        let waiting = (self.of_latch, self.of_gate);
        let settled = barriers::settle(&mut program, self.parties, waiting, PATIENCE);
        if timeout(PATIENCE * 8, settled).await.is_err() {
            return run.note("world", What::Stuck("barriers do not settle".into()));
        }
        run.close(self.clients, "a client of barriers").await;
    }
}
