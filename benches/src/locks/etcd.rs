//! etcd's lock service, over gRPC.
//!
//! The few messages are written out here: the usual crate generates all of etcd's from their
//! definitions, and needs a compiler for those on the machine.

use crate::measure::Lock;
use anyhow::Result;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrant {
    #[prost(int64, tag = "1")]
    ttl_seconds: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGranted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unlocked {}

/// A connection with a lease: what a session is elsewhere.
#[derive(Clone)]
pub(crate) struct EtcdSession {
    channel: Channel,
    lease: i64,
}

impl EtcdSession {
    /// Connects, and takes out a lease that is not renewed.
    pub(crate) async fn connect(address: &str, ttl_seconds: i64) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
        let channel = endpoint.connect().await?;
        let grant = LeaseGrant { ttl_seconds };
        let granted: LeaseGranted = call(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await?;
        Ok(Self { channel, lease: granted.id })
    }

    pub(crate) async fn lock(&self, name: &str) -> Result<Vec<u8>> {
        let request = LockRequest { name: name.into(), lease: self.lease };
        let locked: Locked = call(&self.channel, "/v3lockpb.Lock/Lock", request).await?;
        Ok(locked.key)
    }

    async fn unlock(&self, key: Vec<u8>) -> Result<()> {
        let _: Unlocked = call(&self.channel, "/v3lockpb.Lock/Unlock", Unlock { key }).await?;
        Ok(())
    }
}

async fn call<Q, A>(channel: &Channel, method: &'static str, request: Q) -> Result<A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await?;
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(method);
    let answer = grpc.unary(tonic::Request::new(request), path, codec).await?;
    Ok(answer.into_inner())
}

/// A lock.
pub(crate) struct EtcdLock {
    pub(crate) session: EtcdSession,
    pub(crate) name: String,
}

impl Lock for EtcdLock {
    type Guard = Vec<u8>;

    async fn acquire(&mut self) -> Result<Vec<u8>> {
        self.session.lock(&self.name).await
    }

    async fn release(&mut self, key: Vec<u8>) -> Result<()> {
        self.session.unlock(key).await
    }

    /// gRPC promises no order between two calls, so nobody can do this with etcd.
    fn let_go(&mut self, _: Vec<u8>) {
        unreachable!("etcd is measured with the release awaited only");
    }
}
