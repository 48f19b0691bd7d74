//! The tree thread when it is delayed or idle.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    Acl, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, Decoder, PASSWORD_LEN,
    PathWatchRequest, Permissions, Record, ReplyHeader, Request, SessionId, Zxid, split_frame,
    write_frame,
};

use super::*;
use crate::engine::Engine;
use crate::spin::Spin;
use crate::startup::watch_memory;
use crate::storage::Durability;

#[cfg(target_os = "linux")]
fn commit_threads() -> std::collections::HashSet<String> {
    use std::fs;

    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_one = |id: &String| {
        let name = fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.starts_with("lockkeeper-comm"))
    };
    tasks.map(|task| task.file_name().to_string_lossy().into_owned()).filter(is_one).collect()
}

/// The memory of a load is returned: the commit thread does this by ending, which can be observed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_new_commit_thread_starts_after_a_load() {
    let engine = Engine::builder().start().await.unwrap();
    // A thread sets its own name.
    let mut before = commit_threads();
    while before.is_empty() {
        before = commit_threads();
    }
    let client = come(&engine, None);
    answer(&client);
    let mut pings = BytesMut::new();
    for _ in 0..1_000 {
        write_frame(&mut pings, |out| out.extend_from_slice(&[255, 255, 255, 254, 0, 0, 0, 11]));
    }
    (&client).write_all(&pings).unwrap();
    let since = Instant::now();
    while commit_threads().is_empty() || !commit_threads().is_disjoint(&before) {
        assert!(since.elapsed() < Duration::from_secs(60), "in vain");
        engine.skip_time(Duration::from_secs(1)).await;
    }
    answer(&come(&engine, None));
}

/// Sends one create and waits for its result: 0 or an error.
fn try_create(client: &TcpStream, path: &str, mode: CreateMode) -> i32 {
    let (name, data) = (path.to_owned(), Bytes::new().into());
    let acl = Acl::world(Permissions::ALL).into();
    let request = Request::Create(CreateRequest { path: name, data, acl, flags: mode.flags() });
    let mut out = BytesMut::new();
    write_frame(&mut out, |out| request.encode(1, out));
    (&mut &*client).write_all(&out).unwrap();
    next::<ReplyHeader>(client, &mut BytesMut::new(), 1024).error
}

/// Symptom: when most nodes of one size were deleted before nodes of the next size came, the heap grew to ten times
/// their weight, within the budget for data, and the system killed the process. Seen to fail without the gauge.
#[tokio::test]
async fn c8_memory_that_the_budgets_do_not_see_stops_growth() {
    use std::sync::atomic::{AtomicU64, Ordering};

    let hooked = Arc::new(AtomicU64::new(0));
    let count = hooked.clone();
    let builder = Engine::builder().at_rest(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let engine = builder.start().await.unwrap();
    let client = come(&engine, None);
    answer(&client);

    const LIMIT: u64 = 64 << 20;
    let used = Arc::new(AtomicU64::new(0));
    let reader = used.clone();
    let reads = move || Some(reader.load(Ordering::Relaxed));
    tokio::spawn(watch_memory(engine.shared.clone(), LIMIT, reads));
    let since = Instant::now();
    let mut names = 0;
    let mut until = async |mode: CreateMode, allowed: bool| loop {
        names += 1;
        if (try_create(&client, &format!("/n{names}"), mode) == 0) == allowed {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "in vain");
        tokio::time::sleep(Duration::from_millis(1)).await;
    };

    let (node, lock) = (CreateMode::Persistent, CreateMode::Ephemeral);
    until(node, true).await;
    used.store(LIMIT / 8 * 7, Ordering::Relaxed);
    until(node, false).await;
    until(lock, true).await;
    assert_eq!(hooked.load(Ordering::Relaxed), 1, "some memory might have been free");
    used.store(LIMIT, Ordering::Relaxed);
    until(lock, false).await;
    assert!(engine.shared.memory.is_full());
    let waiting = engine.shared.budget.max() / 2;
    assert_eq!(engine.shared.budget.pressure_of(waiting), Pressure::Full, "the budget shrinks too");
    used.store(LIMIT / 2, Ordering::Relaxed);
    until(lock, true).await;
    until(node, true).await;
}

/// How often this thread has gone to sleep by itself.
#[cfg(target_os = "linux")]
fn sleeps_of_this_thread() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Symptom: while a batch of timeouts waited for a stalled disk, the thread checked every millisecond whether it still
/// did. Seen to fail that way.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn e41_a_disk_that_hangs_before_the_next_timeouts_lets_the_thread_sleep() {
    let engine = Engine::builder().tick(TICK).spin(Spin::Off).start().await.unwrap();
    let clients = [come(&engine, None), come(&engine, None)];
    clients.iter().for_each(|client| drop(answer(client)));
    engine.pause_commits();
    engine.skip_time(Duration::from_secs(60)).await;
    while !engine.shared.pipeline.has_timeouts() {
        yield_now().await;
    }
    let sleeps = || engine.shared.look(|_| sleeps_of_this_thread());
    let before = sleeps().await.unwrap();
    // Not a wait: this is how long the sleeps are counted.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let count = sleeps().await.unwrap() - before;
    assert!(count < 100, "it has slept {count} times");

    engine.resume_commits();
    let since = Instant::now();
    while engine.sessions() > 0 || engine.shared.pipeline.has_timeouts() {
        assert!(since.elapsed() < Duration::from_secs(60), "in vain");
        yield_now().await;
    }
}

