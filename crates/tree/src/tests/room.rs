//! Limits of the tree: memory, disk space, ephemeral nodes of a session, watches.

use lockkeeper_wire::{CheckRequest, Permissions, SetWatchesRequest};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::connections::RequestContext;
use crate::multi;
use crate::nodes::Tree;
use crate::notices::Notice;
use crate::prepare::RECORD;
use crate::room::{Growth, Resource, Size};
use crate::share::SMALL_SHARE_BYTES;
use crate::watchers::Kinds;
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

/// A full tree refuses growth and nothing else. Locks still find room, and freed space is usable.
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
    // Changes that do not grow, and locks.
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
    // The end of a session frees space.
    world.ask(&client, &Request::CloseSession).unwrap();
    let other = world.client();
    world.create(&other, "/locks/a-", EphemeralSequential);
}

/// Deleting once and creating again was counted as freed space for each repetition in the request: 64 MiB
/// took 378 MB. Fails if the stored size is refunded.
#[test]
fn what_a_multi_deletes_makes_room_once() {
    let (mut world, [client]) = World::limited(|config| config.max_weight = 100_000);
    world.ask(&client, &create_with("/r", Persistent, 10_000)).unwrap();
    let again = |bytes: usize| {
        let delete = Op::Delete(DeleteRequest { path: "/r".to_owned(), version: -1 });
        [delete, Op::Create(node_with("/r", Persistent, bytes))]
    };
    let ops = |over: usize| {
        let more = Op::Create(node_with("/more", Persistent, over));
        (0..9).flat_map(|_| again(0)).chain(again(10_000)).chain([more]).collect()
    };
    assert_eq!(world.ask(&client, &Request::Multi(ops(70_000))).map(|_| ()), Ok(()));
    world.ask(&client, &delete("/more", -1)).unwrap();
    let results = world.multi(&client, ops(90_000));
    assert_eq!(results.last(), Some(&OpResult::Error(Some(ErrorCode::QuotaExceeded))));
    assert!(world.server.stats().weight < 20_000);

    // For replaced data, what the request itself has written counts.
    let set = |bytes| match set_data_to("/r", bytes) {
        Request::SetData(request) => Op::SetData(request),
        _ => unreachable!("it is no other request"),
    };
    let results = world.multi(&client, [set(0), set(50_000), set(50_000), set(80_000)]);
    assert!(matches!(results[..], [OpResult::SetData(_), ..]), "{results:?}");
    let results = world.multi(&client, [set(0), set(80_000), set(90_000)]);
    assert!(matches!(results[2], OpResult::Error(Some(ErrorCode::QuotaExceeded))), "{results:?}");
}

/// Everyone, and `count` users starting from this one.
fn list(first: &str, count: usize) -> Vec<Acl> {
    let others = (1..count).map(|n| acl_of(&format!("{n}:x")));
    Acl::open().into_iter().chain([acl_of(first)]).chain(others).collect()
}

/// A list of a thousand short entries takes as much memory as one entry of 120 KB, and a fifth of the space
/// on disk: a disk that refused growth was full after 262 requests. Fails if the memory sizes are compared.
#[test]
fn lists_do_not_grow_on_a_disk_without_room() {
    let (mut world, [client]) = World::with_clients();
    world.ask(&client, &Request::Create(with_acl("/a", list("a:x", 999)))).unwrap();
    world.server.set_growth(Resource::Disk, Growth::Nothing);
    let before = world.server.stats().weight;
    let long = set_acl("/a", list(&format!("{}:x", "u".repeat(100_000)), 1), -1);
    assert_eq!(world.ask(&client, &long), FULL);
    assert!(world.ask(&client, &set_acl("/a", list("b:x", 999), -1)).is_ok());
    assert_eq!(world.server.stats().weight, before, "the new list replaces the old one");
    assert!(world.ask(&client, &set_acl("/a", list("c:x", 998), -1)).is_ok());
    // Each node's record has its own list.
    let create = Request::CreateContainer(CreateRequest {
        acl: list("c:x", 998).into(),
        ..new_node("/b", Container)
    });
    world.server.set_growth(Resource::Disk, Growth::Locks);
    assert_eq!(world.ask(&client, &create), FULL);
    let few = CreateRequest { acl: list("c:x", 10).into(), ..new_node("/b", Container) };
    assert!(world.ask(&client, &Request::CreateContainer(few)).is_ok());
}

