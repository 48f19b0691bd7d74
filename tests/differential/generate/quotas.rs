//! Quotas on the nodes that the random steps work on, in every third era.
//!
//! A server compares a quota with its tree, and not with requests that are still in flight. So in these
//! eras requests are sent one by one: the result of a pipeline depends on the speed of ZooKeeper's stages.
//! Written limits are valid limits; only the server writes stats.

use bytes::Bytes;
use lockkeeper_wire::{CreateMode, CreateRequest, PathWatchRequest, Request, SetDataRequest};

use super::{ERA, Generator, Style};
use crate::step::{delete, node};

const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

impl Generator {
    pub(super) fn has_quotas(&self) -> bool {
        self.steps / ERA % 3 == 1
    }

    /// The first steps after an era's top node is made: the quotas of that and of a node below it.
    pub(super) fn first_quotas(&mut self) -> Option<Request> {
        let (below, name) = match self.steps % ERA {
            2 => (false, ""),
            3 => (false, LIMITS),
            4 => (false, STATS),
            5 => (true, ""),
            6 => (true, LIMITS),
            7 => (true, STATS),
            _ => return None,
        };
        Some(self.create_quota(below, name))
    }

    /// Whatever happens to quotas while they are in use.
    pub(super) fn about_quotas(&mut self) -> Request {
        let below = self.rng.bool();
        let name = if self.rng.bool() { LIMITS } else { STATS };
        match self.rng.u32(..12) {
            0..=5 => self.read_quota(below, STATS),
            6 => self.read_quota(below, LIMITS),
            7..=8 => Request::SetData(SetDataRequest {
                path: self.quota(below, LIMITS),
                data: self.limits().into(),
                version: -1,
            }),
            9 => Request::Delete(delete(&self.quota(below, name))),
            _ => self.create_quota(below, name),
        }
    }

    fn quota(&self, below: bool, name: &str) -> String {
        let (below, slash) =
            (if below { "/a" } else { "" }, if name.is_empty() { "" } else { "/" });
        format!("/zookeeper/quota{}{below}{slash}{name}", self.top())
    }

    fn read_quota(&mut self, below: bool, name: &str) -> Request {
        let path = self.quota(below, name);
        let watch = self.may_be(&path, Style::OneShot) && self.rng.bool();
        Request::GetData(PathWatchRequest { path, watch })
    }

    fn create_quota(&mut self, below: bool, name: &str) -> Request {
        let data = match name {
            LIMITS => self.limits().into(),
            STATS => Bytes::from_static(b"count=0,bytes=0").into(),
            _ => Bytes::new().into(),
        };
        let path = self.quota(below, name);
        Request::Create(CreateRequest { data, ..node(&path, CreateMode::Persistent) })
    }

    /// Some of the four limits, in the form that ZooKeeper's own shell writes.
    fn limits(&mut self) -> Bytes {
        let mut limit = |most: i64| if self.rng.bool() { -1 } else { self.rng.i64(1..most) };
        let (count, bytes) = (limit(20), limit(120));
        let (count_hard, bytes_hard) = (limit(20), limit(120));
        let text = format!(
            "count={count},bytes={bytes}=;byteHardLimit={bytes_hard};countHardLimit={count_hard}"
        );
        Bytes::from(text)
    }
}
