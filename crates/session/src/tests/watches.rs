//! Watches over connections, and on servers of all ages.

use lockkeeper_wire::{AddWatchMode, AddWatchRequest, RemoveWatchesRequest, WatcherKind};

use super::*;

fn add_watch(path: &str, mode: AddWatchMode) -> Request {
    Request::AddWatch(AddWatchRequest { path: path.into(), mode: mode.code() })
}

impl World {
    /// Sets a persistent watch, which the server grants.
    fn watch(&mut self, path: &str, kind: WatchKind) -> WatchId {
        let mode = match kind {
            WatchKind::PersistentRecursive => AddWatchMode::PersistentRecursive,
            _ => AddWatchMode::Persistent,
        };
        let id = self.session.submit_watching(self.now, add_watch(path, mode), kind, 1);
        let (xid, _) = self.request();
        self.reply(xid, Ok(Response::Count(0))).unwrap();
        self.events();
        id
    }

    fn removed(&mut self) -> Vec<(i32, String, i32)> {
        let requests = self.requests().into_iter().map(|(xid, request)| match request {
            Request::RemoveWatches(RemoveWatchesRequest { path, kind }) => (xid, path, kind),
            other => panic!("{other:?}"),
        });
        requests.collect()
    }
}

/// W1: an event of the new connection was taken before anybody knew that there was a gap.
#[test]
fn a_stream_is_told_of_a_reconnect_before_anything_of_the_new_connection() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::PersistentRecursive);
    world.submit(get_data("/a"), 2);
    world.lose_connection();
    world.submit(get_data("/a"), 3);
    world.events();
    world.connect(7);
    let requests = world.requests();
    assert!(matches!(&requests[0].1, Request::SetWatches2(r) if r.persistent_recursive == ["/a"]));

    world.notify(EventKind::NodeDataChanged, "/a");
    world.reply(requests[1].0, data()).unwrap();
    let told: Vec<_> = world.events().into_iter().collect();
    let [Event::Connected { .. }, Event::Rearmed { id }, Event::Watch { .. }, Event::Reply { .. }] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(*id, stream);
}

#[test]
fn a_stream_that_is_not_armed_again_ends_with_the_reason() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::Persistent);
    world.lose_connection();
    world.connect(7);
    world.events();
    let refused = world.reply(xid::SET_WATCHES, Err(ErrorCode::NoAuth));
    assert_eq!(refused, Err(Disconnect::Unwatched(ErrorCode::NoAuth)));
    let code = ErrorCode::NoAuth;
    assert_eq!(world.events(), [Event::NotRearmed { id: stream, code }]);

    world.lose_connection();
    world.connect(7);
    assert_eq!(world.requests(), [], "and is not asked for again");
}

#[test]
fn an_event_has_the_number_of_its_transaction_where_the_server_says_it() {
    let mut world = World::connected();
    world.watch("/a", WatchKind::Persistent);
    world.notify(EventKind::NodeDataChanged, "/a");
    world.notify_at(Zxid(77), EventKind::NodeDataChanged, "/a");
    let zxids: Vec<_> = world
        .events()
        .into_iter()
        .map(|event| match event {
            Event::Watch { event, .. } => event.zxid,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(zxids, [None, Some(Zxid(77))]);
}

/// W5: servers before 3.9 kept the watch until the connection ended.
#[test]
fn a_server_that_does_not_know_persistent_kinds_is_asked_to_remove_any() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::Persistent);
    world.session.unwatch(world.now, stream);
    let removed = world.removed();
    assert_eq!(removed[0].2, WatcherKind::Persistent.code());
    world.reply(removed[0].0, Err(ErrorCode::MarshallingError)).unwrap();
    let any = WatcherKind::Any.code();
    let removed = world.removed();
    assert!(matches!(&removed[..], [(_, path, kind)] if path == "/a" && *kind == any));
    world.reply(removed[0].0, Ok(Response::Empty)).unwrap();

    // It is known from then on, until another server may be there.
    let stream = world.watch("/b", WatchKind::PersistentRecursive);
    world.session.unwatch(world.now, stream);
    assert!(matches!(world.removed()[..], [(_, _, kind)] if kind == any));
    world.lose_connection();
    world.connect(7);
    let stream = world.watch("/b", WatchKind::PersistentRecursive);
    world.session.unwatch(world.now, stream);
    assert!(matches!(world.removed()[..], [(_, _, kind)] if kind != any));
}

