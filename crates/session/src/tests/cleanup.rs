//! Deletes that must happen.

use super::*;

impl World {
    /// Answers the `sync` of a cleanup and the read behind it. Returns the kind of the read.
    fn answer_look(&mut self, found: Result<Response, ErrorCode>) -> Result<OpCode, Disconnect> {
        let requests = self.requests();
        let [(sync, Request::Sync(of)), (xid, look)] = &requests[..] else {
            panic!("a read must not be stale: {requests:?}");
        };
        self.reply(*sync, Ok(Response::Path(of.path.clone()))).unwrap();
        self.reply(*xid, found).map(|()| look.op())
    }
}

/// A node that this transaction created in this session.
fn node(session: i64, czxid: i64, version: i32) -> Result<Response, ErrorCode> {
    let (ephemeral_owner, czxid) = (SessionId(session), Zxid(czxid));
    let stat = Stat { ephemeral_owner, czxid, version, ..Stat::default() };
    Ok(Response::Data { data: Bytes::new().into(), stat })
}

/// The delete of a lock's node with a reused name.
fn unlock() -> Cleanup {
    let expected = ExpectedNode::CreatedBy(Zxid(41));
    Cleanup::IfExpected { node: path("/lock"), expected }
}

/// L1, L6: a delete that must happen is repeated on new connections until a server confirms it.
#[test]
fn l1_l6_a_cleanup_survives_lost_connections() {
    let mut world = World::connected();
    world.clean_up_node("/locks/me", Some(1));
    for _ in 0..3 {
        assert_eq!(world.request().1, delete("/locks/me"));
        world.reconnect();
        assert_eq!(world.results(), [], "not done yet");
    }
    world.answer(Err(ErrorCode::NoNode));
    assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
}

/// A reply that could not be decoded ended the cleanup, although its result was unknown.
#[test]
fn l1_a_cleanup_survives_an_answer_that_nobody_understands() {
    let mut world = World::connected();
    world.clean_up_prefix("/locks", "_c_1-lock-", Some(1));
    let fault = world.answer_look(Ok(Response::Empty));
    assert!(matches!(fault, Err(Disconnect::Message(_))), "{fault:?}");
    world.lose_connection();
    assert_eq!(world.results(), [], "not done yet");
    world.connect(7);
    assert_eq!(world.answer_look(Ok(Response::Names(vec![]))), Ok(OpCode::GetChildren));
}

/// L2: the node of a create whose reply was lost is found by its prefix and deleted.
#[test]
fn l2_a_cleanup_finds_a_node_of_unknown_name() {
    let mut world = World::connected();
    world.clean_up_prefix("/locks", "_c_1-lock-", Some(1));
    let names = vec!["_c_2-lock-0000000001".into(), "_c_1-lock-0000000002".into()];
    world.answer_look(Ok(Response::Names(names))).unwrap();
    assert_eq!(world.answer(Ok(Response::Empty)), delete("/locks/_c_1-lock-0000000002"));
    assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
}

/// L2: an attempt was given up while its create waited for a connection. The search for its node was sent
/// before the create and found nothing, so the node stayed.
#[test]
fn l2_a_search_does_not_overtake_what_it_searches_for() {
    let mut world = World::connected();
    world.lose_connection();
    world.submit(create("/locks/_c_1-lock-"), 1);
    world.clean_up_prefix("/locks", "_c_1-lock-", None);
    world.clean_up_node("/locks/old", None);
    world.submit(get_data("/b"), 2);
    world.connect(7);
    let sent: Vec<_> = world.requests().iter().map(|(_, request)| request.op()).collect();
    use OpCode::{Create2, Delete, GetChildren, GetData, Sync};
    assert_eq!(sent, [Create2, Sync, GetChildren, Delete, GetData]);
}

/// A release was sent before waiting writes that its holder had made under the lock. They were applied when
/// another client held the lock.
#[test]
fn a_delete_does_not_overtake_what_was_submitted_before_it() {
    let mut world = World::connected();
    for number in 0..4 {
        world.submit(large(format!("/large-{number}"), 600_000), number);
    }
    world.clean_up_node("/locks/me", None);
    world.submit(get_data("/later"), 9);
    let mut order = Vec::new();
    loop {
        let requests = world.requests();
        if requests.is_empty() {
            break;
        }
        for (xid, request) in requests {
            order.push(request.op());
            let result = match request {
                Request::Create(create) => Ok(Response::Path(create.path)),
                Request::Delete(_) => Ok(Response::Empty),
                _ => data(),
            };
            world.reply(xid, result).unwrap();
        }
    }
    use OpCode::{Create, Delete, GetData};
    assert_eq!(order, [Create, Create, Create, Create, Delete, GetData]);
}

/// A release without a reachable server waited until a server was reachable again.
#[test]
fn nobody_waits_for_a_cleanup_longer_than_for_requests_and_it_goes_on() {
    let mut world = World::connected();
    world.lose_connection();
    world.clean_up_node("/a", Some(1));
    world.pass(TIMEOUT).unwrap();
    world.clean_up_node("/b", Some(2));
    let unreachable = || Err(RequestError::Unreachable);
    assert_eq!(world.results(), [(1, unreachable()), (2, unreachable())]);

    world.connect(7);
    let deleted = world.requests().into_iter().filter_map(|(_, request)| match request {
        Request::Delete(delete) => Some(delete.path),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), ["/a", "/b"]);
}

