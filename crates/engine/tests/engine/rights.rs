//! Permissions beyond those of every client: the owner of a session, the super user, quotas.

use bytes::Bytes;
use lockkeeper_engine::{Engine, SessionId};
use lockkeeper_wire::{
    Acl, CreateMode, CreateRequest, PASSWORD_LEN, Permissions, Request, Response, SetAclRequest,
};

use crate::client::{Client, LONG, Ticket, auth, create_with, exists, get_data, persistent};

/// The password that Apache ZooKeeper assigns to a session: the first bytes of Java's `Random`, with the session's id
/// and a constant as the seed.
fn zookeepers_password(session: SessionId) -> Bytes {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session.0 as u64 ^ 0xB341_5C00 ^ MULTIPLIER) & MASK;
    let mut next = || {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        ((state >> 16) as u32).to_le_bytes()
    };
    (0..PASSWORD_LEN / 4).flat_map(|_| next()).collect()
}

/// S5: the stat of a lock's node contains the id of the session that owns it, and the password was derived from that
/// id: every client that could read a lock could end its holder's session. Seen to fail with such passwords from
/// `Server::open_session`, and without the comparison in `Server::resume_session`.
#[tokio::test]
async fn s5_a_session_is_not_opened_by_what_its_nodes_show() {
    let engine = Engine::builder().start().await.unwrap();
    let mut holder = Client::connect(&engine, LONG);
    holder.create("/lock", CreateMode::Ephemeral).unwrap();
    let mut thief = Client::connect(&engine, LONG);
    let Ok(Response::Stat(stat)) = thief.call(exists("/lock", false)) else { panic!("no stat") };
    let session = stat.ephemeral_owner;
    assert_eq!(session, holder.session);

    for password in [
        zookeepers_password(session),
        Bytes::from_static(&[0; PASSWORD_LEN]),
        Bytes::new(),
        thief.ticket().password,
    ] {
        let guess = Ticket { session, password };
        let (mut refused, response) = Client::resume(&engine, &guess, LONG);
        assert_eq!(response.timeout_ms, 0, "opened by {:?}", guess.password);
        assert!(refused.rest().is_empty());
    }
    // The failed attempts do not close the holder's connection either.
    holder.ping();
    assert!(thief.exists("/lock"));
}

#[tokio::test]
async fn the_super_user_reads_nodes_that_are_closed_to_all() {
    let builder = Engine::builder().super_digest("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    let engine = builder.start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let acl = Acl::world(Permissions(0)).into();
    client.call(Request::Create(CreateRequest { acl, ..persistent("/closed") })).unwrap();
    client.call(auth("digest", "super:wrong")).unwrap();
    assert_eq!(client.call(get_data("/closed")), Err(-102));
    client.call(auth("digest", "super:test")).unwrap();
    assert!(client.call(get_data("/closed")).is_ok());
}

#[tokio::test]
async fn quotas_hold_where_they_are_enforced() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Engine::builder().data_dir(dir.path()).enforce_quotas();
    let engine = builder.clone().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    client.create("/app", CreateMode::Persistent).unwrap();
    client.create("/zookeeper/quota/app", CreateMode::Persistent).unwrap();
    let limits = Bytes::from_static(b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2");
    for (name, data) in [("limits", limits), ("stats", Bytes::new())] {
        let path = format!("/zookeeper/quota/app/zookeeper_{name}");
        client.call(create_with(&path, CreateMode::Persistent, data)).unwrap();
    }
    client.create("/app/a", CreateMode::Persistent).unwrap();
    assert_eq!(client.create("/app/b", CreateMode::Persistent), Err(-125));
    engine.stop().await.unwrap();

    let engine = builder.start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    assert_eq!(client.create("/app/b", CreateMode::Persistent), Err(-125));
}

/// A client that may create nodes below `/zookeeper/quota` can keep all others from creating contenders. An access
/// control list there prevents this, as `docs/access.md` describes.
#[tokio::test]
async fn a_list_keeps_strangers_from_setting_quotas() {
    let engine = Engine::builder().enforce_quotas().start().await.unwrap();
    let mut owner = Client::connect(&engine, LONG);
    let mut stranger = Client::connect(&engine, LONG);
    let quota = "/zookeeper/quota";
    stranger.create(&format!("{quota}/before"), CreateMode::Persistent).unwrap();

    owner.call(auth("digest", "ann:secret")).unwrap();
    let acl = [Acl::world(Permissions::READ), Acl::creator_all()].concat().into();
    let request = SetAclRequest { path: quota.to_owned(), acl, version: -1 };
    owner.call(Request::SetAcl(request)).unwrap();
    assert_eq!(stranger.create(&format!("{quota}/locks"), CreateMode::Persistent), Err(-102));
    owner.create(&format!("{quota}/locks"), CreateMode::Persistent).unwrap();
}
