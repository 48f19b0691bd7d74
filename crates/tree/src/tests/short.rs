//! Which requests are known to be short.

use lockkeeper_wire::{ReadOp, SetWatchesRequest};

use super::*;
use CreateMode::*;

fn is_short(world: &World, client: &Client, request: &Request) -> bool {
    let mut frame = BytesMut::new();
    request.encode(1, &mut frame);
    world.server.is_short(client.connection, &frame.freeze())
}

/// A tree with nodes of every size: `/few` and `/many` have children, `/little` and `/much` have data.
fn world() -> (World, [Client; 2]) {
    let (mut world, clients) = World::with_clients();
    let client = &clients[0];
    for (parent, count) in [("/few", 64), ("/many", 65)] {
        world.create(client, parent, Persistent);
        for i in 0..count {
            world.create(client, &format!("{parent}/{i}"), Persistent);
        }
    }
    for (name, len) in [("/little", 16 * 1024), ("/much", 16 * 1024 + 1)] {
        let data = Bytes::from(vec![7; len]);
        let create = CreateRequest { data: data.into(), ..new_node(name, Persistent) };
        world.ask(client, &Request::Create(create)).unwrap();
    }
    (world, clients)
}

#[test]
fn what_touches_little_is_short() {
    let (world, [client, _]) = world();
    let watches = SetWatchesRequest { data: vec!["/a".to_owned(); 64], ..Default::default() };
    for request in [
        Request::Ping,
        create("/locks/x", EphemeralSequential),
        delete("/few", -1),
        exists("/much", true),
        get_data("/little", true),
        get_data("/missing", false),
        get_children("/few", true),
        Request::MultiRead(vec![
            ReadOp::GetData(path("/little")),
            ReadOp::GetChildren(path("/few")),
        ]),
        Request::SetWatches(watches),
        Request::CloseSession,
    ] {
        assert!(is_short(&world, &client, &request), "{request:?}");
    }
}

#[test]
fn what_touches_much_is_not_short() {
    let (mut world, [client, owner]) = world();
    for i in 0..65 {
        world.create(&owner, &format!("/few/of-{i}"), Ephemeral);
    }
    assert!(!is_short(&world, &owner, &Request::CloseSession));
    let both = ["/little", "/little"].map(|name| ReadOp::GetData(path(name)));
    let watches = SetWatchesRequest { child: vec!["/a".to_owned(); 65], ..Default::default() };
    let data = Bytes::from(vec![7; 16 * 1024]);
    let long = CreateRequest { data: data.into(), ..new_node("/long", Persistent) };
    for request in [
        get_data("/much", false),
        get_children("/many", false),
        Request::MultiRead(both.to_vec()),
        Request::MultiRead(vec![ReadOp::GetData(path("/a")); 65]),
        Request::Multi(vec![Op::Delete(DeleteRequest { path: "/a".to_owned(), version: -1 }); 65]),
        Request::GetAllChildrenNumber(path("/a")),
        Request::GetEphemerals(path("/a")),
        Request::SetWatches(watches),
        Request::Create(long),
        create("/zookeeper/quota/few/zookeeper_stats", Persistent),
    ] {
        assert!(!is_short(&world, &client, &request), "{request:?}");
    }
}

/// Invalid requests are refused at once.
#[test]
fn nonsense_is_short() {
    let (world, [client, _]) = world();
    for frame in [&b""[..], &[0; 7], &[0, 0, 0, 1, 0, 0, 0, 14], &[255; 20]] {
        assert!(world.server.is_short(client.connection, &Bytes::copy_from_slice(frame)));
    }
}