/// A list that other nodes share stays when one node gets another list. Fails if the memory sizes are
/// compared.
#[test]
fn a_list_that_others_have_makes_no_room() {
    let (mut world, [client]) = World::limited(|config| config.max_weight = 40_000);
    let nodes = (0..5).map(|n| Op::Create(with_acl(&format!("/{n}"), list("a:x", 100))));
    world.multi(&client, nodes);
    let weight = world.server.stats().weight;
    assert!((14_000..17_000).contains(&weight), "{weight}: they share it");
    let own = |n: usize| set_acl(&format!("/{n}"), list(&format!("{n}:y"), 100), -1);
    assert!(world.ask(&client, &own(0)).is_ok());
    assert_eq!(world.ask(&client, &own(1)), FULL);
    assert!(world.ask(&client, &set_acl("/0", list("z:x", 100), -1)).is_ok(), "its own");
    assert!(world.server.stats().weight < 35_000);
}

fn acl_of(id: &str) -> Acl {
    Acl::new(Permissions::ALL, "digest", id)
}

/// A `multi` is measured as a whole, including its earlier deletes.
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

/// Unused lists were still counted, so that a tree filled with them stayed full. Fails without the release at
/// a delete, and without the release for a new list.
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
        // The first one gets the list that all have, and is then released like the others.
        let before = world.server.stats().weight;
        world.ask(&client, &set_acl("/n0", Acl::open(), -1)).unwrap();
        assert!(world.server.stats().weight < before - 5_000);
        for n in 0..count {
            world.ask(&client, &delete(&format!("/n{n}"), -1)).unwrap();
        }
        assert!(world.server.stats().weight < 5_000);
    }
}

/// The same two steps for a disk that is nearly full.
#[test]
fn a_disk_that_fills_up_stops_growth_in_two_steps() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/a", Persistent);
    world.server.set_growth(Resource::Disk, Growth::Locks);
    assert_eq!(world.ask(&client, &create("/b", Persistent)), FULL);
    assert!(matches!(world.server.take_notices()[..], [Notice::DiskShort { .. }]));
    // The container of a lock that was idle for long has been reaped.
    let container = |path: &str| Request::CreateContainer(new_node(path, Container));
    assert!(world.ask(&client, &container("/locks")).is_ok());
    // The node with the number of permits. It was refused, unlike a container with that data.
    assert!(world.ask(&client, &set_data_to("/locks", 100)).is_ok());
    assert_eq!(world.ask(&client, &set_data_to("/locks", 1_025)), FULL);
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

/// Disk and memory are checked separately, and each error names what is short.
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

    // Free disk space does not make room in memory, nor vice versa.
    world.server.set_growth(Resource::Disk, Growth::Nothing);
    let notice = refused(&mut world, "/lock-2", Ephemeral);
    assert!(matches!(notice, Some(Notice::DiskShort { .. })), "{notice:?}");
    world.server.set_growth(Resource::Disk, Growth::All);
    let notice = refused(&mut world, "/a", Persistent);
    assert!(matches!(notice, Some(Notice::MemoryShort { .. })), "{notice:?}");
    world.server.set_growth(Resource::Memory, Growth::All);
    world.create(&client, "/a", Persistent);
}

/// They end in one transaction, which blocks all clients.
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

/// 300 watches on paths of a megabyte took 290 MB, and counted as 300.
#[test]
fn watches_are_weighed_and_who_has_much_leaves_room_for_others() {
    let (mut world, [greedy]) =
        World::limited(|config| config.max_watch_bytes = 20 * SMALL_SHARE_BYTES);
    let watch = |n: usize| exists(&format!("/{n}{}", "x".repeat(SMALL_SHARE_BYTES)), true);
    let taken = (0..).take_while(|n| {
        let reply = world.ask(&greedy, &watch(*n));
        reply == Err(ErrorCode::NoNode)
    });
    assert_eq!(taken.count(), 9, "half of it, and no more than that in one piece");
    let notices = world.server.take_notices();
    assert!(matches!(notices[..], [Notice::WatchesTooHeavy { .. }]), "{notices:?}");
    // Other clients still get their share, and always the minimum.
    let other = world.client();
    assert_eq!(world.ask(&other, &watch(100)), Err(ErrorCode::NoNode));
    assert_eq!(world.ask(&other, &exists("/a", true)), Err(ErrorCode::NoNode));
    assert!(world.server.stats().watch_bytes < 11 * SMALL_SHARE_BYTES + 1_000);
    world.server.disconnected(greedy.connection);
    world.server.disconnected(other.connection);
    world.pass(Duration::ZERO);
    assert_eq!(world.server.stats().watch_bytes, 0);
}

