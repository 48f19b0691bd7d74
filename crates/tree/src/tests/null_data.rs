//! Nodes with null data, which clients distinguish from nodes with zero bytes.

use lockkeeper_wire::{CreateTtlRequest, ReadOp, ReadResult};

use super::restore::{Disk, assert_same};
use super::*;

fn with(path: &str, mode: CreateMode, data: &NodeData) -> CreateRequest {
    CreateRequest { data: data.clone(), ..new_node(path, mode) }
}

fn with_ttl(path: &str, data: &NodeData) -> CreateTtlRequest {
    with(path, CreateMode::PersistentTtl, data).with_ttl(1_000)
}

fn set(path: &str, data: &NodeData) -> SetDataRequest {
    SetDataRequest { path: path.to_owned(), data: data.clone(), version: -1 }
}

/// Every way to set the data of a node: its name, and the requests.
fn ways(data: &NodeData) -> Vec<(String, Vec<Request>)> {
    use CreateMode::*;
    let kind = if data.is_null() { "null" } else { "empty" };
    type Way = fn(&str, &NodeData) -> Vec<Request>;
    let ways: [(&str, Way); 9] = [
        ("create", |node, data| vec![Request::Create(with(node, Persistent, data))]),
        ("create2", |node, data| vec![Request::Create2(with(node, Persistent, data))]),
        ("ephemeral", |node, data| vec![Request::Create(with(node, Ephemeral, data))]),
        ("container", |node, data| vec![Request::CreateContainer(with(node, Container, data))]),
        ("ttl", |node, data| vec![Request::CreateTtl(with_ttl(node, data))]),
        ("set", |node, data| vec![create(node, Persistent), Request::SetData(set(node, data))]),
        ("multi", |node, data| {
            vec![Request::Multi(vec![Op::Create(with(node, Persistent, data))])]
        }),
        ("multi-ttl", |node, data| vec![Request::Multi(vec![Op::CreateTtl(with_ttl(node, data))])]),
        ("multi-set", |node, data| {
            let create = Op::Create2(new_node(node, Persistent));
            vec![Request::Multi(vec![create, Op::SetData(set(node, data))])]
        }),
    ];
    let ways = ways.map(|(way, requests)| {
        let node = format!("/{kind}-{way}");
        let requests = requests(&node, data);
        (node, requests)
    });
    ways.into()
}

fn assert_data(world: &mut World, client: &Client, node: &str, expected: &NodeData) {
    let Ok(Response::Data { data, stat }) = world.ask(client, &get_data(node, false)) else {
        panic!("{node} does not exist");
    };
    assert_eq!((&data, stat.data_length), (expected, 0), "{node}");
    let read = Request::MultiRead(vec![ReadOp::GetData(path(node))]);
    let read = world.ask(client, &read);
    assert_eq!(read, Ok(Response::MultiRead(vec![ReadResult::Data { data, stat }])), "{node}");
}

/// K1: null data was read back as zero bytes, however it had been written, and after a restart.
#[test]
fn k1_null_and_empty_are_kept_apart_over_a_restart() {
    let (mut world, [client]) = World::with_clients();
    let mut nodes = Vec::new();
    for data in [NodeData::NULL, Bytes::new().into()] {
        for (node, requests) in ways(&data) {
            for request in requests {
                let reply = world.ask(&client, &request).unwrap();
                if let Response::Multi(results) = reply {
                    assert!(!results.iter().any(|result| matches!(result, OpResult::Error(_))));
                }
            }
            nodes.push((node, data.clone()));
        }
    }
    for (node, data) in &nodes {
        assert_data(&mut world, &client, node, data);
    }

    let mut disk = Disk::default();
    disk.commit(&mut world.server);
    let server = disk.start(world.now).unwrap();
    assert_same(&world.server, &server);
    let mut again = World { server, ..World::new() };
    let client = again.client();
    for (node, data) in &nodes {
        assert_data(&mut again, &client, node, data);
    }
}

/// Quotas count both as 0 bytes.
#[test]
fn null_data_takes_the_place_of_bytes() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/a", CreateMode::Persistent);
    let before = world.server.stats().data_bytes;
    world.ask(&client, &Request::SetData(set("/a", &NodeData::NULL))).unwrap();
    assert_eq!(world.server.stats().data_bytes, before - b"data".len());
    assert_data(&mut world, &client, "/a", &NodeData::NULL);
    world.ask(&client, &set_data("/a", 1)).unwrap();
    world.ask(&client, &delete("/a", 2)).unwrap();
}
