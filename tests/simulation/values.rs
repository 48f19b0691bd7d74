//! Clients that add to a counter, change a shared list and follow it, and what must come of that: the
//! sum of the confirmed adds, with no unknown outcome unless a session ended; every confirmed update
//! once, in one order that everyone sees.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, Counter, Outcome, SessionId, Shared, ValueChange, ValueError, ZnodePath};
use lockkeeper_testkit::history::What;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::run::{PATIENCE, Run};
use crate::severity::Severity;

const COUNTER: &str = "/counter";
const LIST: &str = "/list";
const MARKERS: &str = "/lockkeeper-outcomes";

/// Between two adds, and between two updates, at most.
const PAUSE: Duration = Duration::from_millis(2_500);

/// What the clients were told.
#[derive(Debug, Default)]
struct Told {
    adds: Vec<Add>,
    /// Adds of which nobody knows whether they were applied.
    unknown_adds: i64,
    updates: Vec<u64>,
    unknown_updates: Vec<u64>,
    /// What a follower of the list saw last.
    seen: Vec<Vec<u64>>,
}

/// An add of 1 that was confirmed.
#[derive(Clone, Copy, Debug)]
struct Add {
    asked: Duration,
    answered: Duration,
    after: i64,
}

/// The programs of a run that share values.
pub(crate) struct Values {
    told: Arc<Mutex<Told>>,
    random: Mutex<fastrand::Rng>,
}

impl Values {
    /// Some of the runs in which anything may go wrong have them. In the others, what holders may count
    /// on is tried with sessions that write nothing else.
    pub(crate) fn of(severity: Severity, seed: u64) -> Option<Self> {
        let wanted = severity == Severity::Unbounded && seed % 4 < 2;
        // Whatever else follows from the seed does so with and without these.
        let random = Mutex::new(fastrand::Rng::with_seed(seed ^ 0xadd));
        wanted.then(|| Self { told: Arc::default(), random })
    }

    /// What one client does until `end`.
    pub(crate) fn tasks(
        &self,
        run: &Arc<Run>,
        index: usize,
        client: &Client,
        end: Duration,
    ) -> Vec<JoinHandle<()>> {
        let mut random = self.random.lock().expect("nobody panics with it");
        let counter = Counter::new(client, COUNTER).expect("a path");
        let list: Shared<Vec<u64>> = Shared::new(client, LIST).expect("a path");
        let mut program = |name| Program {
            run: Arc::clone(run),
            client: client.clone(),
            name: format!("client {index}.{name}"),
            told: Arc::clone(&self.told),
            random: random.fork(),
            end,
        };
        let machine = &run.machines[index];
        vec![
            // Two of one handle, whose adds may go into one write.
            machine.run(program("add 0").add(counter.clone())),
            machine.run(program("add 1").add(counter)),
            machine.run(program("update").update(list.clone())),
            machine.run(program("follow").follow(list)),
        ]
    }

    /// After the faults: what there is must be what everyone was told.
    pub(crate) async fn judge(&self, run: &Run, client: &Client) {
        let ended = tokio::time::timeout(PATIENCE, self.compare(run, client)).await;
        let what = match ended {
            Ok(Ok(())) => return,
            Ok(Err(wrong)) => What::InexactValue(wrong),
            Err(_) => What::Stuck("the shared values cannot be read".into()),
        };
        run.note("world", what);
    }

    async fn compare(&self, run: &Run, client: &Client) -> Result<(), String> {
        let counter = Counter::new(client, COUNTER).expect("a path");
        let list: Shared<Vec<u64>> = Shared::new(client, LIST).expect("a path");
        let value = loop {
            if let Ok(value) = counter.value().await {
                break value;
            }
            sleep(PAUSE).await;
        };
        let items = loop {
            if let Ok(found) = list.get().await {
                break found.map(|found| found.value).unwrap_or_default();
            }
            sleep(PAUSE).await;
        };
        let markers = ZnodePath::new(MARKERS).expect("a path");
        while client.children(&markers).await.is_ok_and(|(names, _)| !names.is_empty()) {
            sleep(PAUSE).await;
        }

        let told = self.told.lock().expect("nobody panics with it");
        run.note("world", What::Note(format!("counter {value}, list {items:?}; told: {told:?}")));
        sums_up(value, &told)?;
        all_updates_once(&items, &told)?;
        let behind = told.seen.iter().find(|seen| !items.starts_with(seen));
        behind.map_or(Ok(()), |seen| Err(format!("{seen:?} was no state of {items:?}")))
    }
}

