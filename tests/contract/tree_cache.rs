//! What a tree cache promises, on every server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use lockkeeper::{
    Acl, CacheError, Change, Client, CreateMode, ErrorCode, Permissions, Snapshot, Transaction,
    TreeCache, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::{IDLE, Observed, contract, cut_off_at_reads, reconnect, wake_ups};

contract!(tree_cache);

const ROOT: &str = "/config";

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a path")
}

async fn make(client: &Client, paths: &[&str]) -> Result<()> {
    for text in paths {
        client.create(&path(text), text.to_string(), CreateMode::Persistent).await?;
    }
    Ok(())
}

fn contents(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let nodes = snapshot.nodes().into_iter();
    nodes.map(|(path, node)| (path, String::from_utf8_lossy(node.data()).into_owned())).collect()
}

fn as_made(paths: &[&str]) -> BTreeMap<String, String> {
    paths.iter().map(|path| (path.to_string(), path.to_string())).collect()
}

/// What kind of change, and where.
fn told(changes: &[Change]) -> Vec<String> {
    let name = |change: &Change| match change {
        Change::Created { .. } => "created",
        Change::Changed { .. } => "changed",
        Change::Replaced { .. } => "replaced",
        Change::Deleted { .. } => "deleted",
    };
    changes.iter().map(|change| format!("{} {}", name(change), change.path())).collect()
}

async fn is_current(cache: &TreeCache, participant: &Participant) {
    let mut status = participant.client.status();
    while !cache.is_current() {
        // Whatever makes it so passes through the proxy, or changes the status.
        tokio::select! {
            _ = status.changed() => {}
            () = tokio::task::yield_now() => {}
        }
    }
}

async fn a_cache_is_complete_when_it_is_open(client: Client) -> Result<()> {
    let paths = ["/config", "/config/a", "/config/a/b", "/config/a/b/c", "/config/d"];
    make(&client, &paths).await?;
    make(&client, &["/configuration"]).await?;
    let cache = TreeCache::open(&client, ROOT).await?;
    let snapshot = cache.snapshot();
    assert_eq!(contents(&snapshot), as_made(&paths));
    assert!(cache.is_current() && snapshot.is_exact());
    let names: Vec<_> = snapshot.children("/config").map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "d"]);

    let shallow = TreeCache::builder(&client, ROOT).max_depth(1).open().await?;
    assert_eq!(contents(&shallow.snapshot()), as_made(&["/config", "/config/a", "/config/d"]));
    let filtered = TreeCache::builder(&client, ROOT).filter(|path| !path.ends_with("/a"));
    let filtered = filtered.open().await?;
    assert_eq!(contents(&filtered.snapshot()), as_made(&["/config", "/config/d"]));
    Ok(())
}

