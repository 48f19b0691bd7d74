//! Events of one transaction for many watchers: the limits, and the clients that they never affect.

use std::collections::BTreeMap;

use lockkeeper_wire::{AddWatchRequest, SetWatchesRequest};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fan_out::EVENT_WEIGHT;
use crate::share::SMALL_SHARE_BYTES;
use crate::watchers::Kinds;
use CreateMode::*;

/// The number of short events of one transaction that any client may receive.
const FEW: usize = SMALL_SHARE_BYTES / (EVENT_WEIGHT + 64);
/// The limit for one transaction in these tests.
const MAX: usize = 16 * 1024 * 1024;

fn below(path: &str) -> Request {
    Request::AddWatch(AddWatchRequest { path: path.to_owned(), mode: 1 })
}

fn creates(parent: &str, count: usize) -> Request {
    let node = |n| Op::Create(new_node(&format!("{parent}/{n}"), Persistent));
    Request::Multi((0..count).map(node).collect())
}

/// A world with `count` clients that watch everything, one client that makes the changes, and one that
/// watches the node `/t/7`.
fn crowded(count: usize) -> (World, Vec<Client>, Client, Client) {
    let (mut world, [writer, holder]) = World::limited(|config| config.max_fan_out = MAX);
    world.create(&writer, "/t", Persistent);
    let crowd: Vec<Client> = (0..count).map(|_| world.client()).collect();
    for client in &crowd {
        world.ask(client, &below("/")).unwrap();
    }
    let _ = world.ask(&holder, &exists("/t/7", true));
    (world, crowd, writer, holder)
}

fn is_open(world: &World, client: &Client) -> bool {
    world.server.session(client.session).is_some_and(|session| session.connection.is_some())
}

/// The engine froze for 20 s, and took 2.5 GiB, when 2,500 clients watched the 13,000 creates of one
/// transaction: each received a copy of each event. Fails without a limit.
#[test]
fn a_transaction_sends_so_many_events_and_no_more() {
    const EVENTS: usize = 1_000;
    let (mut world, crowd, writer, holder) = crowded(400);
    world.send(&writer, 1, &creates("/t", EVENTS));
    let weight = world.server.outbox.weight();
    assert!(weight <= MAX, "{weight} of {MAX}");
    assert_eq!(world.received(&holder), ["NodeCreated /t/7"]);
    assert_eq!(world.received(&writer), ["reply 0"]);
    for client in &crowd {
        // The client receives nothing of a transaction rather than a part of it. It has then seen the state
        // before it, and all changes fire when its watches are rearmed.
        assert_eq!(world.received(client), ["closed TooManyEvents"]);
        assert!(world.server.session(client.session).is_some(), "its session stays alive");
    }

    let back = world.reconnect(&crowd[0]);
    assert!(world.stat(&back, "/t/999").is_some());
    world.ask(&back, &below("/")).unwrap();
    world.ask(&writer, &creates("/t/7", EVENTS)).unwrap();
    assert_eq!(world.received(&back).len(), EVENTS);
}

/// A few caches of a whole tree, and ten thousand clients that watch one node, are ordinary.
#[test]
fn what_is_ordinary_is_not_limited() {
    let (mut world, [writer, a, b, c]) = World::with_clients();
    world.create(&writer, "/t", Persistent);
    for cache in [&a, &b, &c] {
        world.ask(cache, &below("/")).unwrap();
        let mode = 0;
        world
            .ask(cache, &Request::AddWatch(AddWatchRequest { path: "/t".to_owned(), mode }))
            .unwrap();
    }
    let crowd: Vec<ConnectionId> = (0..10_000).map(|n| ConnectionId(1_000 + n)).collect();
    for connection in &crowd {
        world.server.connected(*connection, None);
        world.server.watches.add("/t", *connection, Kinds::DATA);
    }

    let told = |world: &mut World, request: Request| {
        let mut frame = BytesMut::new();
        request.encode(1, &mut frame);
        world.server.handle_frame(world.now, writer.connection, frame.freeze());
        let outputs = world.server.take_outputs();
        assert!(outputs.iter().all(|(_, output)| matches!(output, Output::Send(_))));
        outputs.len()
    };
    assert_eq!(told(&mut world, creates("/t", 13_000)), 3 + 1);
    assert_eq!(told(&mut world, set_data("/t", -1)), 10_000 + 3 + 1);
}

