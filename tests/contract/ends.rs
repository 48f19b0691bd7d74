//! What a client's end means for what waits with it: every wait ends, also one for another task of the same
//! program, which may never do what is waited for.

use std::fmt::Debug;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::revoke::revoke_within;
use lockkeeper::{
    Client, Election, ExclusiveNode, Group, HolderState, Instance, Leadership, Locks, LossReason,
    MultiLock, Mutex, Names, Notify, Owner, Partitions, Pool, Presence, Publication, Queue,
    ReentrantMutex, Registration, RwLock, Semaphore, SemaphoreProfile, ServiceDirectory, Shared,
    TreeCache, WorkerIds, ZnodePath, blocking,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::locks::{Exclusive, lock_of};
use crate::{Observed, Pair, contract};

contract!(ends);

/// What no wait takes unless it hangs.
const HANGS: Duration = Duration::from_secs(20);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Calls that wait, and what each comes to.
#[derive(Default)]
struct Waits(Vec<(&'static str, JoinHandle<String>)>);

impl Waits {
    fn add<T: Debug + Send>(
        &mut self,
        name: &'static str,
        wait: impl Future<Output = T> + Send + 'static,
    ) {
        self.0.push((name, tokio::spawn(async move { format!("{:?}", wait.await) })));
    }

    fn finished(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, wait)| wait.is_finished()).map(|(name, _)| *name).collect()
    }

    /// Each has to say that the client is closed.
    async fn end(self) -> Result<()> {
        let mut wrong = Vec::new();
        for (name, wait) in self.0 {
            match tokio::time::timeout(HANGS, wait).await {
                Ok(ended) => {
                    let ended = ended?;
                    // `ClientClosed` in errors about locks, and `Closed` in those of requests. Background tasks have
                    // stopped with the runtime.
                    if !["Closed", "Stopped {", "AuthFailed"].iter().any(|why| ended.contains(why))
                    {
                        wrong.push(format!("{name}: {ended}"));
                    }
                }
                Err(_) => wrong.push(format!("{name}: waits")),
            }
        }
        anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }
}

/// Polls something once, and keeps it.
async fn begun<F: Future>(future: &mut Pin<Box<F>>) {
    let once = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
    assert!(once.await.is_pending(), "it waits");
}

/// What is held while others wait for it. Dropped after they have ended.
type Kept = Vec<Box<dyn std::any::Any + Send>>;

/// Begins every wait of the library that can last: behind a guard of the same program, behind another
/// program (`other`), and for changes that do not come.
async fn begin(client: &Client, other: &Client) -> Result<(Waits, Kept)> {
    let (mut waits, mut kept) = (Waits::default(), Kept::new());
    waiting_for_locks(client, other, &mut waits, &mut kept).await?;
    waiting_for_owners(client, &mut waits, &mut kept).await?;
    waiting_to_lead(client, other, &mut waits, &mut kept).await?;
    waiting_with_guards(client, other, &mut waits, &mut kept).await?;
    waiting_for_changes(client, &mut waits, &mut kept).await?;

    // Whatever they ask of servers at first has been answered then.
    for _ in 0..10 {
        client.sync(&ZnodePath::root()).await?;
        tokio::task::yield_now().await;
    }
    assert_eq!(waits.finished(), [] as [&str; 0], "they wait");
    Ok((waits, kept))
}

async fn waiting_for_locks(
    client: &Client,
    other: &Client,
    waits: &mut Waits,
    kept: &mut Kept,
) -> Result<()> {
    let mutexes = [
        ("Mutex", Mutex::new(client, "/ends/mutex")?),
        ("Mutex, linger", Mutex::builder(client, "/ends/linger").linger(LONG).build()?),
        ("Mutex, cohort", Mutex::builder(client, "/ends/cohort").cohort(9, LONG).build()?),
        ("Mutex, delay", Mutex::builder(client, "/ends/delay").lock_delay(HANGS).build()?),
        ("Locks", Locks::new(client, "/ends/locks")?.get("key")?),
    ];
    for (name, mutex) in mutexes {
        kept.push(Box::new(mutex.acquire().await?));
        for _ in 0..2 {
            let mutex = mutex.clone();
            waits.add(name, async move { mutex.acquire().await });
        }
        waits.add(name, async move { mutex.acquire_timeout(LONG).await });
    }
    kept.push(Box::new(Mutex::new(other, "/ends/other")?.acquire().await?));
    let mutex = Mutex::new(client, "/ends/other")?;
    waits.add("Mutex behind another program", async move { mutex.acquire().await });

    let rw_lock = RwLock::new(client, "/ends/written")?;
    kept.push(Box::new(rw_lock.write().await?));
    let lock = rw_lock.clone();
    waits.add("RwLock, read", async move { lock.read().await });
    waits.add("RwLock, upgradeable", async move { rw_lock.upgradeable_read().await });
    let rw_lock = RwLock::new(client, "/ends/read")?;
    kept.push(Box::new(rw_lock.read().await?));
    let upgradeable = rw_lock.upgradeable_read().await?;
    waits.add("RwLock, upgrade", upgradeable.upgrade());
    waits.add("RwLock, write", async move { rw_lock.write_timeout(LONG).await });

    for (path, profile) in [
        ("/ends/native", SemaphoreProfile::Native),
        ("/ends/curator", SemaphoreProfile::Curator),
        ("/ends/kazoo", SemaphoreProfile::Kazoo),
    ] {
        let semaphore = Semaphore::builder(client, path, 2).profile(profile).build()?;
        kept.push(Box::new(semaphore.acquire_many(2).await?));
        let many = semaphore.clone();
        waits.add("Semaphore", async move { semaphore.acquire().await });
        waits.add("Semaphore, many", async move { many.acquire_many_timeout(2, LONG).await });
    }

    let both = MultiLock::new(client, ["/ends/one", "/ends/two"])?;
    kept.push(Box::new(both.acquire().await?));
    waits.add("MultiLock", async move { both.acquire().await });
    let node = ExclusiveNode::new(client, "/ends/node")?;
    kept.push(Box::new(node.acquire().await?));
    let node = ExclusiveNode::new(client, "/ends/node")?;
    waits.add("ExclusiveNode", async move { node.acquire().await });
    let names = Names::new(client, "/ends/names")?;
    kept.push(Box::new(names.claim("a").await?));
    let claims = names.clone();
    waits.add("Names", async move { claims.claim("a").await });
    waits.add("Names, within", async move { names.claim_timeout("a", LONG).await });
    let pool = Pool::builder(client, "/ends/pool").things(["a"]).build()?;
    kept.push(Box::new(pool.acquire().await?));
    for name in ["Pool", "Pool, second in line"] {
        let pool = pool.clone();
        waits.add(name, async move { pool.acquire().await });
    }
    waits.add("Pool, within", async move { pool.acquire_timeout(LONG).await });
    let workers = WorkerIds::builder(client, "/ends/workers").numbers(0..1).build()?;
    kept.push(Box::new(workers.acquire().await?));
    let more = workers.clone();
    waits.add("WorkerIds", async move { more.acquire().await });
    waits.add("WorkerIds, within", async move { workers.acquire_timeout(LONG).await });
    for name in ["Queue", "Queue, second in line"] {
        let queue: Queue<u32> = Queue::new(client, "/ends/queue")?;
        waits.add(name, async move { queue.take_timeout(LONG).await });
    }
    let queue: Queue<u32> = Queue::new(client, "/ends/queue")?;
    waits.add("Queue, work", async move { queue.work(2, async |_| ()).await });
    Ok(())
}

async fn waiting_for_owners(client: &Client, waits: &mut Waits, kept: &mut Kept) -> Result<()> {
    let (mutex, owner) = (ReentrantMutex::new(client, "/ends/reentrant")?, Owner::new("owner"));
    kept.push(Box::new(mutex.acquire(&owner).await?));
    let (lock, second) = (mutex.clone(), Owner::new("owner"));
    waits.add("ReentrantMutex", async move { lock.acquire(&second).await });

    // One task of an owner waits, and is not polled any more. Another one of the same owner waits for it.
    let (lock, third) = (mutex.clone(), Owner::new("owner"));
    let again = (mutex, third.clone());
    let mut stalled = Box::pin(async move { lock.acquire(&third).await });
    begun(&mut stalled).await;
    kept.push(Box::new(stalled));
    waits.add("ReentrantMutex, the same owner", async move { again.0.acquire(&again.1).await });
    Ok(())
}

async fn waiting_to_lead(
    client: &Client,
    other: &Client,
    waits: &mut Waits,
    kept: &mut Kept,
) -> Result<()> {
    let election = Election::new(client, "/ends/election")?;
    kept.push(Box::new(election.campaign().await?));
    let (candidate, within, observed) = (election.clone(), election.clone(), election.clone());
    waits.add("Election", async move { candidate.campaign().await.map(drop) });
    waits.add("Election, within", async move { within.campaign_timeout(LONG).await.map(drop) });
    waits.add("Election, lead", async move { election.lead(|_| pending::<()>()).await });
    let mut leaders = observed.observe().await?;
    waits.add("Leaders", async move { leaders.next().await });

    // The work keeps its leadership until it is dropped.
    for (path, longest) in [("/ends/leads", None), ("/ends/rides-out", Some(LONG))] {
        let election = Election::builder(client, path);
        let election = longest.map_or(election.clone(), |longest| election.ride_out(longest));
        let election = election.build()?;
        let handles = Arc::new(StdMutex::new(Vec::new()));
        kept.push(Box::new(Arc::clone(&handles)));
        waits.add("a leader whose handle is kept", async move {
            let work = |leadership| {
                handles.lock().expect("no panic").push(leadership);
                pending::<()>()
            };
            election.lead(work).await
        });
        children_reach(other, &ZnodePath::new(path)?, 1).await?;
    }
    Ok(())
}

async fn waiting_with_guards(
    client: &Client,
    other: &Client,
    waits: &mut Waits,
    kept: &mut Kept,
) -> Result<()> {
    let guard = Arc::new(Mutex::new(client, "/ends/guard")?.acquire().await?);
    let both = Arc::new(MultiLock::new(client, ["/ends/g1", "/ends/g2"])?.acquire().await?);
    macro_rules! each {
        ($($name:literal: |$held:ident| $wait:expr),* $(,)?) => { $(
            let $held = Arc::clone(&guard);
            waits.add(concat!("Guard, ", $name), async move { $wait.await });
            let $held = Arc::clone(&both);
            // It may name one of its locks.
            let waited = async move { format!("{:?}", $wait.await) };
            waits.add(concat!("MultiGuard, ", $name), waited);
        )* };
    }
    each! {
        "lost": |held| held.lost(),
        "jeopardy": |held| held.jeopardy(),
        "revoke_requested": |held| held.revoke_requested(),
        "run": |held| held.run(pending::<()>()),
        "run_through": |held| held.run_through(LONG, pending::<()>()),
    }
    kept.push(Box::new((guard, both)));

    let (client, path) = (client.clone(), ZnodePath::new("/ends/asked")?);
    kept.push(Box::new(Mutex::new(other, path.as_str())?.acquire().await?));
    waits.add("revoke_within", async move { revoke_within(&client, &path, LONG).await });
    Ok(())
}

async fn waiting_for_changes(client: &Client, waits: &mut Waits, kept: &mut Kept) -> Result<()> {
    let shared = Shared::<u32>::new(client, "/ends/shared")?;
    shared.set(&1).await?;
    let mut changes = shared.changes();
    changes.next().await?;
    waits.add("Shared", async move { changes.next().await.map(drop) });
    let publication = Publication::<u32>::new(client, "/ends/publication")?;
    publication.publish(&1).await?;
    let mut editions = publication.follow();
    editions.next().await?;
    waits.add("Publication", async move { editions.next().await.map(drop) });
    let notify = Notify::new(client, "/ends/notify")?;
    let known = notify.notify().await?;
    waits.add("Notify", async move { notify.wait_past(known).await });

    let cache = TreeCache::open(client, "/ends/shared").await?;
    let mut changes = cache.changes();
    waits.add("TreeCache", async move { changes.next().await.map(drop) });
    let partitions = Partitions::builder(client, "/ends/partitions").build()?;
    let member = partitions.join("a").await?;
    waits.add("Partitions", async move { member.next().await.map(drop) });

    let group = Group::new(client, "/ends/group")?;
    kept.push(Box::new(group.join("a", "").await?));
    let members = Arc::new(group.watch().await?);
    let mut changes = members.changes();
    let (within, member) = (Arc::clone(&members), Arc::clone(&members));
    waits.add("Members", async move { member.wait_for(9).await.map(drop) });
    waits.add("Members, within", async move { within.wait_for_timeout(9, LONG).await.map(drop) });
    waits.add("MemberChanges", async move {
        while changes.next().await.is_ok() {}
        changes.next().await.map(drop)
    });

    let directory = ServiceDirectory::open(client, "/ends/services", "api").await?;
    let mut changes = directory.changes();
    kept.push(Box::new((cache, members, directory)));
    waits.add("ServiceDirectory", async move { changes.next().await.map(drop) });
    let presence = Presence::builder(client, "/ends/presence").start().await?;
    waits.add("Presence", async move { presence.taken().await });
    let instance = Instance::new("api", "1");
    let registration = Registration::start(client, "/ends/services2", instance).await?;
    waits.add("Registration", async move { registration.taken().await });
    Ok(())
}

/// Symptom: an acquire that waited for another task of its program, which kept its guard, never ended; and
/// `lead` went on with a leadership that was lost, if a handle was kept.
async fn every_wait_ends_when_its_client_is_closed((alice, bob): Pair) -> Result<()> {
    let (waits, kept) = begin(&alice.client, &bob.client).await?;
    alice.client.close().await;
    waits.end().await?;
    drop(kept);
    Ok(())
}

async fn every_wait_ends_with_the_runtime_of_its_client(backend: Backend) -> Result<()> {
    let (bob, servers) = (backend.observer().await?, backend.connect_string());
    let runtime = Runtime::new()?;
    let client = runtime.spawn(async move { Client::connect(&servers).await }).await??;
    let (waits, kept) = begin(&client, &bob).await?;
    runtime.shutdown_background();
    waits.end().await?;
    drop(kept);
    Ok(())
}

async fn every_wait_ends_when_credentials_are_refused((alice, bob): Pair) -> Result<()> {
    let (waits, kept) = begin(&alice.client, &bob.client).await?;
    alice.client.authenticate("no-such-scheme", "");
    waits.end().await?;
    drop(kept);
    Ok(())
}

/// As threads wait, with `Client::wait`.
async fn waits_of_threads_end_when_their_client_is_closed(backend: Backend) -> Result<()> {
    let servers = backend.connect_string();
    let connected = tokio::task::spawn_blocking(move || blocking::Client::connect(&servers));
    let client = Arc::new(connected.await??);
    let mutex = Mutex::new(&client, "/ends/mutex")?;
    let election = Election::new(&client, "/ends/election")?;
    let guard = Arc::new(mutex.acquire().await?);
    let _leader = election.campaign().await?;

    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let thread = |name: &'static str, wait: Box<dyn FnOnce(&Client) -> String + Send>| {
        let (told, client) = (told.clone(), Arc::clone(&client));
        std::thread::spawn(move || told.send((name, wait(&client))));
    };
    thread("Mutex", Box::new(move |client| format!("{:?}", client.wait(mutex.acquire()))));
    let lead = move |client: &Client| format!("{:?}", client.wait(election.lead(async |_| ())));
    thread("Election", Box::new(lead));
    let kept = Arc::clone(&guard);
    thread("Guard", Box::new(move |client| format!("{:?}", client.wait(kept.lost()))));

    client.close().await;
    for _ in 0..3 {
        let ended = tokio::time::timeout(HANGS, tells.recv()).await.context("a thread waits")?;
        let (name, ended) = ended.context("each call ends")?;
        assert!(ended.contains("Closed"), "{name}: {ended}");
    }
    Ok(())
}

