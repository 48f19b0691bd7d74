//! What a client sees, in a form in which two servers can be compared.
//!
//! Zxids are compared as they are: two fresh servers that are asked the same give the same
//! numbers. Session ids become the order in which the sessions were opened. Times become zero,
//! after a check that the server gives one transaction one time.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use bytes::Bytes;
use lockkeeper_wire::{
    Decoder, ErrorCode, EventKind, KeeperState, OpCode, OpResult, ReadResult, Record, ReplyHeader,
    Response, SessionId, Stat, WatchEvent, xid,
};

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
    /// What follows an error, or what cannot be read as what it should be.
    Bytes(Bytes),
}

/// One server's own names for things.
#[derive(Debug, Default)]
pub(crate) struct Names {
    sessions: HashMap<SessionId, i64>,
    /// When each transaction happened, by its stamps.
    times: HashMap<i64, i64>,
}

impl Names {
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
        if header.xid == xid::NOTIFICATION {
            let WatchEvent { kind, state, path } = WatchEvent::decode(&mut input)?;
            ensure!(input.remaining() == 0, "an event with something behind it");
            return Ok(Seen::Event { zxid: header.zxid.0, kind, state, path });
        }
        let error = ErrorCode::from_code(header.error);
        let body = match op(header.xid) {
            Some(op) if error.is_none() => self.body(op, input)?,
            _ => Body::Bytes(input.take(input.remaining())?),
        };
        Ok(Seen::Reply { xid: header.xid, zxid: header.zxid.0, error, body })
    }

    fn body(&mut self, op: OpCode, input: Decoder) -> Result<Body> {
        let mut rest = input.clone();
        if let Ok(response) = Response::decode(op, &mut rest)
            && rest.remaining() == 0
        {
            return Ok(Body::Read(self.renamed(response)?));
        }
        let mut input = input;
        Ok(Body::Bytes(input.take(input.remaining())?))
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
        let owner = &mut stat.ephemeral_owner;
        owner.0 = self.sessions.get(owner).copied().unwrap_or(owner.0);
        Ok(())
    }
}

/// Puts events that belong to one transaction, and have no order, into one.
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