/// Clients that watch each path by itself are closed with ten thousand watches each. These are removed later,
/// in portions, and count until then.
#[test]
fn watches_of_those_that_are_closed_are_forgotten_in_portions() {
    const PATHS: usize = 2_000;
    let (mut world, crowd, writer, holder) = crowded(20);
    let exist: Vec<String> = (0..PATHS).map(|n| format!("/t/{n}")).collect();
    for client in &crowd {
        let request = SetWatchesRequest { exist: exist.clone(), ..Default::default() };
        world.send(client, xid::SET_WATCHES, &Request::SetWatches(request));
        world.received(client);
    }
    let before = world.server.stats();
    assert_eq!(before.watches, 20 * (PATHS + 1) + 1);
    world.ask(&writer, &creates("/t", PATHS)).unwrap();
    assert_eq!(world.received(&holder), ["NodeCreated /t/7"]);
    for client in &crowd {
        assert_eq!(world.received(client), ["closed TooManyEvents"]);
    }
    assert_eq!(world.server.stats().watches, 0, "no watch fires twice");
    assert!(world.server.stats().watch_bytes > before.watch_bytes / 2);
    world.pass(Duration::ZERO);
    assert_eq!(world.server.stats().watch_bytes, 0);
    assert_eq!((world.server.watches.large(), world.server.watches.extent()), (0, (0, 0)));
}

/// Events that a client may not see cost as much work as others. Fails without a limit.
#[test]
fn events_that_are_not_seen_count_too() {
    let (mut world, crowd, writer, _) = crowded(400);
    world.ask(&writer, &auth("digest", "u:p")).unwrap();
    let node = |n| Op::Create(with_acl(&format!("/t/{n}"), Acl::creator_all()));
    world.ask(&writer, &Request::Multi((0..1_000).map(node).collect())).unwrap();
    assert!(world.server.outbox.weight() <= MAX);
    assert!(crowd.iter().all(|client| !is_open(&world, client)));
}

/// When sessions end together, each end is a transaction. A portion contains only as many as their events
/// allow. Fails with a limit on sessions and nodes alone.
#[test]
fn sessions_with_many_watchers_expire_in_smaller_portions() {
    let (mut world, crowd, _writer, _) = crowded(200);
    let owners: Vec<Client> = (0..100).map(|_| world.client()).collect();
    for (n, owner) in owners.iter().enumerate() {
        world.ask(owner, &create(&format!("/t/e{n}"), Ephemeral)).unwrap();
    }
    world.now.monotonic += Duration::from_secs(8);
    for client in &crowd {
        world.send(client, xid::PING, &Request::Ping);
    }
    world.now.monotonic += Duration::from_secs(8);
    let mut portions = Vec::new();
    while world.server.next_timeout().is_some_and(|at| at <= world.now.monotonic) {
        portions.push(world.server.handle_timeout(world.now).len());
        world.collect();
    }
    assert!(portions.iter().all(|ended| *ended < 90), "{portions:?}");
}

