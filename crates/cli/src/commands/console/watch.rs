//! Follows the tree: one cache for all viewers, a model when it has changed, and what has happened to the locks.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use lockkeeper::inspect::{LockQueue, LockQueues};
use lockkeeper::overview::{HoldTimes, Overview};
use lockkeeper::{CacheChanges, CacheUpdate, Client, Contact, Snapshot, TreeCache, ZnodePath};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::commands::console::model::Model;
use crate::commands::record::OUTCOMES;
use crate::commands::record::history::{History, HistoryEvent, HistoryLine, changed_locks};
use crate::commands::record::hold_times::hold_times_of;
use crate::shared::exit::{Exit, Failure};
use crate::shared::view;

/// The pause between two models: a tree that is always busy is shown four times a second.
const PAUSE: Duration = Duration::from_millis(250);

/// How much longer the pause after some work is than the work: on a large tree, a fifth of a processor is used.
const REST: u32 = 4;

/// After this, a tree in which nothing has changed is looked at again: a wait may have become a long one.
const LONG_PAUSE: Duration = Duration::from_secs(15);

/// The same, as a multiple of the time that the look takes.
const LONG_REST: u32 = 100;

/// After this, circles that were seen once are looked for again.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// How many events are kept.
const MOST_EVENTS: usize = 20_000;

/// How many locks of one update are looked at one by one. With more, all are read at once.
const FEW_LOCKS: usize = 64;

/// What has happened since the console began to watch.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) began: SystemTime,
    /// The oldest first.
    pub(super) events: VecDeque<HistoryLine>,
    /// How many older ones are not kept.
    pub(super) dropped: usize,
}

/// Whether there is a connection to a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkState {
    pub(super) is_connected: bool,
    /// Since when it is so, by the clock of this machine.
    pub(super) since: SystemTime,
    /// Another one after each change.
    pub(super) number: u64,
}

/// What the viewers see.
#[derive(Clone, Debug)]
pub(super) struct LiveView {
    pub(super) model: watch::Receiver<Arc<Model>>,
    pub(super) link: watch::Receiver<LinkState>,
    cache: TreeCache,
    past: Arc<Mutex<Past>>,
}

impl LiveView {
    pub(super) fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is known that is not shown.
    pub(super) fn is_current(&self) -> bool {
        self.cache.is_current()
    }
}

/// Keeps what the viewers see up to date.
#[derive(Debug)]
pub(super) struct Follower {
    changes: CacheChanges,
    newest: Arc<Snapshot>,
    recorder: Option<Recorder>,
    model: watch::Sender<Arc<Model>>,
    link: watch::Sender<LinkState>,
    client: Client,
    past: Arc<Mutex<Past>>,
    path: ZnodePath,
}

/// What turns snapshots into models and events.
#[derive(Debug)]
struct Recorder {
    path: ZnodePath,
    history: History,
    past: Arc<Mutex<Past>>,
    models: u64,
    /// The paths of recipes whose nodes look like locks: the history leaves them out.
    hidden: HashSet<ZnodePath>,
    times: HoldTimes,
    /// When the times were computed.
    times_at: Option<Instant>,
    /// The nodes that were stuck in the last model.
    stuck: HashSet<ZnodePath>,
}

