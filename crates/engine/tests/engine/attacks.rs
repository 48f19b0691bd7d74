//! Requests of one client never cost another client its lock: one attack for each limit of `docs/engine.md`, while ten
//! clients hold locks at the same engine.
//!
//! The engine runs in another process, so that its memory is its own. The holders are mutexes of the library with its
//! usual timeouts, each with a session of its own, which verify now and then that they are held. No lock is ever lost
//! or past its deadline, no proof takes long, the engine is alive, and its memory is within its budget. Each attack
//! also checks that its limit took effect: an attack that no limit stops proves nothing.

mod limited;
mod origins;
mod tree;

use std::env;
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockkeeper::{Mutex, blocking};
use lockkeeper_engine::{Builder, Engine};
use lockkeeper_wire::{CreateMode, PathRequest, ReadOp, Request, SetWatchesRequest};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::child::{EngineProcess, wait};
use crate::client::{
    Client, Incoming, auth, checks, children, create, create_op, create_with, delete, delete_op,
    exists, get_data, number_of, watch_below,
};
use crate::limits::with_list;

/// The session timeout that clients of the library request.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The longest time for 99 of 100 proofs.
const PATIENCE: Duration = TIMEOUT.checked_div(20).unwrap();
const HOLDERS: usize = 10;
/// The shortest duration of each attack, which is repeated: a hundredth of the proofs must be several.
const LEAST: Duration = Duration::from_millis(500);
/// How often a holder proves its node.
const BEAT: Duration = Duration::from_millis(20);
const MB: usize = 1024 * 1024;
/// The engine's budgets for waiting data and for the tree.
const BUDGET: usize = 48 * MB;
const DATA_BUDGET: usize = 32 * MB;
/// More than all attacks except the last begin before the first of them expire.
const MAX_SESSIONS: usize = 5_000;
/// The largest growth of the process: both budgets, the allocator's overhead, and the data of one round.
const MOST_MEMORY: usize = 2 * (BUDGET + DATA_BUDGET) + 64 * MB;

/// The target of an attack.
struct Target {
    connect: String,
    /// The directory of its Unix socket.
    folder: PathBuf,
}

/// The name of an attack, and its function.
type Attack = (&'static str, fn(&Target));

/// The attacks, which run one after the other at the same engine. None leaves anything behind that affects another one.
const ATTACKS: &[Attack] = &[
    ("replies that are not read", unread_replies),
    ("incomplete requests", incomplete_requests),
    ("heavy watches", heavy_watches),
    ("heavy watches of a client that reconnects", heavy_watches_again),
    ("events that are not read", unread_events),
    ("events of one transaction", events_of_one_transaction),
    ("pipelines", pipelines),
    ("a client that reads 100 MiB", a_client_that_takes_much),
    ("long multi reads", long_multi_reads),
    ("long transactions", long_transactions),
    ("large and empty frames", wrong_frames),
    ("invalid first frames", wrong_handshakes),
    ("identities", identities),
    ("long lists", long_lists),
    ("ephemeral nodes of one session", ephemerals),
    ("sessions that end together", sessions_that_end),
    ("counting", counting),
    ("long requests of many at once", long_requests_of_many),
    ("connections", connections),
    ("places of users", origins::places_of_users),
    #[cfg(feature = "tls")]
    ("handshakes that stay open", origins::tls::handshakes_that_stay_open),
    ("data", data),
    ("space that is freed twice", tree::room_that_is_made_twice),
    ("long identities", tree::long_identities),
    ("address ranges", tree::address_ranges),
    ("long texts of quotas", tree::long_texts_of_quotas),
    ("long paths", tree::long_paths),
    ("watched paths", watched_paths),
    ("a storm of connections", storm),
    // The sessions that it leaves would keep the next attack from starting one.
    ("sessions", sessions),
];

/// The directory of the attacked engine.
const FOLDER: &str = "LOCKKEEPER_TEST_ATTACKED";
/// The Unix socket in it, which all users may use.
const SOCKET: &str = "socket";

fn limits(builder: Builder) -> Builder {
    builder
        .memory_budget(BUDGET)
        .data_budget(DATA_BUDGET)
        .max_connections(400)
        .max_connections_per_address(300)
        .max_sessions(MAX_SESSIONS)
        .max_watches(20_000)
        .max_ephemerals(3_000)
        .enforce_quotas()
        .send_timeout(Duration::from_secs(2))
        .handshake_time(Duration::from_secs(2))
        .four_letter_word("mntr")
}

/// Not a test by itself: the attacked engine.
#[tokio::test]
#[ignore = "the other half of the test below"]
async fn child() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let address = "127.0.0.1:0".parse().unwrap();
    let builder = limits(Engine::builder().listen(address));
    let builder = builder.unix_socket(folder.join(SOCKET)).unix_socket_mode(0o666);
    #[cfg(feature = "tls")]
    let builder = origins::tls::listen(builder, &folder);
    let engine = builder.start().await.unwrap();
    #[cfg(feature = "tls")]
    origins::tls::publish(&engine, &folder);
    wait(&engine);
}

