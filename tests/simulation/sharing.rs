//! The test kit's programs that share data, on the machines of a run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, Counter, Instant, Shared};
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::sharing::{Scene, publications, values};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::machine::Machine;
use crate::run::{PATIENCE, Run};
use crate::severity::Severity;

/// Between two adds, two updates, two editions, or two puts of one client, at most, where anything may go wrong.
pub(crate) const PAUSE: Duration = Duration::from_millis(2_500);

/// The pace of programs that hold something: so slow that a lease may end, or of leases that are long.
pub(crate) fn pace(run: &Run) -> Duration {
    match run.severity {
        Severity::Unbounded => PAUSE,
        Severity::Bounded => run.timing.lease(),
    }
}

/// A run until `end` at that pace, on one of its machines.
pub(crate) fn scene(
    run: &Arc<Run>,
    machine: &Arc<Machine>,
    end: Duration,
) -> Arc<dyn Scene + Send + Sync> {
    Arc::new(Until::new(run, end, pace(run)).on(machine))
}

/// A run until a moment.
pub(crate) struct Until {
    run: Arc<Run>,
    end: Duration,
    pace: Duration,
    /// Whose clock its program reads.
    machine: Option<Arc<Machine>>,
}

impl Until {
    pub(crate) fn new(run: &Arc<Run>, end: Duration, pace: Duration) -> Self {
        Self { run: Arc::clone(run), end, pace, machine: None }
    }

    pub(crate) fn on(self, machine: &Arc<Machine>) -> Self {
        Self { machine: Some(Arc::clone(machine)), ..self }
    }
}

impl Scene for Until {
    fn now(&self) -> Duration {
        self.run.now()
    }

    fn goes_on(&self) -> bool {
        self.run.now() < self.end
    }

    fn note(&self, who: &str, what: What) {
        self.run.note(who, what);
    }

    fn pace(&self) -> Duration {
        self.pace
    }

    fn true_time(&self, reading: Instant) -> Option<Duration> {
        self.machine.as_ref().map(|machine| machine.clock.true_time(reading))
    }

    fn server_unix_ms(&self) -> Option<u64> {
        u64::try_from(self.run.host.wall_at_start_ms())
            .ok()
            .map(|start| start + u64::try_from(self.run.now().as_millis()).unwrap_or(u64::MAX))
    }

    fn queue_events(&self) -> Option<usize> {
        Some(self.run.host.listener.queue_events())
    }
}

/// A run until `end`, for programs that do something as often as the register is used.
pub(crate) fn at_pace_of_register(run: &Arc<Run>, end: Duration) -> Arc<dyn Scene + Send + Sync> {
    Arc::new(Until::new(run, end, run.pace.register))
}

/// Has programs publish and follow until `end`: the first clients, and the second ones.
pub(crate) fn publish(
    run: &Arc<Run>,
    (clients, lookers): (&[Client], &[Client]),
    random: &mut fastrand::Rng,
    end: Duration,
) -> Vec<JoinHandle<()>> {
    let scene: Arc<dyn Scene + Send + Sync> = Arc::new(Until::new(run, end, PAUSE));
    let mut tasks = Vec::new();
    for (index, (machine, client)) in run.machines.iter().zip(clients).enumerate() {
        let looker = lookers[index].clone();
        let scene = || Arc::clone(&scene);
        let name = |what| format!("client {index}.{what}");
        let (publishing, following) = (random.fork(), random.fork());
        let publisher = publications::publish(scene(), name("publish"), client.clone(), publishing);
        let follower = publications::follow(scene(), name("read"), looker, following);
        tasks.push(machine.run(publisher));
        tasks.push(machine.run(follower));
    }
    tasks
}

/// After the faults: says which editions there are.
pub(crate) async fn look_at_editions(run: &Arc<Run>, client: &Client) {
    let scene = Until::new(run, Duration::ZERO, PAUSE);
    if timeout(PATIENCE, publications::look_at_the_end(&scene, client)).await.is_err() {
        run.note("world", What::Stuck("the publication cannot be read".into()));
    }
}

/// The programs of a run that share values.
pub(crate) struct Values {
    random: Mutex<fastrand::Rng>,
}

impl Values {
    /// Some of the runs in which anything may go wrong have them. In the others, what holders may count
    /// on is tried with sessions that write nothing else.
    pub(crate) fn of(severity: Severity, seed: u64) -> Option<Self> {
        let wanted = severity == Severity::Unbounded && seed % 4 < 2;
        // Whatever else follows from the seed does so with and without these.
        let random = Mutex::new(fastrand::Rng::with_seed(seed ^ 0xadd));
        wanted.then_some(Self { random })
    }

    /// What one client does until `end`.
    pub(crate) fn tasks(
        &self,
        run: &Arc<Run>,
        index: usize,
        client: &Client,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        let mut random = self.random.lock().expect("the lock is not poisoned");
        let scene: Arc<dyn Scene + Send + Sync> = Arc::new(Until::new(run, end, PAUSE));
        let counter = Counter::new(client, values::COUNTER).expect("a path");
        let list: Shared<Vec<u64>> = Shared::new(client, values::LIST).expect("a path");
        let mut program = |name| values::ValueProgram {
            scene: Arc::clone(&scene),
            client: client.clone(),
            name: format!("client {index}.{name}"),
            random: random.fork(),
        };
        let machine = &run.machines[index];
        vec![
            // Two of one handle, whose adds may go into one write.
            machine.run(program("add 0").add(counter.clone())),
            machine.run(program("add 1").add(counter)),
            machine.run(program("append").append(list.clone())),
            machine.run(program("follow").follow(list)),
        ]
    }

    /// After the faults: describes the state.
    pub(crate) async fn look(&self, run: &Arc<Run>, client: &Client) {
        let scene = Until::new(run, Duration::ZERO, PAUSE);
        if timeout(PATIENCE, values::look_at_the_end(&scene, client)).await.is_err() {
            run.note("world", What::Stuck("the shared values cannot be read".into()));
        }
    }
}