/// The watches of a closed connection are removed in portions, and it receives no events in between.
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
    let (mut world, [client]) =
        World::limited(|config| config.max_watch_bytes = 4 * SMALL_SHARE_BYTES);
    let paths = |count: usize| (0..count).map(|n| format!("/{n}{}", "x".repeat(SMALL_SHARE_BYTES)));
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

/// The size of all nodes in memory and on disk, without the constant part of their records.
fn size_of(tree: &Tree) -> Size {
    let nodes = tree.sorted();
    let disk =
        nodes.iter().map(|(path, node)| path.len() + node.data.len() + node.acl.record_len());
    Size { memory: tree.weight() as i64, disk: disk.sum::<usize>() as i64 }
}

fn any_op(lists: usize) -> impl Strategy<Value = Op> {
    let path = || prop_oneof![Just("/a"), Just("/a/b"), Just("/c")].prop_map(str::to_owned);
    let acl = (0..lists).prop_map(|n| match n {
        0 => Acl::open(),
        n => list("a:x", n),
    });
    prop_oneof![
        5 => (path(), acl, 0..100_usize).prop_map(|(path, acl, bytes)| {
            let node = node_with(&path, Persistent, bytes);
            Op::Create(CreateRequest { acl: acl.into(), ..node })
        }),
        3 => path().prop_map(|path| Op::Delete(DeleteRequest { path, version: -1 })),
        2 => (path(), 0..100_usize).prop_map(|(path, bytes)| {
            let data = Bytes::from(vec![7; bytes]).into();
            Op::SetData(SetDataRequest { path, data, version: -1 })
        }),
        1 => path().prop_map(|path| Op::Check(CheckRequest { path, version: -1 })),
    ]
}

/// Executes the requests, and compares the size that each was charged with the size that it added.
fn charge(multis: Vec<Vec<Op>>, check: impl Fn(Size, Size)) {
    let (mut world, [client]) = World::with_clients();
    let Client { connection, session, .. } = client;
    let context = RequestContext { now: world.now, connection, session };
    for ops in multis {
        let caller = world.server.caller(context);
        let Ok((draft, txns)) = multi::prepare(&world.server.tree, caller, &ops) else { continue };
        let charged = draft.growth();
        let (before, nodes) = (size_of(&world.server.tree), world.server.stats().nodes);
        assert_eq!(txns.len(), ops.len());
        world.ask(&client, &Request::Multi(ops)).unwrap();
        let added = size_of(&world.server.tree) + -before;
        let records = (world.server.stats().nodes as i64 - nodes as i64) * RECORD as i64;
        check(charged, Size { disk: added.disk + records, ..added });
    }
}

fn any_multis(lists: usize) -> impl Strategy<Value = Vec<Vec<Op>>> {
    vec(vec(any_op(lists), 0..9), 0..20)
}

proptest! {
    /// A request is charged exactly what it adds, whatever it creates and deletes in between. Fails if the
    /// stored size is refunded.
    #[test]
    fn a_multi_is_charged_with_what_it_adds(multis in any_multis(1)) {
        charge(multis, |charged, added| assert_eq!(charged, added));
    }

    /// The same for the disk, with lists that nodes share; the added memory may be less than the charge.
    #[test]
    fn a_multi_is_charged_with_no_less_than_its_lists_add(multis in any_multis(4)) {
        charge(multis, |charged, added| {
            assert_eq!(charged.disk, added.disk);
            assert!(charged.memory >= added.memory, "{charged:?} for {added:?}");
        });
    }
}