/// The peak memory of the engine, in bytes.
fn peak_memory(engine: &EngineProcess) -> Option<usize> {
    let status = format!("/proc/{}/status", engine.id());
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? * 1024)
}

/// Clients with a lock each, which prove that they hold it until they are stopped.
struct Holders {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

impl Holders {
    fn start(connect: &str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..HOLDERS).map(|n| {
            let client = blocking::Client::connect(connect).unwrap();
            let lock = Mutex::new(&client, &format!("/locks/{n}")).unwrap();
            let guard = client.wait(lock.acquire()).unwrap();
            let over = over.clone();
            thread::spawn(move || {
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let since = Instant::now();
                    // Ends early when the lock is lost, or its deadline has passed.
                    let proof = client.wait(guard.run(guard.verify()));
                    proof.expect("it is lost").expect("it holds its lock");
                    times.push(since.elapsed());
                    assert!(guard.is_held());
                    // Not a wait: a holder only sends a proof now and then.
                    thread::sleep(BEAT);
                }
                assert!(guard.is_held());
                client.wait(guard.release()).unwrap();
                times
            })
        });
        Self { threads: threads.collect(), over }
    }

    /// Stops the holders, and returns how long the proofs took, sorted.
    fn stop(self) -> Vec<Duration> {
        self.over.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        let mut times: Vec<Duration> =
            threads.flat_map(|thread| thread.join().expect("a holder lost its lock")).collect();
        times.sort_unstable();
        times
    }
}

#[test]
fn no_attack_costs_a_holder_its_lock() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
    #[cfg(feature = "tls")]
    origins::tls::prepare(folder.path());
    let variable = (FOLDER, folder.path().to_str().unwrap());
    let attacked = EngineProcess::start("attacks::child", &[variable]);
    let target = Target { connect: attacked.connect.clone(), folder: folder.path().to_path_buf() };
    let mut setup = target.client();
    for path in ["/locks", "/own"] {
        setup.create(path, CreateMode::Persistent).unwrap();
    }
    setup.create_large("/large", MB / 2);
    let before = peak_memory(&attacked);
    let only = env::var("LOCKKEEPER_TEST_ATTACK").unwrap_or_default();

    for (name, run) in ATTACKS.iter().filter(|(name, _)| name.contains(&only)) {
        let holders = Holders::start(&attacked.connect);
        let since = Instant::now();
        while since.elapsed() < LEAST {
            run(&target);
            target.eventually("it leaves nothing behind", |target| {
                target.number("waiting_bytes") + target.number("watch_bytes") < BUDGET / 10
            });
        }
        let took = since.elapsed();
        let times = holders.stop();
        let slow = times[times.len() * 99 / 100];
        let worst = times.last().unwrap();
        println!("{name}: {took:.1?}, {} proofs, p99 {slow:.1?}, worst {worst:.1?}", times.len());
        assert!(slow < PATIENCE, "{name}: a hundredth of the proofs took {slow:?}");
        target.client().ping();
    }
    if let (Some(before), Some(peak)) = (before, peak_memory(&attacked)) {
        println!("memory: {} MiB, at most {} MiB", before / MB, peak / MB);
        assert!(peak < before + MOST_MEMORY, "{peak} bytes, {before} before");
    }
}

impl Target {
    fn client(&self) -> Client {
        Client::connect_to(&self.connect, TIMEOUT)
    }

    fn number(&self, name: &str) -> usize {
        number_of(&self.connect, name)
    }

    /// A connection from this address of the machine, without a handshake.
    fn from(&self, address: Ipv4Addr) -> Client {
        self.dial_from(address, &self.connect)
    }

