//! Programs that take things of a pool: any thing, preferred ones or certain ones, for holders with and without a
//! limit. They give up, drop what they have, and crash. One of them changes the set.
//!
//! A program records what it wants and what it gets, and which waiters are ahead of it. [`crate::checker`] compares
//! these records.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Client, FencingToken, OwnerInfo, Pool, PoolError, PoolGuard, ZnodePath};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::crew::{Die, Workplace, one_after_the_other, standing};
use super::{Scene, retried};
use crate::data_event::DataEvent;
use crate::history::{Share, What};

const POOL: &str = "/pools/things";

/// The interval between two looks.
const GLANCE: Duration = Duration::from_millis(200);

/// How many things each program takes after the faults.
const TAKES_AT_THE_END: u32 = 3;

/// The settings of the pool in a run.
#[derive(Clone, Copy, Debug)]
pub struct PoolTerms {
    /// The number of things.
    things: usize,
    /// How many programs take them.
    pub programs: usize,
    /// Whether the set is stored and changes.
    stored: bool,
    /// The limit of those holders that have one.
    limit: Option<u32>,
    /// Whether programs want certain things.
    choosy: bool,
    /// Whether the run contains no fault that would justify an error.
    is_well: bool,
}

impl PoolTerms {
    /// Chooses settings at random. `is_well`: no session is lost, and every outage is shorter than a session's
    /// lifetime.
    pub fn any(random: &mut fastrand::Rng, is_well: bool) -> Self {
        Self {
            things: random.usize(1..4),
            programs: random.usize(3..7),
            stored: random.bool(),
            limit: random.bool().then(|| random.u32(1..3)),
            choosy: random.u8(0..3) > 0,
            is_well,
        }
    }

    fn names(&self) -> Vec<String> {
        (0..self.things).map(|it| format!("thing-{it}")).collect()
    }

    /// The holder for which a program takes things, if it has a limit.
    fn holder(&self, program: usize) -> Option<(String, u32)> {
        let limit = self.limit.filter(|_| program % 3 < 2)?;
        Some((format!("holder-{}", program % 2), limit))
    }

    fn pool(&self, client: &Client, label: &str, holder: Option<&(String, u32)>) -> Pool {
        let builder = Pool::builder(client, POOL).label(label);
        let builder = match self.stored {
            true => builder,
            false => builder.things(self.names()),
        };
        let builder = match holder {
            Some((holder, limit)) => builder.at_most(holder, *limit),
            None => builder,
        };
        builder.build().expect("a valid path")
    }
}

/// A program that uses a pool.
pub struct PoolProgram {
    /// The environment in which it runs.
    pub scene: Arc<dyn Scene + Send + Sync>,
    /// Its client.
    pub client: Client,
    /// Its name in the history.
    pub name: String,
    /// The source of its decisions, which follow from the seed.
    pub random: fastrand::Rng,
    /// The settings of the pool.
    pub terms: PoolTerms,
    /// Has a permit once the set no longer changes.
    pub settles: Arc<Semaphore>,
}

impl std::fmt::Debug for PoolProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolProgram").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The role of a holder, which successive programs fill.
#[derive(Debug)]
pub struct HolderJob<S> {
    /// Its machine.
    pub place: S,
    /// Its name in the history.
    pub name: String,
    /// Its number.
    pub program: usize,
    /// The settings of the pool.
    pub terms: PoolTerms,
    /// Has a permit once the set no longer changes.
    pub settles: Arc<Semaphore>,
}

impl<S: Workplace> HolderJob<S> {
    /// Returns at the end of the run.
    pub async fn fill(self, random: fastrand::Rng) {
        let life = |life, client, random, die: Die| {
            let program = PoolProgram {
                scene: self.place.scene(),
                client,
                name: format!("{} {life}", self.name),
                random,
                terms: self.terms,
                settles: Arc::clone(&self.settles),
            };
            program.take_and_hold(self.program, die)
        };
        one_after_the_other(&self.place, random, life).await;
    }
}

