//! What the clients of a run do: take locks in every way, write under them, give them back in
//! every way; and read and write a plain register.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use lockkeeper::{
    AcquireError, Client, CreateMode, Fence, FencingToken, Guard, HolderState, ZnodePath,
};
use lockkeeper_testkit::history::{Share, What};
use tokio::time::sleep;

use crate::machine::Machine;
use crate::run::Run;
use lockkeeper_testkit::locks::{Held, Lock, Wait};

/// Where the locks are, each with a resource that checks tokens.
pub(crate) const LOCKS: [&str; 2] = ["/locks/a", "/locks/b"];

/// Longer than any run.
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

/// The plain register.
pub(crate) const REGISTER: &str = "/register";

/// The resources that the locks guard.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    fences: StdMutex<HashMap<String, Arc<Fence>>>,
}

impl Resources {
    fn of(&self, lock: &str) -> Arc<Fence> {
        let mut fences = self.fences.lock().expect("the lock is not poisoned");
        Arc::clone(fences.entry(lock.to_owned()).or_default())
    }
}

/// How long the programs of a run take for what they do, at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Between two looks at a lock that is held, of which there are up to six.
    pub(crate) look: Duration,
    /// Between two locks.
    pub(crate) pause: Duration,
    /// For a lock, where they wait only for a while.
    pub(crate) patience: Duration,
    /// Between two uses of the register.
    pub(crate) register: Duration,
}

/// One task of a client that takes locks.
pub(crate) struct Worker {
    pub(crate) run: Arc<Run>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) name: String,
    pub(crate) locks: Vec<Lock>,
    pub(crate) random: fastrand::Rng,
}

impl Worker {
    /// Takes locks until `end`.
    pub(crate) async fn work(mut self, end: Duration) {
        while self.run.now() < end {
            let lock = self.locks[self.random.usize(0..self.locks.len())].clone();
            let path = lock.path().to_string();
            let mut held = self.acquire(&lock, &path).await;
            while let Some(lock) = held {
                held = self.hold(&path, lock).await;
            }
            // Without a pause, a release that is not awaited is sent together with the next acquire.
            if self.random.u8(0..4) > 0 {
                let pause = self.upto(self.run.pace.pause);
                sleep(pause).await;
            }
        }
    }

    async fn acquire(&mut self, lock: &Lock, path: &str) -> Option<Held> {
        let share = lock.any_share(&mut self.random);
        let patience = match self.random.u8(0..6) {
            0 => Wait::Never,
            1 | 2 => Wait::For(self.upto(self.run.pace.patience)),
            _ => Wait::Forever,
        };
        match lock.acquire(share, patience).await {
            Ok(Some(held)) => {
                self.granted(path, share, held.guard());
                Some(held)
            }
            Ok(None) => {
                self.note(What::Note(format!("finds {path} taken")));
                None
            }
            Err(error) => {
                self.refused(path, share, &error);
                None
            }
        }
    }

    /// Works under a lock, and gives it back; unless it has turned into another one.
    async fn hold(&mut self, path: &str, held: Held) -> Option<Held> {
        let token = held.guard().token();
        let looks = self.random.u8(0..6);
        if self.random.bool() && held.guard().allow_jeopardy().is_ok() {
            self.note(What::RidesOut { lock: path.to_owned(), token: number(token) });
            self.look_through(path, held.guard(), looks).await;
        } else {
            self.look(path, held.guard(), looks).await;
        }
        // Before anything is sent: what is promised ends with the wish to end it.
        self.note(What::GaveBack { lock: path.to_owned(), token: number(token) });
        if let Some(share) = held.may_become().filter(|_| self.random.bool()) {
            let limit = self.upto(self.run.pace.patience);
            match held.turn(limit).await {
                Ok(held) => {
                    self.granted(path, share, held.guard());
                    return Some(held);
                }
                Err(error) => self.refused(path, share, &error),
            }
        } else if self.random.bool() {
            held.release().await;
        }
        None
    }

    /// Works under a lock, and looks so often how it stands, unless it does not hold it.
    async fn look(&mut self, path: &str, guard: &Guard, mut looks: u8) {
        while self.still_holds(path, guard) && looks > 0 {
            looks -= 1;
            if self.random.bool() {
                self.write(path, guard.token());
            }
            if self.random.u8(0..5) == 0 {
                // Whatever it says, the next look at the state shows it.
                let _ = guard.verify().await;
            }
            let time = self.upto(self.run.pace.look);
            sleep(time).await;
        }
    }

    /// The same, through outages: it pauses while it is unknown whether the lock is held.
    async fn look_through(&mut self, path: &str, guard: &Guard, looks: u8) {
        let (lock, token) = (path.to_owned(), number(guard.token()));
        if self.random.bool() {
            let machine = Arc::clone(&self.machine);
            let (run, name) = (Arc::clone(&self.run), self.name.clone());
            let mut work = Box::pin(self.look(path, guard, looks));
            // Whether it holds is looked at by another one than the one that polls.
            let watched = std::future::poll_fn(|context| {
                let now = machine.clock.read(run.now());
                let is_over = guard.deadline().is_none_or(|end| end <= now);
                if is_over {
                    run.note(&name, What::Unheld { lock: lock.clone(), token });
                }
                work.as_mut().poll(context)
            });
            let _ = guard.run_through(ENDLESS, watched).await;
        } else {
            self.look(path, guard, looks).await;
        }
        // Whatever it is in now, it has an end.
        while guard.state() == HolderState::Jeopardy {
            self.note(What::Doubted { lock: path.to_owned(), token });
            if guard.held_again().await.is_ok() {
                self.note(What::HeldAgain { lock: path.to_owned(), token });
            }
        }
        self.still_holds(path, guard);
    }

    fn granted(&self, path: &str, share: Share, guard: &Guard) {
        self.note(What::Granted { lock: path.to_owned(), token: number(guard.token()), share });
        // How much is left at this moment is promised.
        self.still_holds(path, guard);
    }

    fn refused(&self, path: &str, share: Share, error: &AcquireError) {
        self.note(match error {
            AcquireError::Timeout { .. } => {
                What::Note(format!("does not get {path} ({share}): {error}"))
            }
            AcquireError::Servers { .. } => {
                What::Stuck(format!("takes the servers of one service for several: {error}"))
            }
            _ => What::Denied { lock: path.to_owned(), reason: error.to_string() },
        });
    }

    fn still_holds(&self, lock: &str, guard: &Guard) -> bool {
        still_holds(&self.run, &self.machine, &self.name, lock, guard)
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

    /// Some time, up to so much.
    fn upto(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.random.f64())
    }

    fn note(&self, what: What) {
        self.run.note(&self.name, what);
    }
}

/// Looks whether a lock is held, and notes what it says.
pub(crate) fn still_holds(
    run: &Run,
    machine: &Machine,
    who: &str,
    lock: &str,
    guard: &Guard,
) -> bool {
    let (lock, token) = (lock.to_owned(), number(guard.token()));
    // Asked for first: what it says must be true although time has passed since.
    let deadline = guard.deadline();
    match (guard.state(), deadline) {
        (HolderState::Lost(reason), _) => {
            run.note(who, What::Lost { lock, token, reason: format!("{reason:?}") });
            false
        }
        (_, Some(deadline)) => {
            let until = machine.clock.true_time(deadline);
            run.note(who, What::Claimed { lock, token, until });
            true
        }
        (_, None) => false,
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
        sleep(run.pace.register.mul_f64(random.f64())).await;
        let asked = run.now();
        if random.bool() {
            if let Ok((data, stat)) = run.read(&client, &path).await {
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
