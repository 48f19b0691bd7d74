//! Who may do what, beyond what every client may: the super user, and quotas.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_engine::Engine;
use lockkeeper_wire::{AuthRequest, CreateMode, CreateRequest, Permissions, Request};

use crate::client::{Client, create, create_with, get_data};

const LONG: Duration = Duration::from_secs(30);

fn digest(credentials: &'static str) -> Request {
    Request::Auth(AuthRequest {
        kind: 0,
        scheme: "digest".to_owned(),
        auth: Bytes::from_static(credentials.as_bytes()),
    })
}

#[tokio::test]
async fn the_super_user_reads_what_nobody_may_read() {
    let builder = Engine::builder().super_digest("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    let engine = builder.start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let Request::Create(open) = create("/closed", CreateMode::Persistent) else { unreachable!() };
    let acl = lockkeeper_wire::Acl::world(Permissions(0));
    client.call(Request::Create(CreateRequest { acl, ..open })).unwrap();
    client.call(digest("super:wrong")).unwrap();
    assert_eq!(client.call(get_data("/closed")), Err(-102));
    client.call(digest("super:test")).unwrap();
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
