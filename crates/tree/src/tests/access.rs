//! Access control and authentication.

use lockkeeper_wire::{ClientInfo, Permissions};

use super::*;
use crate::config::SuperDigest;
use crate::digest::DigestAlgorithm;
use CreateMode::*;

fn create_with_acl(path: &str, acl: Vec<Acl>) -> Request {
    Request::Create(with_acl(path, acl))
}

fn known(scheme: &str, user: &str) -> ClientInfo {
    ClientInfo { scheme: scheme.to_owned(), user: user.to_owned() }
}

/// The access control list of a node, as this client sees it.
fn shown(world: &mut World, client: &Client, node: &str) -> Vec<Acl> {
    match world.ask(client, &Request::GetAcl(path(node))) {
        Ok(Response::Acl { acl, .. }) => acl,
        other => panic!("{other:?}"),
    }
}

#[test]
fn create_and_delete_ask_the_parent() {
    let (mut world, [client]) = World::with_clients();
    for (name, permissions, may_create, may_delete) in [
        ("/c", Permissions::CREATE, true, false),
        ("/d", Permissions::DELETE, false, true),
        ("/rwa", Permissions::READ | Permissions::WRITE | Permissions::ADMIN, false, false),
    ] {
        world.create(&client, name, Persistent);
        let child = format!("{name}/old");
        world.ask(&client, &create_with_acl(&child, Acl::world(Permissions(0)))).unwrap();
        world.ask(&client, &set_acl(name, Acl::world(permissions), 0)).unwrap();
        let created = world.ask(&client, &create(&format!("{name}/new"), Persistent));
        let deleted = world.ask(&client, &delete(&child, -1));
        assert_eq!(created.is_ok(), may_create, "{name}: {created:?}");
        assert_eq!(deleted.is_ok(), may_delete, "{name}: {deleted:?}");
        for refused in [created, deleted].into_iter().filter_map(Result::err) {
            assert_eq!(refused, ErrorCode::NoAuth);
        }
    }
}

#[test]
fn permission_is_asked_before_version_and_existence() {
    let (mut world, [client]) = World::with_clients();
    world.ask(&client, &create_with_acl("/a", Acl::world(Permissions(0)))).unwrap();
    for (request, error) in [
        (get_data("/a", false), ErrorCode::NoAuth),
        (exists("/a", false), ErrorCode::NoAuth),
        (get_children("/a", false), ErrorCode::NoAuth),
        (Request::GetAcl(path("/a")), ErrorCode::NoAuth),
        (Request::GetAllChildrenNumber(path("/a")), ErrorCode::NoAuth),
        (set_data("/a", 99), ErrorCode::NoAuth),
        (delete("/a/no", -1), ErrorCode::NoAuth),
        (create("/a/b", Persistent), ErrorCode::NoAuth),
        (set_acl("/a", Acl::open(), 99), ErrorCode::NoAuth),
        (set_acl("/no", vec![], -1), ErrorCode::InvalidAcl),
        (set_acl("/no", Acl::open(), -1), ErrorCode::NoNode),
        (set_acl("no", vec![], -1), ErrorCode::BadArguments),
        (set_acl("/", Acl::open(), 5), ErrorCode::BadVersion),
    ] {
        assert_eq!(world.ask(&client, &request), Err(error), "{request:?}");
    }
    world.send(&client, 1, &exists("/a", true));
    assert_eq!(world.server.stats().watches, 0, "no watch without permission");
}

#[test]
fn digest_users_own_what_they_create() {
    let (mut world, [owner, other]) = World::with_clients();
    let refused = world.ask(&owner, &create_with_acl("/a", Acl::creator_all()));
    assert_eq!(refused, Err(ErrorCode::InvalidAcl), "an address does not prove an identity");
    world.ask(&owner, &auth("digest", "user:secret")).unwrap();
    world.ask(&other, &auth("digest", "user:wrong")).unwrap();
    world.ask(&owner, &create_with_acl("/a", Acl::creator_all())).unwrap();
    assert!(world.ask(&owner, &get_data("/a", false)).is_ok());
    assert_eq!(world.ask(&other, &get_data("/a", false)), Err(ErrorCode::NoAuth));
    world.ask(&other, &auth("digest", "user:secret")).unwrap();
    assert!(world.ask(&other, &get_data("/a", false)).is_ok());
}

#[test]
fn digests_are_shown_to_administrators_only() {
    let (mut world, [owner, other]) = World::with_clients();
    world.ask(&owner, &auth("digest", "u:p")).unwrap();
    let acl: Vec<Acl> =
        Acl::creator_all().into_iter().chain(Acl::world(Permissions::READ)).collect();
    world.ask(&owner, &create_with_acl("/a", acl)).unwrap();
    assert_eq!(shown(&mut world, &other, "/a")[0].id, "u:x");
    let whole = &shown(&mut world, &owner, "/a")[0].id;
    assert!(whole.starts_with("u:") && whole != "u:x");
}