/// The same for nodes that are reaped. Fails with a limit on nodes alone.
#[test]
fn nodes_with_many_watchers_are_reaped_in_smaller_portions() {
    const NODES: usize = 100;
    let (mut world, crowd, writer, _) = crowded(200);
    for n in 0..NODES {
        let container = new_node(&format!("/t/used-{n}"), Container);
        world.ask(&writer, &Request::CreateContainer(container)).unwrap();
        world.create(&writer, &format!("/t/used-{n}/a"), Persistent);
        world.ask(&writer, &delete(&format!("/t/used-{n}/a"), -1)).unwrap();
    }
    for _ in 0..12 {
        world.now.monotonic += Duration::from_secs(5);
        for client in crowd.iter().chain([&writer]) {
            world.send(client, xid::PING, &Request::Ping);
        }
        world.collect();
    }

    let before = world.server.stats().nodes;
    let mut left = vec![before];
    while world.server.reap_at.is_some_and(|at| at <= world.now.monotonic) {
        world.server.handle_timeout(world.now);
        world.collect();
        left.push(world.server.stats().nodes);
    }
    assert_eq!(left.last(), Some(&(before - NODES)));
    assert!(left.windows(2).all(|two| two[0] - two[1] < 90), "{left:?}");
}

/// The engine sets the memory for events: if a hundred megabytes are waiting already, the next transaction
/// may have fewer.
#[test]
fn the_room_for_events_is_what_is_left() {
    let (mut world, crowd, writer, holder) = crowded(10);
    world.server.set_event_room(MAX / 100);
    world.send(&writer, 1, &creates("/t", 200));
    assert!(crowd.iter().all(|client| !is_open(&world, client)));
    assert_eq!(world.received(&holder), ["NodeCreated /t/7"]);
}

/// A watch of a client, by the number of a node: the node itself, or all.
#[derive(Clone, Debug)]
enum Watch {
    Once(usize),
    Children,
    Below,
}

const NODES: usize = 120;

fn any_watch() -> impl Strategy<Value = Watch> {
    prop_oneof![
        8 => (0..NODES).prop_map(Watch::Once),
        1 => Just(Watch::Children),
        1 => Just(Watch::Below),
    ]
}

/// The number of events that a client with these watches receives when all nodes are created, and the number
/// of watches that fire.
fn expected(watches: &[Watch]) -> usize {
    let (mut events, mut any_below) = (BTreeMap::new(), 0);
    for watch in watches {
        match watch {
            Watch::Once(n) => _ = events.insert(format!("/t/{n}"), 1),
            Watch::Children => _ = events.insert("/t".to_owned(), 1),
            Watch::Below => any_below = NODES,
        }
    }
    events.len() + any_below
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A holder of a lock or a waiter receives one or two events of any transaction. A client with few events
    /// is never closed and receives all of them; another client that is not closed receives all of its own
    /// too; closed clients receive none. Fails without a limit.
    #[test]
    fn who_gets_few_events_gets_them_all(
        clients in vec(vec(any_watch(), 0..60), 1..40),
        max in 0..200 * SMALL_SHARE_BYTES,
    ) {
        let (mut world, [writer]) = World::limited(|config| config.max_fan_out = max);
        world.create(&writer, "/t", Persistent);
        let clients: Vec<(Client, Vec<Watch>)> =
            clients.into_iter().map(|watches| (world.client(), watches)).collect();
        for (client, watches) in &clients {
            for watch in watches {
                let request = match watch {
                    Watch::Once(n) => exists(&format!("/t/{n}"), true),
                    Watch::Children => get_children("/t", true),
                    Watch::Below => below("/t"),
                };
                let _ = world.ask(client, &request);
            }
        }

        world.ask(&writer, &creates("/t", NODES)).unwrap();
        for (client, watches) in &clients {
            let met = expected(watches);
            let received = world.received(client);
            if received == ["closed TooManyEvents"] {
                prop_assert!(met > FEW, "closed for {met} events");
                continue;
            }
            prop_assert!(received.iter().all(|what| what.starts_with("Node")));
            let is_below = watches.iter().any(|watch| matches!(watch, Watch::Below));
            let has_children = watches.iter().any(|watch| matches!(watch, Watch::Children));
            let all = if is_below { NODES + usize::from(has_children) } else { met };
            prop_assert_eq!(received.len(), all);
        }
        let least = clients.len() * SMALL_SHARE_BYTES;
        prop_assert!(world.server.outbox.weight() <= max + least + clients.len() * 3 * 400);
    }
}
