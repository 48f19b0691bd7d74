//! Quotas: usage is always accounted for, and limits are enforced only if that is enabled.

use super::restore::Disk;
use super::*;
use crate::notices::Notice;
use CreateMode::*;

fn create_with(path: &str, data: &str) -> Request {
    let data = Bytes::copy_from_slice(data.as_bytes()).into();
    Request::Create(CreateRequest { data, ..new_node(path, Persistent) })
}

/// Sets a quota like ZooKeeper's `setquota`.
fn set_quota(world: &mut World, client: &Client, path: &str, limits: &str) {
    let mut node = "/zookeeper/quota".to_owned();
    for name in path.split('/').skip(1) {
        node = format!("{node}/{name}");
        // Another quota may have created it.
        let _ = world.ask(client, &create_with(&node, ""));
    }
    world.ask(client, &create_with(&format!("{node}/zookeeper_limits"), limits)).unwrap();
    let stats = create_with(&format!("{node}/zookeeper_stats"), "count=0,bytes=0");
    world.ask(client, &stats).unwrap();
}

fn stats(world: &mut World, client: &Client, path: &str) -> String {
    let node = format!("/zookeeper/quota{path}/zookeeper_stats");
    match world.ask(client, &get_data(&node, false)) {
        Ok(Response::Data { data, stat }) => {
            assert_eq!((stat.version, stat.data_length as usize), (0, data.len()));
            String::from_utf8(data.to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_books_are_kept_through_every_change() {
    let (mut world, [client]) = World::with_clients();
    world.ask(&client, &create_with("/a", "12345")).unwrap();
    world.ask(&client, &create_with("/a/b", "123")).unwrap();
    set_quota(&mut world, &client, "/a", "count=100,bytes=1000");
    assert_eq!(stats(&mut world, &client, "/a"), "count=2,bytes=8", "existing nodes are counted");

    world.create(&client, "/ab", Persistent);
    for (change, books) in [
        (create_with("/a/c", "12"), "count=3,bytes=10"),
        (set_data("/a/b", -1), "count=3,bytes=12"),
        (delete("/a/c", -1), "count=2,bytes=10"),
    ] {
        world.ask(&client, &change).unwrap();
        assert_eq!(stats(&mut world, &client, "/a"), books, "{change:?}");
    }

    let owner = world.client();
    world.create(&owner, "/a/lock", Ephemeral);
    assert_eq!(stats(&mut world, &client, "/a"), "count=3,bytes=14");
    world.ask(&owner, &Request::CloseSession).unwrap();
    assert_eq!(stats(&mut world, &client, "/a"), "count=2,bytes=10");
    assert!(world.server.take_notices().is_empty());
}

#[test]
fn the_nearest_quota_counts_until_it_is_removed() {
    let (mut world, [client]) = World::with_clients();
    for path in ["/a", "/a/b"] {
        world.ask(&client, &create_with(path, "x")).unwrap();
        set_quota(&mut world, &client, path, "count=100");
    }
    world.ask(&client, &create_with("/a/b/c", "x")).unwrap();
    assert_eq!(stats(&mut world, &client, "/a/b"), "count=2,bytes=2");
    assert_eq!(stats(&mut world, &client, "/a"), "count=2,bytes=2", "counted when it was set");
    world.ask(&client, &delete("/zookeeper/quota/a/b/zookeeper_limits", -1)).unwrap();
    world.ask(&client, &create_with("/a/b/d", "x")).unwrap();
    assert_eq!(stats(&mut world, &client, "/a"), "count=3,bytes=3");
    assert_eq!(stats(&mut world, &client, "/a/b"), "count=2,bytes=2");
}

#[test]
fn hard_limits_refuse_and_soft_ones_warn() {
    let (mut world, [client]) = World::limited(|config| config.enforce_quotas = true);
    world.ask(&client, &create_with("/a", "")).unwrap();
    let limits = "count=-1,bytes=4=;byteHardLimit=8;countHardLimit=3";
    set_quota(&mut world, &client, "/a", limits);
    world.ask(&client, &create_with("/a/b", "123456")).unwrap();
    assert!(world.server.take_notices().is_empty(), "the hard limit replaces the soft one");

    let refused = Err(ErrorCode::QuotaExceeded);
    assert_eq!(world.ask(&client, &create_with("/a/c", "123")), refused);
    let (path, data) = ("/a/b".to_owned(), Bytes::from_static(b"123456789").into());
    let longer = Op::SetData(SetDataRequest { path, data, version: -1 });
    let failed = OpResult::Error(Some(ErrorCode::QuotaExceeded));
    assert_eq!(world.multi(&client, [longer]), [failed]);
    world.ask(&client, &create_with("/a/c", "")).unwrap();
    assert_eq!(world.ask(&client, &create_with("/a/d", "")), refused, "three nodes");
    assert_eq!(world.server.take_notices().len(), 3);
    assert_eq!(stats(&mut world, &client, "/a"), "count=3,bytes=6");
    // Reducing the usage is always allowed.
    world.ask(&client, &set_data("/a/b", -1)).unwrap();

    world.ask(&client, &create_with("/soft", "")).unwrap();
    set_quota(&mut world, &client, "/soft", "count=1,bytes=-1");
    world.ask(&client, &create_with("/soft/b", "")).unwrap();
    let notices = world.server.take_notices();
    let [Notice::QuotaExceeded { kind: "soft", present: 2, limit: 1, refused: false, .. }] =
        notices[..]
    else {
        panic!("{notices:?}");
    };
}

#[test]
fn nothing_is_refused_unless_enforcement_is_switched_on() {
    let (mut world, [client]) = World::with_clients();
    world.ask(&client, &create_with("/a", "")).unwrap();
    set_quota(&mut world, &client, "/a", "count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=1");
    world.ask(&client, &create_with("/a/b", "many bytes")).unwrap();
    assert_eq!(stats(&mut world, &client, "/a"), "count=2,bytes=10");
}

/// The usage is stored with the tree, and the quota is found again.
#[test]
fn quotas_survive_a_restart() {
    let (mut world, [client]) = World::limited(|config| config.enforce_quotas = true);
    world.ask(&client, &create_with("/a", "")).unwrap();
    set_quota(&mut world, &client, "/a", "countHardLimit=2");
    world.ask(&client, &create_with("/a/b", "123")).unwrap();

    let mut disk = Disk::default();
    disk.commit(&mut world.server);
    let mut server = disk.start(world.now).expect("a consistent state");
    server.config.enforce_quotas = true;
    let mut restored = World { server, ..World::new() };
    let client = restored.client();
    assert_eq!(stats(&mut restored, &client, "/a"), "count=2,bytes=3");
    let third = restored.ask(&client, &create_with("/a/c", ""));
    assert_eq!(third, Err(ErrorCode::QuotaExceeded));
}

/// Setting a quota counts the whole subtree, which blocks all clients, and one request may do that many
/// times.
#[test]
fn what_takes_long_to_count_gets_no_quota() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/large", Persistent);
    let op = |op| match op {
        Request::Create(create) => Op::Create(create),
        Request::Delete(delete) => Op::Delete(delete),
        _ => unreachable!("no other is made here"),
    };
    for first in (0..10_000).step_by(5_000) {
        let creates = (first..first + 5_000).map(|n| create_with(&format!("/large/{n}"), ""));
        world.multi(&client, creates.map(op));
    }
    let stats = "/zookeeper/quota/large/zookeeper_stats";
    world.create(&client, "/zookeeper/quota/large", Persistent);
    world.ask(&client, &create_with(stats, "")).unwrap();
    world.ask(&client, &delete(stats, -1)).unwrap();
    let _ = world.server.take_notices();

    // One request may do it once.
    let twice = [create_with(stats, ""), delete(stats, -1), create_with(stats, "")];
    let results = world.multi(&client, twice.map(op));
    assert_eq!(results[2], OpResult::Error(Some(ErrorCode::ThrottledOp)));
    world.create(&client, "/large/one-more", Persistent);
    assert_eq!(world.ask(&client, &create_with(stats, "")), Err(ErrorCode::ThrottledOp));
    assert!(matches!(world.server.take_notices()[..], [Notice::TooMuchToCount { .. }, ..]));
}

/// Every client may write these nodes, and they are parsed for each change: one request of 3,000 creates
/// below texts of a megabyte took 44 s. Fails if texts of any length are parsed.
#[test]
fn a_text_of_limits_that_is_too_long_is_no_limit() {
    let (mut world, [client]) = World::limited(|config| config.enforce_quotas = true);
    world.ask(&client, &create_with("/a", "")).unwrap();
    let limits = |len: usize| format!("countHardLimit=1{:1$}", "", len - "countHardLimit=1".len());
    set_quota(&mut world, &client, "/a", &limits(256));
    let refused = world.ask(&client, &create_with("/a/b", ""));
    assert_eq!(refused, Err(ErrorCode::QuotaExceeded));

    let path = "/zookeeper/quota/a/zookeeper_limits".to_owned();
    let data = Bytes::from(limits(257)).into();
    let request = Request::SetData(SetDataRequest { path, data, version: -1 });
    world.ask_all(&client, [request, create_with("/a/b", "")]);
}
