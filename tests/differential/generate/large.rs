//! Requests and replies as long as they may be: what is legal but long must not be refused.
//!
//! Where a reply would be longer than the limit the servers are known to differ, so none is asked for.

use lockkeeper_wire::{
    CheckRequest, CreateMode, CreateRequest, Op, PathRequest, ReadOp, Request, SetDataRequest,
};

use super::Generator;
use crate::step::{Ask, delete, node, read};

/// So many creates fill most of the largest request. Their reply is a good third of the largest one; if
/// each were counted with a stat, it would be over the limit.
const CREATES: usize = 14_000;
/// What with the rest of a request or reply is nearly as long as it may be.
const MUCH_DATA: usize = 1_048_575 - 400;

impl Generator {
    /// One after the other: what they leave behind is deleted by the last.
    pub(super) fn large(&mut self) -> Vec<Ask> {
        let (data, nodes) = (self.much_data(), self.many_nodes());
        data.into_iter().chain(nodes).map(Ask::Good).collect()
    }

    fn much_data(&mut self) -> Vec<Request> {
        let path = self.large_node();
        let read_op = || ReadOp::GetData(PathRequest { path: path.clone() });
        let data = self.bytes(MUCH_DATA / 2).into();
        let half = CreateRequest { data, ..node(&path, CreateMode::Ephemeral) };
        vec![
            Request::Create2(half),
            Request::MultiRead(vec![read_op(), read_op()]),
            Request::Multi(vec![Op::SetData(SetDataRequest {
                path: path.clone(),
                data: self.bytes(MUCH_DATA).into(),
                version: -1,
            })]),
            Request::GetData(read(&path)),
            Request::Delete(delete(&path)),
        ]
    }

    /// Twice: with an error in the middle, which leaves nothing, and without.
    fn many_nodes(&mut self) -> Vec<Request> {
        let parent = self.large_node();
        let path = |i: usize| format!("{parent}/{i}");
        let create = |i| Op::Create(node(&path(i), CreateMode::Persistent));
        let creates: Vec<Op> = (0..CREATES).map(create).collect();
        let mut fails = creates.clone();
        fails[CREATES / 2] = Op::Check(CheckRequest { path: parent.clone(), version: 7 });
        let deletes = (0..CREATES).map(path).chain([parent.clone()]);
        let deletes = deletes.map(|path| Op::Delete(delete(&path))).collect();
        vec![
            Request::Create(node(&parent, CreateMode::Persistent)),
            Request::Multi(fails),
            Request::Multi(creates),
            Request::GetChildren2(read(&parent)),
            Request::GetAllChildrenNumber(PathRequest { path: parent.clone() }),
            Request::Multi(deletes),
            Request::GetChildren(read(&parent)),
        ]
    }

    /// A node outside of the eras, which is not limited by a quota or a list.
    fn large_node(&self) -> String {
        format!("/{}", self.steps)
    }
}