    fn dial_from(&self, address: Ipv4Addr, to: &str) -> Client {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrV4::new(address, 0)).unwrap();
        connect(&socket, &to.parse::<SocketAddrV4>().unwrap()).unwrap();
        Client::over(Box::new(TcpStream::from(socket)))
    }

    /// Whether a client gets a new session.
    fn begin_session(&self) -> bool {
        Client::raw_to(&self.connect).handshake(TIMEOUT).is_ok()
    }

    /// Waits for the engine's reaction to an attacker.
    fn eventually(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        crate::client::eventually(what, || holds(self));
    }
}

/// F4: each connection stayed within its own limit, 5.5 GB in total.
fn unread_replies(target: &Target) {
    let dropped = target.number("dropped_for_memory");
    let mut clients: Vec<Client> = (0..100).map(|_| target.client()).collect();
    let requests = vec![get_data("/large"); 40];
    for client in &mut clients {
        client.try_send(&requests);
    }
    target.eventually("clients that do not read are dropped", |target| {
        target.number("dropped_for_memory") > dropped && target.number("waiting_bytes") < BUDGET / 2
    });
}

/// F4: 1,500 requests of a megabyte, each without its last byte: 1.45 GB.
fn incomplete_requests(target: &Target) {
    let dropped = target.number("dropped_for_memory");
    let mut part = vec![7; 900_000];
    part[..4].copy_from_slice(&1_000_000_u32.to_be_bytes());
    let mut clients: Vec<Client> = (0..200).map(|_| target.client()).collect();
    // The rest of those that are held back stays in the sockets, and sending blocks.
    let sending = clients.drain(..).map(|mut client| {
        let part = part.clone();
        thread::spawn(move || {
            let _ = client.try_send_bytes(&part);
            client
        })
    });
    let sending: Vec<_> = sending.collect();
    target.eventually("incomplete requests are dropped", |target| {
        target.number("dropped_for_memory") > dropped && target.number("waiting_bytes") < BUDGET / 2
    });
    for thread in sending {
        drop(thread.join().unwrap());
    }
}

/// F4: 300 watches of a megabyte each, 290 MB.
fn heavy_watches(target: &Target) {
    let mut refused = 0;
    let mut clients: Vec<Client> = (0..10).map(|_| target.client()).collect();
    for round in 0..150 {
        for (n, client) in clients.iter_mut().enumerate() {
            let path = format!("/{n}-{round}-{}", "x".repeat(30_000));
            refused += usize::from(client.call(exists(&path, true)) == Err(-127));
        }
    }
    assert!(refused > 700, "{refused} of 1,500 watches were refused");
    // A modest client gets its watch.
    assert_eq!(target.client().call(exists("/mine", true)), Err(-101));
    assert!(target.number("watch_bytes") < BUDGET * 2 / 3);
    drop(clients);
    target.eventually("the watches are removed", |target| target.number("watch_bytes") < MB);
}

fn heavy_watches_again(target: &Target) {
    let paths = (0..10_000).map(|n| format!("/{n}-{}", "x".repeat(80)));
    let request = Request::SetWatches(SetWatchesRequest {
        exist: paths.collect(),
        ..SetWatchesRequest::default()
    });
    let mut clients: Vec<Client> = (0..20).map(|_| target.client()).collect();
    for client in &mut clients {
        client.try_send(std::slice::from_ref(&request));
    }
    let closed = clients.iter_mut().filter_map(|client| client.frame().err()).count();
    assert!(closed > 0, "no client exceeded its share");
    drop(clients);
    target.eventually("the watches are removed", |target| target.number("watch_bytes") < MB);
}

fn unread_events(target: &Target) {
    let mut deaf: Vec<Client> = (0..20).map(|_| target.client()).collect();
    for client in &mut deaf {
        client.call(watch_below("/own")).unwrap();
    }
    let dropped = target.number("connection_drop_count");
    let mut writer = target.client();
    let name = format!("/own/{}", "x".repeat(20_000));
    let writes: Vec<Request> =
        (0..20).flat_map(|_| [create(&name, CreateMode::Persistent), delete(&name)]).collect();
    target.eventually("clients that do not read events are dropped", |target| {
        writer.call_all(&writes);
        target.number("connection_drop_count") >= dropped + 20
    });
}

