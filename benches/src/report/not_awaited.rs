//! Sides of which nobody waits for the release.

use crate::results::Side;

pub(super) const SYNC: Side<'static> = ("lockkeeper", "engine, sync; release not awaited");
pub(super) const OS: Side<'static> = ("lockkeeper", "engine, os; release not awaited");
pub(super) const ON_ZOOKEEPER: Side<'static> = ("lockkeeper", "zookeeper; release not awaited");
pub(super) const BARE: Side<'static> = ("bare requests", "zookeeper; release not awaited");
pub(super) const SECOND_LOOK: Side<'static> =
    ("bare requests, second look", "zookeeper; release not awaited");
pub(super) const ALWAYS: Side<'static> = ("redis", "appendfsync always; release not awaited");
pub(super) const EVERYSEC: Side<'static> = ("redis", "appendfsync everysec; release not awaited");
