//! F3: identities and access control lists at the limit, and one above it.

use lockkeeper_wire::Permissions;

use super::*;
use crate::acl::MAX_EXTENT;
use crate::connections::{MAX_IDENTITIES, MAX_IDENTITY_BYTES};
use crate::notices::Notice;

const MAX_ENTRIES: usize = MAX_EXTENT.entries;

fn show(user: usize) -> Request {
    let auth = Bytes::from(format!("user-{user}:password"));
    Request::Auth(AuthRequest { kind: 0, scheme: "digest".to_owned(), auth })
}

fn entries(count: usize, entry: impl Fn(usize) -> (i32, &'static str, String)) -> Vec<Acl> {
    let entry = |i| {
        let (permissions, scheme, id) = entry(i);
        Acl::new(Permissions(permissions), scheme, id)
    };
    (0..count).map(entry).collect()
}

/// `auth`, each time with other permissions.
fn of_auth(count: usize) -> Vec<Acl> {
    entries(count, |i| (i as i32, "auth", String::new()))
}

/// A client with the maximum number of identities. One of them is its address.
fn known_by_many_names(world: &mut World) -> Client {
    let client = world.client();
    for user in 1..MAX_IDENTITIES {
        world.ask(&client, &show(user)).unwrap();
    }
    client
}

#[test]
fn f3_a_connection_has_a_limited_number_of_identities() {
    let mut world = World::new();
    let client = known_by_many_names(&mut world);
    world.ask(&client, &show(1)).unwrap();
    let (header, _) = world.reply(&client, 1, &show(0));
    assert_eq!(header.error, ErrorCode::AuthFailed.code());
    let closed = Received::Closed(CloseReason::TooManyIdentities { max: MAX_IDENTITIES });
    assert_eq!(world.next(client.connection), Some(closed));

    let again = world.reconnect(&client);
    world.ask(&again, &show(0)).unwrap();
}

#[test]
fn f3_a_list_has_a_limited_length() {
    let (mut world, [client]) = World::with_clients();
    let users = |count| entries(count, |i| (31, "digest", format!("user-{i}:x")));
    let request = Request::Create(with_acl("/a", users(MAX_ENTRIES)));
    world.ask(&client, &request).unwrap();
    let request = Request::Create(with_acl("/b", users(MAX_ENTRIES + 1)));
    assert_eq!(world.ask(&client, &request), Err(ErrorCode::InvalidAcl));
    let [Notice::AclTooLong { connection, count: 1_001, max: 1_000 }] =
        world.server.take_notices()[..]
    else {
        panic!("no notice of it");
    };
    assert_eq!(connection, client.connection);
    let request = set_acl("/b", users(MAX_ENTRIES + 1), -1);
    assert_eq!(world.ask(&client, &request), Err(ErrorCode::InvalidAcl));
}

#[test]
fn f3_a_list_has_a_limited_length_when_auth_is_replaced() {
    let mut world = World::new();
    let client = known_by_many_names(&mut world);
    let most = MAX_ENTRIES / (MAX_IDENTITIES - 1);
    world.ask(&client, &Request::Create(with_acl("/a", of_auth(most)))).unwrap();
    let request = Request::Create(with_acl("/b", of_auth(most + 1)));
    assert_eq!(world.ask(&client, &request), Err(ErrorCode::InvalidAcl));
    assert!(matches!(world.server.take_notices()[..], [Notice::AclTooLong { .. }]));
}

/// The size in memory and on disk of a `multi` of a few kilobytes.
#[test]
fn f3_the_lists_of_a_multi_have_a_limited_length_together() {
    let mut world = World::new();
    let client = known_by_many_names(&mut world);
    let each = MAX_ENTRIES / (MAX_IDENTITIES - 1) * (MAX_IDENTITIES - 1);
    // Alternating, so that none equals its predecessor.
    let list = |i: usize| {
        let mut list = of_auth(MAX_ENTRIES / (MAX_IDENTITIES - 1));
        list[0].permissions.0 = -1 - (i % 2) as i32;
        list
    };
    let creates = |count: usize| -> Vec<Op> {
        (0..count).map(|i| Op::Create(with_acl(&format!("/n{i}"), list(i)))).collect()
    };
    let most = 100_000 / each;
    let results = world.multi(&client, creates(most + 1));
    assert_eq!(results[most], OpResult::Error(Some(ErrorCode::InvalidAcl)));
    assert_eq!(world.server.stats().nodes, 4);
    let results = world.multi(&client, creates(most));
    assert!(matches!(results[most - 1], OpResult::Create { .. }));
}

/// Within one `multi`, an expanded list is not reused for a different request.
#[test]
fn equal_lists_of_a_multi_are_one_and_others_are_not() {
    let mut world = World::new();
    let client = known_by_many_names(&mut world);
    let lists = [of_auth(2), of_auth(2), of_auth(3), of_auth(2)];
    let ops = lists.iter().enumerate();
    let ops = ops.map(|(i, acl)| Op::Create(with_acl(&format!("/n{i}"), acl.clone())));
    world.multi(&client, ops);
    let lengths: Vec<usize> = (0..lists.len())
        .map(|i| world.server.tree.get(&format!("/n{i}")).unwrap().acl.len())
        .collect();
    let identities = MAX_IDENTITIES - 1;
    assert_eq!(lengths, [2, 2, 3, 2].map(|entries| entries * identities));
}

fn show_as(user: &str) -> Request {
    let auth = Bytes::from(format!("{user}:password"));
    Request::Auth(AuthRequest { kind: 0, scheme: "digest".to_owned(), auth })
}

/// 31 identities of a megabyte took 31 MB for each connection, and as much again for each list of a
/// transaction with `auth` in it: 40 of them took 1.3 GB. Fails without the limit.
#[test]
fn the_identities_of_a_connection_have_a_limited_length_together() {
    const DIGEST: usize = ":".len() + 28;
    let (mut world, [client]) = World::with_clients();
    let before = world.server.stats().identity_bytes;
    let left = MAX_IDENTITY_BYTES - "10.0.0.1".len();
    let half = "u".repeat(left / 2 - DIGEST);
    world.ask_all(&client, [show_as(&half), show_as(&half), show_as(&half.replace('u', "v"))]);
    let added = world.server.stats().identity_bytes - before;
    assert!((left..left + 200).contains(&added), "{added}");

    let (header, _) = world.reply(&client, 1, &show_as("w"));
    assert_eq!(header.error, ErrorCode::AuthFailed.code());
    let closed = world.next(client.connection);
    assert!(
        matches!(closed, Some(Received::Closed(CloseReason::IdentitiesTooLong { .. }))),
        "{closed:?}"
    );
    assert_eq!(world.server.stats().identity_bytes, 0);
    let again = world.reconnect(&client);
    world.ask(&again, &show_as(&half)).unwrap();
    world.server.disconnected(again.connection);
    assert_eq!(world.server.stats().identity_bytes, 0);
}

#[test]
fn a_certificate_whose_subject_is_too_long_is_refused() {
    let mut world = World::new();
    for (len, fits) in [(MAX_IDENTITY_BYTES, true), (MAX_IDENTITY_BYTES + 1, false)] {
        let (connection, subject) = (ConnectionId(len as u64), "x".repeat(len));
        world.server.connected_with_certificate(connection, None, subject);
        let answer = world.try_shake(connection, &hello());
        let is_welcome = matches!(answer, Some(Received::Welcome(_)));
        assert_eq!(is_welcome, fits, "{answer:?}");
    }
}

/// A list with few entries may be long all the same. Fails without the limit.
#[test]
fn the_texts_of_a_list_have_a_limited_length() {
    let mut world = World::new();
    let client = world.client();
    let named = |bytes: usize| {
        vec![Acl::new(Permissions::ALL, "digest", format!(":{}", "u".repeat(bytes - 1)))]
    };
    let most = MAX_EXTENT.bytes - "digest".len();
    let create = |path: &str, acl| Request::Create(with_acl(path, acl));
    world.ask(&client, &create("/a", named(most))).unwrap();
    assert_eq!(world.ask(&client, &create("/b", named(most + 1))), Err(ErrorCode::InvalidAcl));
    assert!(matches!(world.server.take_notices()[..], [Notice::AclTooLarge { .. }]));

    // After `auth` is replaced.
    world.ask(&client, &show_as(&"u".repeat(8_000))).unwrap();
    world.ask(&client, &create("/c", of_auth(32))).unwrap();
    assert_eq!(world.ask(&client, &create("/d", of_auth(33))), Err(ErrorCode::InvalidAcl));
    assert!(matches!(world.server.take_notices()[..], [Notice::AclTooLarge { .. }]));
}

/// The size of a `multi` on disk: each node has its own list there. Fails without the limit.
#[test]
fn the_texts_of_the_lists_of_a_multi_have_a_limited_length_together() {
    let mut world = World::new();
    let client = world.client();
    world.ask(&client, &show_as(&"u".repeat(8_000))).unwrap();
    let creates =
        |count: usize| (0..count).map(|i| Op::Create(with_acl(&format!("/n{i}"), of_auth(32))));
    let most = 8 * 1024 * 1024 / (32 * (8_000 + 29 + "digest".len()));
    let results = world.multi(&client, creates(most + 1));
    assert_eq!(results[most], OpResult::Error(Some(ErrorCode::InvalidAcl)));
    let results = world.multi(&client, creates(most));
    assert!(matches!(results[most - 1], OpResult::Create { .. }));
}