/// Symptom: many clients that each sent much waited for many long turns, during which they could not be read, and
/// sessions ended whose pings were in the sockets. Seen to fail when they are heard only while the disk is behind.
#[tokio::test]
async fn e40_whoever_waits_for_a_turn_keeps_the_session() {
    use std::sync::atomic::{AtomicBool, Ordering};

    const CLIENTS: usize = 12;
    /// More than a few, so that they wait for a turn.
    const PINGS: usize = 20;
    /// Long, in skipped time, so that the test does not depend on its speed.
    const ASKED: Duration = Duration::from_secs(10);

    /// Makes each round one with time for one turn only, which takes a third of the timeout.
    fn delay(shared: Arc<crate::shared::Shared>, is_over: Arc<AtomicBool>) {
        let (later, over) = (shared.clone(), is_over.clone());
        let inspect = move |_: &TreeLoop| {
            std::thread::sleep(Duration::from_millis(3));
            if !over.load(Ordering::Relaxed) {
                delay(later, over);
            }
        };
        let _ = shared.events.send(Event::Skip(ASKED / 3, oneshot::channel().0));
        let _ = shared.events.send(Event::Inspect(Box::new(inspect)));
    }

    let engine = Engine::builder().tick(ASKED / 20).start().await.unwrap();
    let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| come_for(&engine, None, ASKED)).collect();
    clients.iter().for_each(|client| assert_ne!(answer(client).timeout_ms, 0));
    let mut pings = BytesMut::new();
    for _ in 0..PINGS {
        write_frame(&mut pings, |out| out.extend_from_slice(&[255, 255, 255, 254, 0, 0, 0, 11]));
    }
    let let_go = hold(&engine);
    clients.iter().for_each(|mut client| client.write_all(&pings).unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    delay(engine.shared.clone(), is_over.clone());
    drop(let_go);
    for client in &clients {
        let mut bytes = BytesMut::new();
        for _ in 0..PINGS {
            assert_eq!(next::<ReplyHeader>(client, &mut bytes, 1024).error, 0);
        }
    }
    is_over.store(true, Ordering::Relaxed);
}

const TICK: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_millis(200);

/// Sends a handshake for a session, or for a new one.
fn come(engine: &Engine, session: Option<&ConnectResponse>) -> TcpStream {
    come_for(engine, session, TIMEOUT)
}

