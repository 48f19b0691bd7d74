//! Watches across connections, and on servers of different versions.

use lockkeeper_wire::{AddWatchMode, AddWatchRequest, RemoveWatchesRequest, WatcherKind};

use super::*;

fn add_watch(path: &str, mode: AddWatchMode) -> Request {
    Request::AddWatch(AddWatchRequest { path: path.into(), mode: mode.code() })
}

fn watched_data(path: &str) -> Request {
    Request::GetData(PathWatchRequest { path: path.into(), watch: true })
}

impl World {
    /// Sets a persistent watch, which the server grants.
    fn watch(&mut self, path: &str, kind: WatchKind) -> WatchId {
        let mode = match kind {
            WatchKind::PersistentRecursive => AddWatchMode::PersistentRecursive,
            _ => AddWatchMode::Persistent,
        };
        let id = self.session.submit_watching(self.now, add_watch(path, mode), kind, 1);
        self.answer(Ok(Response::Count(0)));
        self.events();
        id
    }

    /// Whether an event fires exactly this watcher.
    fn tells_only(&mut self, watcher: WatchId) -> bool {
        matches!(self.events()[..], [Event::Watch { id, .. }] if id == watcher)
    }

    /// A client that has seen transaction 50, whose session has expired, and that requires servers which have
    /// applied that transaction.
    fn going_forward() -> Self {
        let config = Config { reads_go_forward: true, ..config(LeaseMode::Quorum) };
        let mut world = Self::connected_with(config);
        world.submit(get_data("/a"), 1);
        world.answer(data());
        world.expire();
        world
    }

    fn removed(&mut self) -> Vec<(i32, String, i32)> {
        let requests = self.requests().into_iter().map(|(xid, request)| match request {
            Request::RemoveWatches(RemoveWatchesRequest { path, kind }) => (xid, path, kind),
            other => panic!("{other:?}"),
        });
        requests.collect()
    }
}

/// W1: an event of the new connection was delivered before the gap was reported.
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
    world.reconnect();
    world.events();
    let code = ErrorCode::NoAuth;
    let refused = world.reply(xid::SET_WATCHES, Err(code));
    assert_eq!(refused, Err(Disconnect::Unwatched(code)));
    assert_eq!(world.events(), [Event::NotRearmed { id: stream, code }]);

    world.reconnect();
    assert_eq!(world.requests(), [], "and is not asked for again");
}

#[test]
fn an_event_has_the_number_of_its_transaction_where_the_server_says_it() {
    let mut world = World::connected();
    world.watch("/a", WatchKind::Persistent);
    world.notify(EventKind::NodeDataChanged, "/a");
    world.notify_at(Zxid(77), EventKind::NodeDataChanged, "/a");
    let zxids = world.events().into_iter().map(|event| match event {
        Event::Watch { event, .. } => event.zxid,
        other => panic!("{other:?}"),
    });
    assert_eq!(zxids.collect::<Vec<_>>(), [None, Some(Zxid(77))]);
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

    // The kind is known from then on, until the server may be a different one.
    let stream = world.watch("/b", WatchKind::PersistentRecursive);
    world.session.unwatch(world.now, stream);
    assert!(matches!(world.removed()[..], [(_, _, kind)] if kind == any));
    world.reconnect();
    let stream = world.watch("/b", WatchKind::PersistentRecursive);
    world.session.unwatch(world.now, stream);
    assert!(matches!(world.removed()[..], [(_, _, kind)] if kind != any));
}

/// Removing any kind would have removed the watch of a watcher that was added in between.
#[test]
fn a_watch_that_cannot_be_removed_alone_stays_while_others_watch_its_path() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::Persistent);
    world.session.unwatch(world.now, stream);
    let removed = world.removed();
    let watch = world.watch_data("/a", 2);
    let (xid, request) = world.request();
    assert_eq!(request, watched_data("/a"));
    world.reply(removed[0].0, Err(ErrorCode::MarshallingError)).unwrap();
    assert_eq!(world.requests(), []);
    world.reply(xid, data()).unwrap();
    world.events();
    world.notify(EventKind::NodeDeleted, "/a");
    assert!(world.tells_only(watch));
    assert!(matches!(world.removed()[..], [(_, _, kind)] if kind == WatcherKind::Any.code()));
}

/// W6: a one-shot watch on the path of a persistent one ended both with the next event.
#[test]
fn a_one_shot_watch_is_not_asked_for_where_a_persistent_one_is() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::Persistent);
    let once = world.watch_data("/a", 2);
    assert_eq!(world.answer(data()), get_data("/a"));
    world.events();
    world.notify(EventKind::NodeDataChanged, "/a");
    let told: Vec<_> = world.events();
    assert!(
        matches!(told[..], [Event::Watch { id: a, .. }, Event::Watch { id: b, .. }]
            if (a, b) == (once, stream)),
        "{told:?}"
    );
    world.notify(EventKind::NodeDataChanged, "/a");
    assert!(world.tells_only(stream));
}