/// 2,500 clients that watched everything, and one transaction of 13,000 creates: for 20 s no client was served, the
/// engine used 2.5 GiB, and ten of ten locks were lost. Seen to fail without a limit.
fn events_of_one_transaction(target: &Target) {
    let mut watchers: Vec<Client> = (0..250).map(|_| target.client()).collect();
    for watcher in &mut watchers {
        watcher.call(watch_below("/own")).unwrap();
    }
    let mut client = target.client();
    let creates = (0..5_000).map(|n| create_op(&format!("/own/{n}"))).collect();
    client.call(Request::Multi(creates)).unwrap();
    for mut watcher in watchers {
        assert!(watcher.frame().is_err(), "it received a part of the events");
    }
    let deletes = (0..5_000).map(|n| delete_op(&format!("/own/{n}"))).collect();
    client.call(Request::Multi(deletes)).unwrap();
}

/// Thousands of requests at once, on many connections.
fn pipelines(target: &Target) {
    let pings = vec![exists("/own", false); 20_000];
    let attackers: Vec<_> = (0..8)
        .map(|_| {
            let (mut client, pings) = (target.client(), pings.clone());
            thread::spawn(move || {
                client.call_all(&pings);
            })
        })
        .collect();
    for attacker in attackers {
        attacker.join().unwrap();
    }
}

/// F17: the client lost its connection.
fn a_client_that_takes_much(target: &Target) {
    let mut client = target.client();
    client.call_all(&vec![get_data("/large"); 200]);
    client.ping();
}

/// F2: 54 KB for 2.9 GB.
fn long_multi_reads(target: &Target) {
    let mut client = target.client();
    let read = ReadOp::GetData(PathRequest { path: "/large".to_owned() });
    let request = Request::MultiRead(vec![read; 3_000]);
    for _ in 0..10 {
        assert_eq!(client.call(request.clone()), Err(-5));
    }
}

/// As many operations as fit into a request.
fn long_transactions(target: &Target) {
    let mut client = target.client();
    let creates = (0..5_000).map(|n| create_op(&format!("/own/{n}"))).collect();
    let deletes = (0..5_000).map(|n| delete_op(&format!("/own/{n}"))).collect();
    let (creates, deletes) = (Request::Multi(creates), Request::Multi(deletes));
    for request in [checks(50_000), creates, children("/own"), deletes] {
        client.call(request).unwrap();
    }
}

fn wrong_frames(target: &Target) {
    for bytes in [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff; 4], &[0, 0, 0, 0]] {
        for _ in 0..5 {
            let mut client = target.client();
            client.send_bytes(bytes);
            assert!(client.rest().is_empty());
        }
    }
}

/// Clients that wait with their handshakes, or send 4 KiB and more.
fn wrong_handshakes(target: &Target) {
    let silent: Vec<Client> = (0..100).map(|_| Client::raw_to(&target.connect)).collect();
    for _ in 0..100 {
        let mut client = Client::raw_to(&target.connect);
        client.send_bytes(&[0, 0, 0x20, 0, 7]);
        assert!(client.rest().is_empty());
    }
    for mut client in silent {
        assert!(client.rest().is_empty(), "it was in time");
    }
}

/// F3.
fn identities(target: &Target) {
    let mut client = target.client();
    let show = |user: usize| auth("digest", &format!("user-{user}:password"));
    let taken = (0..30_000).take_while(|user| client.call(show(*user)).is_ok()).count();
    assert_eq!(taken, 31);
}

/// F3.
fn long_lists(target: &Target) {
    let mut client = target.client();
    for entries in [25_001, 1_001] {
        assert_eq!(client.call(with_list("/own/long", entries)), Err(-114));
    }
}

fn ephemerals(target: &Target) {
    let mut client = target.client();
    let requests = vec![create("/own/e-", CreateMode::EphemeralSequential); 500];
    let (mut made, mut refused) = (0, 0);
    for _ in 0..8 {
        for _ in client.send(&requests) {
            match client.reply().unwrap().0.error {
                0 => made += 1,
                -125 => refused += 1,
                error => panic!("error {error}"),
            }
        }
    }
    assert_eq!((made, refused), (3_000, 1_000));
    client.call(Request::CloseSession).unwrap();
}

/// Their clients close them all at the same moment, each with nodes that another client watches.
fn sessions_that_end(target: &Target) {
    let mut watcher = target.client();
    watcher.call(watch_below("/own")).unwrap();
    let mut clients: Vec<Client> = (0..150).map(|_| target.client()).collect();
    for client in &mut clients {
        let nodes = [(); 3].map(|()| create("/own/s-", CreateMode::EphemeralSequential));
        client.send(&nodes);
    }
    for client in &mut clients {
        client.send(&[Request::CloseSession]);
    }
    for _ in 0..2 * 3 * clients.len() {
        assert!(matches!(watcher.incoming().unwrap(), Incoming::Event(_)));
    }
}