async fn a_path_that_does_not_exist_is_watched(client: Client) -> Result<()> {
    let cache = TreeCache::open(&client, ROOT).await?;
    assert!(cache.snapshot().is_empty() && cache.is_current());
    let mut changes = cache.changes();
    make(&client, &["/config"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["created /config"]);
    client.delete(&path("/config"), None).await?;
    assert_eq!(told(&changes.next().await?.changes), ["deleted /config"]);
    Ok(())
}

async fn all_of_a_transaction_comes_in_one_update((participant, writer): Observed) -> Result<()> {
    make(&writer, &["/config", "/config/a", "/config/b"]).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let mut changes = cache.changes();
    for n in 0..20 {
        let both = writer.transaction().set_data(&path("/config/a"), format!("{n}"), None);
        both.set_data(&path("/config/b"), format!("{n}"), None).commit().await?;
    }
    loop {
        let snapshot = changes.next().await?.snapshot;
        let of = |path| snapshot.get(path).map(|node| node.data().to_vec());
        assert_eq!(of("/config/a"), of("/config/b"));
        if of("/config/a") == Some(b"19".to_vec()) {
            return Ok(());
        }
    }
}

/// Writes that a cache cannot see at the time, one of each kind.
async fn write_unseen(writer: &Client) -> Result<()> {
    writer.set_data(&path("/config/changed"), "new", None).await?;
    writer.delete(&path("/config/deleted"), None).await?;
    writer.delete(&path("/config/replaced/below"), None).await?;
    // CURATOR-391: version 0 both times, and as many children.
    writer.delete(&path("/config/replaced"), None).await?;
    make(writer, &["/config/replaced", "/config/replaced/other", "/config/new", "/config/new/a"])
        .await
}

const BEFORE: [&str; 6] = [
    "/config",
    "/config/changed",
    "/config/deleted",
    "/config/replaced",
    "/config/replaced/below",
    "/config/same",
];

const UNSEEN: [&str; 7] = [
    "changed /config/changed",
    "deleted /config/deleted",
    "created /config/new",
    "created /config/new/a",
    "replaced /config/replaced",
    "deleted /config/replaced/below",
    "created /config/replaced/other",
];

async fn what_happened_while_it_was_cut_off_is_told_once(
    (participant, writer): Observed,
) -> Result<()> {
    make(&writer, &BEFORE).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let mut changes = cache.changes();
    participant.proxy.refuse();
    write_unseen(&writer).await?;
    participant.proxy.restore();
    assert_eq!(told(&changes.next().await?.changes), UNSEEN);
    make(&writer, &["/config/z"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["created /config/z"]);
    Ok(())
}

async fn what_happened_between_two_sessions_is_told_once(
    (participant, writer): Observed,
) -> Result<()> {
    make(&writer, &BEFORE).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let mut changes = cache.changes();
    let session = participant.client.session_id();
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    write_unseen(&writer).await?;
    participant.proxy.restore();
    assert_eq!(told(&changes.next().await?.changes), UNSEEN);
    assert_ne!(participant.client.session_id(), session);
    make(&writer, &["/config/z"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["created /config/z"]);
    Ok(())
}

async fn while_it_is_cut_off_the_last_snapshot_stays(
    (participant, writer): Observed,
) -> Result<()> {
    make(&writer, &["/config", "/config/a"]).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    assert!(cache.is_current());
    let as_of = cache.as_of();
    assert!(as_of <= participant.client.now());
    participant.proxy.refuse();
    let mut status = participant.client.status();
    status.wait_for(|status| status.contact != lockkeeper::Contact::Connected).await?;
    writer.set_data(&path("/config/a"), "new", None).await?;
    assert!(!cache.is_current());
    assert_eq!(contents(&cache.snapshot()), as_made(&["/config", "/config/a"]));
    participant.proxy.restore();
    is_current(&cache, &participant).await;
    assert_eq!(cache.snapshot().get("/config/a").map(|node| node.data()), Some(&b"new"[..]));
    assert!(cache.as_of() > as_of);
    Ok(())
}

/// Each read failed at once, and the next one came 10 to 20 ms later, for as long as the outage lasted.
///
/// Fails without `retry::reachable`.
async fn it_does_not_read_while_no_server_can_be_reached(backend: Backend) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(2));
    let (participant, writer) = (backend.participant_with(short).await?, backend.observer().await?);
    make(&writer, &["/config", "/config/a"]).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let mut changes = cache.changes();
    let write = async {
        writer.set_data(&path("/config/a"), "new", None).await?;
        Ok(())
    };
    cut_off_at_reads(&participant, write).await?;
    let wake_ups = wake_ups().await;
    assert!(wake_ups < IDLE, "{wake_ups} within a second");

    reconnect(&participant);
    assert_eq!(told(&changes.next().await?.changes), ["changed /config/a"]);
    Ok(())
}

async fn the_first_watch_may_be_lost(participant: Participant) -> Result<()> {
    make(&participant.client, &["/config", "/config/a"]).await?;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        participant.proxy.lose_next(OpCode::AddWatch, loss);
        let cache = TreeCache::open(&participant.client, ROOT).await?;
        assert_eq!(contents(&cache.snapshot()), as_made(&["/config", "/config/a"]));
        let mut changes = cache.changes();
        let data = format!("{loss:?}");
        participant.client.set_data(&path("/config/a"), data, None).await?;
        assert_eq!(told(&changes.next().await?.changes), ["changed /config/a"]);
        participant.client.set_data(&path("/config/a"), "/config/a", None).await?;
    }
    Ok(())
}

