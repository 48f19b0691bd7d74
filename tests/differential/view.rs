//! What a client sees, in a form in which two servers can be compared.
//!
//! Zxids are counted from where each server began: two fresh servers that are asked the same then give
//! the same numbers, although the engine begins far above 0. Session ids become the order in which the sessions were opened. Times become zero,
//! after a check that the server gives one transaction one time.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    Decoder, ErrorCode, EventKind, KeeperState, OpCode, OpResult, ReadResult, Record, ReplyHeader,
    Request, Response, SessionId, Stat, WatchEvent, Zxid, xid,
};

use crate::step::Ask;

/// One frame, or the end of the connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Reply {
        xid: i32,
        zxid: i64,
        error: Option<ErrorCode>,
        body: Body,
    },
    Event {
        zxid: i64,
        kind: EventKind,
        state: KeeperState,
        path: String,
    },
    Closed,
    /// The server should have closed the connection, and did not.
    StillOpen,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Read(Response),
    /// What follows an error, or what is not exactly what a reply of this kind is written as.
    Bytes(Bytes),
}

/// The last transaction before the first one that is compared. What is not above it (no number in
/// an event, 0 for nodes that were always there) is the same on every server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base(pub(crate) Zxid);

impl Base {
    fn count(self, zxid: Zxid) -> Zxid {
        if zxid > self.0 { Zxid(zxid.0 - self.0.0) } else { zxid }
    }

    /// The server's number for what is counted from its base.
    pub(crate) fn number(self, count: Zxid) -> Zxid {
        if count > Zxid(0) { Zxid(count.0.saturating_add(self.0.0)) } else { count }
    }

    /// The request as this server has to be asked.
    pub(crate) fn of(self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        if let Ask::Good(Request::SetWatches(request) | Request::SetWatches2(request)) = &mut ask {
            request.relative_zxid = self.number(request.relative_zxid);
        }
        ask
    }
}

/// One server's own names for things.
#[derive(Debug)]
pub(crate) struct Names {
    base: Base,
    sessions: HashMap<SessionId, i64>,
    /// When each transaction happened, by its stamps.
    times: HashMap<i64, i64>,
}

impl Names {
    pub(crate) fn new(base: Base) -> Self {
        Self { base, sessions: HashMap::new(), times: HashMap::new() }
    }

    /// Names a session by the order of its opening.
    pub(crate) fn call(&mut self, session: SessionId, number: i64) {
        self.sessions.insert(session, number);
    }

    /// Reads a frame; `op` tells which request has this xid.
    pub(crate) fn read(
        &mut self,
        frame: Bytes,
        op: impl FnOnce(i32) -> Option<OpCode>,
    ) -> Result<Seen> {
        let mut input = Decoder::new(frame);
        let header = ReplyHeader::decode(&mut input)?;
        let zxid = self.base.count(header.zxid).0;
        if header.xid == xid::NOTIFICATION {
            let raw = input.clone().take(input.remaining())?;
            let event = WatchEvent::decode(&mut input)?;
            ensure!(raw == written(|out| event.encode(out)), "an odd event: {raw:?}, {event:?}");
            let WatchEvent { kind, state, path } = event;
            return Ok(Seen::Event { zxid, kind, state, path });
        }
        let error = ErrorCode::from_code(header.error);
        let body = match op(header.xid) {
            Some(op) if error.is_none() => self.body(op, input)?,
            _ => Body::Bytes(input.take(input.remaining())?),
        };
        Ok(Seen::Reply { xid: header.xid, zxid, error, body })
    }

    /// Decoded only to rename what is the server's own. A body whose bytes are not exactly those that
    /// its decoded form is written as stays as it is: the decoder may read two things as the same.
    fn body(&mut self, op: OpCode, mut input: Decoder) -> Result<Body> {
        let raw = input.clone().take(input.remaining())?;
        match Response::decode(op, &mut input) {
            Ok(response) if raw == written(|out| response.encode(out)) => {
                Ok(Body::Read(self.renamed(response)?))
            }
            _ => Ok(Body::Bytes(raw)),
        }
    }

    fn renamed(&mut self, mut response: Response) -> Result<Response> {
        match &mut response {
            Response::Created { stat, .. } | Response::Data { stat, .. } => self.rename(stat)?,
            Response::Stat(stat) => self.rename(stat)?,
            Response::Acl { acl, stat } => {
                // ZooKeeper keeps what a client has proven in no order, so `auth` expands to
                // identities in no order either.
                acl.sort_by(|a, b| (&a.scheme, &a.id).cmp(&(&b.scheme, &b.id)));
                self.rename(stat)?;
            }
            Response::Names(names) => names.sort(),
            Response::Children { names, stat } => {
                names.sort();
                self.rename(stat)?;
            }
            Response::Multi(results) => {
                for result in results {
                    if let OpResult::Create2 { stat, .. } | OpResult::SetData(stat) = result {
                        self.rename(stat)?;
                    }
                }
            }
            Response::MultiRead(results) => {
                for result in results {
                    match result {
                        ReadResult::Data { stat, .. } => self.rename(stat)?,
                        ReadResult::Children(names) => names.sort(),
                        ReadResult::Error(_) => {}
                    }
                }
            }
            Response::Identities(all) => {
                all.sort_by(|a, b| (&a.scheme, &a.user).cmp(&(&b.scheme, &b.user)));
            }
            _ => {}
        }
        Ok(response)
    }

    fn rename(&mut self, stat: &mut Stat) -> Result<()> {
        for (zxid, time) in [(stat.czxid, stat.ctime), (stat.mzxid, stat.mtime)] {
            let known = *self.times.entry(zxid.0).or_insert(time);
            ensure!(known == time, "transaction {zxid} was at {known}, and now at {time}");
        }
        (stat.ctime, stat.mtime) = (0, 0);
        for zxid in [&mut stat.czxid, &mut stat.mzxid, &mut stat.pzxid] {
            *zxid = self.base.count(*zxid);
        }
        let owner = &mut stat.ephemeral_owner;
        owner.0 = self.sessions.get(owner).copied().unwrap_or(owner.0);
        Ok(())
    }
}

fn written(encode: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    encode(&mut out);
    out
}

/// Sorts events that belong to one transaction and are not ordered.
pub(crate) fn sort_events(seen: &mut [Seen]) {
    let is_event = |seen: &Seen| matches!(seen, Seen::Event { .. });
    for run in seen.chunk_by_mut(|a, b| is_event(a) && is_event(b)) {
        if is_event(&run[0]) {
            run.sort_by_key(|event| match event {
                Seen::Event { kind, path, .. } => (path.clone(), kind.code()),
                _ => (String::new(), 0),
            });
        }
    }
}
