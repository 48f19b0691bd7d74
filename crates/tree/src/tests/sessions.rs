//! The end of sessions.

use super::*;
use CreateMode::*;

const TICK: Duration = Duration::from_secs(2);

#[test]
fn closing_deletes_the_ephemerals_tells_watchers_replies_and_closes() {
    let (mut world, [client, other]) = World::with_clients();
    world.create(&client, "/p", Persistent);
    world.create(&client, "/p/a", Ephemeral);
    world.create(&client, "/b", Ephemeral);
    world.watch_all(&other, [exists("/b", true), exists("/p/a", true), get_children("/p", true)]);
    let _ = world.ask(&client, &exists("/b", true));
    let before = world.last_zxid();
    world.send(&client, 1, &Request::CloseSession);
    assert_eq!(world.received(&client), ["NodeDeleted /b", "reply 0", "closed SessionClosed"]);
    let told = ["NodeDeleted /b", "NodeDeleted /p/a", "NodeChildrenChanged /p"];
    assert_eq!(world.received(&other), told);
    assert_eq!(world.last_zxid(), before + 1, "one transaction");
    assert_eq!(world.server.stats().ephemerals, 0);
    assert_eq!(world.server.stats().sessions, 1);
    assert_eq!(world.arrive(&client.resumes()), ConnectResponse::expired(Some(false)));
}

#[test]
fn the_ephemerals_of_a_session_are_listed_and_end_in_order() {
    let (mut world, [client, other]) = World::with_clients();
    // Every number once, in random order.
    let paths: Vec<String> = (0..50).map(|n| format!("/e{:02}", n * 37 % 50)).collect();
    for path in &paths {
        world.create(&client, path, Ephemeral);
        let _ = world.ask(&other, &exists(path, true));
    }
    let mut sorted = paths;
    sorted.sort();
    let all = Request::GetEphemerals(PathRequest { path: "/".to_owned() });
    assert_eq!(world.ask(&client, &all), Ok(Response::Names(sorted.clone())));
    assert_eq!(world.server.ephemerals_by_session(), [(client.session, sorted.clone())]);
    world.send(&client, 1, &Request::CloseSession);
    let told: Vec<String> = sorted.iter().map(|path| format!("NodeDeleted {path}")).collect();
    assert_eq!(world.received(&other), told);
}

/// The create and the close arrive together, before anything was committed.
#[test]
fn creates_still_in_the_pipeline_are_deleted_too() {
    let (mut world, [client]) = World::with_clients();
    for request in
        [create("/e-", EphemeralSequential), Request::CloseSession, create("/f", Ephemeral)]
    {
        let mut frame = BytesMut::new();
        request.encode(1, &mut frame);
        world.server.handle_frame(world.now, client.connection, frame.freeze());
    }
    world.collect();
    assert_eq!(world.received(&client), ["reply 0", "reply 0", "closed SessionClosed"]);
    assert_eq!(world.server.stats().nodes, 4);
}

#[test]
fn expiry_rounds_up_to_the_next_tick_and_never_down() {
    let mut world = World::new();
    world.now.monotonic = Duration::from_millis(100_001);
    let client = world.client();
    world.create(&client, "/e", Ephemeral);
    // 100.001 s + 10 s is rounded up to 112 s.
    assert_eq!(world.server.next_timeout(), Some(Duration::from_secs(112)));
    world.pass(Duration::from_millis(11_998));
    assert_eq!(world.server.stats().sessions, 1);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.server.stats().sessions, 0);
    assert_eq!(world.server.stats().ephemerals, 0);
    assert_eq!(world.received(&client), ["closed SessionExpired"]);
    assert_eq!(world.server.next_timeout(), None);
}

#[test]
fn every_request_keeps_the_session_alive() {
    for request in [Request::Ping, get_data("/no", false), delete("/no", -1), auth("digest", "a:b")]
    {
        let (mut world, [client]) = World::with_clients();
        for _ in 0..10 {
            world.pass(Duration::from_secs(9));
            let _ = world.ask(&client, &request);
        }
        assert_eq!(world.server.stats().sessions, 1, "{request:?}");
        world.pass(Duration::from_secs(10) + TICK);
        assert_eq!(world.server.stats().sessions, 0, "{request:?}");
    }
}

#[test]
fn a_session_survives_its_connection_until_the_timeout() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/e", Ephemeral);
    world.server.disconnected(client.connection);
    world.pass(Duration::from_secs(9));
    let client = world.reconnect(&client);
    assert!(world.stat(&client, "/e").is_some());
    world.server.disconnected(client.connection);
    world.pass(Duration::from_secs(10) + TICK);
    assert_eq!(world.server.stats().ephemerals, 0);
}

#[test]
fn s10_a_mass_expiry_is_done_in_pieces() {
    let mut world = World::new();
    for _ in 0..1000 {
        world.client();
    }
    world.now.monotonic += Duration::from_secs(20);
    world.server.handle_timeout(world.now);
    let left = world.server.stats().sessions;
    assert!(left > 500 && left < 1000, "{left}");
    assert!(world.server.next_timeout().unwrap() <= world.now.monotonic, "there is more to do");
    world.pass(Duration::ZERO);
    assert_eq!(world.server.stats().sessions, 0);
}

#[test]
fn a_session_can_be_expired_by_hand() {
    let (mut world, [client]) = World::with_clients();
    assert!(world.server.expire_session(world.now, client.session));
    assert!(!world.server.expire_session(world.now, client.session));
    world.collect();
    assert_eq!(world.received(&client), ["closed SessionExpired"]);
}

/// 150 sessions with 10,000 nodes each, which their clients closed at the same moment, blocked all clients
/// for 2.7 s: expiring sessions end in portions, and these did not. Fails if all end at once.
#[test]
fn sessions_with_many_nodes_that_are_closed_together_end_one_after_the_other() {
    const NODES: usize = 600;
    let (mut world, clients) = World::with_clients::<4>();
    for (n, client) in clients.iter().enumerate() {
        let node = |i| Op::Create(new_node(&format!("/{n}-{i}"), CreateMode::Ephemeral));
        world.multi(client, (0..NODES).map(node));
    }
    let other = world.client();
    let mut frame = BytesMut::new();
    Request::CloseSession.encode(1, &mut frame);
    let frame = frame.freeze();

    let mut waiting: Vec<ConnectionId> = clients.iter().map(|client| client.connection).collect();
    let mut rounds = 0;
    while !waiting.is_empty() {
        world.now.monotonic += Duration::from_millis(1);
        let before = world.server.stats().nodes;
        let part = |world: &mut World, id| world.server.handle_part(world.now, id, frame.clone());
        waiting.retain(|id| part(&mut world, *id).is_some());
        assert_eq!(before - world.server.stats().nodes, NODES, "one of them");
        // A session without nodes is not delayed by them.
        if rounds == 0 {
            assert_eq!(part(&mut world, other.connection), None);
        }
        rounds += 1;
    }
    assert_eq!((rounds, world.server.stats().sessions), (4, 0));
}