/// W8: so does ZooKeeper 3.5.
async fn a_server_that_closes_at_the_watch_is_named(participant: Participant) -> Result<()> {
    for _ in 0..3 {
        participant.proxy.lose_next(OpCode::AddWatch, Loss::BeforeRequest);
    }
    let refused = TreeCache::open(&participant.client, ROOT).await;
    assert!(matches!(&refused, Err(CacheError::NoWatch { tries: 3, .. })), "{refused:?}");
    participant.proxy.refuse_next(OpCode::AddWatch, ErrorCode::Unimplemented, 1);
    let Err(error) = TreeCache::open(&participant.client, ROOT).await else { bail!("opened") };
    assert!(error.to_string().ends_with("use servers 3.6 or newer"), "{error}");
    Ok(())
}

async fn a_cache_over_a_bound_ends_and_says_so(client: Client) -> Result<()> {
    make(&client, &["/config", "/config/a"]).await?;
    let refused = TreeCache::builder(&client, ROOT).max_nodes(1).open().await;
    assert!(matches!(refused, Err(CacheError::TooManyNodes { max: 1, .. })), "{refused:?}");
    let cache = TreeCache::builder(&client, ROOT).max_nodes(2).open().await?;
    let mut changes = cache.changes();
    make(&client, &["/config/b"]).await?;
    let ended = changes.next().await;
    assert!(matches!(ended, Err(CacheError::TooManyNodes { max: 2, .. })), "{ended:?}");
    assert!(!cache.is_current() && cache.ended().is_some());
    assert_eq!(contents(&cache.snapshot()), as_made(&["/config", "/config/a"]));
    Ok(())
}

/// Where the server sends what the client does not take, the connection would be lost for ever.
async fn a_list_that_no_answer_can_hold_is_named(backend: Backend) -> Result<()> {
    let writer = backend.observer().await?;
    make(&writer, &["/config"]).await?;
    let name = "n".repeat(20);
    for part in 0..5 {
        let mut all = writer.transaction();
        for n in 0..1_000 {
            let node = path(&format!("/config/{name}{part}-{n}"));
            all = all.create(&node, "", CreateMode::Persistent);
        }
        all.commit().await?;
    }
    let client = Client::builder().max_frame(100_000).connect(&backend.connect_string()).await?;
    let refused = TreeCache::open(&client, ROOT).await;
    let Err(CacheError::TooManyChildren { children: 5_000, .. }) = refused else {
        bail!("{refused:?}")
    };
    Ok(())
}

/// Longer than the client takes, or than the engine gives: in both cases the connection stays, as locks may
/// hang on it.
async fn what_is_too_long_for_one_answer_is_read_in_parts(backend: Backend) -> Result<()> {
    let writer = backend.observer().await?;
    fill(&writer, 40, 200_000).await?;
    for max_frame in [250_000, 8_000_000] {
        let participant = backend.participant_with(Client::builder().max_frame(max_frame)).await?;
        let cache = TreeCache::open(&participant.client, ROOT).await?;
        let bytes = cache.snapshot().nodes().iter().map(|(_, node)| node.data().len()).sum();
        assert_eq!((cache.snapshot().len(), bytes), (41, ROOT.len() + 40 * 200_000_usize));

        let requests = participant.proxy.requests();
        let again =
            requests.iter().any(|op| matches!(op, OpCode::SetWatches | OpCode::SetWatches2));
        assert!(!again, "the connection was lost: {requests:?}");
        if max_frame < 2 * 200_000 {
            assert!(count(&requests, OpCode::MultiRead) > 0, "{requests:?}");
            assert_eq!(count(&requests, OpCode::GetData), 1 + 40, "{requests:?}");
        }
    }

    let client = Client::builder().max_frame(100_000).connect(&backend.connect_string()).await?;
    let refused = TreeCache::open(&client, ROOT).await;
    let Err(CacheError::Request(error)) = refused else { bail!("{refused:?}") };
    assert_eq!(error.answer_too_long().map(|(_, max)| max), Some(100_000), "{error}");

    // An unreadable part does not hide the rest, and is reported when it becomes readable.
    let cache = TreeCache::builder(&client, ROOT).skip_unreadable().open().await?;
    assert_eq!((cache.snapshot().len(), cache.snapshot().unreadable().count()), (1, 40));
    let (some, mut changes) = (cache.snapshot().unreadable().next().map(path), cache.changes());
    writer.set_data(&some.expect("one of them"), "short", None).await?;
    while cache.snapshot().len() == 1 {
        changes.next().await?;
    }
    assert_eq!((cache.snapshot().len(), cache.snapshot().unreadable().count()), (2, 39));
    Ok(())
}

