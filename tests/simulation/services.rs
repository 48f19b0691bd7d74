//! Programs that register an instance, change it and deregister it, and directories of them: an instance
//! that is reported as gone is gone, no instance returns to an earlier state, and in the end every directory has
//! exactly the registered instances in their last state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{
    Client, Instance, InstanceChange, Instances, PresenceState, Registration, ServiceDirectory,
    ZnodePath,
};
use lockkeeper_testkit::history::What;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::run::{PATIENCE, Run};

const BASE: &str = "/services";
const SERVICE: &str = "web";

/// Between two changes of an instance, at most.
const PAUSE: Duration = Duration::from_millis(2_000);

/// The clients of a run that register instances and look for them.
pub(crate) struct Services {
    clients: Vec<Client>,
    lookers: Vec<Client>,
    left: Arc<Mutex<Left>>,
}

/// What there is at the end of the run.
#[derive(Default)]
struct Left {
    registered: Vec<Registration>,
    /// As long as they were open, with all changes during that time.
    directories: Vec<(String, ServiceDirectory)>,
}

/// Whether a run has services too: some runs of each severity, if they do not have tree caches.
pub(crate) fn has_services(seed: u64) -> bool {
    matches!(seed % 8, 2 | 3)
}

fn instance(id: usize, weight: u32) -> Instance {
    let mut instance = Instance::new(SERVICE, id.to_string()).weight(weight);
    // Otherwise the wall clock is written, and a run could not be repeated.
    instance.registration_time_utc = 1;
    instance
}

impl Services {
    /// The registering clients, and the observers.
    pub(crate) fn new(clients: Vec<Client>, lookers: Vec<Client>) -> Self {
        Self { clients, lookers, left: Arc::default() }
    }

    /// What all of them do until `end`.
    pub(crate) fn tasks(
        &self,
        run: &Arc<Run>,
        random: &mut fastrand::Rng,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (index, (client, looker)) in self.clients.iter().zip(&self.lookers).enumerate() {
            let machine = &run.machines[index];
            let server = Server {
                run: Arc::clone(run),
                client: client.clone(),
                id: index,
                random: random.fork(),
                weight: 0,
            };
            tasks.push(machine.run(server.serve(end, Arc::clone(&self.left))));
            let name = format!("client {index}.d");
            let watcher = Watcher {
                run: Arc::clone(run),
                client: looker.clone(),
                name,
                newest: BTreeMap::new(),
            };
            tasks.push(machine.run(watcher.watch(end, Arc::clone(&self.left))));
        }
        tasks
    }

    /// After the faults: every observer finds exactly the registered instances.
    pub(crate) async fn all_is_well(self, run: &Run) {
        let left = std::mem::take(&mut *self.left.lock().expect("the lock is not poisoned"));
        let Left { registered, mut directories } = left;
        for (index, client) in self.clients.iter().enumerate() {
            let opening = timeout(PATIENCE, open(client));
            let Ok(directory) = opening.await else {
                return run.note("world", What::Stuck("a directory does not open".into()));
            };
            directories.push((format!("client {index}.new"), directory));
        }

        let mut wanted = BTreeMap::new();
        for registration in &registered {
            let instance = registration.instance().await;
            wanted.insert(instance.id.clone(), instance);
        }
        for (name, directory) in &directories {
            if let Err(seen) = finds(directory, &wanted).await {
                let states: Vec<_> = registered.iter().map(Registration::state).collect();
                let what = format!("sees {seen} and not {wanted:?}, which are {states:?}");
                return run.note(name, What::MissingInstance(what));
            }
        }

        for registration in registered {
            if timeout(PATIENCE, registration.unregister()).await.is_err() {
                return run.note("world", What::Stuck("an instance is not taken out".into()));
            }
        }
        for (name, directory) in directories {
            if let Err(seen) = finds(&directory, &BTreeMap::new()).await {
                return run.note(&name, What::Left(format!("instances: {seen}")));
            }
        }
        run.close(self.clients, "a client of services").await;
    }
}

