//! A delete and the create that follows it, in one transaction.

use lockkeeper_wire::{List, Op};

use super::*;

const LISTING: u32 = 3;
const CREATE: u32 = 2;
const DELETE: u32 = 1;

/// Gives back a node below `/locks` and asks for the next one below a parent.
fn release_and_acquire(world: &mut World, parent: &str) {
    world.session.clean_up(world.now, Cleanup::Node(path("/locks/old")), Some(DELETE));
    acquire(world, parent);
}

fn acquire(world: &mut World, parent: &str) {
    let (node, data) = (format!("{parent}/new-"), Bytes::new());
    let create = OpenCreate { path: &node, data: &data, mode: CreateMode::EphemeralSequential };
    let listing = List { path: parent };
    world.session.submit_pair(world.now, (create, CREATE), (listing, LISTING));
}

fn ops(requests: &[(i32, Request)]) -> Vec<OpCode> {
    requests.iter().map(|(_, request)| request.op()).collect()
}

const APART: [OpCode; 3] = [OpCode::Delete, OpCode::Create2, OpCode::GetChildren2];
const FUSED: [OpCode; 2] = [OpCode::Multi, OpCode::GetChildren2];

fn names() -> Response {
    Response::Children { names: vec!["new-1".into()], stat: Stat::default() }
}

fn made() -> Response {
    Response::Created { path: "/locks/new-1".into(), stat: Stat::default() }
}

/// A transaction of which the operation with this index was refused.
fn refused(index: usize, code: ErrorCode) -> Response {
    let mut results =
        vec![OpResult::Error(None), OpResult::Error(Some(ErrorCode::RuntimeInconsistency))];
    results[index] = OpResult::Error(Some(code));
    Response::Multi(results)
}

#[test]
fn a_delete_and_the_next_create_are_one_transaction() {
    let mut world = World::connected();
    release_and_acquire(&mut world, "/locks");
    let requests = world.requests();
    assert_eq!(ops(&requests), FUSED);
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

/// Apache ZooKeeper answers a create in a transaction without the stat. Taken for a refusal, that
/// made a second node, for which everybody waited for ever.
#[test]
fn an_answer_without_the_stat_is_one() {
    let mut world = World::connected();
    release_and_acquire(&mut world, "/locks");
    let sent = world.requests();
    let done = OpResult::Create { path: "/locks/new-1".into() };
    world.reply(sent[0].0, Ok(Response::Multi(vec![OpResult::Delete, done]))).unwrap();
    assert_eq!(world.requests(), []);
    let stat = Stat {
        czxid: Zxid(50),
        mzxid: Zxid(50),
        pzxid: Zxid(50),
        ephemeral_owner: SessionId(7),
        ..Stat::default()
    };
    let created = Response::Created { path: "/locks/new-1".into(), stat };
    assert_eq!(world.results(), [(DELETE, Ok(Response::Empty)), (CREATE, Ok(created))]);
}

#[test]
fn they_are_two_if_the_delete_is_on_its_way_or_not_the_last_or_of_another_lock() {
    let mut world = World::connected();
    world.session.clean_up(world.now, Cleanup::Node(path("/locks/old")), None);
    world.transmit();
    acquire(&mut world, "/locks");
    assert_eq!(ops(&world.requests()), APART);

    let mut world = World::connected();
    world.session.clean_up(world.now, Cleanup::Node(path("/locks/old")), None);
    world.submit(get_data("/a"), 9);
    acquire(&mut world, "/locks");
    assert_eq!(
        ops(&world.requests()),
        [OpCode::Delete, OpCode::GetData, OpCode::Create2, OpCode::GetChildren2]
    );

    for other in ["/lock", "/locks/old", "/others"] {
        let mut world = World::connected();
        release_and_acquire(&mut world, other);
        assert_eq!(ops(&world.requests()), APART, "{other}");
    }
}

/// The holder's node was taken away by force, or the parent allows no more nodes.
#[test]
fn what_is_refused_together_is_done_one_by_one_and_listed_again() {
    let refusals = [
        Ok(refused(0, ErrorCode::NoNode)),
        Ok(refused(1, ErrorCode::NoAuth)),
        Err(ErrorCode::Unimplemented),
    ];
    for refusal in refusals {
        let mut world = World::connected();
        release_and_acquire(&mut world, "/locks");
        let sent = world.requests();
        world.submit(get_data("/a"), 9);
        world.reply(sent[0].0, refusal.clone()).unwrap();
        assert_eq!(world.results(), [], "{refusal:?}");
        // The first listing was taken before the new node was there.
        let old = Response::Children { names: vec![], stat: Stat::default() };
        world.reply(sent[1].0, Ok(old)).unwrap();
        assert_eq!(world.results(), []);
        let mut again = world.requests();
        assert_eq!(again.remove(0).1, get_data("/a"));
        assert_eq!(ops(&again), APART);
        world.reply(sent[1].0 + 1, data()).unwrap();
        world.reply(again[0].0, Err(ErrorCode::NoNode)).unwrap();
        world.reply(again[1].0, Ok(made())).unwrap();
        world.reply(again[2].0, Ok(names())).unwrap();
        let expected =
            [(9, data().unwrap()), (DELETE, Response::Empty), (CREATE, made()), (LISTING, names())];
        assert_eq!(world.results(), expected.map(|(token, response)| (token, Ok(response))));
    }
}

#[test]
fn a_lost_connection_leaves_the_delete_to_be_done_and_the_create_unknown() {
    let mut world = World::connected();
    release_and_acquire(&mut world, "/locks");
    assert_eq!(ops(&world.requests()), FUSED);
    world.lose_connection();
    assert_eq!(
        world.results(),
        [
            (CREATE, Err(RequestError::ConnectionLost(Outcome::Unknown))),
            (LISTING, Err(RequestError::ConnectionLost(Outcome::NotApplied))),
        ]
    );
    world.connect(7);
    let (xid, request) = world.request();
    assert_eq!(request.op(), OpCode::Delete);
    world.reply(xid, Err(ErrorCode::NoNode)).unwrap();
    assert_eq!(world.results(), [(DELETE, Ok(Response::Empty))]);
}

#[test]
fn together_they_may_be_over_the_limit_that_each_is_below() {
    let mut world = World::connected_with(Config { max_frame: 200, ..config(LeaseMode::Quorum) });
    let long = format!("/locks/{}", "o".repeat(80));
    world.session.clean_up(world.now, Cleanup::Node(path(&long)), Some(DELETE));
    let (node, data) = (format!("/locks/{}", "n".repeat(80)), Bytes::new());
    let create = OpenCreate { path: &node, data: &data, mode: CreateMode::EphemeralSequential };
    let listing = List { path: "/locks" };
    world.session.submit_pair(world.now, (create, CREATE), (listing, LISTING));
    assert_eq!(ops(&world.requests()), APART);
}