/// Symptom: it waited for guards that were lost, for as long as they were kept.
async fn a_wait_for_releases_ends_when_the_client_is_closed(alice: Participant) -> Result<()> {
    let guard = Mutex::new(&alice.client, "/ends/guard")?.acquire().await?;
    let mut waiting = Box::pin(alice.client.close_when_released(LONG));
    begun(&mut waiting).await;
    alice.client.close().await;
    in_time(waiting).await??;
    in_time(alice.client.close_when_released(LONG)).await??;
    assert_eq!(guard.state(), HolderState::Lost(LossReason::ClientClosed));
    Ok(())
}

/// A server may have ended the session long before its answer arrives, and have let another client have the lock.
async fn a_guard_is_lost_when_the_end_of_its_client_is_asked_for((alice, bob): Pair) -> Result<()> {
    let guard = Mutex::new(&alice.client, "/ends/guard")?.acquire().await?;
    alice.proxy.hold_replies();
    let mut closing = Box::pin(alice.client.close());
    begun(&mut closing).await;
    assert_eq!(guard.state(), HolderState::Lost(LossReason::ClientClosed));
    Mutex::new(&bob.client, "/ends/guard")?.acquire().await?.release().await?;
    alice.proxy.restore();
    in_time(closing).await?;
    Ok(())
}

