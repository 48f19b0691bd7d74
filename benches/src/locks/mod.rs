//! The peers' locks, and what no lock can do without.

pub(crate) mod bare;
pub(crate) mod barrier;
pub(crate) mod etcd;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod zookeeper_client;
