//! Programs that do something once for each tick of their own clock, and once for each release: nothing that
//! is known to have ended begins again, no tick begins after a later one, and what begins again was left by a
//! holder that lost the lock or ended without a word. Their clocks differ and jump.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, SystemTime};

use lockkeeper::{Begun, Client, IfUnfinished, Mutex, Once, OnceError, OnceKey, OnceRun, Tick};
use lockkeeper_testkit::history::What;
use tokio::time::{sleep, timeout};

use crate::run::{PATIENCE, Run};

/// Where the lock of the job is.
const JOB: &str = "/jobs/nightly";

/// How often it is due.
const PERIOD: Duration = Duration::from_secs(2);

/// The servers' clock jumps by less, and the clock of a program either by seconds or by far more.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Whether a run has ticks too: one in four, of both severities, with followers and without.
pub(crate) fn has_ticks(seed: u64) -> bool {
    seed / 2 % 4 == 2
}

/// What a run knows of the keys, which no program knows of others.
#[derive(Default)]
pub(crate) struct Book {
    keys: StdMutex<BTreeMap<OnceKey, Known>>,
}

#[derive(Default)]
struct Known {
    /// How often it has started, by the results that programs got.
    begun: u32,
    /// The code with which it ended, if a program got the confirmation of the record.
    ended: Option<i32>,
    /// With which codes it may have ended.
    codes: Vec<i32>,
    /// How many calls there were to begin it, each of which writes at most one record.
    calls: u32,
}

/// A program that does something once.
pub(crate) struct Job {
    pub(crate) run: Arc<Run>,
    pub(crate) book: Arc<Book>,
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) random: fastrand::Rng,
    pub(crate) if_unfinished: IfUnfinished,
}

/// How runs of one seed treat work without an end.
pub(crate) fn any_policy(random: &mut fastrand::Rng) -> IfUnfinished {
    if random.bool() { IfUnfinished::Rerun } else { IfUnfinished::Skip }
}

impl Job {
    /// Does what is due until `end`.
    pub(crate) async fn work(mut self, end: Duration) {
        let lock = Mutex::new(&self.client, JOB).expect("a path");
        let once = self.once();
        // How far its clock is off, in milliseconds.
        let mut off = self.random.i64(-30_000..30_000);
        while self.run.now() < end {
            if self.random.u8(0..5) == 0 {
                off = self.jump();
            }
            let key = match self.random.u8(0..4) {
                0 => OnceKey::from(format!("v{}", self.run.now().as_secs() / 7)),
                _ => OnceKey::from(Tick::cut(wall(&self.run, off), PERIOD)),
            };
            let held = match self.random.bool() {
                true => lock.try_acquire().await.ok().flatten(),
                false => lock.acquire_timeout(self.upto(self.run.pace.patience)).await.ok(),
            };
            if let Some(guard) = held {
                self.book.tries(&key);
                match once.begin(&guard, key.clone()).await {
                    Ok(begun) => self.go_on(key, begun).await,
                    Err(OnceError::Foreign { node }) => {
                        self.wrong(format!("{node} is not a record"))
                    }
                    Err(error) => self.note(What::Note(format!("cannot begin {key}: {error}"))),
                }
                if self.random.bool() {
                    let _ = guard.release().await;
                }
            }
            let pause = self.upto(PERIOD);
            sleep(pause).await;
        }
    }

    fn once(&self) -> Once {
        let once = Once::builder(&self.client, JOB).if_unfinished(self.if_unfinished);
        once.build().expect("a path")
    }

    fn jump(&mut self) -> i64 {
        let far = i64::try_from(FAR.as_millis()).expect("a year");
        match self.random.u8(0..6) {
            0 => far,
            1 => -far,
            _ => self.random.i64(-30_000..30_000),
        }
    }

    /// Does it, if it is to be done.
    async fn go_on(&mut self, key: OnceKey, begun: Begun<'_>) {
        let wrong = match begun {
            Begun::Run(run) => {
                self.note(What::Note(format!("begins {key}, attempt {}", run.attempt())));
                if let Err(wrong) = self.book.begins(&key, &run, self.if_unfinished, &self.run) {
                    self.wrong(format!("{key} begins, {wrong}"));
                }
                return self.finish(key, run).await;
            }
            Begun::Done(record) => {
                let code = record.end.map(|end| end.code);
                (!self.book.may_have_ended(&key, code))
                    .then(|| format!("{key} is done with {code:?}, which no program reported"))
            }
            Begun::Unfinished(_) => {
                // By another call than this one.
                let is_known =
                    self.if_unfinished == IfUnfinished::Skip && self.book.calls(&key) > 1;
                (!is_known).then(|| format!("{key} is not done again"))
            }
            Begun::Passed(by) => {
                let is_known = self.book.calls(&by.into()) > 0 && key <= by.into();
                (!is_known).then(|| format!("{key} is passed by {by:?}"))
            }
        };
        wrong.into_iter().for_each(|what| self.wrong(what));
    }