const ELECTION: &str = "/ends/election";

/// A leader whose work gives a handle away, and ends when that is asked for.
struct Leader {
    leadership: Arc<Leadership>,
    ends: tokio::sync::oneshot::Sender<()>,
    led: JoinHandle<Result<u32, lockkeeper::AcquireError>>,
}

/// Each term of it is the first one to come here.
async fn leader(client: &Client) -> Result<Leader> {
    let election = Election::new(client, ELECTION)?;
    let (told, tells) = tokio::sync::oneshot::channel();
    let (ends, is_asked) = tokio::sync::oneshot::channel::<()>();
    let mut first = Some((told, is_asked));
    let mut terms = 0;
    let led = tokio::spawn(async move {
        let work = |leadership| {
            terms += 1;
            let (first, terms) = (first.take(), terms);
            async move {
                if let Some((told, is_asked)) = first {
                    told.send(leadership).expect("it is waited for");
                    let _ = is_asked.await;
                }
                terms
            }
        };
        election.lead(work).await
    });
    Ok(Leader { leadership: tells.await?, ends, led })
}

/// Another candidate, behind one.
async fn next_in_line(client: &Client) -> Result<JoinHandle<Result<Leadership>>> {
    let election = Election::new(client, ELECTION)?;
    let next = tokio::spawn(async move { Ok(election.campaign().await?) });
    children_reach(client, &ZnodePath::new(ELECTION)?, 2).await?;
    Ok(next)
}