/// Reads the tree at a path and below, for the first time.
pub(super) async fn open(
    client: &Client,
    path: &ZnodePath,
) -> Result<(LiveView, Follower), Failure> {
    let is_wanted = |path: &str| !path.starts_with(OUTCOMES);
    // Node by node: the cache never has a complete snapshot of a tree that is written without a pause.
    let cache = TreeCache::builder(client, path.as_str()).filter(is_wanted);
    let cache = cache.skip_unreadable().each_node();
    let cache = cache.open().await.map_err(|error| Failure::of_recipe(&error))?;
    let changes = cache.changes();
    let newest = cache.snapshot();

    let past = Past { began: SystemTime::now(), events: VecDeque::new(), dropped: 0 };
    let past = Arc::new(Mutex::new(past));
    let mut recorder = Recorder {
        path: path.clone(),
        history: History::default(),
        past: Arc::clone(&past),
        models: 0,
        hidden: HashSet::new(),
        times: HoldTimes::default(),
        times_at: None,
        stuck: HashSet::new(),
    };
    let first = Arc::clone(&newest);
    let (recorder, model) = aside(move || {
        let model = recorder.begin(&first);
        (recorder, model)
    })
    .await?;

    let (model, models) = watch::channel(Arc::new(model));
    let link = LinkState {
        is_connected: client.contact() == Contact::Connected,
        since: SystemTime::now(),
        number: 0,
    };
    let (link, links) = watch::channel(link);
    let watched = LiveView { model: models, link: links, cache, past: Arc::clone(&past) };
    let (client, path, recorder) = (client.clone(), path.clone(), Some(recorder));
    Ok((watched, Follower { changes, newest, recorder, model, link, client, past, path }))
}

impl Follower {
    /// Ends only if the cache does.
    pub(super) async fn run(mut self) -> Failure {
        let link = self.link.clone();
        let client = self.client.clone();
        let (past, path) = (Arc::clone(&self.past), self.path.clone());
        tokio::select! {
            failure = self.follow() => failure.err().unwrap_or_else(|| Failure::new(Exit::Bug, "the watch has ended")),
            () = follow_link(&client, &link, &past, &path) => Failure::new(Exit::NoServer, "the client is closed"),
        }
    }

    async fn follow(&mut self) -> Result<(), Failure> {
        let mut due = Instant::now();
        let mut long = SECOND_LOOK;
        loop {
            match timeout(long, self.next()).await {
                Ok(update) => self.note(update?, due).await?,
                Err(_) if self.model.borrow().waiters == 0 => continue,
                Err(_) => {}
            }
            // The clock is asked too: where changes never end, there always is a next one.
            while Instant::now() < due
                && let Ok(update) = timeout_at(due, self.next()).await
            {
                self.note(update?, due).await?;
            }

            let began = Instant::now();
            let snapshot = Arc::clone(&self.newest);
            let model = self.with_recorder(move |recorder| recorder.model(&snapshot)).await?;
            self.model.send_replace(Arc::new(model));
            due = Instant::now() + PAUSE.max(began.elapsed() * REST);
            long = match self.model.borrow().is_confirmed {
                true => LONG_PAUSE.max(began.elapsed() * LONG_REST),
                false => SECOND_LOOK,
            };
        }
    }

    async fn next(&mut self) -> Result<CacheUpdate, Failure> {
        self.changes.next().await.map_err(|error| Failure::of_recipe(&error))
    }

    /// Notes what has happened, and rests in proportion to the work.
    async fn note(&mut self, update: CacheUpdate, due: Instant) -> Result<(), Failure> {
        self.newest = Arc::clone(&update.snapshot);
        let began = Instant::now();
        self.with_recorder(move |recorder| recorder.note(&update)).await?;
        let rest = began.elapsed() * REST;
        sleep(rest.min(due.saturating_duration_since(Instant::now()))).await;
        Ok(())
    }

    async fn with_recorder<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Recorder) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let Some(mut recorder) = self.recorder.take() else {
            return Err(Failure::new(Exit::Bug, "the recorder is gone"));
        };
        let (recorder, result) = aside(move || {
            let result = work(&mut recorder);
            (recorder, result)
        })
        .await?;
        self.recorder = Some(recorder);
        Ok(result)
    }
}

/// Does work that takes a while on a thread of its own.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Failure::new(Exit::Bug, format!("a model could not be made: {error}")))
}

