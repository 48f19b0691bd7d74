//! Containers and nodes with a time to live.

use super::*;
use CreateMode::*;

const MINUTE: Duration = Duration::from_secs(60);

fn container(path: &str) -> Request {
    Request::CreateContainer(new_node(path, Container))
}

/// Advances the time in small steps, with a ping at each.
fn live(world: &mut World, client: &Client, time: Duration) {
    for _ in 0..time.as_secs() / 5 {
        world.pass(Duration::from_secs(5));
        world.ask(client, &Request::Ping).unwrap();
    }
}

#[test]
fn a_container_goes_after_its_last_child_and_not_before_its_first() {
    let (mut world, [client]) = World::with_clients();
    world.ask(&client, &container("/c")).unwrap();
    live(&mut world, &client, MINUTE * 3);
    assert!(world.stat(&client, "/c").is_some(), "it never had a child");
    world.create(&client, "/c/a", Persistent);
    live(&mut world, &client, MINUTE * 3);
    world.ask(&client, &delete("/c/a", -1)).unwrap();
    assert!(world.stat(&client, "/c").is_some(), "not at once");
    let _ = world.ask(&client, &exists("/c", true));
    live_until_event(&mut world, &client);
    assert_eq!(world.stat(&client, "/c"), None);
}

fn live_until_event(world: &mut World, client: &Client) {
    for _ in 0..13 {
        world.pass(Duration::from_secs(5));
        if let Some(Received::Event(_, event)) = world.next(client.connection) {
            assert_eq!(event.path, "/c");
            return;
        }
        world.ask(client, &Request::Ping).unwrap();
    }
    panic!("not reaped");
}

/// A create that comes before the reaper wins.
#[test]
fn a_container_that_got_a_new_child_stays() {
    let (mut world, [client]) = World::with_clients();
    world.ask(&client, &container("/c")).unwrap();
    world.create(&client, "/c/a", Persistent);
    world.ask(&client, &delete("/c/a", -1)).unwrap();
    world.create(&client, "/c/b", Ephemeral);
    live(&mut world, &client, MINUTE * 3);
    assert!(world.stat(&client, "/c").is_some());
}

#[test]
fn unused_containers_go_if_asked_for() {
    let mut world = World::with(Config { unused_container: Some(MINUTE * 5), ..Config::default() });
    let client = world.client();
    world.ask(&client, &container("/c")).unwrap();
    live(&mut world, &client, MINUTE * 4);
    assert!(world.stat(&client, "/c").is_some());
    live(&mut world, &client, MINUTE * 3);
    assert_eq!(world.stat(&client, "/c"), None);
}

#[test]
fn ttl_nodes_go_when_they_are_empty_and_untouched() {
    let (mut world, [client]) = World::with_clients();
    let ttl = Request::CreateTtl(new_node("/t", PersistentTtl).with_ttl(150_000));
    world.ask(&client, &ttl).unwrap();
    live(&mut world, &client, MINUTE * 2);
    world.ask(&client, &set_data("/t", -1)).unwrap();
    live(&mut world, &client, MINUTE * 2);
    assert!(world.stat(&client, "/t").is_some(), "touched");
    world.create(&client, "/t/c", Persistent);
    live(&mut world, &client, MINUTE * 5);
    assert!(world.stat(&client, "/t").is_some(), "not empty");
    world.ask(&client, &delete("/t/c", -1)).unwrap();
    live(&mut world, &client, MINUTE * 2);
    assert_eq!(world.stat(&client, "/t"), None);
}

#[test]
fn without_containers_nobody_wakes_up_for_them() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/a", Persistent);
    assert!(world.server.expire_session(world.now, client.session));
    assert_eq!(world.server.next_timeout(), None);
}

/// Examining all such nodes every minute blocked all clients. Fails if all of them are examined at once.
#[test]
fn many_that_stay_are_looked_at_in_portions() {
    let (mut world, [client]) = World::with_clients();
    for n in 0..10_000 {
        world.ask(&client, &container(&format!("/never-used-{n}"))).unwrap();
    }
    world.ask(&client, &container("/used")).unwrap();
    world.create(&client, "/used/a", Persistent);
    world.ask(&client, &delete("/used/a", -1)).unwrap();

    world.now.monotonic += MINUTE;
    let mut calls = 0;
    while world.server.reap_at.is_some_and(|at| at <= world.now.monotonic) {
        assert!(world.stat(&client, "/used").is_some(), "all were examined in call {calls}");
        world.server.handle_timeout(world.now);
        world.collect();
        world.ask(&client, &Request::Ping).unwrap();
        calls += 1;
    }
    assert_eq!(calls, 3);
    assert_eq!(world.stat(&client, "/used"), None);
    assert_eq!(world.server.stats().nodes, 10_004);
}