async fn in_time<F: Future>(wait: F) -> Result<F::Output> {
    tokio::time::timeout(HANGS, wait).await.context("it waits")
}

/// Symptom: `lead` returned, and went on leading for as long as the work kept a handle somewhere.
async fn leadership_ends_with_the_work((alice, bob): Pair) -> Result<()> {
    let Leader { leadership, ends, led } = leader(&alice.client).await?;
    let next = next_in_line(&bob.client).await?;
    ends.send(()).expect("the work waits");
    assert_eq!(in_time(leadership.lost()).await?, LossReason::Released);
    assert!(!leadership.is_held() && leadership.proclaim("me").await.is_err());
    // The task may have read a deadline, and may still rely on it.
    assert!(!next.is_finished() && !led.is_finished(), "while the handle is kept");
    let token = leadership.token();
    drop(leadership);
    assert_eq!(in_time(led).await???, 1);
    assert!(in_time(next).await???.token() > token);
    Ok(())
}

async fn a_deadline_that_a_handle_was_told_holds_beyond_the_work(backend: Backend) -> Result<()> {
    let options = Client::builder().session_timeout(Duration::from_secs(4));
    let (alice, bob) = (backend.participant_with(options).await?, backend.participant().await?);
    let Leader { leadership, ends, led } = leader(&alice.client).await?;
    let next = next_in_line(&bob.client).await?;
    let deadline = leadership.deadline().context("it leads")?;
    ends.send(()).expect("the work waits");
    let next = in_time(next).await???;
    assert!(
        alice.client.now() >= deadline,
        "the next one leads before a deadline that was reported"
    );
    assert_eq!(in_time(led).await???, 1, "the handle is kept");
    assert_eq!(leadership.state(), HolderState::Lost(LossReason::Released));
    assert!(next.token() > leadership.token());
    Ok(())
}