/// Requests with short replies and much work.
fn counting(target: &Target) {
    let mut client = target.client();
    let count = Request::GetAllChildrenNumber(PathRequest { path: "/locks".to_owned() });
    client.call_all(&vec![count; 2_000]);
}

/// One long request from each of many connections: each was served in the round in which it came, as if it were the
/// only one. Seen to fail that way: a round took seconds.
fn long_requests_of_many(target: &Target) {
    const PARTS: usize = 10;
    let part = |part: usize| (0..1_000).map(move |n| format!("/own/{part}-{n}"));
    let mut owner = target.client();
    for number in 0..PARTS {
        let creates = part(number).map(|path| create_op(&path)).collect();
        owner.call(Request::Multi(creates)).unwrap();
    }

    let count = [Request::GetAllChildrenNumber(PathRequest { path: "/own".to_owned() })];
    let mut clients: Vec<Client> = (0..250).map(|_| target.client()).collect();
    for _ in 0..4 {
        clients.iter_mut().for_each(|client| drop(client.send(&count)));
        clients.iter_mut().for_each(|client| assert_eq!(client.reply().unwrap().0.error, 0));
    }

    for number in 0..PARTS {
        let deletes = part(number).map(|path| delete_op(&path)).collect();
        owner.call(Request::Multi(deletes)).unwrap();
    }
}

fn watched_paths(target: &Target) {
    let mut client = target.client();
    let mut refused = 0;
    for part in 0..25 {
        let watches: Vec<Request> =
            (0..1_000).map(|n| exists(&format!("/{part}-{n}"), true)).collect();
        for _ in client.send(&watches) {
            match client.reply().unwrap().0.error {
                -101 => {}
                -127 => refused += 1,
                error => panic!("error {error}"),
            }
        }
    }
    assert_eq!(refused, 5_000);
}

/// Connections that come and go.
fn storm(target: &Target) {
    for _ in 0..2_000 {
        drop(TcpStream::connect(&target.connect).unwrap());
    }
}

/// Each session lives on without its connection, until no more can begin.
fn sessions(target: &Target) {
    let mut last = target.client();
    target.eventually("the maximum of sessions is reached", |target| {
        let begun = (0..100).filter(|_| target.begin_session()).count();
        begun == 0 && target.number("global_sessions") == MAX_SESSIONS
    });
    last.call(Request::CloseSession).unwrap();
}

/// Two addresses take all places that they can get; a client from elsewhere can still return with its session, and one
/// address alone does not even keep out clients that start a session.
fn connections(target: &Target) {
    let ticket = target.client().ticket();
    let resume = || {
        let mut back = Client::raw_to(&target.connect);
        back.take_up(&ticket);
        back.handshake(TIMEOUT).is_ok_and(|response| response.session_id == ticket.session)
    };
    let silent: Vec<Client> = (0..400).map(|_| target.from(Ipv4Addr::new(127, 0, 0, 2))).collect();
    assert!(target.begin_session(), "one address has kept others out");
    let more: Vec<Client> = (0..400).map(|_| target.from(Ipv4Addr::new(127, 0, 0, 3))).collect();
    target.eventually("no place is left for a new session", |target| !target.begin_session());
    assert!(resume(), "a returning client is refused");
    for mut client in silent.into_iter().chain(more) {
        assert!(client.rest().is_empty(), "without a handshake they end");
    }
}

/// The tree fills up; locks can still be acquired and released.
fn data(target: &Target) {
    let mut client = target.client();
    let mut count = 0;
    loop {
        assert!(count * 100_000 < DATA_BUDGET, "{count} nodes");
        let value = Bytes::from(vec![7; 100_000]);
        let node = create_with(&format!("/own/d{count}"), CreateMode::Persistent, value);
        match client.call(node) {
            Ok(_) => count += 1,
            Err(error) => break assert_eq!(error, -125),
        }
    }
    let mut other = target.client();
    let lock = other.create("/locks/x-", CreateMode::EphemeralSequential).unwrap();
    other.call(delete(&lock)).unwrap();
    let deletes = (0..count).map(|n| delete_op(&format!("/own/d{n}"))).collect();
    client.call(Request::Multi(deletes)).unwrap();
    client.create("/own/again", CreateMode::Persistent).unwrap();
    client.call(delete("/own/again")).unwrap();
}