/// Like [`come`], with this session timeout.
fn come_for(engine: &Engine, session: Option<&ConnectResponse>, timeout: Duration) -> TcpStream {
    let mut stream = TcpStream::connect(engine.addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let none = Bytes::from_static(&[0; PASSWORD_LEN]);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms: timeout.as_millis() as i32,
        session_id: session.map_or(SessionId::NONE, |known| known.session_id),
        password: session.map_or(none, |known| known.password.clone()),
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    write_frame(&mut out, |out| request.encode(out));
    stream.write_all(&out).unwrap();
    stream
}

fn answer(stream: &TcpStream) -> ConnectResponse {
    next(stream, &mut BytesMut::new(), 1024)
}

/// Reads the record at the start of the next frame, of at most `max` bytes.
fn next<T: Record>(mut stream: &TcpStream, bytes: &mut BytesMut, max: usize) -> T {
    loop {
        if let Some(frame) = split_frame(bytes, max).unwrap() {
            return T::decode(&mut Decoder::new(frame)).unwrap();
        }
        let mut part = [0; 64 * 1024];
        let read = stream.read(&mut part).unwrap();
        assert_ne!(read, 0, "the engine has ended the connection");
        bytes.extend_from_slice(&part[..read]);
    }
}

/// Blocks the tree thread until the returned value is dropped.
fn hold(engine: &Engine) -> Sender<()> {
    let (held, is_held) = channel();
    let (let_go, go_on) = channel::<()>();
    let hold = Box::new(move |_: &TreeLoop| {
        held.send(()).unwrap();
        // Until the other end is dropped.
        let _ = go_on.recv();
    });
    assert!(engine.shared.events.send(Event::Inspect(hold)).is_ok());
    is_held.recv().unwrap();
    let_go
}

/// Everything that arrives while the tree thread is blocked is handled before any session expires, including a
/// handshake on a new connection.
#[tokio::test]
async fn a_client_that_reconnects_while_the_engine_is_blocked_keeps_its_session() {
    let engine = Engine::builder().tick(TICK).start().await.unwrap();
    let first = come(&engine, None);
    let session = answer(&first);
    assert_eq!(session.timeout_ms, TIMEOUT.as_millis() as i32);
    drop(first);

    let let_go = hold(&engine);
    let second = come(&engine, Some(&session));
    // The engine's clock continues while the thread is blocked; this is what the test is about.
    std::thread::sleep(2 * TIMEOUT);
    drop(let_go);
    let back = answer(&second);
    assert_eq!(back.session_id, session.session_id);
    assert_eq!(back.timeout_ms, session.timeout_ms, "the session has expired");
}

/// Symptom: the replies to a hundred listings of a long queue formed one buffer of tens of megabytes. Long replies must
/// be sent one by one.
///
/// Seen to fail without `BATCH_BYTES`.
#[tokio::test]
async fn long_replies_do_not_wait_for_each_other() {
    const ASKED: i32 = 4;
    let engine = Engine::builder().start().await.unwrap();
    let client = come(&engine, None);
    answer(&client);
    let send = |requests: &[(i32, Request)]| {
        let mut out = BytesMut::new();
        for (xid, request) in requests {
            write_frame(&mut out, |out| request.encode(*xid, out));
        }
        (&client).write_all(&out).unwrap();
    };
    let (path, mut bytes) = ("/long".to_owned(), BytesMut::new());
    let mut reply = || next::<ReplyHeader>(&client, &mut bytes, 1024 * 1024);
    let acl = Acl { permissions: Permissions::ALL, scheme: "world".into(), id: "anyone".into() };
    let data = Bytes::from(vec![7; BATCH_BYTES]).into();
    let flags = CreateMode::Persistent.flags();
    let create = CreateRequest { path: path.clone(), data, acl: vec![acl].into(), flags };
    send(&[(0, Request::Create(create))]);
    assert_eq!(reply().error, 0);

    engine.pause_commits();
    let read = Request::GetData(PathWatchRequest { path, watch: false });
    send(&(1..=ASKED).map(|xid| (xid, read.clone())).collect::<Vec<_>>());
    let since = Instant::now();
    while engine.shared.pipeline.waiting() < ASKED as usize {
        assert!(since.elapsed() < Duration::from_secs(60), "they wait for each other");
        yield_now().await;
    }
    engine.resume_commits();
    for xid in 1..=ASKED {
        assert_eq!(reply().xid, xid);
    }
}

/// Symptom: a client that sent thousands of requests at once made other clients wait for all of them that were read
/// together. Seen to fail (a thousand came first) without turns.
#[tokio::test]
async fn a_small_client_does_not_wait_for_a_greedy_one() {
    const MANY: i32 = 3_000;
    let engine = Engine::builder().start().await.unwrap();
    let (greedy, modest) = (come(&engine, None), come(&engine, None));
    answer(&greedy);
    answer(&modest);
    let before = engine.stats().last_zxid.0;
    let acl = Acl { permissions: Permissions::ALL, scheme: "world".into(), id: "anyone".into() };
    let flags = CreateMode::PersistentSequential.flags();
    let (path, data) = ("/n".to_owned(), Bytes::new().into());
    let create = Request::Create(CreateRequest { path, data, acl: vec![acl].into(), flags });
    let frame = |request: &Request, xid| {
        let mut frame = BytesMut::new();
        request.encode(xid, &mut frame);
        frame.freeze()
    };
    let many: Vec<Bytes> = (0..MANY).map(|xid| frame(&create, xid)).collect();
    let few = vec![frame(&Request::Ping, -2)];

    let let_go = hold(&engine);
    // In the order in which they came.
    for (id, frames) in [(ConnectionId(1), many), (ConnectionId(2), few)] {
        deliver(&engine, id, frames);
    }
    drop(let_go);

    let answered: ReplyHeader = next(&modest, &mut BytesMut::new(), 1024);
    let first = answered.zxid.0 - before;
    assert!(first <= BATCH_REQUESTS as i64, "{first} requests came before a single one");
    let mut bytes = BytesMut::new();
    for xid in 0..MANY {
        assert_eq!(next::<ReplyHeader>(&greedy, &mut bytes, 1024).xid, xid, "in their order");
    }
}

/// Symptom: all writes of one client were in front of the disk, and the commits of other clients behind them. Seen to
/// fail (all sixty) when turns are taken while the disk is behind.
#[tokio::test]
async fn long_writes_wait_for_their_turns_while_the_disk_is_behind() {
    const MANY: i32 = 60;
    let engine = Engine::builder().start().await.unwrap();
    let (greedy, modest) = (come(&engine, None), come(&engine, None));
    answer(&greedy);
    answer(&modest);
    engine.pause_commits();
    let before = engine.stats().last_zxid.0;

    let data = Bytes::from(vec![7; 900_000]);
    let frames = (0..MANY).map(|xid| {
        let Request::Create(small) = create(&format!("/large-{xid}")) else { unreachable!() };
        let large = Request::Create(CreateRequest { data: data.clone().into(), ..small });
        let mut frame = BytesMut::new();
        large.encode(xid, &mut frame);
        frame.freeze()
    });
    deliver(&engine, ConnectionId(1), frames.collect());
    let since = Instant::now();
    while !engine.shared.pipeline.is_behind() {
        assert!(since.elapsed() < Duration::from_secs(60), "nothing waits for the disk");
        yield_now().await;
    }
    let mut frame = BytesMut::new();
    create("/small").encode(1, &mut frame);
    deliver(&engine, ConnectionId(2), vec![frame.freeze()]);
    // One round each, and so time for a turn.
    for _ in 0..2 * MANY {
        engine.skip_time(Duration::ZERO).await;
    }
    let handled = engine.stats().last_zxid.0 - before;
    assert!((2..i64::from(MANY) / 2).contains(&handled), "{handled} transactions");

    engine.resume_commits();
    assert_eq!(next::<ReplyHeader>(&modest, &mut BytesMut::new(), 1024).xid, 1);
    let mut bytes = BytesMut::new();
    for xid in 0..MANY {
        assert_eq!(next::<ReplyHeader>(&greedy, &mut bytes, 1024).xid, xid, "in their order");
    }
    engine.stop().await.unwrap();
}

/// Delivers frames as if one read of a connection had returned them.
fn deliver(engine: &Engine, id: ConnectionId, frames: Vec<Bytes>) {
    let delivered = frames.clone();
    let count = Box::new(move |tree: &TreeLoop| tree.connections[&id].deliver(&delivered));
    for event in [Event::Inspect(count), Event::Frames(id, frames)] {
        assert!(engine.shared.events.send(event).is_ok());
    }
}

/// K5: a request that arrived while the engine stopped was answered, so that its client assumed that the server
/// continued. Seen to fail if connections are not closed at the stop.
#[tokio::test]
async fn k5_requests_after_the_stop_are_not_answered() {
    let engine = Engine::builder().start().await.unwrap();
    let client = come(&engine, None);
    answer(&client);
    let nodes = engine.stats().nodes;
    let let_go = hold(&engine);
    let mut late = BytesMut::new();
    create("/late").encode(1, &mut late);
    let id = ConnectionId(1);
    for event in [Event::Stop, Event::Frames(id, vec![late.freeze()])] {
        assert!(engine.shared.events.send(event).is_ok());
    }
    drop(let_go);
    assert_eq!(rest(&client), 0, "a reply");
    engine.stopped().await.unwrap();
    assert_eq!(engine.stats().nodes, nodes);
}

/// K5: clients waited for the end of their connections until the data directory had been released, which may take as
/// long as a stalled disk. Seen to fail (the connection stays open) if connections are not closed at the stop.
#[tokio::test]
async fn k5_connections_end_at_the_stop_and_not_with_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(dir.path()).start().await.unwrap();
    let client = come(&engine, None);
    answer(&client);
    let disk = engine.shared.pipeline.hold_disk();
    assert!(engine.shared.events.send(Event::Stop).is_ok());
    assert_eq!(rest(&client), 0);
    drop(disk);
    engine.stopped().await.unwrap();
}

