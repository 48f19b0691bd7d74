//! Nodes without data (null), which clients tell from nodes with zero bytes.

use lockkeeper_wire::{CreateTtlRequest, Op, OpResult, ReadOp, ReadResult};

use super::restore::{Disk, assert_same};
use super::*;

fn with(path: &str, mode: CreateMode, data: &NodeData) -> CreateRequest {
    CreateRequest { data: data.clone(), ..new_node(path, mode) }
}

fn with_ttl(path: &str, data: &NodeData) -> CreateTtlRequest {
    let CreateRequest { path, data, acl, flags } = with(path, CreateMode::PersistentTtl, data);
    CreateTtlRequest { path, data, acl, flags, ttl_ms: 1_000 }
}

fn set(path: &str, data: &NodeData) -> SetDataRequest {
    SetDataRequest { path: path.to_owned(), data: data.clone(), version: -1 }
}

/// Every way in which data gets into a node: its name, and the requests.
fn ways(data: &NodeData) -> Vec<(String, Vec<Request>)> {
    use CreateMode::*;
    let kind = if data.is_null() { "null" } else { "empty" };
    let name = |way: &str| format!("/{kind}-{way}");
    let (plain, second, ephemeral) = (name("create"), name("create2"), name("ephemeral"));
    let (container, ttl, changed) = (name("container"), name("ttl"), name("set"));
    let [multi, multi_ttl, multi_set] = ["multi", "multi-ttl", "multi-set"].map(name);
    let ways = [
        (plain.clone(), vec![Request::Create(with(&plain, Persistent, data))]),
        (second.clone(), vec![Request::Create2(with(&second, Persistent, data))]),
        (ephemeral.clone(), vec![Request::Create(with(&ephemeral, Ephemeral, data))]),
        (container.clone(), vec![Request::CreateContainer(with(&container, Container, data))]),
        (ttl.clone(), vec![Request::CreateTtl(with_ttl(&ttl, data))]),
        (
            changed.clone(),
            vec![create(&changed, Persistent), Request::SetData(set(&changed, data))],
        ),
        (multi.clone(), vec![Request::Multi(vec![Op::Create(with(&multi, Persistent, data))])]),
        (multi_ttl.clone(), vec![Request::Multi(vec![Op::CreateTtl(with_ttl(&multi_ttl, data))])]),
        (
            multi_set.clone(),
            vec![Request::Multi(vec![
                Op::Create2(new_node(&multi_set, Persistent)),
                Op::SetData(set(&multi_set, data)),
            ])],
        ),
    ];
    ways.into()
}

fn assert_data(world: &mut World, client: &Client, node: &str, expected: &NodeData) {
    let Ok(Response::Data { data, stat }) = world.ask(client, &get_data(node, false)) else {
        panic!("{node} is not there");
    };
    assert_eq!((&data, stat.data_length), (expected, 0), "{node}");
    let read = Request::MultiRead(vec![ReadOp::GetData(path(node))]);
    let read = world.ask(client, &read);
    assert_eq!(read, Ok(Response::MultiRead(vec![ReadResult::Data { data, stat }])), "{node}");
}

/// K1: null read back as zero bytes, however it had been written, and after a restart.
#[test]
fn k1_null_and_empty_are_kept_apart_over_a_restart() {
    let mut world = World::new();
    let client = world.client();
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
    let (server, _) = disk.start(world.now).unwrap();
    assert_same(&world.server, &server);
    let mut again = World { server, ..World::new() };
    let client = again.client();
    for (node, data) in &nodes {
        assert_data(&mut again, &client, node, data);
    }
}

/// Books of bytes count both as nothing.
#[test]
fn null_data_takes_the_place_of_bytes() {
    let mut world = World::new();
    let client = world.client();
    world.create(&client, "/a", CreateMode::Persistent);
    let before = world.server.stats().data_bytes;
    world.ask(&client, &Request::SetData(set("/a", &NodeData::NULL))).unwrap();
    assert_eq!(world.server.stats().data_bytes, before - b"data".len());
    assert_data(&mut world, &client, "/a", &NodeData::NULL);
    world.ask(&client, &set_data("/a", 1)).unwrap();
    world.ask(&client, &delete("/a", 2)).unwrap();
}
