//! A node that replaces another one: the delete and the create are one transaction.

use lockkeeper_wire::{List, Op};

use super::*;

const LISTING: u32 = 3;
const CREATE: u32 = 2;
const DELETE: u32 = 1;

/// Releases a node below `/locks` and requests the next one below a parent.
fn release_and_acquire(world: &mut World, parent: &str) {
    world.clean_up_node("/locks/old", Some(DELETE));
    acquire(world, parent);
}

/// A world in which both are in flight, and the requests that were sent.
fn replacing() -> (World, Vec<(i32, Request)>) {
    let mut world = World::connected();
    release_and_acquire(&mut world, "/locks");
    let sent = world.requests();
    (world, sent)
}

/// The reply to such a transaction, in the form of Apache ZooKeeper.
fn replaced() -> Result<Response, ErrorCode> {
    let done = OpResult::Create { path: "/locks/new-1".into() };
    Ok(Response::Multi(vec![OpResult::Delete, done]))
}

fn acquire(world: &mut World, parent: &str) {
    assert!(enter(world, parent, None), "the parent is listed");
}

/// Returns whether the parent is listed, which is not needed if the `known` node is deleted in the same
/// transaction.
fn enter(world: &mut World, parent: &str, known: Option<&str>) -> bool {
    let (path, mode) = (&format!("{parent}/new-"), CreateMode::EphemeralSequential);
    let create = Create { path, mode, ..borrowed() };
    let is_known = world.session.replace(world.now, known, create, CREATE);
    if !is_known {
        world.session.submit_borrowed(world.now, List { path: parent }, LISTING);
    }
    !is_known
}

fn ops(requests: &[(i32, Request)]) -> Vec<OpCode> {
    requests.iter().map(|(_, request)| request.op()).collect()
}

const APART: [OpCode; 3] = [OpCode::Delete, OpCode::Create2, OpCode::GetChildren2];
const TOGETHER: [OpCode; 2] = [OpCode::Multi, OpCode::GetChildren2];

fn names() -> Response {
    Response::Children { names: vec!["new-1".into()], stat: Stat::default() }
}

fn made() -> Response {
    Response::Created { path: "/locks/new-1".into(), stat: Stat::default() }
}

/// A transaction in which the operation with this index was refused.
fn refused(index: usize, code: ErrorCode) -> Response {
    let mut results =
        vec![OpResult::Error(None), OpResult::Error(Some(ErrorCode::RuntimeInconsistency))];
    results[index] = OpResult::Error(Some(code));
    Response::Multi(results)
}

#[test]
fn a_delete_and_the_next_create_are_one_transaction() {
    let (mut world, requests) = replacing();
    assert_eq!(ops(&requests), TOGETHER);
    let Request::Multi(parts) = &requests[0].1 else { panic!("{requests:?}") };
    assert!(matches!(&parts[..], [Op::Delete(delete), Op::Create2(create)]
        if delete.path == "/locks/old" && create.path == "/locks/new-"));

    let done = OpResult::Create2 { path: "/locks/new-1".into(), stat: Stat::default() };
    world.reply(requests[0].0, Ok(Response::Multi(vec![OpResult::Delete, done]))).unwrap();
    world.reply(requests[1].0, Ok(names())).unwrap();
    assert_eq!(
        world.events(),
        [
            Event::Reply { token: DELETE, result: Ok(Response::Empty), zxid: Zxid(0) },
            Event::Reply { token: CREATE, result: Ok(made()), zxid: Zxid(50) },
            Event::Reply { token: LISTING, result: Ok(names()), zxid: Zxid(50) },
        ]
    );
    world.session.close(world.now);
    assert_eq!(world.request().1, Request::CloseSession, "nothing is left to delete");
}