impl PoolProgram {
    /// Takes one thing after the other until the end of the run.
    async fn take_and_hold(mut self, program: usize, die: Die) {
        while self.scene.goes_on() {
            self.pause(0.3).await;
            if let Some(guard) = self.take(program).await {
                self.hold(guard, &die).await;
            }
        }
        // Programs that crashed late arrive too.
        drop(self.settles.acquire().await);
        for _ in 0..TAKES_AT_THE_END {
            loop {
                if let Some(guard) = self.take(program).await {
                    self.hold(guard, &die).await;
                    break;
                }
                self.pause(0.1).await;
            }
        }
    }

    async fn take(&mut self, program: usize) -> Option<PoolGuard> {
        let (attempt, goes_on) = (self.unique(), self.scene.goes_on());
        let holder = self.terms.holder(program);
        let pool = self.terms.pool(&self.client, &attempt.to_string(), holder.as_ref());
        let names = self.terms.names();
        let only = match self.terms.choosy && self.random.bool() {
            true => {
                let mut only = names.clone();
                self.random.shuffle(&mut only);
                only.truncate(self.random.usize(1..=names.len()));
                Some(only)
            }
            false => None,
        };
        let pool = match &only {
            Some(only) => pool.only(only.clone()),
            None => pool.prefer([names[self.random.usize(0..names.len())].clone()]),
        };

        let session = self.client.session_id();
        let only: BTreeSet<_> = only.unwrap_or(names).into_iter().collect();
        let (limited, limit) = (holder.clone(), self.upto(1.0));
        let way = self.random.u8(0..10);
        let tries = goes_on && way < 2;
        self.tell(DataEvent::Wants { attempt, only, holder: limited, tries });
        let taken = match way {
            _ if tries => pool.try_acquire().await,
            2 | 3 if goes_on => pool.acquire_timeout(limit).await,
            4 if goes_on => match timeout(limit, pool.acquire()).await {
                Ok(taken) => taken.map(Some),
                Err(_) => Ok(None),
            },
            _ => pool.acquire().await.map(Some),
        };
        if self.client.session_id() != session {
            self.tell(DataEvent::WantsAgain { attempt });
        }
        match taken {
            Ok(Some(guard)) => {
                let (thing, token) = (guard.name().to_owned(), guard.token().to_u128());
                let lock = lock_of(&thing);
                self.tell(DataEvent::Took { attempt, thing, token });
                self.scene.note(&self.name, What::Granted { lock, token, share: Share::Alone });
                self.claim(&guard);
                Some(guard)
            }
            Ok(None) => None,
            Err(error) => {
                self.refused("take", &error);
                None
            }
        }
    }

    async fn hold(&mut self, guard: PoolGuard, die: &Die) {
        let token = guard.token().to_u128();
        for _ in 0..self.random.usize(1..4) {
            sleep(self.upto(0.2)).await;
            self.claim(&guard);
        }
        self.scene.note(&self.name, What::GaveBack { lock: lock_of(guard.name()), token });
        match self.random.u8(0..12) {
            0 if self.scene.goes_on() => {
                die(true);
                std::future::pending::<()>().await;
            }
            1..4 => drop(guard),
            // An error is one of the session or the server, with which the node disappears too.
            _ => drop(guard.release().await),
        }
    }

    /// Records until when no other program has the thing.
    fn claim(&self, guard: &PoolGuard) {
        if let Some(what) = standing(&*self.scene, lock_of(guard.name()), guard) {
            self.scene.note(&self.name, what);
        }
    }