#[test]
fn the_end_of_a_persistent_watch_waits_for_the_watchers_that_it_serves() {
    let mut world = World::connected();
    let stream = world.watch("/a", WatchKind::PersistentRecursive);
    let once = world.session.submit_watching(world.now, get_data("/a"), WatchKind::Children, 2);
    world.answer(data());
    world.events();
    world.session.unwatch(world.now, stream);
    assert_eq!(world.requests(), []);
    world.notify(EventKind::NodeCreated, "/a/b");
    let told: Vec<_> = world.events();
    let [Event::Watch { id, event }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*id, event.kind, &event.path[..]), (once, EventKind::NodeChildrenChanged, "/a"));
    assert!(matches!(world.removed()[..], [_]));
}

/// W7: the next session was created by a server that lags behind, and reads went back.
#[test]
fn a_new_session_wants_a_server_that_has_what_the_last_one_saw() {
    let mut world = World::going_forward();
    assert_eq!(world.shake().last_zxid_seen, Zxid(50));
    world.session.handle_refused(world.now);
    assert_eq!(world.shake().last_zxid_seen, Zxid(50), "another server may be up to date");
    world.answer_handshake(8).unwrap();
    assert_eq!(world.session.last_zxid(), Zxid(0), "this session has not had a reply");
}

#[test]
fn the_wish_is_dropped_when_all_servers_are_behind() {
    let mut world = World::going_forward();
    let mut refusals = 0;
    loop {
        if world.shake().last_zxid_seen == Zxid(0) {
            break;
        }
        world.session.handle_refused(world.now);
        world.now = world.now + seconds(1.0);
        refusals += 1;
        assert!(refusals < 100, "for ever");
    }
    assert!(refusals > 10, "{refusals}");
}

#[test]
fn watches_are_armed_again_before_anything_else() {
    let mut world = World::connected();
    let data_watch = world.watch_data("/a", 1);
    assert_eq!(world.answer(data()), watched_data("/a"));
    world.lose_connection();
    world.submit(create("/b"), 2);
    world.connect(7);
    let requests = world.requests();
    let (xid::SET_WATCHES, Request::SetWatches(watches)) = &requests[0] else {
        panic!("{requests:?}")
    };
    assert_eq!((watches.relative_zxid, watches.data.len()), (Zxid(50), 1));
    assert!(matches!(requests[1].1, Request::Create2(_)));
    world.events();
    world.notify(EventKind::NodeDeleted, "/a");
    assert!(world.tells_only(data_watch));
}

/// An overloaded server answers like this. The watcher then had no watch, and waited forever.
#[test]
fn a_connection_on_which_watches_are_not_armed_again_is_given_up() {
    let mut world = World::connected();
    let watch = world.watch_data("/a", 1);
    world.answer(data());
    world.reconnect();
    world.events();
    let refused = world.reply(xid::SET_WATCHES, Err(ErrorCode::ThrottledOp));
    assert_eq!(refused, Err(Disconnect::Unwatched(ErrorCode::ThrottledOp)));

    world.reconnect();
    assert!(matches!(world.requests()[..], [(xid::SET_WATCHES, Request::SetWatches(_))]));
    world.events();
    world.reply(xid::SET_WATCHES, Ok(Response::Empty)).unwrap();
    world.notify(EventKind::NodeDeleted, "/a");
    assert!(world.tells_only(watch));
}

#[test]
fn a_watch_that_nobody_wants_is_removed_from_the_server() {
    let mut world = World::connected();
    let id = world.watch_data("/a", 1);
    world.requests();
    world.session.unwatch(world.now, id);
    assert!(matches!(world.request().1, Request::RemoveWatches(_)));

    world.lose_connection();
    let id = world.watch_data("/a", 2);
    world.session.unwatch(world.now, id);
    world.connect(7);
    assert_eq!(world.request().1, get_data("/a"), "never asked for");
}

/// The first watcher was dropped while the second one's request was in flight; that request failed, and the
/// server was never asked to remove the unused watch.
#[test]
fn l8_a_watch_that_outlived_its_watcher_is_removed_when_the_last_request_fails() {
    let mut world = World::connected();
    let first = world.watch_data("/a", 1);
    world.answer(data());
    world.watch_data("/a", 2);
    let (xid, _) = world.request();
    world.session.unwatch(world.now, first);
    assert_eq!(world.requests(), [], "the second one may need it");
    world.reply(xid, Err(ErrorCode::NoAuth)).unwrap();
    let request = world.answer(Ok(Response::Empty));
    assert!(matches!(request, Request::RemoveWatches(_)), "{request:?}");

    // A failed request without other watchers has left nothing.
    world.watch_data("/a", 3);
    world.answer(Err(ErrorCode::NoNode));
    assert_eq!(world.requests(), []);
}