fn create(path: &str) -> Request {
    let (path, data) = (path.to_owned(), Bytes::new().into());
    let acl = Acl::world(Permissions::ALL).into();
    Request::Create(CreateRequest { path, data, acl, flags: CreateMode::Persistent.flags() })
}

/// How many bytes arrive before the end of the connection.
fn rest(mut stream: &TcpStream) -> usize {
    stream.read_to_end(&mut Vec::new()).unwrap()
}

/// How often the threads of an engine poll in vain while one client sends requests one after the other.
async fn polls_in_a_ping_pong(spin: Spin, durability: Durability) -> u64 {
    const ROUND_TRIPS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let builder = Engine::builder().data_dir(dir.path()).durability(durability).spin(spin);
    let engine = builder.start().await.unwrap();
    let client = come(&engine, None);
    answer(&client);
    let mut bytes = BytesMut::new();
    for xid in 1..=ROUND_TRIPS {
        let mut out = BytesMut::new();
        write_frame(&mut out, |out| create(&format!("/ping-{xid}")).encode(xid as i32, out));
        (&client).write_all(&out).unwrap();
        assert_eq!(next::<ReplyHeader>(&client, &mut bytes, 1024).error, 0);
    }
    let (polled, polls) = channel();
    let look = Box::new(move |tree: &TreeLoop| polled.send(tree.spin.polls()).unwrap());
    assert!(engine.shared.events.send(Event::Inspect(look)).is_ok());
    polls.recv().unwrap()
}

/// P15: on a machine where processor time costs money, the threads of an engine can be made to sleep when they have no
/// work.
///
/// Seen to fail with a policy that is ignored.
#[tokio::test]
async fn no_thread_polls_when_spinning_is_off() {
    for durability in [Durability::Sync, Durability::Os, Durability::Memory] {
        assert_eq!(polls_in_a_ping_pong(Spin::Off, durability).await, 0, "{durability}");
        // On a busy machine a client may be so slow that polling for it gains nothing.
        let mut tries = 0..20;
        while polls_in_a_ping_pong(Spin::Adaptive, durability).await == 0 {
            assert!(tries.next().is_some(), "{durability}: no polls were counted");
        }
    }
}

#[test]
fn e39_identities_that_are_too_long_are_refused_credentials() {
    let close = Output::Close(CloseReason::IdentitiesTooLong { bytes: 2, max: 1 });
    assert!(is_auth_failure(&close));
    assert!(!is_auth_failure(&Output::Close(CloseReason::PlacesKept)));
}