    /// Changes the set until the end of the run, if it is stored, and records the waiters. Afterwards the set contains
    /// all things.
    pub async fn keep(mut self) {
        let pool = self.terms.pool(&self.client, "keeper", None);
        let names = self.terms.names();
        self.fill(&pool).await;
        while self.scene.goes_on() {
            self.pause(0.2).await;
            self.look_at_line().await;
            if !self.terms.stored || self.random.u8(0..4) > 0 {
                continue;
            }
            let name = names[self.random.usize(0..names.len())].clone();
            let taken_out = pool.change(|things| things.retain(|it| *it != name));
            match taken_out.await {
                Ok(_) => self.look_at_set().await,
                Err(error) => self.refused("change", &error),
            }
            self.pause(0.4).await;
            self.look_at_line().await;
            self.fill(&pool).await;
        }
        self.settles.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    async fn fill(&self, pool: &Pool) {
        if !self.terms.stored {
            return;
        }
        let names = self.terms.names();
        retried(GLANCE, || pool.change(|things| things.clone_from(&names))).await;
        self.look_at_set().await;
    }

    async fn look_at_set(&self) {
        let node = ZnodePath::new(&format!("{POOL}/things")).expect("a valid path");
        if let Ok(Ok((data, stat))) = timeout(GLANCE, self.client.data(&node)).await
            && let Ok(things) = serde_json::from_slice(&data)
        {
            let since = FencingToken::new(stat.mzxid).to_u128();
            self.tell(DataEvent::Offers { version: stat.version, since, things });
        }
    }

    async fn look_at_line(&self) {
        let line = ZnodePath::new(&format!("{POOL}/line")).expect("a valid path");
        let Ok(Ok((names, _))) = timeout(GLANCE, self.client.children(&line)).await else { return };
        let mut attempts = Vec::new();
        for name in names {
            let node = line.child(&name).expect("a listed name is valid");
            if let Ok(Ok((data, stat))) = timeout(GLANCE, self.client.data(&node)).await
                && let Some(label) = OwnerInfo::from_data(&data).and_then(|it| it.label)
                && let Ok(attempt) = label.parse()
            {
                attempts.push((attempt, FencingToken::new(stat.czxid).to_u128()));
            }
        }
        self.tell(DataEvent::Stand { attempts });
    }

    /// Handles an error: reports it if nothing can justify it.
    fn refused(&self, what: &str, error: &PoolError) {
        let passes = matches!(
            error,
            PoolError::Take { .. } | PoolError::Client { .. } | PoolError::Things(_)
        );
        let what = format!("does not {what}: {error}");
        let note = match !passes || self.terms.is_well {
            true => What::WrongThing(what),
            false => What::Note(what),
        };
        self.scene.note(&self.name, note);
    }

    fn tell(&self, told: DataEvent) {
        self.scene.note(&self.name, What::Data(told));
    }

    /// A random time, up to this share of the pace.
    fn upto(&mut self, share: f64) -> Duration {
        self.scene.pace().mul_f64(share * self.random.f64())
    }

    async fn pause(&mut self, share: f64) {
        sleep(self.upto(share)).await;
    }

    fn unique(&self) -> u64 {
        self.client.unique_id().as_u64_pair().0
    }
}

fn lock_of(thing: &str) -> String {
    format!("{POOL}/{thing}")
}

/// After the faults: every waiter gets what it waits for, and no node remains. `patience`: longer than any successful
/// operation takes.
pub async fn settle(program: &PoolProgram, jobs: Vec<JoinHandle<()>>, patience: Duration) {
    for job in jobs {
        let stuck = match timeout(patience, job).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("a task ended: {error}"),
            Err(_) => {
                let pool = program.terms.pool(&program.client, "world", None);
                let look = retried(GLANCE, || pool.inspect()).await;
                format!("a program gets nothing of a pool: {look:?}")
            }
        };
        return program.scene.note("world", What::Stuck(stuck));
    }
    let begin = program.scene.now();
    loop {
        let mut left = Vec::new();
        for below in ["held", "line"] {
            let node = ZnodePath::new(&format!("{POOL}/{below}")).expect("a valid path");
            let _ = retried(GLANCE, || program.client.sync(&node)).await;
            left.extend(retried(GLANCE, || program.client.children(&node)).await.0);
        }
        if left.is_empty() {
            return;
        }
        if program.scene.now() - begin > patience {
            return program.scene.note("world", What::Left(format!("of a pool: {left:?}")));
        }
        sleep(GLANCE).await;
    }
}