/// The listing is omitted for a caller that knows it from the deleted node, and for no other: another
/// contender of the same session may have released last, and does not know the earlier state.
#[test]
fn the_listing_is_left_out_only_with_the_delete_of_the_known_node() {
    for (known, listed) in [("/locks/old", false), ("/locks/older", true)] {
        let mut world = World::connected();
        world.clean_up_node("/locks/old", Some(DELETE));
        assert_eq!(enter(&mut world, "/locks", Some(known)), listed, "{known}");
        let requests = world.requests();
        assert_eq!(ops(&requests), TOGETHER[..if listed { 2 } else { 1 }], "{known}");
        world.reply(requests[0].0, replaced()).unwrap();
        let tokens: Vec<_> = world.results().into_iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, [DELETE, CREATE], "{known}");
    }

    let mut world = World::connected();
    world.clean_up_node("/locks/old", None);
    world.transmit();
    assert!(enter(&mut world, "/locks", Some("/locks/old")), "the delete has been sent");
    assert_eq!(ops(&world.requests()), APART);
}

/// Apache ZooKeeper answers a create in a transaction without the stat. Taken for a refusal, that created a
/// second node, for which all contenders waited forever.
#[test]
fn an_answer_without_the_stat_is_one() {
    let (mut world, sent) = replacing();
    world.reply(sent[0].0, replaced()).unwrap();
    assert_eq!(world.requests(), []);
    let stat = Stat::of_new(Zxid(50), SessionId(7));
    let created = Response::Created { path: "/locks/new-1".into(), stat };
    assert_eq!(world.results(), [(DELETE, Ok(Response::Empty)), (CREATE, Ok(created))]);
}

#[test]
fn they_are_two_if_the_delete_is_on_its_way_or_not_the_last_or_of_another_lock() {
    let mut world = World::connected();
    world.clean_up_node("/locks/old", None);
    world.transmit();
    acquire(&mut world, "/locks");
    assert_eq!(ops(&world.requests()), APART);

    let mut world = World::connected();
    world.clean_up_node("/locks/old", None);
    world.submit(get_data("/a"), 9);
    acquire(&mut world, "/locks");
    let read_between = [OpCode::Delete, OpCode::GetData, OpCode::Create2, OpCode::GetChildren2];
    assert_eq!(ops(&world.requests()), read_between);

    for other in ["/lock", "/locks/old", "/others"] {
        let mut world = World::connected();
        release_and_acquire(&mut world, other);
        assert_eq!(ops(&world.requests()), APART, "{other}");
    }
}

/// The holder's node was taken by force, or the parent does not allow further nodes. Repeated by the session,
/// the create overtook the search of an acquire that had been given up, and left an unknown node.
#[test]
fn what_is_refused_together_is_deleted_by_itself_and_created_by_whoever_wants_it() {
    let refusals = [
        (Ok(refused(0, ErrorCode::NoNode)), RequestError::Undone),
        (Ok(refused(1, ErrorCode::NoAuth)), RequestError::Server(ErrorCode::NoAuth)),
        (Err(ErrorCode::Unimplemented), RequestError::Undone),
    ];
    for (refusal, error) in refusals {
        let (mut world, sent) = replacing();
        world.clean_up_prefix("/locks", "new-", None);
        let search = world.requests();
        let deadline = world.deadline();
        world.reply(sent[0].0, refusal.clone()).unwrap();
        assert_eq!(world.results(), [(CREATE, Err(error))], "{refusal:?}");
        assert_eq!(world.deadline(), deadline, "nothing was committed");
        world.reply(sent[1].0, Ok(names())).unwrap();
        assert_eq!(world.results(), [(LISTING, Ok(names()))]);

        let (delete, again) = world.request();
        assert_eq!(again.op(), OpCode::Delete);
        world.session.close(world.now);
        world.reply(search[0].0, Ok(Response::Path("/locks".into()))).unwrap();
        world.reply(search[1].0, Ok(Response::Names(vec![]))).unwrap();
        assert_eq!(world.requests(), [], "the delete is still to be confirmed");
        world.reply(delete, Err(ErrorCode::NoNode)).unwrap();
        assert_eq!(world.results(), [(DELETE, Ok(Response::Empty))]);
        assert_eq!(world.request().1, Request::CloseSession);
    }
}

