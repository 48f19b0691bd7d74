//! Attacks by stored data: access control lists, paths, quotas, and space that is freed twice.

use bytes::Bytes;
use lockkeeper_wire::{
    Acl, CreateMode, CreateRequest, Op, Permissions, Request, Response, SetDataRequest,
};

use super::{DATA_BUDGET, MB, Target};
use crate::client::{
    Client, auth, checks_of, create, create_op, create_with, delete_op, exists, only, persistent,
    watch_below,
};

/// A create request with this access control list.
fn with_acl(path: &str, acl: Vec<Acl>) -> CreateRequest {
    CreateRequest { acl: acl.into(), ..persistent(path) }
}

fn set_data(path: &str, data: impl Into<Bytes>) -> SetDataRequest {
    let data = data.into();
    SetDataRequest { path: path.to_owned(), data: data.into(), version: -1 }
}

fn delete_all(client: &mut Client, paths: impl IntoIterator<Item = String>) {
    let ops = paths.into_iter().map(|path| delete_op(&path)).collect();
    client.call(Request::Multi(ops)).unwrap();
}

/// Whether all operations of a transaction have succeeded.
fn succeeds(client: &mut Client, ops: Vec<Op>) -> bool {
    match client.call(Request::Multi(ops)).unwrap() {
        Response::Multi(results) => {
            !results.iter().any(|result| matches!(result, lockkeeper_wire::OpResult::Error(_)))
        }
        other => panic!("{other:?}"),
    }
}

/// C4: a node that was deleted and created repeatedly freed space each time.
pub(super) fn room_that_is_made_twice(target: &Target) {
    let mut client = target.client();
    let node = |path: &str, bytes: usize| {
        Op::Create(CreateRequest { data: Bytes::from(vec![7; bytes]).into(), ..persistent(path) })
    };
    client.create_large("/own/r", 100_000);
    let mut count = 0;
    loop {
        assert!(count * 800_000 < DATA_BUDGET, "{count} nodes");
        let again = (0..9).flat_map(|_| [delete_op("/own/r"), node("/own/r", 0)]);
        let last = [delete_op("/own/r"), node("/own/r", 100_000)];
        let more = node(&format!("/own/r{count}"), 800_000);
        match succeeds(&mut client, again.chain(last).chain([more]).collect()) {
            true => count += 1,
            false => break,
        }
    }
    let all = (0..count).map(|n| format!("/own/r{n}"));
    delete_all(&mut client, all.chain(["/own/r".to_owned()]));
}

/// C3: 31 identities of a megabyte, and transactions that put them into each list.
pub(super) fn long_identities(target: &Target) {
    let mut long = target.client();
    let show = |user: &str| auth("digest", &format!("{user}:password"));
    assert_eq!(long.call(show(&"u".repeat(900_000))), Err(-115));

    let mut client = target.client();
    client.call(show(&"u".repeat(8_000))).unwrap();
    let all = |count: usize| -> Vec<Op> {
        let acl =
            |n: usize| (0..30).map(move |i| only(Permissions((n * 30 + i) as i32), "auth", ""));
        (0..count)
            .map(|n| Op::Create(with_acl(&format!("/own/i{n}"), acl(n % 2).collect())))
            .collect()
    };
    assert!(!succeeds(&mut client, all(1_000)));
    assert!(succeeds(&mut client, all(30)));
    delete_all(&mut client, (0..30).map(|n| format!("/own/i{n}")));
}

/// H2: each check went through all ranges.
pub(super) fn address_ranges(target: &Target) {
    let mut client = target.client();
    let range = |n: usize| format!("10.{}.{}.0/24", n / 250, n % 250);
    let others = (0..998).map(|n| only(Permissions::ALL, "ip", &range(n)));
    let acl = others.chain([only(Permissions::ALL, "ip", "127.0.0.0/8")]).collect();
    client.call(Request::Create(with_acl("/own/ranges", acl))).unwrap();
    client.call(checks_of("/own/ranges", 35_000)).unwrap();
    delete_all(&mut client, ["/own/ranges".to_owned()]);
}

/// H1: texts of quotas of a megabyte, read for each create below.
pub(super) fn long_texts_of_quotas(target: &Target) {
    const QUOTA: &str = "/zookeeper/quota/own/q";
    let mut client = target.client();
    let (limits, stats) = (format!("{QUOTA}/zookeeper_limits"), format!("{QUOTA}/zookeeper_stats"));
    let paths = ["/own/q", "/zookeeper/quota/own", QUOTA, &stats, &limits].map(str::to_owned);
    client.call(Request::Multi(paths.iter().map(|path| create_op(path)).collect())).unwrap();
    client.call(Request::SetData(set_data(&limits, "a=1,".repeat(225_000)))).unwrap();
    client.call(Request::SetData(set_data(&stats, "count=1,".repeat(112_500)))).unwrap();
    let below = || (0..1_000).map(|n| format!("/own/q/{n}"));
    assert!(succeeds(&mut client, below().map(|path| create_op(&path)).collect()));
    delete_all(&mut client, below().chain(paths.into_iter().rev()));
}

/// M3: 250 levels below a long name were hashed from the beginning, each of them, for each change.
pub(super) fn long_paths(target: &Target) {
    let mut client = target.client();
    let long = format!("/own/{}", "x".repeat(MB * 9 / 10));
    assert_eq!(client.call(create(&long, CreateMode::Persistent)), Err(-8));
    assert_eq!(client.call(exists(&long, true)), Err(-8));

    let quota =
        ["/zookeeper/quota/own", "/zookeeper/quota/own/zookeeper_limits"].map(str::to_owned);
    client.call(Request::Multi(quota.iter().map(|path| create_op(path)).collect())).unwrap();
    let mut watcher = target.client();
    watcher.call(watch_below("/elsewhere")).unwrap();
    let mut paths = vec![format!("/own/{}", "x".repeat(32_000))];
    while paths.len() < 248 {
        paths.push(format!("{}/x", paths[paths.len() - 1]));
    }
    for path in &paths {
        client.call(create_with(path, CreateMode::Persistent, Bytes::new())).unwrap();
    }
    let deepest = &paths[paths.len() - 1];
    let change = Op::SetData(set_data(deepest, "data"));
    assert!(succeeds(&mut client, vec![change; 30]));
    for path in paths.into_iter().rev().chain(quota.into_iter().rev()) {
        delete_all(&mut client, [path]);
    }
}