#[test]
fn who_am_i_tells_names_and_no_digests() {
    let (mut world, [client]) = World::with_clients();
    world.ask(&client, &auth("digest", "u:p")).unwrap();
    world.ask(&client, &auth("digest", "u:p")).unwrap();
    world.ask(&client, &auth("ip", "")).unwrap();
    let expected = vec![known("ip", "10.0.0.1"), known("digest", "u")];
    assert_eq!(world.ask(&client, &Request::WhoAmI), Ok(Response::Identities(expected)));
}

#[test]
fn refused_credentials_are_answered_and_then_the_connection_closes() {
    for scheme in ["world", "auth", "sasl", "x509", "super", "nonsense", ""] {
        let (mut world, [client]) = World::with_clients();
        world.send(&client, xid::AUTH, &auth(scheme, "a:b"));
        assert_eq!(world.received(&client), ["reply -115", "closed AuthFailed"], "{scheme}");
    }
}

#[test]
fn set_acl_counts_versions() {
    let (mut world, [client]) = World::with_clients();
    world.create(&client, "/a", Persistent);
    for version in [0, 1, -1] {
        world.ask(&client, &set_acl("/a", Acl::open(), version)).unwrap();
    }
    let stat = world.stat(&client, "/a").unwrap();
    assert_eq!((stat.aversion, stat.version, stat.mzxid), (3, 0, stat.czxid));
}

#[test]
fn the_super_user_may_do_everything_and_nobody_else() {
    // The example of ZooKeeper's documentation.
    let digest = SuperDigest::new("super:D/InIHSb7yEEbrWz8b9l71RjZJU=", DigestAlgorithm::Sha1);
    let digest = Some(digest.unwrap());
    let mut world = World::with(Config { super_digest: digest, ..Config::default() });
    let (client, root) = (world.client(), world.client());
    world.ask(&client, &auth("digest", "someone:secret")).unwrap();
    world.ask(&client, &create_with_acl("/private", Acl::creator_all())).unwrap();
    world.ask(&client, &create_with_acl("/closed", Acl::world(Permissions(0)))).unwrap();

    world.ask(&root, &auth("digest", "super:wrong")).unwrap();
    assert_eq!(world.ask(&root, &get_data("/private", false)), Err(ErrorCode::NoAuth));
    world.ask(&root, &auth("digest", "super:test")).unwrap();
    world.ask(&root, &get_data("/private", false)).unwrap();
    world.ask(&root, &set_data("/closed", -1)).unwrap();
    world.ask(&root, &set_acl("/closed", Acl::open(), -1)).unwrap();
    let acl = shown(&mut world, &root, "/private");
    assert!(!acl[0].id.ends_with(":x"), "digests are shown to clients that may change them");

    // The super user itself is never listed: `auth` means the digests.
    world.ask(&root, &create_with_acl("/roots", Acl::creator_all())).unwrap();
    let acl = shown(&mut world, &root, "/roots");
    assert!(acl.iter().all(|entry| entry.scheme == "digest"), "{acl:?}");
    let Ok(Response::Identities(all)) = world.ask(&root, &Request::WhoAmI) else { panic!() };
    assert!(all.contains(&known("super", "")) && all.contains(&known("digest", "super")));
}

#[test]
fn passwords_are_hashed_as_configured() {
    let digest_algorithm = DigestAlgorithm::Sha3_256;
    let hash = "super:cRy/KPYuDpW/dtsepniTMpuiuupnWgdU9txltIfv3hA=";
    let super_digest = Some(SuperDigest::new(hash, digest_algorithm).unwrap());
    let mut world = World::with(Config { digest_algorithm, super_digest, ..Config::default() });
    let (client, root) = (world.client(), world.client());
    world.ask(&client, &create_with_acl("/closed", Acl::world(Permissions(0)))).unwrap();
    world.ask(&root, &auth("digest", "super:test")).unwrap();
    world.ask(&root, &set_data("/closed", -1)).unwrap();
    world.ask(&root, &create_with_acl("/own", Acl::creator_all())).unwrap();
    assert_eq!(shown(&mut world, &root, "/own")[0].id, hash);
}

#[test]
fn a_certificate_is_an_identity() {
    let mut world = World::new();
    let alice = "CN=alice,O=Example";
    let client = world.client();
    let acl = Acl::new(Permissions::READ, "x509", alice);
    world.ask(&client, &create_with_acl("/alice", vec![acl])).unwrap();
    assert_eq!(world.ask(&client, &get_data("/alice", false)), Err(ErrorCode::NoAuth));

    let connection = ConnectionId(1_000);
    world.server.connected_with_certificate(connection, None, alice.to_owned());
    let response = world.shake(connection, &hello());
    let known = Client { connection, session: response.session_id, password: response.password };
    world.ask_all(&known, [get_data("/alice", false), auth("x509", "")]);
    world.send(&client, 1, &auth("x509", ""));
    assert!(world.received(&client).iter().any(|what| what.starts_with("closed")));
}