/// Some servers answer like this when they do not know the outcome. Taken for a refusal, such a reply created
/// a second node.
#[test]
fn what_may_have_been_done_is_left_to_be_looked_for() {
    for code in [ErrorCode::ConnectionLoss, ErrorCode::OperationTimeout] {
        let (mut world, sent) = replacing();
        world.reply(sent[0].0, Err(code)).unwrap();
        let results = world.results();
        let [(CREATE, Err(error))] = &results[..] else { panic!("{results:?}") };
        assert_eq!(error.outcome(), Outcome::Unknown);
        world.pass(seconds(1.0)).unwrap();
        let deletes: Vec<_> = world.requests();
        assert_eq!(ops(&deletes), [OpCode::Delete]);
    }
}

#[test]
fn a_lost_connection_leaves_the_delete_to_be_done_and_the_create_unknown() {
    let mut world = World::connected();
    release_and_acquire(&mut world, "/locks");
    assert_eq!(ops(&world.requests()), TOGETHER);
    world.lose_connection();
    assert_eq!(
        world.results(),
        [
            (CREATE, Err(RequestError::ConnectionLost(Outcome::Unknown))),
            (LISTING, Err(RequestError::ConnectionLost(Outcome::NotApplied))),
        ]
    );
    world.connect(7);
    assert_eq!(world.answer(Err(ErrorCode::NoNode)).op(), OpCode::Delete);
    assert_eq!(world.results(), [(DELETE, Ok(Response::Empty))]);
}

#[test]
fn the_session_is_closed_after_both_are_done() {
    let (mut world, sent) = replacing();
    world.session.close(world.now);
    assert_eq!(world.requests(), [], "the delete is not done");
    world.reply(sent[0].0, replaced()).unwrap();
    let (xid, request) = world.request();
    assert_eq!(request, Request::CloseSession);
    world.reply(sent[1].0, Ok(names())).unwrap();
    assert_eq!(world.results().len(), 3);
    assert_eq!(world.reply(xid, Ok(Response::Empty)), Err(Disconnect::Closed));
}

#[test]
fn what_is_sent_in_between_keeps_them_apart() {
    let mut world = World::connected();
    world.clean_up_node("/locks/old", None);
    world.pass(world.timing().ping_interval()).unwrap();
    acquire(&mut world, "/locks");
    let sent = ops(&world.requests());
    assert_eq!(sent[..2], [OpCode::Delete, OpCode::Ping]);
    assert_eq!(sent[2..], APART[1..]);
}

#[test]
fn together_they_may_be_over_the_limit_that_each_is_below() {
    let mut world = World::connected_with(Config { max_frame: 200, ..config(LeaseMode::Quorum) });
    let long = format!("/locks/{}", "o".repeat(80));
    world.clean_up_node(&long, Some(DELETE));
    let create = Create { path: &format!("/locks/{}", "n".repeat(80)), ..borrowed() };
    world.session.replace(world.now, None, create, CREATE);
    world.session.submit_borrowed(world.now, List { path: "/locks" }, LISTING);
    assert_eq!(ops(&world.requests()), APART);
}

/// A delete whose bytes have not been taken yet is as certain as one in flight.
#[test]
fn a_staged_delete_survives_the_connection_and_comes_before_what_follows() {
    let mut world = World::connected();
    world.clean_up_node("/locks/old", Some(DELETE));
    world.lose_connection();
    assert_eq!(world.results(), []);
    world.connect(7);
    assert_eq!(world.answer(Ok(Response::Empty)).op(), OpCode::Delete);
    assert_eq!(world.results(), [(DELETE, Ok(Response::Empty))]);

    let nodes = ["/locks/a", "/locks/b"];
    for node in nodes {
        world.clean_up_node(node, None);
    }
    world.session.close(world.now);
    let sent: Vec<_> = world.requests().into_iter().map(|(_, request)| request).collect();
    assert_eq!(sent, nodes.map(delete), "in order, and the session not before");
}