/// The counter is what the confirmed adds make it, each of which has a place of its own, in an order
/// that time allows.
fn sums_up(value: i64, told: &Told) -> Result<(), String> {
    let confirmed = i64::try_from(told.adds.len()).expect("few");
    if !(confirmed..=confirmed + told.unknown_adds).contains(&value) {
        let unknown = told.unknown_adds;
        return Err(format!("{confirmed} adds confirmed, {unknown} unknown: the sum is {value}"));
    }

    let mut adds = told.adds.clone();
    adds.sort_by_key(|add| add.after);
    if let Some(twice) = adds.windows(2).find(|pair| pair[0].after == pair[1].after) {
        return Err(format!("two adds were told the same: {twice:?}"));
    }
    let mut latest = Duration::ZERO;
    for add in &adds {
        if add.answered < latest {
            return Err(format!(
                "asked after an add that was smaller, and answered before: {add:?}"
            ));
        }
        latest = latest.max(add.asked);
    }
    match adds.last() {
        Some(last) if last.after > value => Err(format!("{last:?}, but the sum is {value}")),
        _ => Ok(()),
    }
}

fn all_updates_once(items: &[u64], told: &Told) -> Result<(), String> {
    let mut sorted = items.to_vec();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the update {} was made twice: {items:?}", twice[0]));
    }
    if let Some(lost) = told.updates.iter().find(|update| !items.contains(update)) {
        return Err(format!("the confirmed update {lost} is lost: {items:?}"));
    }
    let known = |item| told.updates.contains(item) || told.unknown_updates.contains(item);
    let refused = items.iter().find(|item| !known(item));
    refused.map_or(Ok(()), |item| Err(format!("{item} was refused, and is there: {items:?}")))
}

/// One task of a client.
struct Program {
    run: Arc<Run>,
    client: Client,
    name: String,
    told: Arc<Mutex<Told>>,
    random: fastrand::Rng,
    end: Duration,
}

impl Program {
    async fn add(mut self, counter: Counter) {
        while self.pause().await {
            let (asked, session) = (self.run.now(), self.client.session_id());
            match counter.add(1).await {
                Ok(added) => {
                    let (answered, after) = (self.run.now(), added.after);
                    self.told().adds.push(Add { asked, answered, after });
                    if added.before + 1 != after {
                        self.note(What::InexactValue(format!("{added:?} of an add of 1")));
                    }
                }
                Err(error) if self.is_unknown(session, &error) => self.told().unknown_adds += 1,
                Err(_) => {}
            }
        }
    }

    async fn update(mut self, list: Shared<Vec<u64>>) {
        while self.pause().await {
            let item = self.random.u64(..);
            let session = self.client.session_id();
            let push =
                |old: Option<&Vec<u64>>| [old.map_or(&[][..], Vec::as_slice), &[item]].concat();
            match list.update(push).await {
                Ok(_) => self.told().updates.push(item),
                Err(error) if self.is_unknown(session, &error) => {
                    self.told().unknown_updates.push(item);
                }
                Err(_) => {}
            }
        }
    }

    /// Every state that it is told is the one before, and more.
    async fn follow(self, list: Shared<Vec<u64>>) {
        let mut changes = list.changes();
        let mut last = Vec::new();
        while self.run.now() < self.end {
            let Ok(news) = tokio::time::timeout(PAUSE * 2, changes.next()).await else { continue };
            match news {
                Ok(ValueChange::Set(now)) => {
                    let now = now.value;
                    if !now.starts_with(&last) || now == last {
                        self.note(What::InexactValue(format!("told {now:?} after {last:?}")));
                    }
                    last = now;
                }
                Ok(ValueChange::Absent) if last.is_empty() => {}
                Ok(other) => {
                    self.note(What::InexactValue(format!("told {other:?} after {last:?}")))
                }
                // Without a server for a while; it goes on.
                Err(_) => sleep(PAUSE).await,
            }
        }
        self.told().seen.push(last);
    }

    fn is_unknown(&self, session: SessionId, error: &ValueError) -> bool {
        is_unknown(&self.client, session, error).unwrap_or_else(|wrong| {
            self.note(What::InexactValue(wrong));
            true
        })
    }

    /// Returns whether there is time for more.
    async fn pause(&mut self) -> bool {
        sleep(PAUSE.mul_f64(self.random.f64())).await;
        self.run.now() < self.end
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().expect("nobody panics with it")
    }

    fn note(&self, what: What) {
        self.run.note(&self.name, what);
    }
}

/// Whether it is unknown what came of a write, for which there must be a reason: its session has ended, or
/// nobody can tell whether it has.
pub(crate) fn is_unknown(
    client: &Client,
    session: SessionId,
    error: &ValueError,
) -> Result<bool, String> {
    let unknown = error.outcome() == Outcome::Unknown;
    let text = error_chain(error);
    let reason = client.session_id() != session || text.contains("no server could be");
    match unknown && !reason {
        true => Err(format!("unknown in one session: {text}")),
        false => Ok(unknown),
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
