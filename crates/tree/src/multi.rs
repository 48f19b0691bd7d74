//! `multi`: several changes in one transaction, and the forms of its results.

use lockkeeper_wire::{CreateMode, CreateRequest, CreateTtlRequest, ErrorCode, Op, OpResult};

use crate::lengths::{ITEM_HEADER, LEN, REPLY_HEADER, SEQUENCE, STAT};
use crate::nodes::Tree;
use crate::prepare::{Caller, Draft, Form, NewNode};
use crate::txn::{Applied, Txn};

/// Why a `multi` is not applied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The whole request fails with this code.
    Request(ErrorCode),
    /// The request succeeds, and these results show which operation failed.
    Operation(Vec<OpResult>),
}

/// Prepares all operations, each on the tree as its predecessors leave it. Also returns the tree as all of
/// them leave it.
pub(crate) fn prepare<'a>(
    tree: &'a Tree,
    caller: Caller<'_>,
    ops: &'a [Op],
) -> Result<(Draft<'a>, Vec<Txn>), Refusal> {
    if ops.iter().any(is_malformed) {
        return Err(Refusal::Request(ErrorCode::MarshallingError));
    }

    let changes = ops.iter().filter(|op| !matches!(op, Op::Check(_))).count();
    let mut draft = Draft::of(tree, changes);
    let mut txns = Vec::with_capacity(ops.len());
    for op in ops {
        match prepare_one(&draft, caller, op) {
            Ok(txn) => {
                draft.note(&txn);
                txns.push(txn);
            }
            Err(code) => return Err(Refusal::Operation(failed(ops.len(), txns.len(), code))),
        }
    }
    Ok((draft, txns))
}

/// No error before the failing operation, its error at its position, and "not tried" after it.
fn failed(count: usize, failing: usize, code: ErrorCode) -> Vec<OpResult> {
    let result = |index: usize| match index.cmp(&failing) {
        std::cmp::Ordering::Less => OpResult::Error(None),
        std::cmp::Ordering::Equal => OpResult::Error(Some(code)),
        std::cmp::Ordering::Greater => OpResult::Error(Some(ErrorCode::RuntimeInconsistency)),
    };
    (0..count).map(result).collect()
}

/// ZooKeeper checks the modes of plain creates while it decodes a `multi`, and only those.
fn is_malformed(op: &Op) -> bool {
    match op {
        Op::Create(_) | Op::Create2(_) | Op::CreateContainer(_) => {
            mode(op).is_none_or(CreateMode::has_ttl)
        }
        _ => false,
    }
}

fn prepare_one<'a>(draft: &Draft<'a>, caller: Caller<'_>, op: &'a Op) -> Result<Txn, ErrorCode> {
    match op {
        Op::Create(request) | Op::Create2(request) | Op::CreateContainer(request) => {
            let form = if is_container(op) { Form::Container } else { Form::Plain };
            draft.create(caller, NewNode::of(request, form))
        }
        Op::CreateTtl(request) => {
            let form = match CreateMode::from_flags(request.flags) {
                Some(mode) if mode.has_ttl() => Form::Ttl(request.ttl_ms),
                _ if is_container(op) => Form::Container,
                _ => Form::Plain,
            };
            draft.create(caller, NewNode { form, ..NewNode::with_ttl(request) })
        }
        Op::Delete(request) => draft.delete(caller, request),
        Op::SetData(request) => draft.set_data(caller, request),
        Op::Check(request) => draft.check(caller, request),
    }
}

/// Within a `multi`, unlike elsewhere, ZooKeeper decides by the mode: the mode alone makes a container, and a
/// time to live without the matching mode is ignored.
fn is_container(op: &Op) -> bool {
    mode(op) == Some(CreateMode::Container) || matches!(op, Op::CreateContainer(_))
}

fn mode(op: &Op) -> Option<CreateMode> {
    match op {
        Op::Create(request) | Op::Create2(request) | Op::CreateContainer(request) => {
            CreateMode::from_flags(request.flags)
        }
        Op::CreateTtl(request) => CreateMode::from_flags(request.flags),
        Op::Delete(_) | Op::SetData(_) | Op::Check(_) => None,
    }
}

/// Whether the result is that of a plain `create`: only the path.
fn is_plain(op: &Op) -> bool {
    match op {
        Op::Create(_) => !is_container(op),
        Op::CreateTtl(_) => !is_container(op) && !mode(op).is_some_and(CreateMode::has_ttl),
        _ => false,
    }
}

/// The encoded size of the results if all operations succeed, in bytes. It is computed before anything is
/// applied: a client whose reply is refused for its length would assume that nothing was changed.
pub(crate) fn reply_len(ops: &[Op]) -> usize {
    let item = |op: &Op| match op {
        Op::SetData(_) => STAT,
        Op::Delete(_) | Op::Check(_) => 0,
        create => {
            let is_sequential = mode(create).is_some_and(CreateMode::is_sequential);
            let digits = if is_sequential { SEQUENCE } else { 0 };
            let stat = if is_plain(create) { 0 } else { STAT };
            LEN + create.path().len() + digits + stat
        }
    };
    let items = ops.iter().map(|op| ITEM_HEADER + item(op));
    REPLY_HEADER + items.sum::<usize>() + ITEM_HEADER
}

/// The result of an applied operation.
pub(crate) fn result(op: Op, outcome: Applied) -> OpResult {
    match outcome {
        Applied::Created { path, .. } if is_plain(&op) => {
            OpResult::Create { path: created(op, &path) }
        }
        Applied::Created { path, stat } => OpResult::Create2 { path: created(op, &path), stat },
        Applied::Deleted => OpResult::Delete,
        Applied::Changed(stat) => OpResult::SetData(stat),
        Applied::Checked => OpResult::Check,
    }
}

/// The path that was created: the path of the request, unless it is sequential.
fn created(op: Op, path: &str) -> String {
    match op {
        Op::Create(CreateRequest { path: asked, .. })
        | Op::Create2(CreateRequest { path: asked, .. })
        | Op::CreateContainer(CreateRequest { path: asked, .. })
        | Op::CreateTtl(CreateTtlRequest { path: asked, .. })
            if asked == path =>
        {
            asked
        }
        _ => path.to_owned(),
    }
}
