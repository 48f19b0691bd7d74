//! What the clients of a run do: take locks in every way, write under them, give them back in
//! every way; and read and write a plain register.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use lockkeeper::{Client, CreateMode, Fence, FencingToken, Mutex, MutexGuard, State, ZnodePath};
use lockkeeper_testkit::history::What;
use tokio::time::sleep;

use crate::run::Run;
use crate::world::Machine;

/// The locks, each with a resource that checks tokens.
pub(crate) const LOCKS: [&str; 2] = ["/locks/a", "/locks/b"];

/// The plain register.
pub(crate) const REGISTER: &str = "/register";

/// The resources that the locks guard.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    fences: StdMutex<HashMap<String, Arc<Fence>>>,
}

impl Resources {
    fn of(&self, lock: &str) -> Arc<Fence> {
        let mut fences = self.fences.lock().expect("nobody panics with it");
        Arc::clone(fences.entry(lock.to_owned()).or_default())
    }
}

/// One task of a client that takes locks.
pub(crate) struct Worker {
    pub(crate) run: Arc<Run>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) name: String,
    pub(crate) locks: Vec<Mutex>,
    pub(crate) random: fastrand::Rng,
}

impl Worker {
    /// Takes locks until `end`.
    pub(crate) async fn work(mut self, end: Duration) {
        while self.run.now() < end {
            let lock = self.locks[self.random.usize(0..self.locks.len())].clone();
            if let Some(guard) = self.acquire(&lock).await {
                self.hold(lock.path().as_str(), guard).await;
            }
            let pause = Duration::from_millis(self.random.u64(0..800));
            sleep(pause).await;
        }
    }

    async fn acquire(&mut self, lock: &Mutex) -> Option<MutexGuard> {
        let result = match self.random.u8(0..6) {
            0 => lock.try_acquire().await,
            1 | 2 => {
                let limit = Duration::from_millis(self.random.u64(1..3_000));
                lock.acquire_timeout(limit).await.map(Some)
            }
            _ => lock.acquire().await.map(Some),
        };
        let path = lock.path().to_string();
        match result {
            Ok(Some(guard)) => {
                self.note(What::Granted { lock: path, token: number(guard.token()) });
                Some(guard)
            }
            Ok(None) => {
                self.note(What::Note(format!("finds {path} taken")));
                None
            }
            Err(error) => {
                let error = without_names(&error.to_string());
                self.note(What::Note(format!("does not get {path}: {error}")));
                None
            }
        }
    }

    async fn hold(&mut self, lock: &str, guard: MutexGuard) {
        let token = guard.token();
        for _ in 0..self.random.u8(0..6) {
            if !self.still_holds(lock, &guard) {
                break;
            }
            if self.random.bool() {
                self.write(lock, token);
            }
            if self.random.u8(0..5) == 0 {
                // Whatever it says, the next look at the state shows it.
                let _ = guard.verify().await;
            }
            sleep(Duration::from_millis(self.random.u64(0..600))).await;
        }
        // Before anything is sent: what is promised ends with the wish to end it.
        let lock = lock.to_owned();
        self.note(What::GaveBack { lock, token: number(token) });
        if self.random.bool() {
            let _ = guard.release().await;
        }
    }

    fn still_holds(&self, lock: &str, guard: &MutexGuard) -> bool {
        let (lock, token) = (lock.to_owned(), number(guard.token()));
        // Asked for first: what it says must be true although time has passed since.
        let deadline = guard.deadline();
        match (guard.state(), deadline) {
            (State::Lost(reason), _) => {
                self.note(What::Lost { lock, token, reason: format!("{reason:?}") });
                false
            }
            (_, Some(deadline)) => {
                let until = self.machine.clock.true_time(deadline);
                self.note(What::Claimed { lock, token, until });
                true
            }
            (_, None) => true,
        }
    }

    /// Sends a write to the resource. It arrives late, whatever has become of the lock since.
    fn write(&mut self, lock: &str, token: FencingToken) {
        let (run, name, lock) = (Arc::clone(&self.run), self.name.clone(), lock.to_owned());
        let late = Duration::from_millis(self.random.u64(0..4_000));
        tokio::spawn(async move {
            sleep(late).await;
            let number = number(token);
            let what = match run.resources.of(&lock).admit(token) {
                Ok(()) => What::Admitted { lock, token: number },
                Err(_) => What::Refused { lock, token: number },
            };
            run.note(&name, what);
        });
    }

    fn note(&self, what: What) {
        self.run.note(&self.name, what);
    }
}

/// Contenders have other names in each run; the histories of a seed must be the same.
fn without_names(text: &str) -> String {
    match text.split_once("/_c_") {
        Some((before, rest)) => format!("{before}/_c_...{}", rest.get(36..).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn number(token: FencingToken) -> u128 {
    token.to_u128()
}

/// Reads and writes the plain register until `end`.
pub(crate) async fn use_register(
    run: Arc<Run>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
    end: Duration,
) {
    let path = ZnodePath::new(REGISTER).expect("a path");
    while run.now() < end {
        sleep(Duration::from_millis(random.u64(0..1_500))).await;
        let asked = run.now();
        if random.bool() {
            if let Ok((data, stat)) = client.data(&path).await {
                let value = u64::from_be_bytes(data[..].try_into().unwrap_or_default());
                run.note(&name, What::Read { asked, version: stat.version, value });
            }
        } else {
            let value = random.u64(1..u64::MAX);
            let bytes = value.to_be_bytes().to_vec();
            let version = match client.set_data(&path, bytes, None).await {
                Ok(stat) => Some(stat.version),
                Err(_) => None,
            };
            run.note(&name, What::Wrote { asked, version, value });
        }
    }
}

/// Makes the register.
pub(crate) async fn make_register(client: &Client) {
    let path = ZnodePath::new(REGISTER).expect("a path");
    let zero = 0_u64.to_be_bytes().to_vec();
    // All clients try; the first one makes it.
    let _ = client.create(&path, zero, CreateMode::Persistent).await;
}
