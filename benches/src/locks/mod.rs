//! The peers' locks.

pub(crate) mod etcd;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod zookeeper_client;
