//! What the tree has room for: memory, the disk, ephemeral nodes of a session, watches.

use lockkeeper_wire::{Permissions, SetWatchesRequest};

use super::*;
use crate::notices::Notice;
use crate::room::{Growth, Resource};
use crate::share::LITTLE;
use crate::watches::Kinds;
use CreateMode::*;

fn node_with(path: &str, mode: CreateMode, bytes: usize) -> CreateRequest {
    CreateRequest { data: Bytes::from(vec![7; bytes]).into(), ..new_node(path, mode) }
}

fn create_with(path: &str, mode: CreateMode, bytes: usize) -> Request {
    Request::Create(node_with(path, mode, bytes))
}

fn set_data_to(path: &str, bytes: usize) -> Request {
    let data = Bytes::from(vec![7; bytes]).into();
    Request::SetData(SetDataRequest { path: path.to_owned(), data, version: -1 })
}

const FULL: Result<Response, ErrorCode> = Err(ErrorCode::QuotaExceeded);

/// A tree that is full refuses what grows, and nothing else; locks still find room, and room that is made
/// is used.
#[test]
fn a_full_tree_refuses_growth_and_nothing_else() {
    let (mut world, [client]) = World::limited(|config| config.max_weight = 80_000);
    world.create(&client, "/locks", Persistent);
    let mut count = 0;
    while world.ask(&client, &create_with(&format!("/n{count}"), Persistent, 1_000)).is_ok() {
        count += 1;
    }
    let weight = world.server.stats().weight;
    assert!((68_000..=70_000).contains(&weight), "{weight}: seven eighths");
    let notices = world.server.take_notices();
    assert!(matches!(notices[..], [Notice::NoRoom { max: 70_000, .. }]), "{notices:?}");

    assert_eq!(world.ask(&client, &set_data_to("/n0", 2_500)), FULL);
    let long = set_acl("/n0", (0..100).map(|n| acl_of(&format!("u{n}:x"))).collect(), -1);
    assert_eq!(world.ask(&client, &long), FULL);
    // What does not grow, and locks.
    assert!(world.ask(&client, &set_data_to("/n0", 1_000)).is_ok());
    world.create(&client, "/locks/a-", EphemeralSequential);
    assert_eq!(world.ask(&client, &create_with("/locks/large", Ephemeral, 1_025)), FULL);
    let other = world.client();
    world.create(&other, "/locks/a-", EphemeralSequential);
    for path in ["/n0", "/n1"] {
        world.ask(&client, &delete(path, -1)).unwrap();
    }
    world.ask(&client, &create_with("/again", Persistent, 1_000)).unwrap();
}

#[test]
fn the_last_eighth_ends_as_well() {
    let (mut world, [client]) = World::limited(|config| config.max_weight = 20_000);
    world.create(&client, "/locks", Persistent);
    while world.ask(&client, &create("/locks/a-", EphemeralSequential)).is_ok() {}
    let weight = world.server.stats().weight;
    assert!((19_000..=20_000).contains(&weight), "{weight}");
    // A session that ends makes room.
    world.ask(&client, &Request::CloseSession).unwrap();
    let other = world.client();
    world.create(&other, "/locks/a-", EphemeralSequential);
}

fn acl_of(id: &str) -> Acl {
    Acl::new(Permissions::ALL, "digest", id)
}

/// A `multi` is weighed as a whole, with what it deletes before.
#[test]
fn a_multi_may_make_its_own_room() {
    let (mut world, [client]) = World::limited(|config| config.max_weight = 20_000);
    for n in 0..3 {
        world.ask(&client, &create_with(&format!("/n{n}"), Persistent, 4_000)).unwrap();
    }
    let creates = |from: usize, count: usize| {
        (from..from + count).map(|n| Op::Create(node_with(&format!("/m{n}"), Persistent, 4_000)))
    };
    let refused =
        |results: Vec<OpResult>| results.iter().any(|result| matches!(result, OpResult::Error(_)));
    assert!(refused(world.multi(&client, creates(0, 2))));
    let delete = |n: usize| Op::Delete(DeleteRequest { path: format!("/n{n}"), version: -1 });
    let instead = (0..2).map(delete).chain(creates(0, 2));
    assert!(!refused(world.multi(&client, instead)));
}