/// To remove any would have taken the watch of somebody who came meanwhile.
#[test]
fn a_watch_that_cannot_be_removed_alone_stays_while_others_watch_its_path() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::Persistent);
    world.session.unwatch(world.now, stream);
    let removed = world.removed();
    let watch = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 2);
    let (xid, request) = world.request();
    assert_eq!(request, Request::GetData(PathWatchRequest { path: "/a".into(), watch: true }));
    world.reply(removed[0].0, Err(ErrorCode::MarshallingError)).unwrap();
    assert_eq!(world.requests(), []);
    world.reply(xid, data()).unwrap();
    world.events();
    world.notify(EventKind::NodeDeleted, "/a");
    assert!(matches!(world.events()[..], [Event::Watch { id, .. }] if id == watch));
    assert!(matches!(world.removed()[..], [(_, _, kind)] if kind == WatcherKind::Any.code()));
}

/// W6: a one-shot watch on the path of a persistent one ended both with the next event.
#[test]
fn a_one_shot_watch_is_not_asked_for_where_a_persistent_one_is() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::Persistent);
    let once = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Data, 2);
    let (xid, request) = world.request();
    assert_eq!(request, Request::GetData(PathWatchRequest { path: "/a".into(), watch: false }));
    world.reply(xid, data()).unwrap();
    world.events();
    world.notify(EventKind::NodeDataChanged, "/a");
    let told: Vec<_> = world.events();
    assert!(
        matches!(told[..], [Event::Watch { id: a, .. }, Event::Watch { id: b, .. }]
            if (a, b) == (once, stream)),
        "{told:?}"
    );
    world.notify(EventKind::NodeDataChanged, "/a");
    assert!(matches!(world.events()[..], [Event::Watch { id, .. }] if id == stream));
}

#[test]
fn the_end_of_a_persistent_watch_waits_for_the_watchers_that_it_serves() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::PersistentRecursive);
    let once = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Children, 2);
    let (xid, _) = world.request();
    world.reply(xid, data()).unwrap();
    world.events();
    world.session.unwatch(world.now, stream);
    assert_eq!(world.requests(), []);
    world.notify(EventKind::NodeCreated, "/a/b");
    let told: Vec<_> = world.events();
    let [Event::Watch { id, event }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*id, event.kind, &event.path[..]), (once, EventKind::NodeChildrenChanged, "/a"));
    assert!(matches!(world.removed()[..], [_]));
}

/// W7: the next session was given to a server that lags, and reads went back.
#[test]
fn a_new_session_wants_a_server_that_has_what_the_last_one_saw() {
    let going_forward = Config { reads_go_forward: true, ..config(LeaseMode::Quorum) };
    let mut world = World::connected_with(going_forward);
    world.submit(get_data("/a"), 1);
    let (xid, _) = world.request();
    world.reply(xid, data()).unwrap();
    world.lose_connection();
    world.session.handle_connected(world.now);
    world.take_handshake();
    assert_eq!(world.answer_handshake(0), Err(Disconnect::SessionExpired));
    world.lose_connection();

    world.session.handle_connected(world.now);
    assert_eq!(world.take_handshake().last_zxid_seen, Zxid(50));
    world.session.handle_refused(world.now);
    world.session.handle_connected(world.now);
    assert_eq!(world.take_handshake().last_zxid_seen, Zxid(50), "another may be up to date");
    world.answer_handshake(8).unwrap();
    assert_eq!(world.session.last_zxid(), Zxid(0), "this session has had no answer");
}

#[test]
fn the_wish_is_dropped_when_all_servers_are_behind() {
    let going_forward = Config { reads_go_forward: true, ..config(LeaseMode::Quorum) };
    let mut world = World::connected_with(going_forward);
    world.submit(get_data("/a"), 1);
    let (xid, _) = world.request();
    world.reply(xid, data()).unwrap();
    world.lose_connection();
    world.session.handle_connected(world.now);
    world.take_handshake();
    let _ = world.answer_handshake(0);
    world.lose_connection();

    let mut refusals = 0;
    loop {
        world.session.handle_connected(world.now);
        if world.take_handshake().last_zxid_seen == Zxid(0) {
            break;
        }
        world.session.handle_refused(world.now);
        world.now = world.now + seconds(1.0);
        refusals += 1;
        assert!(refusals < 100, "for ever");
    }
    assert!(refusals > 10, "{refusals}");
}
