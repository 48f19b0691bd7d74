//! Summaries for operators.

use super::*;
use crate::report::WatchSummary;
use CreateMode::*;

#[test]
fn watches_and_ephemerals_are_reported_by_session() {
    let (mut world, [one, two]) = World::with_clients();
    world.create(&one, "/a", Persistent);
    world.create(&one, "/a/lock", Ephemeral);
    world.ask(&one, &get_data("/a", true)).unwrap();
    world.ask(&one, &get_children("/a", true)).unwrap();
    world.ask(&two, &get_data("/a/lock", true)).unwrap();
    world.ask(&two, &get_data("/a", true)).unwrap();

    let summary = WatchSummary { connections: 2, paths: 2, watches: 4 };
    assert_eq!(world.server.watch_summary(), summary);
    let by_path = world.server.watches_by_path();
    let a = ("/a".to_owned(), vec![one.session, two.session]);
    assert_eq!(by_path, [a, ("/a/lock".to_owned(), vec![two.session])]);
    let ephemerals = world.server.ephemerals_by_session();
    assert_eq!(ephemerals, [(one.session, vec!["/a/lock".to_owned()])]);
    assert_eq!(world.server.session_of(two.connection), Some(two.session));
    let unknown = world.open();
    assert_eq!(world.server.session_of(unknown), None);
}