/// In a long outage, attempts that are given up and repeated each leave a search. All of them would be sent
/// at its end.
#[test]
fn the_search_for_a_node_whose_create_was_never_sent_is_dropped() {
    let mut world = World::connected();
    world.lose_connection();
    world.pass(TIMEOUT).unwrap();
    let create_with = |path: &str, data: &'static [u8]| {
        let (path, data) = (path.into(), Bytes::from_static(data).into());
        Request::Create2(CreateRequest { path, data, acl: vec![].into(), flags: 1 })
    };
    let with_data = |data: &'static [u8]| {
        let expected = ExpectedNode::WithData(Bytes::from_static(data));
        Cleanup::IfExpected { node: path("/lock"), expected }
    };
    world.submit(create("/locks/_c_1-lock-"), 1);
    world.clean_up_prefix("/locks", "_c_1-lock-", None);
    world.submit(create_with("/lock", b"1"), 2);
    world.clean_up(with_data(b"1"), None);
    world.pass(TIMEOUT).unwrap();
    let unreachable = || Err(RequestError::Unreachable);
    assert_eq!(world.results(), [(1, unreachable()), (2, unreachable())]);

    // Searches of other attempts, which may have been sent before the outage.
    world.clean_up_prefix("/locks", "_c_0-lock-", None);
    world.clean_up(with_data(b"0"), None);
    world.submit(create("/locks/_c_1-lock-"), 3);
    world.pass(TIMEOUT).unwrap();
    world.connect(7);
    let sent: Vec<_> = world.requests().iter().map(|(_, request)| request.op()).collect();
    use OpCode::{GetChildren, GetData, Sync};
    assert_eq!(sent, [Sync, GetChildren, Sync, GetData]);
}

/// L7: a repeated unlock deleted a newer lock with the same name.
#[test]
fn l7_a_name_that_is_used_again_is_looked_at_before_each_delete() {
    let mut world = World::connected();
    world.clean_up(unlock(), Some(1));
    world.answer_look(node(7, 41, 0)).unwrap();
    assert!(matches!(world.request().1, Request::Delete(_)), "it is the expected node");

    // The delete was applied, its reply is lost, and another client has the lock by now.
    world.reconnect();
    for (session, czxid) in [(8, 42), (7, 42)] {
        assert_eq!(world.answer_look(node(session, czxid, 0)), Ok(OpCode::GetData));
        assert_eq!(world.requests(), [], "the other client's node is not deleted");
        assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
        world.clean_up(unlock(), Some(1));
    }
}

/// Between the read and the delete, the node was revoked, taken by force and created again by the next
/// holder. The delete names the version that was read, which the new node does not have.
#[test]
fn l7_a_name_that_was_taken_by_force_after_the_look_is_not_deleted() {
    let mut world = World::connected();
    world.clean_up(unlock(), Some(1));
    assert_eq!(world.answer_look(node(7, 41, 1)), Ok(OpCode::GetData));
    let delete = DeleteRequest { path: "/lock".into(), version: 1 };
    assert_eq!(world.answer(Err(ErrorCode::BadVersion)), Request::Delete(delete));
    assert_eq!(world.results(), [], "the node is read again");

    assert_eq!(world.answer_look(node(7, 42, 0)), Ok(OpCode::GetData));
    assert_eq!(world.requests(), [], "this node belongs to another client");
    assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
}

#[test]
fn a_transaction_of_deletes_is_done_when_its_first_node_is_gone() {
    for (results, goes_on) in [
        (vec![OpResult::Delete, OpResult::Delete], false),
        (vec![OpResult::Error(Some(ErrorCode::NoNode)), OpResult::Error(None)], false),
        (vec![OpResult::Error(None), OpResult::Error(Some(ErrorCode::NoNode))], true),
    ] {
        let mut world = World::connected();
        let (first, others) = (path("/lock/me"), vec![path("/mark")]);
        world.clean_up(Cleanup::Transaction { first, others }, Some(1));
        let request = world.answer(Ok(Response::Multi(results)));
        assert!(matches!(request, Request::Multi(ops) if ops.len() == 2));
        if goes_on {
            let alone = world.answer(Ok(Response::Empty));
            assert_eq!(alone, delete("/lock/me"), "without the other one");
        }
        assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
    }
}

/// Symptom: the nodes stayed, because a request that is too long is refused before it is sent.
#[test]
fn a_transaction_of_more_deletes_than_fit_into_a_request_deletes_the_first_node_alone() {
    let mut world = World::with_short_frames();
    let others = (0..100).map(|part| path(&format!("/edition/{part:05}"))).collect();
    world.clean_up(Cleanup::Transaction { first: path("/edition/writing"), others }, Some(1));
    let alone = world.answer(Ok(Response::Empty));
    assert_eq!(alone, delete("/edition/writing"));
    assert_eq!(world.results(), [(1, Ok(Response::Empty))]);
}
