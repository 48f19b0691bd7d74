//! A server that is the successor of another one.

use super::restore::{Disk, assert_same, world_and_disk};
use super::*;
use crate::changes::RestoreError;

/// A server on a copy of the first one's state, with the first one's client.
fn restored() -> (World, Disk, Client) {
    let (world, disk, client) = world_and_disk();
    let server = disk.start(world.now).expect("whole records");
    (World { server, ..world }, disk, client)
}

#[test]
fn it_goes_on_above_what_was_before() {
    let (mut world, mut disk, _) = restored();
    world.server.begin_after(Zxid::start_of(7));
    let client = world.client();
    world.create(&client, "/n", CreateMode::Persistent);
    assert_eq!(world.stat(&client, "/n").expect("made").czxid, Zxid((7 << 32) + 2));
    disk.commit(&mut world.server);
    assert_same(&disk.start(world.now).expect("whole records"), &world.server);

    world.server.begin_after(Zxid::start_of(3));
    assert_eq!(world.last_zxid(), (7 << 32) + 2, "never back");
}

#[test]
fn the_sessions_of_a_copy_end_by_transactions() {
    let (mut world, mut disk, old) = restored();
    let before = world.last_zxid();
    assert_eq!(world.server.end_sessions(world.now), 1);
    disk.commit(&mut world.server);
    assert_same(&disk.start(world.now).expect("whole records"), &world.server);

    let client = world.client();
    assert_eq!(world.stat(&client, "/p/e"), None);
    let parent = world.stat(&client, "/p").expect("it stays");
    assert_eq!((parent.pzxid, parent.cversion, parent.num_children), (Zxid(before + 1), 2, 0));
    assert_eq!(world.arrive(&old.resumes()), ConnectResponse::expired(Some(false)));
}

#[test]
fn no_session_begins_before_the_quiet_time_is_over() {
    let (mut world, _, old) = restored();
    world.server.end_sessions(world.now);
    world.server.keep_quiet(world.now.monotonic + Duration::from_secs(40));
    world.pass(Duration::from_millis(39_999));

    let connection = world.open();
    let left = Duration::from_millis(1);
    assert_eq!(
        world.try_shake(connection, &hello()),
        Some(Received::Closed(CloseReason::Quiet { left }))
    );
    let answer = world.arrive(&old.resumes());
    assert_eq!(
        answer,
        ConnectResponse::expired(Some(false)),
        "the holder learns of the end at once"
    );

    world.pass(left);
    world.client();
}

#[test]
fn the_longest_timeout_is_remembered_and_that_of_the_living_is_known() {
    let (mut world, _, _) = restored();
    let seconds = Duration::from_secs;
    assert_eq!(world.server.longest_timeout(), seconds(10), "found");
    let id = world.arrive(&ConnectRequest::new_session(30_000)).session_id;
    assert_eq!(world.server.longest_timeout(), seconds(30));
    assert_eq!(world.server.longest_live_timeout(), seconds(30));
    world.server.expire_session(world.now, id);
    assert_eq!(world.server.longest_timeout(), seconds(30));
    assert_eq!(world.server.longest_live_timeout(), seconds(10));
}

#[test]
fn numbers_that_are_used_up_are_refused() {
    for last in [-1, i64::MAX, (i64::from(i32::MAX)) << 32] {
        let (mut world, mut disk, _) = restored();
        world.server.last_zxid = Zxid(last);
        disk.commit(&mut world.server);
        let error = disk.start(world.now).err();
        assert!(matches!(error, Some(RestoreError::Inconsistent(_))), "{last}: {error:?}");
    }
}
