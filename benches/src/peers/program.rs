//! What a peer is, and how it ran.

use lockkeeper_engine::Durability;
use serde::{Deserialize, Serialize};

use crate::system::Fsync;

/// A server that is a program with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// This program as a child that sends back whatever comes.
    Echo,
    Engine(Durability),
    Redis(Fsync),
    Etcd,
    Postgres,
}

/// How a peer ran.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Configuration {
    /// As in the tables; `zookeeper` is the server that several of them use.
    pub(crate) system: String,
    /// The program and its version.
    pub(crate) version: String,
    pub(crate) settings: String,
}
