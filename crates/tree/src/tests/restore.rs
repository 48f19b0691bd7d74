//! Restoring a server from its changes.

use std::collections::BTreeMap;

use super::*;
use crate::changes::{Change, Changes, RestoreError, Table};

/// The content of an engine's storage.
#[derive(Clone, Default)]
pub(super) struct Disk(pub(super) BTreeMap<(Table, Bytes), Bytes>);

impl Disk {
    pub(super) fn commit(&mut self, server: &mut Server) -> Changes {
        let changes = server.take_changes();
        let mut keys: Vec<_> = changes.iter().map(|c| (c.table, c.key)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), changes.len(), "at most one change per key");
        for Change { table, key, value, is_new } in changes.iter() {
            let key = (table, Bytes::copy_from_slice(key));
            assert!(!is_new || !self.0.contains_key(&key), "{key:?} is not new");
            match value {
                Some(value) => self.0.insert(key, Bytes::copy_from_slice(value)),
                None => self.0.remove(&key),
            };
        }
        changes
    }

    /// Restores all records in reverse order: the order does not matter.
    pub(super) fn start(&self, now: Now) -> Result<Server, RestoreError> {
        let config = Config { ttl_nodes: true, ..Config::default() };
        let mut server = Server::new(config, Box::new(Counter(100)));
        for ((table, key), value) in self.0.iter().rev() {
            server.restore(*table, key, value.clone())?;
        }
        server.finish_restore(now)?;
        Ok(server)
    }
}

pub(super) fn assert_same(a: &Server, b: &Server) {
    assert_eq!(a.tree.sorted(), b.tree.sorted());
    assert_eq!(a.last_zxid, b.last_zxid);
    let sessions = |server: &Server| -> Vec<_> {
        server.sessions.iter().map(|(id, s)| (id, s.timeout, s.password)).collect()
    };
    assert_eq!(sessions(a), sessions(b));
    let (a, b) = (a.stats(), b.stats());
    assert_eq!((a.nodes, a.ephemerals, a.data_bytes), (b.nodes, b.ephemerals, b.data_bytes));
}

/// A server with a client that owns a node, and everything that it has stored.
pub(super) fn world_and_disk() -> (World, Disk, Client) {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/p", CreateMode::Persistent);
    world.create(&client, "/p/e", CreateMode::Ephemeral);
    let mut disk = Disk::default();
    disk.commit(&mut world.server);
    (world, disk, client)
}

#[test]
fn an_empty_storage_starts_a_new_server() {
    let mut world = World::new();
    world.server.finish_restore(world.now).unwrap();
    assert_eq!(world.server.stats().nodes, 4);
    let mut disk = Disk::default();
    disk.commit(&mut world.server);
    assert_eq!(disk.0.len(), 5);
    assert!(world.server.take_changes().is_empty());
}

#[test]
fn a_restart_keeps_nodes_sessions_and_passwords() {
    let (world, disk, client) = world_and_disk();
    let server = disk.start(world.now).unwrap();
    assert_same(&world.server, &server);
    let stats = server.stats();
    assert_eq!((stats.nodes, stats.ephemerals), (6, 1));
    let mut world = World { server, ..world };
    assert!(world.server.take_changes().is_empty(), "nothing to write");
    let client = world.reconnect(&client);
    assert_eq!(world.stat(&client, "/p/e").unwrap().ephemeral_owner, client.session);
}

#[test]
fn a_restart_gives_sessions_their_full_timeout() {
    let (mut world, disk, _) = world_and_disk();
    world.now.monotonic = Duration::from_secs(1);
    let server = disk.start(world.now).unwrap();
    assert_eq!(server.next_timeout(), Some(Duration::from_secs(12)));
}

