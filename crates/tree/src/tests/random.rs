//! Random requests, and bytes that are not requests.

use lockkeeper_wire::{AddWatchRequest, CheckRequest};
use proptest::collection::vec;
use proptest::prelude::*;

use super::restore::{Disk, assert_same};
use super::*;

/// One step of a random run. Clients are chosen by number.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Ask(usize, Request),
    Connect,
    Drop(usize),
    Wait(u64),
}

fn any_path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![Just("a"), Just("b"), Just("c-")];
    vec(segment, 1..4).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn any_acl() -> impl Strategy<Value = Vec<Acl>> {
    prop_oneof![
        4 => Just(Acl::open()),
        1 => (0..32).prop_map(|p| Acl::world(lockkeeper_wire::Permissions(p | 5))),
        1 => Just(Acl::creator_all()),
    ]
}

fn any_data() -> impl Strategy<Value = NodeData> {
    let bytes = vec(any::<u8>(), 0..9).prop_map(|bytes| Bytes::from(bytes).into());
    prop_oneof![1 => Just(NodeData::NULL), 3 => bytes]
}

prop_compose! {
    fn any_create()(
        path in any_path(),
        data in any_data(),
        acl in any_acl(),
        flags in 0..7_i32,
    ) -> CreateRequest {
        CreateRequest { path, data, acl: acl.into(), flags }
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        any_create().prop_map(Op::Create),
        any_create().prop_map(Op::CreateContainer),
        any_path().prop_map(|path| Op::Delete(DeleteRequest { path, version: -1 })),
        (any_path(), -1..2).prop_map(|(path, version)| Op::Check(CheckRequest { path, version })),
        (any_path(), any_data())
            .prop_map(|(path, data)| { Op::SetData(SetDataRequest { path, data, version: -1 }) }),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        6 => any_create().prop_map(Request::Create),
        2 => any_create().prop_map(Request::CreateContainer),
        1 => any_create()
            .prop_map(|r| Request::CreateTtl(CreateRequest { flags: 5, ..r }.with_ttl(50_000))),
        3 => any_path().prop_map(|path| delete(&path, -1)),
        2 => any_path().prop_map(|path| set_data(&path, -1)),
        1 => (any_path(), any_acl()).prop_map(|(path, acl)| set_acl(&path, acl, -1)),
        3 => vec(any_op(), 0..5).prop_map(Request::Multi),
        1 => any_path().prop_map(|path| exists(&path, true)),
        1 => any_path().prop_map(|path| get_children(&path, true)),
        1 => (any_path(), 0..2).prop_map(|(path, mode)| {
            Request::AddWatch(AddWatchRequest { path, mode })
        }),
        1 => Just(auth("digest", "u:p")),
        1 => Just(Request::CloseSession),
    ]
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..4_usize, any_request()).prop_map(|(who, request)| Step::Ask(who, request)),
        2 => Just(Step::Connect),
        1 => (0..4_usize).prop_map(Step::Drop),
        1 => (0..40_u64).prop_map(Step::Wait),
    ]
}

fn take(world: &mut World, clients: &mut Vec<Client>, step: Step) {
    match step {
        Step::Connect => clients.push(world.client()),
        Step::Wait(seconds) => world.pass(Duration::from_secs(seconds)),
        Step::Drop(who) if !clients.is_empty() => {
            let client = clients.swap_remove(who % clients.len());
            world.server.disconnected(client.connection);
        }
        Step::Ask(who, request) if !clients.is_empty() => {
            let client = clients[who % clients.len()].clone();
            world.send(&client, 1, &request);
        }
        Step::Drop(_) | Step::Ask(..) => {}
    }
    world.inbox.clear();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// After any sequence of requests, the stored changes form the complete state.
    #[test]
    fn a_restart_after_anything_finds_everything(
        steps in vec((any_step(), any::<bool>()), 0..60),
    ) {
        let mut world = World::new();
        let mut clients = vec![world.client()];
        let mut disk = Disk::default();
        for (step, commit) in steps {
            take(&mut world, &mut clients, step);
            if commit {
                disk.commit(&mut world.server);
            }
        }
        disk.commit(&mut world.server);
        let server = disk.start(world.now).expect("a consistent state");
        assert_same(&world.server, &server);
    }

    #[test]
    fn bytes_never_panic(
        frames in vec((any::<bool>(), 0..110_i32, vec(any::<u8>(), 0..80)), 1..20),
    ) {
        let (mut world, [client]) = World::with_clients();
        let stranger = world.open();
        for (with_header, op, body) in frames {
            let mut frame = BytesMut::new();
            if with_header {
                1_i32.encode(&mut frame);
                op.encode(&mut frame);
            }
            frame.extend_from_slice(&body);
            world.server.handle_frame(world.now, client.connection, frame.freeze());
            world.server.handle_frame(world.now, stranger, body.into());
            let _ = world.server.take_outputs();
        }
        let mut disk = Disk::default();
        disk.commit(&mut world.server);
        prop_assert!(disk.start(world.now).is_ok());
    }

    #[test]
    fn damaged_storage_never_panics(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let (mut world, [client]) = World::with_clients();
        world.create(&client, "/e", CreateMode::Ephemeral);
        let mut disk = Disk::default();
        disk.commit(&mut world.server);
        let key = which.get(&disk.0.keys().cloned().collect::<Vec<_>>()).clone();
        let mut value = disk.0[&key].to_vec();
        let at = at.index(value.len());
        value[at] = byte;
        disk.0.insert(key, value.into());
        let _ = disk.start(world.now);
    }
}

#[test]
fn a_server_can_live_on_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Server>();
}
