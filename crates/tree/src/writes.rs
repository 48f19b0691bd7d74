//! Requests that change the tree: `prepare`, `apply`, `notify`.

use lockkeeper_wire::{ErrorCode, Op, Request, Response, Zxid};

use crate::apply::apply;
use crate::config::Now;
use crate::connections::RequestContext;
use crate::multi::{self, Refusal};
use crate::prepare::{Caller, Draft, Form, NewNode};
use crate::requests::Reply;
use crate::room::Room;
use crate::server::Server;
use crate::txn::{Applied, Stamp, Txn};

/// The capacity for events that is always kept.
const KEPT_EVENTS: usize = 64;

impl Server {
    /// The next transaction. Its number is used even if the transaction changes nothing, as in ZooKeeper.
    ///
    /// When the counter in the low half overflows, the addition carries into the epoch.
    pub(crate) fn next_stamp(&mut self, now: Now) -> Stamp {
        let next = self.last_zxid.0.wrapping_add(1);
        // Number 0 of an epoch is its start, not a transaction.
        let starts_epoch = next & 0xffff_ffff == 0;
        self.last_zxid = Zxid(next + i64::from(starts_epoch));
        Stamp { zxid: self.last_zxid, unix_ms: now.unix_ms }
    }

    pub(crate) fn write(&mut self, context: RequestContext, request: Request) -> Reply {
        if !request.op().is_write() {
            return Err(ErrorCode::Unimplemented);
        }
        let stamp = self.next_stamp(context.now);
        if let Request::Multi(ops) = request {
            return self.multi(context, stamp, ops);
        }
        let txn = prepare(&Draft::new(&self.tree), self.caller(context), &request)?;
        let mut outcome = None;
        self.commit(stamp, [txn], |applied| outcome = Some(applied));
        Ok(outcome.map_or(Response::Empty, |outcome| respond(request, outcome)))
    }

    fn multi(&mut self, context: RequestContext, stamp: Stamp, ops: Vec<Op>) -> Reply {
        self.check_ops(context.connection, ops.len(), multi::reply_len(&ops))?;
        let txns = match multi::prepare(&self.tree, self.caller(context), &ops) {
            Ok((_, txns)) => txns,
            Err(Refusal::Request(code)) => return Err(code),
            Err(Refusal::Operation(results)) => return Ok(Response::Multi(results)),
        };
        let mut results = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter();
        self.commit(stamp, txns, |outcome| {
            results.extend(ops.next().map(|op| multi::result(op, outcome)));
        });
        Ok(Response::Multi(results))
    }

    /// Applies these as one transaction, passes each outcome to `each`, and sends the watch events.
    pub(crate) fn commit(
        &mut self,
        stamp: Stamp,
        txns: impl IntoIterator<Item = Txn>,
        mut each: impl FnMut(Applied),
    ) {
        let mut events = std::mem::take(&mut self.events);
        for txn in txns {
            #[cfg(any(test, feature = "following"))]
            if let Some(record) = &mut self.record {
                record.push(stamp, &txn);
            }
            each(apply(&mut self.tree, stamp, txn, &mut events));
        }
        self.notify(stamp.zxid, &events);
        events.clear();
        events.shrink_to(KEPT_EVENTS);
        self.events = events;
    }

    pub(crate) fn caller(&self, context: RequestContext) -> Caller<'_> {
        Caller {
            session: context.session,
            connection: context.connection,
            identities: self.identities(context.connection),
            ttl_nodes: self.config.ttl_nodes,
            enforce_quotas: self.config.enforce_quotas,
            max_ephemerals: self.config.max_ephemerals,
            room: Room { max_weight: self.config.max_weight, growth: self.growth },
            notices: &self.notices,
        }
    }
}

fn prepare<'a>(
    draft: &Draft<'a>,
    caller: Caller<'_>,
    request: &'a Request,
) -> Result<Txn, ErrorCode> {
    match request {
        Request::Create(r) | Request::Create2(r) => {
            draft.create(caller, NewNode::of(r, Form::Plain))
        }
        Request::CreateContainer(r) => draft.create(caller, NewNode::of(r, Form::Container)),
        Request::CreateTtl(r) => draft.create(caller, NewNode::with_ttl(r)),
        Request::Delete(r) => draft.delete(caller, r),
        Request::SetData(r) => draft.set_data(caller, r),
        Request::SetAcl(r) => draft.set_acl(caller, r),
        Request::Reconfig(_) => Err(ErrorCode::ReconfigDisabled),
        _ => Err(ErrorCode::Unimplemented),
    }
}

fn respond(request: Request, outcome: Applied) -> Response {
    match outcome {
        Applied::Created { path, .. } if matches!(request, Request::Create(_)) => {
            Response::Path(path.to_string())
        }
        Applied::Created { path, stat } => Response::Created { path: path.to_string(), stat },
        Applied::Changed(stat) => Response::Stat(stat),
        Applied::Deleted | Applied::Checked => Response::Empty,
    }
}