    async fn finish(&mut self, key: OnceKey, run: OnceRun<'_>) {
        let work = self.upto(PERIOD);
        sleep(work).await;
        // It dies, as far as others can see.
        if self.random.u8(0..4) == 0 {
            return;
        }
        let code = self.random.i32(0..100);
        self.book.may_end(&key, code);
        match run.end(code).await {
            Ok(()) => self.book.ends(&key, code),
            Err(OnceError::Replaced { node }) => self.wrong(format!("{node} is another's")),
            Err(error) => self.note(What::Note(format!("cannot end {key}: {error}"))),
        }
    }

    fn upto(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.random.f64())
    }

    fn wrong(&self, what: String) {
        self.note(What::WrongOnce(what));
    }

    fn note(&self, what: What) {
        self.run.note(&self.name, what);
    }
}

impl Book {
    fn with<T>(&self, key: &OnceKey, change: impl FnOnce(&mut Known) -> T) -> T {
        change(self.keys.lock().expect("the lock is not poisoned").entry(key.clone()).or_default())
    }

    fn tries(&self, key: &OnceKey) {
        self.with(key, |known| known.calls += 1);
    }

    fn calls(&self, key: &OnceKey) -> u32 {
        self.with(key, |known| known.calls)
    }

    fn may_end(&self, key: &OnceKey, code: i32) {
        self.with(key, |known| known.codes.push(code));
    }

    fn may_have_ended(&self, key: &OnceKey, code: Option<i32>) -> bool {
        self.with(key, |known| match known.ended {
            Some(ended) => code == Some(ended),
            None => code.is_some_and(|code| known.codes.contains(&code)),
        })
    }

    fn ends(&self, key: &OnceKey, code: i32) {
        self.with(key, |known| known.ended = Some(code));
    }

    /// Records that a program has to do the work, unless that is wrong.
    fn begins(
        &self,
        key: &OnceKey,
        once: &OnceRun<'_>,
        if_unfinished: IfUnfinished,
        run: &Run,
    ) -> Result<(), String> {
        let mut keys = self.keys.lock().expect("the lock is not poisoned");
        if let OnceKey::Tick(tick) = key {
            let is_tick = |key: &OnceKey| matches!(key, OnceKey::Tick(_));
            let mut later = keys.iter().filter(|(other, known)| is_tick(other) && known.begun > 0);
            if let Some((later, _)) = later.rfind(|(other, _)| *other > key) {
                return Err(format!("and {later} has begun before it"));
            }
            if tick.time() > wall(run, 0) + FAR / 2 {
                return Err("far ahead of all other clocks".into());
            }
        }

        let known = keys.entry(key.clone()).or_default();
        known.begun += 1;
        match (known.ended, if_unfinished) {
            (Some(code), _) => Err(format!("and has ended with {code}")),
            (None, IfUnfinished::Skip) if known.begun > 1 => Err("a second time".into()),
            (None, IfUnfinished::Skip) if once.attempt() > 1 => Err("as another attempt".into()),
            (None, _) if once.attempt() < known.begun => {
                Err("as if it were an earlier time".into())
            }
            (None, _) => Ok(()),
        }
    }
}

/// After the faults, a program whose clock is right does the next tick, and one that comes second does not.
pub(crate) async fn all_is_well(run: &Run, clients: &[Client], if_unfinished: IfUnfinished) {
    // Later than the clocks that are off by seconds.
    let due = Tick::at(wall(run, 60_000));
    let mut words = Vec::new();
    for client in clients {
        // The servers' clock may be off by hours.
        let once = Once::builder(client, JOB).if_unfinished(if_unfinished).ahead(FAR);
        let once = once.build().expect("a path");
        let turn = async {
            loop {
                if let Ok(word) = take_turn(client, &once, due).await {
                    return word;
                }
                // A session that was lost in the last moments shows itself first.
                sleep(Duration::from_millis(200)).await;
            }
        };
        match timeout(PATIENCE, turn).await {
            Ok(word) => words.push(word),
            Err(_) => return run.note("world", What::Stuck(format!("no turn for {JOB}"))),
        }
    }
    if words != ["done", "was done", "was done"] {
        run.note("world", What::WrongOnce(format!("the last tick: {words:?}")));
    }
}

async fn take_turn(client: &Client, once: &Once, due: Tick) -> Result<&'static str, ()> {
    let guard = Mutex::new(client, JOB).expect("a path").acquire().await.map_err(drop)?;
    let word = match once.begin(&guard, due).await.map_err(drop)? {
        Begun::Run(run) => run.end(0).await.map(|()| "done").map_err(drop)?,
        Begun::Done(_) => "was done",
        Begun::Unfinished(_) => "unfinished",
        Begun::Passed(_) => "passed",
    };
    guard.release().await.map_err(drop)?;
    Ok(word)
}

/// The wall time of a program whose clock is so many milliseconds off.
fn wall(run: &Run, off_ms: i64) -> SystemTime {
    let right = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000) + run.now();
    let off = Duration::from_millis(off_ms.unsigned_abs());
    if off_ms < 0 { right - off } else { right + off }
}