async fn a_node_that_may_not_be_read_is_named(client: Client) -> Result<()> {
    fill(&client, 20, 5).await?;
    let unreadable = Acl::world(Permissions::WRITE | Permissions::ADMIN);
    client.set_acl(&path("/config/7"), unreadable, None).await?;
    let refused = TreeCache::open(&client, ROOT).await;
    let Err(CacheError::Unreadable { path }) = refused else { bail!("{refused:?}") };
    assert_eq!(path, "/config/7");
    Ok(())
}

/// No such server is known: servers without `multiRead` do not have persistent watches either.
async fn a_server_that_does_not_read_together_is_asked_one_by_one(backend: Backend) -> Result<()> {
    let (participant, writer) = (backend.participant().await?, backend.observer().await?);
    fill(&writer, 300, 5).await?;
    let proxy = &participant.proxy;
    proxy.refuse_next(OpCode::MultiRead, ErrorCode::Unimplemented, 100);
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    assert_eq!(cache.snapshot().len(), 301);
    assert_eq!(count(&proxy.requests(), OpCode::GetData), 301);

    let other = backend.participant().await?;
    (0..100).for_each(|_| other.proxy.lose_next(OpCode::MultiRead, Loss::BeforeRequest));
    let cache = TreeCache::open(&other.client, ROOT).await?;
    assert_eq!(cache.snapshot().len(), 301);
    let armed_again = count(&other.proxy.requests(), OpCode::SetWatches2);
    assert!(armed_again <= 2, "{armed_again} connections were lost");
    Ok(())
}

async fn a_closed_client_ends_a_cache(client: Client) -> Result<()> {
    make(&client, &["/config"]).await?;
    let cache = TreeCache::open(&client, ROOT).await?;
    let mut changes = cache.changes();
    client.close().await;
    let ended = changes.next().await;
    assert!(matches!(&ended, Err(CacheError::Request(error)) if error.is_closed()), "{ended:?}");
    assert!(!cache.is_current());
    Ok(())
}

async fn nothing_is_left_of_a_dropped_cache((participant, writer): Observed) -> Result<()> {
    make(&writer, &["/config"]).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let changes = cache.changes();
    drop(cache);
    participant.proxy.clear();
    drop(changes);
    let removals = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::RemoveWatches));
    participant.proxy.passes(removals).await;
    // Where the first removal is refused, the client knows it when it has an answer to what came after,
    // and the other one goes before what follows.
    participant.client.exists(&path(ROOT)).await?;
    participant.client.exists(&path(ROOT)).await?;
    writer.set_data(&path(ROOT), "new", None).await?;
    participant.client.sync(&path(ROOT)).await?;
    participant.client.exists(&path(ROOT)).await?;
    assert_eq!(participant.proxy.events(), []);
    Ok(())
}

// ----- costs ----------------------------------------------------------------------------------

fn count(requests: &[OpCode], op: OpCode) -> usize {
    requests.iter().filter(|request| **request == op).count()
}

