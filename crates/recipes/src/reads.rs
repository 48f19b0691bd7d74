//! The operations of a `multiRead`, and their results.

use lockkeeper_client::{PathRequest, ReadOp, ReadResult, Stat, ZnodePath};

pub(crate) fn data_of(node: &ZnodePath) -> ReadOp {
    ReadOp::GetData(PathRequest { path: node.to_string() })
}

pub(crate) fn children_of(node: &ZnodePath) -> ReadOp {
    ReadOp::GetChildren(PathRequest { path: node.to_string() })
}

pub(crate) fn stat_of(answer: &ReadResult) -> Option<Stat> {
    match answer {
        ReadResult::Data { stat, .. } => Some(*stat),
        _ => None,
    }
}

/// The names in a listing; `None` if its node is missing.
pub(crate) fn names_of(answer: ReadResult) -> Option<Vec<String>> {
    match answer {
        ReadResult::Children(names) => Some(names),
        _ => None,
    }
}