async fn follow_link(
    client: &Client,
    link: &watch::Sender<LinkState>,
    past: &Mutex<Past>,
    path: &ZnodePath,
) {
    let mut status = client.status();
    loop {
        let contact = status.borrow_and_update().contact;
        if contact == Contact::Closed {
            return;
        }
        let is_connected = contact == Contact::Connected;
        let is_other = link.send_if_modified(|link| {
            let is_other = link.is_connected != is_connected;
            if is_other {
                *link =
                    LinkState { is_connected, since: SystemTime::now(), number: link.number + 1 };
            }
            is_other
        });
        if is_other {
            let event = match is_connected {
                true => HistoryEvent::ServersBack,
                false => HistoryEvent::ServersAway,
            };
            let mut past = past.lock().unwrap_or_else(PoisonError::into_inner);
            past.keep([HistoryLine::of_recording(event, path, now())]);
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

impl Past {
    fn keep(&mut self, lines: impl IntoIterator<Item = HistoryLine>) {
        self.events.extend(lines);
        let more = self.events.len().saturating_sub(MOST_EVENTS);
        self.events.drain(..more);
        self.dropped += more;
    }
}

impl Recorder {
    fn begin(&mut self, first: &Snapshot) -> Model {
        let model = self.model(first);
        let mut lines = Vec::new();
        for queue in &model.queues {
            lines.extend(self.history.see(&queue.path, Some(queue), now(), true));
        }
        self.keep(lines);
        model
    }

    fn note(&mut self, update: &CacheUpdate) {
        let mut changed = changed_locks(update);
        changed.retain(|lock| !self.is_hidden(lock));

        let mut lines = Vec::new();
        if changed.len() <= FEW_LOCKS {
            for lock in changed {
                let queue = LockQueue::in_tree(&*update.snapshot, &lock);
                lines.extend(self.history.see(&lock, queue.as_ref(), now(), false));
            }
        } else {
            let all = LockQueues::in_tree(&*update.snapshot, &self.path).queues;
            for lock in changed {
                let found = all.binary_search_by(|queue| queue.path.cmp(&lock)).ok();
                lines.extend(self.history.see(&lock, found.map(|at| &all[at]), now(), false));
            }
        }
        self.keep(lines);
    }

    fn model(&mut self, snapshot: &Snapshot) -> Model {
        self.models += 1;
        if self.times_at.is_none_or(|at| at.elapsed() > LONG_PAUSE) {
            let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            self.times = hold_times_of(&past.events);
            self.times_at = Some(Instant::now());
        }
        let mut model = Model::of(snapshot, &self.path, &self.times);
        self.hidden = hidden(&model.others);
        let stuck = model.stuck.iter().map(|at| model.contender(*at).node.clone()).collect();
        let before = std::mem::replace(&mut self.stuck, stuck);
        if !snapshot.is_exact() {
            model.confirm(&before);
        }
        model.number = self.models;
        model.zxid = snapshot.zxid();
        model.nodes = snapshot.len();
        model.unreadable = snapshot.unreadable().map(str::to_owned).collect();
        model.observed = self.history.observed().collect();
        model
    }

    fn is_hidden(&self, lock: &ZnodePath) -> bool {
        let mut above = std::iter::successors(Some(lock.clone()), ZnodePath::parent);
        !self.hidden.is_empty() && above.any(|path| self.hidden.contains(&path))
    }

    fn keep(&self, lines: Vec<HistoryLine>) {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).keep(lines);
    }
}

/// The paths at and below which nothing is a lock.
fn hidden(others: &Overview) -> HashSet<ZnodePath> {
    let queues = others.queues.iter().map(|queue| &queue.path);
    let pools = others.pools.iter().map(|pool| &pool.path);
    let services = others.services.iter().map(|service| &service.path);
    let more = others.others.iter().map(|(path, _)| path);
    let members = others.groups.iter().flat_map(|group| &group.members).map(|member| &member.node);
    queues.chain(pools).chain(services).chain(more).chain(members).cloned().collect()
}

fn now() -> u64 {
    u64::try_from(view::unix_ms(SystemTime::now())).unwrap_or(u64::MAX)
}