/// Opens a cache in just these round trips: what is sent before any answer to it has come.
async fn open_in(participant: &Participant, trips: &[usize]) -> Result<TreeCache> {
    let proxy = &participant.proxy;
    proxy.clear();
    proxy.hold_replies();
    let client = participant.client.clone();
    let opening = tokio::spawn(async move { TreeCache::open(&client, ROOT).await });

    let mut all = 0;
    for trip in trips {
        all += trip;
        let is_request = |p: &&Passed| matches!(p, Passed::Request(op) if *op != OpCode::Ping);
        proxy.passes(|passed| passed.iter().filter(is_request).count() >= all).await;
        assert_eq!(proxy.requests().len(), all);
        proxy.answer();
    }
    let cache = opening.await??;
    proxy.restore();
    assert_eq!(proxy.requests().len(), all, "and nothing more was needed");
    Ok(cache)
}

/// Makes so many nodes with data of so many bytes below the root of the cache.
async fn fill(writer: &Client, nodes: usize, len: usize) -> Result<()> {
    make(writer, &[ROOT]).await?;
    let paths: Vec<_> = (0..nodes).map(|n| path(&format!("{ROOT}/{n}"))).collect();
    for some in paths.chunks((500_000 / (len + 100)).max(1)) {
        let create =
            |all: Transaction, path| all.create(path, vec![b'x'; len], CreateMode::Persistent);
        some.iter().fold(writer.transaction(), create).commit().await?;
    }
    Ok(())
}

async fn opening_costs_two_round_trips_for_each_level(
    (participant, writer): Observed,
) -> Result<()> {
    fill(&writer, 100, 5).await?;
    make(&writer, &["/config/x", "/config/x/a", "/config/x/a/b", "/config/x/c"]).await?;

    // The watch, the node and its list; the children, nine in a request, as their length is not known;
    // the list of one; what is in it; the list of one of these; what is in that.
    let cache = open_in(&participant, &[3, 12, 1, 1, 1, 1]).await?;
    assert_eq!(cache.snapshot().len(), 105);
    let requests = participant.proxy.requests();
    let reads = [OpCode::AddWatch, OpCode::GetData, OpCode::GetChildren2, OpCode::MultiRead];
    assert_eq!(reads.map(|op| count(&requests, op)), [1, 2, 3, 13]);
    Ok(())
}

async fn opening_many_nodes_takes_few_requests((participant, writer): Observed) -> Result<()> {
    fill(&writer, 3_000, 100).await?;
    participant.proxy.clear();
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    assert_eq!(cache.snapshot().len(), 3_001);
    let requests = participant.proxy.requests();
    let reads = [OpCode::GetData, OpCode::GetChildren2].map(|op| count(&requests, op));
    assert_eq!(reads, [1, 1]);
    // Those that were sent before the first answer had nine each.
    let batches = count(&requests, OpCode::MultiRead);
    assert!((3_000 / 32..3_000 / 32 + 30).contains(&batches), "{batches} requests");
    Ok(())
}

async fn only_so_many_reads_are_on_their_way((participant, writer): Observed) -> Result<()> {
    fill(&writer, 300, 5).await?;
    // Nine in a request, until a large one does not fit.
    let first = (256 - 32) / 9 + 1;
    let cache = open_in(&participant, &[3, first, (300 - 9 * first).div_ceil(32)]).await?;
    assert_eq!(cache.snapshot().len(), 301);
    Ok(())
}

async fn a_change_costs_one_event_and_one_read((participant, writer): Observed) -> Result<()> {
    make(&writer, &["/config", "/config/a"]).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let mut changes = cache.changes();
    participant.proxy.clear();
    writer.set_data(&path("/config/a"), "new", None).await?;
    changes.next().await?;
    make(&writer, &["/config/b"]).await?;
    changes.next().await?;
    writer.delete(&path("/config/b"), None).await?;
    changes.next().await?;
    assert_eq!(participant.proxy.requests(), [OpCode::GetData; 3]);
    // Servers before 3.9 also tell recursive watches of lists of children.
    let events = participant.proxy.events();
    let about_lists = |kind| kind == lockkeeper::EventKind::NodeChildrenChanged;
    assert_eq!(events.iter().filter(|(kind, _)| !about_lists(*kind)).count(), 3, "{events:?}");
    Ok(())
}