/// Symptom: a candidate that had lost its leadership never stood again while a handle of it was kept.
async fn leadership_that_is_lost_ends_for_handles_that_are_kept(alice: Participant) -> Result<()> {
    let Leader { leadership, ends, led } = leader(&alice.client).await?;
    alice.client.delete(leadership.node(), None).await?;
    assert_eq!(in_time(led).await???, 2, "in its second term");
    assert_eq!(leadership.state(), HolderState::Lost(LossReason::NodeDeleted));
    drop(ends);
    children_reach(&alice.client, &ZnodePath::new(ELECTION)?, 0).await
}

async fn leading_that_is_dropped_ends_for_handles_that_are_kept((alice, bob): Pair) -> Result<()> {
    let Leader { leadership, ends: _ends, led } = leader(&alice.client).await?;
    let next = next_in_line(&bob.client).await?;
    led.abort();
    assert_eq!(in_time(leadership.lost()).await?, LossReason::Released);
    assert!(!next.is_finished(), "while the handle is kept");
    drop(leadership);
    in_time(next).await???.resign().await?;
    Ok(())
}

/// Symptom: a guard said that it was held, until the next heartbeat, although its own transaction had failed
/// for want of its node.
async fn a_lock_whose_own_check_failed_is_lost<L: Exclusive>(alice: Participant) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let transaction = guard.transaction();
    alice.observer().await?.delete(guard.node(), None).await?;
    transaction.commit().await.expect_err("its node is gone");
    assert_eq!(guard.state(), HolderState::Lost(LossReason::NodeDeleted));
    Ok(())
}

