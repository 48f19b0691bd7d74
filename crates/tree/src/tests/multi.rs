//! `multi` and `multiRead`.

use lockkeeper_wire::{CheckRequest, ReadOp, ReadResult};

use super::*;
use CreateMode::*;

fn make(path: &str, mode: CreateMode) -> Op {
    Op::Create(new_node(path, mode))
}

fn make2(path: &str, mode: CreateMode) -> Op {
    Op::Create2(new_node(path, mode))
}

fn remove(path: &str) -> Op {
    Op::Delete(DeleteRequest { path: path.to_owned(), version: -1 })
}

fn set(path: &str, version: i32) -> Op {
    Op::SetData(SetDataRequest { path: path.to_owned(), data: Bytes::new().into(), version })
}

fn check(path: &str, version: i32) -> Op {
    Op::Check(CheckRequest { path: path.to_owned(), version })
}

#[test]
fn later_operations_see_earlier_ones() {
    let (mut world, [client]) = World::with_clients();
    let ops = [
        make("/p", Persistent),
        make("/p/n-", PersistentSequential),
        make2("/p/n-", PersistentSequential),
        set("/p", 0),
        check("/p", 1),
        remove("/p/n-0000000000"),
        make("/p/n-", EphemeralSequential),
        set("/p", 1),
    ];
    let results = world.multi(&client, ops);
    let path = |path: &str| OpResult::Create { path: path.to_owned() };
    assert_eq!(results[0], path("/p"));
    assert_eq!(results[1], path("/p/n-0000000000"));
    let OpResult::Create2 { path: second, stat } = &results[2] else { panic!() };
    assert_eq!((second.as_str(), stat.czxid), ("/p/n-0000000001", Zxid(2)));
    let OpResult::SetData(stat) = &results[3] else { panic!() };
    assert_eq!((stat.version, stat.num_children), (1, 2), "as of that operation");
    assert_eq!(results[4..6], [OpResult::Check, OpResult::Delete]);
    assert_eq!(results[6], path("/p/n-0000000002"));
    assert_eq!(world.last_zxid(), 2, "all are one transaction");
    assert_eq!(world.stat(&client, "/p").unwrap().version, 2);
}

#[test]
fn a_failure_undoes_everything_and_says_where() {
    let (mut world, [client]) = World::with_clients();
    let ops = vec![make("/p", Persistent), make("/p/c", Persistent), remove("/p"), set("/p", -1)];
    let late = OpResult::Error(Some(ErrorCode::RuntimeInconsistency));
    let failed = OpResult::Error(Some(ErrorCode::NotEmpty));
    let fine = OpResult::Error(None);
    assert_eq!(world.multi(&client, ops), [fine.clone(), fine, failed, late]);
    assert_eq!(world.stat(&client, "/p"), None);
    assert_eq!(world.last_zxid(), 2, "a failed multi takes a number too");
}

#[test]
fn the_shape_of_a_failure_on_the_wire() {
    let (mut world, [client]) = World::with_clients();
    let (header, body) = world.reply(
        &client,
        5,
        &Request::Multi(vec![check("/", 0), check("/no", -1), check("/", 0)]),
    );
    assert_eq!(header.error, 0, "the request itself succeeds");
    let mut expected = BytesMut::new();
    for code in [0, -101, -2] {
        (-1).encode(&mut expected);
        false.encode(&mut expected);
        code.encode(&mut expected);
        code.encode(&mut expected);
    }
    (-1).encode(&mut expected);
    true.encode(&mut expected);
    (-1).encode(&mut expected);
    assert_eq!(body, expected.freeze());
}

#[test]
fn an_empty_multi_is_a_transaction_without_results() {
    let (mut world, [client]) = World::with_clients();
    assert_eq!(world.multi(&client, vec![]), []);
    assert_eq!(world.last_zxid(), 2);
}

#[test]
fn a_node_that_comes_and_goes_leaves_only_a_number() {
    let (mut world, [client]) = World::with_clients();
    let ops = vec![make("/a", Ephemeral), remove("/a"), make("/a", Persistent), remove("/a")];
    assert_eq!(world.multi(&client, ops).len(), 4);
    assert_eq!(world.stat(&client, "/").unwrap().cversion, 2 * 2 - 1);
    assert_eq!(world.server.stats().ephemerals, 0);
}

#[test]
fn children_of_ephemerals_and_modes() {
    let (mut world, [client]) = World::with_clients();
    let ops = vec![make("/e", Ephemeral), make("/e/c", Persistent)];
    let failed = OpResult::Error(Some(ErrorCode::NoChildrenForEphemerals));
    assert_eq!(world.multi(&client, ops), [OpResult::Error(None), failed]);
    let container = world.multi(&client, vec![make("/c", Container)]);
    assert!(matches!(container[..], [OpResult::Create2 { .. }]), "the form of ZooKeeper's reply");
    let ttl = Request::Multi(vec![make("/t", PersistentTtl)]);
    assert_eq!(world.ask(&client, &ttl), Err(ErrorCode::MarshallingError));
}

/// A `createTTL` in a `multi` was refused when its mode had no TTL. ZooKeeper decides by the mode there: the
/// operation is then a plain create, also in its reply.
#[test]
fn the_mode_decides_over_the_time_to_live() {
    let (mut world, [client]) = World::with_clients();
    let timed = |path: &str, mode: CreateMode| Op::CreateTtl(new_node(path, mode).with_ttl(1));
    let ops = vec![timed("/e", Ephemeral), timed("/c", Container), timed("/t", PersistentTtl)];
    let results = world.multi(&client, ops);
    assert_eq!(results[0], OpResult::Create { path: "/e".to_owned() });
    assert!(matches!(&results[1], OpResult::Create2 { path, .. } if path == "/c"));
    assert!(matches!(&results[2], OpResult::Create2 { path, .. } if path == "/t"));
    assert_eq!(world.stat(&client, "/e").unwrap().ephemeral_owner, client.session);
}

#[test]
fn reads_fail_one_by_one() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/a", Persistent);
    let read = Request::MultiRead(vec![
        ReadOp::GetData(path("/a")),
        ReadOp::GetData(path("/no")),
        ReadOp::GetChildren(path("/zookeeper")),
    ]);
    let Ok(Response::MultiRead(results)) = world.ask(&client, &read) else { panic!() };
    assert!(matches!(&results[0], ReadResult::Data { data, .. } if &data[..] == b"data"));
    assert_eq!(results[1], ReadResult::Error(ErrorCode::NoNode));
    assert_eq!(results[2], ReadResult::Children(vec!["config".to_owned(), "quota".to_owned()]));
}

#[test]
fn reads_and_writes_do_not_mix() {
    let (mut world, [client]) = World::with_clients();
    for (outer, inner) in [(22, 2), (14, 4)] {
        let mut frame = BytesMut::new();
        for number in [9, outer, inner] {
            number.encode(&mut frame);
        }
        false.encode(&mut frame);
        (-1).encode(&mut frame);
        "/".to_owned().encode(&mut frame);
        frame.extend_from_slice(&[0; 13]);
        world.frame(client.connection, frame);
        assert_eq!(world.received(&client), ["reply -5"]);
    }
}