/// Opens a directory. A session that was lost in the last moments shows itself first.
async fn open(client: &Client) -> ServiceDirectory {
    loop {
        match ServiceDirectory::open(client, BASE, SERVICE).await {
            Ok(directory) => return directory,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Waits until a directory has just these; otherwise, says what it has.
async fn finds(
    directory: &ServiceDirectory,
    wanted: &BTreeMap<String, Instance>,
) -> Result<(), String> {
    let has_them = |instances: &Instances| {
        let mut both = instances.iter().zip(wanted.values());
        let as_many = instances.len() == wanted.len();
        as_many && both.all(|(one, other)| one.instance() == other)
    };
    let found = async {
        let mut changes = directory.changes();
        while !(directory.is_current() && has_them(&directory.instances())) {
            // Something to look at, or a while in which it became current.
            let _ = timeout(Duration::from_millis(200), changes.next()).await;
        }
    };
    timeout(PATIENCE, found).await.map_err(|_| format!("{:?}", directory.instances()))
}

/// A program that provides the service.
struct Server {
    run: Arc<Run>,
    client: Client,
    id: usize,
    random: fastrand::Rng,
    /// Grows with each change, so that an observer can tell which is newer.
    weight: u32,
}

impl Server {
    async fn serve(mut self, end: Duration, left: Arc<Mutex<Left>>) {
        loop {
            self.weight += 1;
            let starting = Registration::start(&self.client, BASE, instance(self.id, self.weight));
            let Ok(registration) = starting.await else {
                // Without a server for a while.
                sleep(PAUSE).await;
                continue;
            };
            match self.changes(registration, end).await {
                Some(registration) => {
                    let mut left = left.lock().expect("the lock is not poisoned");
                    return left.registered.push(registration);
                }
                None if self.run.now() > end && self.random.bool() => return,
                None => self.pause().await,
            }
        }
    }

    /// Changes it a few times. Gives it back if it is to stay.
    async fn changes(&mut self, registration: Registration, end: Duration) -> Option<Registration> {
        loop {
            self.pause().await;
            match self.random.u8(0..8) {
                0 if self.run.now() < end => {
                    drop(registration);
                    return None;
                }
                1 if self.run.now() < end => {
                    let _ = registration.unregister().await;
                    return None;
                }
                _ => {}
            }
            self.weight += 1;
            let weight = self.weight;
            if let Err(error) = registration.update(|instance| instance.weight = weight).await {
                let what = format!("{} cannot be changed: {error}", self.id);
                self.run.note("world", What::Stuck(what));
                return None;
            }
            if let PresenceState::Ended(error) = registration.state() {
                self.run.note("world", What::Stuck(format!("{} has ended: {error}", self.id)));
                return None;
            }
            if self.run.now() >= end {
                return Some(registration);
            }
        }
    }

    async fn pause(&mut self) {
        sleep(PAUSE.mul_f64(self.random.f64())).await;
    }
}

/// A program that looks for instances.
struct Watcher {
    run: Arc<Run>,
    client: Client,
    name: String,
    /// The newest life and weight of each instance that was seen.
    newest: BTreeMap<String, (i64, u32)>,
}

impl Watcher {
    async fn watch(mut self, end: Duration, left: Arc<Mutex<Left>>) {
        let directory = open(&self.client).await;
        let mut changes = directory.changes();
        self.look(&directory.instances());
        loop {
            let time = end.saturating_sub(self.run.now());
            let Ok(update) = timeout(time, changes.next()).await else { break };
            let update = match update {
                Ok(update) => update,
                Err(error) => {
                    let what = format!("the directory ended: {error}");
                    return self.run.note(&self.name, What::MissingInstance(what));
                }
            };
            self.look(&update.instances);
            for change in &update.changes {
                self.check(change).await;
            }
        }
        let mut left = left.lock().expect("the lock is not poisoned");
        left.directories.push((self.name, directory));
    }

    /// Makes sure that nothing went back.
    fn look(&mut self, instances: &Instances) {
        for listed in instances.iter() {
            let now = (listed.czxid().0, listed.weight);
            let newest = self.newest.entry(listed.node().to_owned()).or_insert(now);
            if now.0 < newest.0 || now.1 < newest.1 {
                let what = format!("sees {} at {now:?} after {newest:?}", listed.node());
                self.run.note(&self.name, What::MissingInstance(what));
            }
            *newest = now;
        }
        for unreadable in instances.unreadable() {
            let what = format!("cannot read {unreadable:?}");
            self.run.note(&self.name, What::MissingInstance(what));
        }
    }

    /// Checks that an instance reported as gone is gone.
    async fn check(&self, change: &InstanceChange) {
        let InstanceChange::Removed { before } = change else { return };
        let path = format!("{BASE}/{SERVICE}/{}", before.node());
        let path = ZnodePath::new(&path).expect("a path");
        // On the same connection, or a later one: nothing older is read.
        if let Ok((_, stat)) = self.run.read(&self.client, &path).await
            && stat.czxid == before.czxid()
        {
            let what = format!("{before:?} was reported as gone, and is there");
            self.run.note(&self.name, What::MissingInstance(what));
        }
    }
}