#[test]
fn reads_change_nothing_and_failed_writes_only_the_last_transaction() {
    let (mut world, _, client) = world_and_disk();
    let _ = world.ask(&client, &get_children("/", true));
    let _ = world.ask(&client, &Request::Ping);
    assert!(world.server.take_changes().is_empty());
    world.ask(&client, &delete("/no", -1)).unwrap_err();
    let changes = world.server.take_changes();
    let changes: Vec<_> = changes.iter().collect();
    assert!(matches!(&changes[..], [Change { table: Table::Meta, value: Some(_), .. }]));
}

/// The records of nodes to write: `+` for a new one, `=` for an existing one, `-` for a removal.
fn nodes_written(world: &mut World, disk: &mut Disk) -> Vec<String> {
    let changes = disk.commit(&mut world.server);
    let of_nodes = changes.iter().filter(|change| change.table == Table::Nodes);
    let told = of_nodes.map(|Change { key, value, is_new, .. }| {
        let sign = match value {
            Some(_) if is_new => '+',
            Some(_) => '=',
            None => '-',
        };
        format!("{sign}{}", std::str::from_utf8(key).unwrap())
    });
    told.collect()
}

#[test]
fn of_what_happens_in_one_round_only_the_outcome_is_written() {
    let (mut world, mut disk, client) = world_and_disk();
    let create = |world: &mut World| world.create(&client, "/p/n", CreateMode::Persistent);
    let delete = |world: &mut World| world.ask(&client, &delete("/p/n", -1)).unwrap();

    create(&mut world);
    delete(&mut world);
    assert_eq!(nodes_written(&mut world, &mut disk), ["=/p"], "created and deleted");
    create(&mut world);
    delete(&mut world);
    create(&mut world);
    assert_eq!(nodes_written(&mut world, &mut disk), ["+/p/n", "=/p"], "created again");
    delete(&mut world);
    create(&mut world);
    assert_eq!(nodes_written(&mut world, &mut disk), ["=/p/n", "=/p"], "deleted and created again");
    delete(&mut world);
    create(&mut world);
    delete(&mut world);
    assert_eq!(nodes_written(&mut world, &mut disk), ["-/p/n", "=/p"], "deleted");

    assert_same(&disk.start(world.now).unwrap(), &world.server);
}

#[test]
fn inconsistent_records_are_refused() {
    let key = |table, key: &'static [u8]| (table, Bytes::from_static(key));
    let (world, disk, _) = world_and_disk();
    for (gone, says) in [
        (key(Table::Nodes, b"/p"), "node /p/e has no parent /p"),
        (key(Table::Nodes, b"/"), "no parent /"),
        (key(Table::Nodes, b"/zookeeper/quota"), "/zookeeper/quota is missing"),
        (key(Table::Meta, b"state"), "last transaction is missing"),
    ] {
        let mut disk = disk.clone();
        disk.0.remove(&gone).expect("it was there");
        let error = disk.start(world.now).err().expect("an error").to_string();
        assert!(error.contains(says), "{error}");
    }
    let mut disk = disk.clone();
    disk.0.retain(|(table, _), _| *table != Table::Sessions);
    let error = disk.start(world.now).err().expect("an error").to_string();
    assert!(error.contains("does not exist"), "{error}");
}

#[test]
fn strange_keys_and_damaged_values_are_refused() {
    let (world, disk, _) = world_and_disk();
    for (table, key, value) in [
        (Table::Nodes, &b"relative"[..], &b"\x01"[..]),
        (Table::Nodes, b"/\xff", b"\x01"),
        (Table::Nodes, b"/x", b""),
        (Table::Nodes, b"/x", b"\x01\x09"),
        (Table::Nodes, b"/x", b"\x02"),
        (Table::Sessions, b"short", b"\x01"),
        (Table::Sessions, b"12345678", b"\x01\x00short"),
        (Table::Meta, b"other", b"\x01\x00"),
        (Table::Meta, b"state", b"\x01\x00\x00"),
    ] {
        let mut disk = disk.clone();
        disk.0.insert((table, Bytes::from_static(key)), Bytes::from_static(value));
        assert!(disk.start(world.now).is_err(), "{table:?} {key:?} {value:?}");
    }
}
