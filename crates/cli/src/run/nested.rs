//! A run under a lock that is needed by the run itself.

use std::env;

use lockkeeper::{Kind, Profile, ZnodePath};

use super::lock::Lock;
use crate::connect::Connection;
use crate::exit::{Exit, Failure};

/// Refuses to wait for a lock that the process which started us holds by its own `run`: the wait
/// would never end.
pub(super) async fn check(connection: &Connection, lock: &Lock) -> Result<(), Failure> {
    let is_same = |name, value: &str| env::var(name).is_ok_and(|outer| outer == value);
    if !is_same("LOCKKEEPER_LOCK", lock.path().as_str())
        || !is_same("LOCKKEEPER_CONNECT", &connection.servers)
    {
        return Ok(());
    }

    let Ok(node) = ZnodePath::new(&env::var("LOCKKEEPER_NODE").unwrap_or_default()) else {
        return Ok(());
    };
    // The variables outlive the lock in what the command has left behind.
    let is_held = matches!(connection.client.exists(&node).await, Ok(Some(_)));
    if !is_held || outer_kind(&node).is_some_and(|outer| lock.goes_together_with(outer)) {
        return Ok(());
    }

    let path = lock.path();
    let message =
        format!("{path} is held by the run that this one is part of, and would wait for it");
    Err(Failure::new(Exit::Usage, message).advise("unset LOCKKEEPER_LOCK to wait all the same"))
}

fn outer_kind(node: &ZnodePath) -> Option<Kind> {
    let kinds = [Kind::Read, Kind::Write, Kind::Exclusive, Kind::Permits(1), Kind::Lease];
    let parse = |profile: Profile| profile.parse(node.name(), &kinds);
    [Profile::Curator, Profile::Kazoo].into_iter().find_map(parse).map(|(kind, _)| kind)
}
