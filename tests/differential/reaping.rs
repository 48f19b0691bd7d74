//! Containers and TTL nodes: what goes by time, on servers that look for it often.
//!
//! Not part of the random run, where a deletion would come between different operations on each.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use lockkeeper_wire::{
    AddWatchRequest, CreateMode, CreateRequest, CreateTtlRequest, ErrorCode, EventKind,
    PathRequest, Request,
};

use crate::lockstep::{Both, Lockstep};
use crate::step::{Ask, Hello, Step, delete, node};
use crate::view::Seen;

pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
const TTL_MS: i64 = 1500;
const LIMIT: Duration = Duration::from_secs(20);

type Events = Both<Vec<(EventKind, String)>>;

/// Waits for each node that has to go, and compares in what order watchers heard of what; not how
/// long it took, nor how many transactions it was.
pub(crate) fn run(world: &mut Lockstep) -> Result<()> {
    world.take(&Step::Open(0, Hello { timeout_ms: 30_000, read_only: None }))?;
    for request in [
        create("/top"),
        Request::AddWatch(AddWatchRequest { path: "/top".to_owned(), mode: 1 }),
        container("/top/unused"),
        container("/top/full"),
        create("/top/full/child"),
        container("/top/used"),
        create("/top/used/child"),
        with_ttl("/top/ttl"),
        with_ttl("/top/parent"),
        create("/top/parent/child"),
    ] {
        world.take(&Step::one(0, request))?;
    }
    let mut events = Events::default();
    observe(world, &Request::Delete(delete("/top/used/child")), &mut events)?;
    is_reaped(world, "/top/used", &mut events)?;
    is_reaped(world, "/top/ttl", &mut events)?;
    // Some rounds more, in which nothing else may go.
    thread::sleep(INTERVAL * 10);
    for path in ["/top/unused", "/top/full", "/top/parent"] {
        ensure!(are_missing(world, path, &mut events)? == [false; 2], "{path} was reaped");
    }
    observe(world, &Request::Delete(delete("/top/parent/child")), &mut events)?;
    is_reaped(world, "/top/parent", &mut events)?;
    let [theirs, ours] = events;
    ensure!(theirs == ours, "ZooKeeper: {theirs:#?}\nthe engine: {ours:#?}");
    ensure!(ours.len() == 5, "{ours:#?}");
    Ok(())
}

fn is_reaped(world: &mut Lockstep, path: &str, events: &mut Events) -> Result<()> {
    let since = Instant::now();
    while are_missing(world, path, events)? != [true; 2] {
        ensure!(since.elapsed() < LIMIT, "{path} is not reaped by both");
        thread::sleep(INTERVAL / 4);
    }
    Ok(())
}

fn are_missing(world: &mut Lockstep, path: &str, events: &mut Events) -> Result<Both<bool>> {
    let request = Request::GetAcl(PathRequest { path: path.to_owned() });
    observe(world, &request, events)
}

/// Asks both, and answers which of them does not know the node.
fn observe(world: &mut Lockstep, request: &Request, events: &mut Events) -> Result<Both<bool>> {
    let seen = world.both_see(0, &[Ask::Good(request.clone())])?;
    let mut missing = [false; 2];
    for (side, seen) in seen.into_iter().enumerate() {
        for seen in seen {
            match seen {
                Seen::Event { kind, path, .. } => events[side].push((kind, path)),
                Seen::Reply { error, .. } => missing[side] = error == Some(ErrorCode::NoNode),
                Seen::Closed | Seen::StillOpen => {}
            }
        }
    }
    Ok(missing)
}

fn create(path: &str) -> Request {
    Request::Create2(node(path, CreateMode::Persistent))
}

fn container(path: &str) -> Request {
    let data = Bytes::new().into();
    Request::CreateContainer(CreateRequest { data, ..node(path, CreateMode::Container) })
}

fn with_ttl(path: &str) -> Request {
    let CreateRequest { path, data, acl, flags } = node(path, CreateMode::PersistentTtl);
    Request::CreateTtl(CreateTtlRequest { path, data, acl, flags, ttl_ms: TTL_MS })
}