async fn a_burst_on_one_node_costs_one_read((participant, writer): Observed) -> Result<()> {
    make(&writer, &["/config", "/config/a"]).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let mut changes = cache.changes();
    participant.proxy.clear();
    participant.proxy.hold_replies();
    for n in 0..100 {
        writer.set_data(&path("/config/a"), format!("{n}"), None).await?;
    }
    participant.proxy.restore();
    while changes.next().await?.snapshot.get("/config/a").map(|node| node.data()) != Some(b"99") {}
    // The first event may be answered before the others are there.
    let reads = count(&participant.proxy.requests(), OpCode::GetData);
    assert!(reads <= 2, "{reads} reads");
    Ok(())
}

async fn a_reconnect_lists_only_what_changed((participant, writer): Observed) -> Result<()> {
    let paths = ["/config", "/config/a", "/config/a/1", "/config/b", "/config/b/1"];
    make(&writer, &paths).await?;
    let cache = TreeCache::open(&participant.client, ROOT).await?;
    let mut changes = cache.changes();
    participant.proxy.refuse();
    participant.proxy.clear();
    make(&writer, &["/config/b/2"]).await?;
    participant.proxy.restore();
    assert_eq!(told(&changes.next().await?.changes), ["created /config/b/2"]);
    let requests = participant.proxy.requests();
    // All that is known in one request; the list of one, and what is new in it.
    let reads = [OpCode::MultiRead, OpCode::GetChildren2, OpCode::GetData, OpCode::AddWatch];
    assert_eq!(reads.map(|op| count(&requests, op)), [1, 1, 1, 0], "{requests:?}");
    Ok(())
}

async fn each_node_is_published_by_itself_if_wanted((participant, writer): Observed) -> Result<()> {
    make(&writer, &["/config", "/config/a", "/config/b"]).await?;
    let cache = TreeCache::builder(&participant.client, ROOT).each_node().open().await?;
    assert!(!cache.snapshot().is_exact());
    let mut changes = cache.changes();
    participant.proxy.hold_replies();
    let both = writer.transaction().set_data(&path("/config/a"), "new", None);
    both.set_data(&path("/config/b"), "new", None).commit().await?;
    participant.proxy.restore();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(told(&changes.next().await?.changes));
    }
    seen.sort();
    assert_eq!(seen, ["changed /config/a", "changed /config/b"]);
    Ok(())
}

/// More changes have happened than are kept for it.
async fn who_looks_late_is_told_the_difference(backend: Backend) -> Result<()> {
    const NODES: usize = 300;
    const ROUNDS: usize = 5;
    let alice = backend.participant().await?;
    make(&alice.client, &[ROOT, "/config/gone"]).await?;
    let cache = TreeCache::open(&alice.client, ROOT).await?;
    let (mut held, mut read) = (cache.changes(), cache.changes());

    for round in 0..ROUNDS {
        let names: Vec<_> =
            (0..NODES).map(|number| path(&format!("/config/{round}-{number}"))).collect();
        let made = |all: Transaction, name| all.create(name, "", CreateMode::Persistent);
        names.iter().fold(alice.client.transaction(), made).commit().await?;
        assert_eq!(read.next().await?.changes.len(), NODES);
        let deleted = |all: Transaction, name| all.delete(name, None);
        names.iter().fold(alice.client.transaction(), deleted).commit().await?;
        assert_eq!(read.next().await?.changes.len(), NODES);
    }
    let last = alice.client.transaction().delete(&path("/config/gone"), None);
    last.create(&path("/config/new"), "", CreateMode::Persistent).commit().await?;
    assert_eq!(read.next().await?.changes.len(), 2);

    let changes = held.next().await?.changes;
    assert!(
        matches!(
            &changes[..],
            [Change::Deleted { path: gone, .. }, Change::Created { path: new, .. }]
                if gone == "/config/gone" && new == "/config/new"
        ),
        "{changes:?}"
    );
    alice.client.create(&path("/config/next"), "", CreateMode::Persistent).await?;
    assert_eq!(held.next().await?.changes.len(), 1);
    Ok(())
}
