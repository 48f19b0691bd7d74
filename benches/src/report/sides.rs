//! The sides that targets and tables name, as the results have them.

use crate::results::Side;

type Known = Side<'static>;

pub(super) const SYNC: Known = ("lockkeeper", "engine, sync");
pub(super) const OS: Known = ("lockkeeper", "engine, os");
pub(super) const MEMORY: Known = ("lockkeeper", "engine, memory");
pub(super) const ON_ZOOKEEPER: Known = ("lockkeeper", "zookeeper");
pub(super) const LINGER: Known = ("lockkeeper", "zookeeper, linger");
pub(super) const FAIR: Known = ("lockkeeper", "engine, os, fair");
pub(super) const FAIR_ON_ZOOKEEPER: Known = ("lockkeeper", "zookeeper, fair");
pub(super) const NAIVE: Known = ("lockkeeper", "engine, os, naive");
pub(super) const ONE_PROCESS: Known = ("lockkeeper", "engine, os, one process");
pub(super) const MANY_PROCESSES: Known = ("lockkeeper", "engine, os, many processes");
/// What no lock can do without, on the same ZooKeeper.
pub(super) const BARE: Known = ("bare requests", "zookeeper");
/// The same, sure of its turn.
pub(super) const SECOND_LOOK: Known = ("bare requests, second look", "zookeeper");
pub(super) const CURATOR: Known = ("curator", "zookeeper");
pub(super) const ALWAYS: Known = ("redis", "appendfsync always");
pub(super) const EVERYSEC: Known = ("redis", "appendfsync everysec");
pub(super) const NO_PERSISTENCE: Known = ("redis", "no persistence");