/// The same of guards with several nodes; whatever else fails in a transaction says nothing of the guard.
async fn a_guard_whose_own_check_failed_is_lost((alice, bob): Observed) -> Result<()> {
    let client = &alice.client;
    let semaphore = Semaphore::builder(client, "/ends/permits", 2);
    let semaphore = semaphore.profile(SemaphoreProfile::Curator).build()?;
    let permits = semaphore.acquire_many(2).await?;
    let locks = MultiLock::new(client, ["/ends/one", "/ends/two"])?.acquire().await?;
    let missing = ZnodePath::new("/ends/no-such-node")?;
    permits.transaction().check(&missing, None).commit().await.expect_err("missing");
    locks.transaction().delete(&missing, None).commit().await.expect_err("missing");
    assert!(permits.is_held() && locks.is_held());

    let leases = permits.node().parent().context("it has one")?;
    let (names, _) = bob.children(&leases).await?;
    let other = names.iter().find(|name| *name != permits.node().name()).context("the other")?;
    bob.delete(&leases.child(other)?, None).await?;
    bob.delete(locks.guards()[1].node(), None).await?;
    permits.transaction().commit().await.expect_err("a permit is gone");
    locks.transaction().commit().await.expect_err("a lock is gone");
    let lost = HolderState::Lost(LossReason::NodeDeleted);
    assert_eq!((permits.state(), locks.state()), (lost, lost));
    Ok(())
}

/// "Taken" is not a useful result for a program that retries until the lock is free.
async fn attempts_that_do_not_wait_tell_of_a_closed_client(participant: Participant) -> Result<()> {
    let client = &participant.client;
    let (mutex, reentrant) = (Mutex::new(client, "/m")?, ReentrantMutex::new(client, "/r")?);
    let cohort = Mutex::builder(client, "/c").cohort(3, LONG).build()?;
    let guards = (mutex.acquire().await?, cohort.acquire().await?);
    let entry = reentrant.acquire(&Owner::new("a")).await?;

    client.close().await;
    let attempts = [
        format!("{:?}", mutex.try_acquire().await),
        format!("{:?}", cohort.try_acquire().await),
        format!("{:?}", reentrant.try_acquire(&Owner::new("b")).await),
    ];
    for attempt in attempts {
        assert!(attempt.contains("ClientClosed"), "{attempt}");
    }
    drop((guards, entry));
    Ok(())
}