#[test]
fn the_weight_is_that_of_what_is_there() {
    let (mut world, [client]) = World::with_clients();
    let before = world.server.stats().weight;
    world.ask(&client, &Request::Create(with_acl("/a", vec![acl_of("u:x")]))).unwrap();
    world.ask(&client, &create_with("/b", Persistent, 5_000)).unwrap();
    let grown = world.server.stats().weight - before;
    assert!((5_900..6_100).contains(&grown), "{grown}");
    world.ask(&client, &delete("/b", -1)).unwrap();
    world.ask(&client, &delete("/a", -1)).unwrap();
    assert_eq!(world.server.stats().weight, before);
}

/// Lists that nobody has any more kept their weight, so that a tree filled with them stayed full. Seen to
/// fail without the release at a delete, and without that at a new list.
#[test]
fn lists_make_room_when_their_nodes_go() {
    let (mut world, [client]) = World::limited(|config| config.max_weight = 100_000);
    let acl = |n: usize| {
        let others = (0..50).map(|entry| acl_of(&format!("u{n}-{entry}:x")));
        Acl::open().into_iter().chain(others).collect::<Vec<_>>()
    };
    let new = |n: usize| Request::Create(with_acl(&format!("/n{n}"), acl(n)));
    for _ in 0..3 {
        let count = (0..).take_while(|n| world.ask(&client, &new(*n)).is_ok()).count();
        assert!((10..20).contains(&count), "{count}");
        // The first gets the list that all have, and then goes like the others.
        let before = world.server.stats().weight;
        world.ask(&client, &set_acl("/n0", Acl::open(), -1)).unwrap();
        assert!(world.server.stats().weight < before - 5_000);
        for n in 0..count {
            world.ask(&client, &delete(&format!("/n{n}"), -1)).unwrap();
        }
        assert!(world.server.stats().weight < 5_000);
    }
}

/// With a disk that is nearly full the same goes on, in two steps.
#[test]
fn a_disk_that_fills_up_stops_growth_in_two_steps() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/a", Persistent);
    world.server.set_growth(Resource::Disk, Growth::Locks);
    assert_eq!(world.ask(&client, &create("/b", Persistent)), FULL);
    assert!(matches!(world.server.take_notices()[..], [Notice::DiskShort { .. }]));
    // A lock that was idle for long has no container any more.
    let container = |path: &str| Request::CreateContainer(new_node(path, Container));
    assert!(world.ask(&client, &container("/locks")).is_ok());
    world.create(&client, "/lock", Ephemeral);
    world.server.set_growth(Resource::Disk, Growth::Nothing);
    assert_eq!(world.ask(&client, &container("/locks-2")), FULL);
    assert_eq!(world.ask(&client, &create("/lock-2", Ephemeral)), FULL);
    assert_eq!(world.ask(&client, &set_data_to("/a", 5)), FULL);
    assert!(world.ask(&client, &set_data_to("/a", 4)).is_ok());
    world.ask(&client, &delete("/lock", -1)).unwrap();
    let late = world.client();
    world.ask(&late, &Request::CloseSession).unwrap();
    world.server.set_growth(Resource::Disk, Growth::All);
    world.create(&client, "/b", Persistent);
}

/// The disk and the memory are looked at apart, and each says who is short of it.
#[test]
fn the_scarcest_resource_decides_what_grows() {
    let (mut world, [client]) = World::with_clients();
    let refused = |world: &mut World, path: &str, mode| {
        assert_eq!(world.ask(&client, &create(path, mode)), FULL);
        world.server.take_notices().pop()
    };
    world.server.set_growth(Resource::Memory, Growth::Locks);
    let notice = refused(&mut world, "/a", Persistent);
    assert!(matches!(notice, Some(Notice::MemoryShort { .. })), "{notice:?}");
    world.create(&client, "/lock", Ephemeral);

    // Room on the disk makes none in memory, nor the other way round.
    world.server.set_growth(Resource::Disk, Growth::Nothing);
    let notice = refused(&mut world, "/lock-2", Ephemeral);
    assert!(matches!(notice, Some(Notice::DiskShort { .. })), "{notice:?}");
    world.server.set_growth(Resource::Disk, Growth::All);
    let notice = refused(&mut world, "/a", Persistent);
    assert!(matches!(notice, Some(Notice::MemoryShort { .. })), "{notice:?}");
    world.server.set_growth(Resource::Memory, Growth::All);
    world.create(&client, "/a", Persistent);
}

/// They end in one transaction, for which everyone waits.
#[test]
fn a_session_has_so_many_ephemeral_nodes_and_no_more() {
    let (mut world, [client]) = World::limited(|config| config.max_ephemerals = 3);
    world.create(&client, "/a", Ephemeral);
    let two = |path: &str| {
        let op = |n| Op::Create(new_node(&format!("{path}{n}"), Ephemeral));
        Request::Multi((0..2).map(op).collect())
    };
    world.ask(&client, &two("/b")).unwrap();
    assert_eq!(world.ask(&client, &create("/c", Ephemeral)), FULL);
    assert!(matches!(world.server.take_notices()[..], [Notice::TooManyEphemerals { max: 3, .. }]));
    world.create(&client, "/persistent", Persistent);
    world.ask(&client, &delete("/a", -1)).unwrap();
    world.ask(&client, &two("/d")).unwrap();
    assert_eq!(world.server.stats().ephemerals, 2, "one of two would have been too many");
    let other = world.client();
    world.create(&other, "/c", Ephemeral);
}

/// 300 watches on paths of a megabyte were 290 MB, and counted as 300.
#[test]
fn watches_are_weighed_and_who_has_much_leaves_room_for_others() {
    let (mut world, [greedy]) = World::limited(|config| config.max_watch_bytes = 20 * LITTLE);
    let watch = |n: usize| exists(&format!("/{n}{}", "x".repeat(LITTLE)), true);
    let taken = (0..).take_while(|n| {
        let reply = world.ask(&greedy, &watch(*n));
        reply == Err(ErrorCode::NoNode)
    });
    assert_eq!(taken.count(), 9, "half of it, and no more than that in one piece");
    let notices = world.server.take_notices();
    assert!(matches!(notices[..], [Notice::WatchesTooHeavy { .. }]), "{notices:?}");
    // Others get theirs: a share, and in any case a little.
    let other = world.client();
    assert_eq!(world.ask(&other, &watch(100)), Err(ErrorCode::NoNode));
    assert_eq!(world.ask(&other, &exists("/a", true)), Err(ErrorCode::NoNode));
    assert!(world.server.stats().watch_bytes < 11 * LITTLE + 1_000);
    world.server.disconnected(greedy.connection);
    world.server.disconnected(other.connection);
    assert_eq!(world.server.stats().watch_bytes, 0);
}

/// What it watched is forgotten in portions, and it hears of nothing meanwhile.
#[test]
fn who_is_gone_hears_of_nothing() {
    let (mut world, [client, other]) = World::with_clients();
    world.create(&other, "/z", Persistent);
    for n in 0..10_000 {
        world.server.watch(client.connection, &format!("/{n}"), Kinds::DATA).unwrap();
    }
    assert!(world.ask(&client, &get_data("/z", true)).is_ok());
    world.server.disconnected(client.connection);
    assert!(world.server.stats().watches > 1, "not all at once");
    world.ask(&other, &set_data("/z", -1)).unwrap();
    assert_eq!(world.next(client.connection), None);
    world.pass(Duration::ZERO);
    assert_eq!((world.server.stats().watches, world.server.next_timeout().is_some()), (0, true));
}

#[test]
fn who_comes_back_with_heavy_watches_is_closed() {
    let (mut world, [client]) = World::limited(|config| config.max_watch_bytes = 4 * LITTLE);
    let paths = |count: usize| (0..count).map(|n| format!("/{n}{}", "x".repeat(LITTLE)));
    let again = |count: usize| {
        let exist = paths(count).collect();
        Request::SetWatches(SetWatchesRequest { exist, ..Default::default() })
    };
    assert!(world.ask(&client, &again(1)).is_ok());
    world.send(&client, 1, &again(3));
    let received = world.received(&client);
    assert!(received.last().unwrap().starts_with("closed WatchesTooHeavy"), "{received:?}");
}

#[test]
fn a_place_that_is_kept_takes_sessions_that_exist() {
    let (mut world, [client]) = World::with_clients();
    let come = |world: &mut World, request: &ConnectRequest| {
        let connection = world.open();
        world.server.only_resumes(connection);
        world.try_shake(connection, request)
    };
    let answer = come(&mut world, &hello());
    assert_eq!(answer, Some(Received::Closed(CloseReason::PlacesKept)));
    let again = client.resumes();
    let Some(Received::Welcome(response)) = come(&mut world, &again) else { panic!() };
    assert_eq!(response.session_id, client.session);
}
