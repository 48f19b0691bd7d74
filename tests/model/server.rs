//! A server as small as it can be: one queue of ephemeral sequential nodes, sessions, and watches.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use lockkeeper_session::Instant;
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, ErrorCode, EventKind, KeeperState, Op, OpResult,
    PASSWORD_LEN, Record as _, ReplyHeader, Request, RequestHeader, Response, SessionId, Stat,
    WatchEvent, Zxid, write_frame, xid,
};

use crate::{LOCK, TIMEOUT};

/// What the server knows. Its clients are numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    zxid: i64,
    sequence: i32,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// When each session was heard of last.
    sessions: BTreeMap<i64, Instant>,
    /// The session of each connection.
    connections: BTreeMap<usize, i64>,
    /// Which connection watches which path.
    watches: BTreeSet<(usize, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    owner: i64,
    czxid: i64,
}

/// What a server sends, and to whom.
pub(crate) type Sent = Vec<(usize, Bytes)>;

impl Server {
    /// Takes one message of a client.
    pub(crate) fn handle(&mut self, now: Instant, client: usize, frame: Bytes) -> Sent {
        let mut input = Decoder::new(frame);
        let Some(session) = self.connections.get(&client).copied() else {
            return self.welcome(now, client, &mut input);
        };
        if !self.sessions.contains_key(&session) {
            return Vec::new();
        }
        self.sessions.insert(session, now);
        let header = RequestHeader::decode(&mut input).expect("our own client's bytes");
        let request = Request::decode(header.op, &mut input).expect("our own client's bytes");
        let mut sent = Vec::new();
        let result = self.answer(client, session, request, &mut sent);
        let error = result.as_ref().err().map_or(0, |code| code.code());
        let header = ReplyHeader { xid: header.xid, zxid: Zxid(self.zxid), error };
        sent.push((
            client,
            framed(|out| {
                header.encode(out);
                if let Ok(response) = &result {
                    response.encode(out);
                }
            }),
        ));
        sent
    }

    fn welcome(&mut self, now: Instant, client: usize, input: &mut Decoder) -> Sent {
        let request = ConnectRequest::decode(input).expect("our own client's bytes");
        let known = self.sessions.contains_key(&request.session_id.0);
        let response = if request.session_id == SessionId::NONE || known {
            let id = match known {
                true => request.session_id.0,
                false => self.next_zxid(),
            };
            self.sessions.insert(id, now);
            self.connections.insert(client, id);
            ConnectResponse {
                protocol_version: 0,
                timeout_ms: i32::try_from(TIMEOUT.as_millis()).expect("seconds"),
                session_id: SessionId(id),
                password: Bytes::from_static(&[1; PASSWORD_LEN]),
                read_only: Some(false),
            }
        } else {
            ConnectResponse::expired(Some(false))
        };
        vec![(client, framed(|out| response.encode(out)))]
    }

    fn answer(
        &mut self,
        client: usize,
        session: i64,
        request: Request,
        sent: &mut Sent,
    ) -> Result<Response, ErrorCode> {
        match request {
            Request::Create2(create) => {
                let czxid = self.next_zxid();
                let path = format!("{}{:010}", create.path, self.sequence);
                self.sequence += 1;
                self.nodes.insert(path.clone(), Node { owner: session, czxid });
                Ok(Response::Created { stat: self.stat(&path)?, path })
            }
            Request::Delete(delete) => {
                self.stat(&delete.path)?;
                self.delete(&delete.path, sent);
                Ok(Response::Empty)
            }
            Request::GetChildren(_) => Ok(Response::Names(self.names())),
            Request::GetData(read) => {
                let stat = self.stat(&read.path)?;
                if read.watch {
                    self.watches.insert((client, read.path));
                }
                Ok(Response::Data { data: Bytes::new(), stat })
            }
            Request::Exists(read) => self.stat(&read.path).map(Response::Stat),
            Request::Sync(sync) => Ok(Response::Path(sync.path)),
            Request::Multi(ops) => Ok(Response::Multi(self.check(&ops))),
            Request::SetWatches(set) => {
                for path in set.data {
                    if self.nodes.contains_key(&path) {
                        self.watches.insert((client, path));
                    } else {
                        sent.push((client, self.deleted(path)));
                    }
                }
                Ok(Response::Empty)
            }
            Request::RemoveWatches(remove) => {
                self.watches.remove(&(client, remove.path));
                Ok(Response::Empty)
            }
            Request::Ping => Ok(Response::Empty),
            other => unreachable!("the model's clients do not send {other:?}"),
        }
    }

    fn check(&mut self, ops: &[Op]) -> Vec<OpResult> {
        let missing = |op: &Op| match op {
            Op::Check(check) => !self.nodes.contains_key(&check.path),
            _ => false,
        };
        let Some(failing) = ops.iter().position(missing) else {
            self.next_zxid();
            return vec![OpResult::Check; ops.len()];
        };
        let error = |index: usize| match index.cmp(&failing) {
            std::cmp::Ordering::Less => OpResult::Error(None),
            std::cmp::Ordering::Equal => OpResult::Error(Some(ErrorCode::NoNode)),
            std::cmp::Ordering::Greater => OpResult::Error(Some(ErrorCode::RuntimeInconsistency)),
        };
        (0..ops.len()).map(error).collect()
    }

    /// Ends the sessions that were silent for too long.
    pub(crate) fn expire(&mut self, now: Instant) -> Sent {
        let silent = |(id, heard): (&i64, &Instant)| (*heard + TIMEOUT <= now).then_some(*id);
        let over: Vec<i64> = self.sessions.iter().filter_map(silent).collect();
        let mut sent = Vec::new();
        for session in over {
            self.next_zxid();
            self.sessions.remove(&session);
            let owned =
                |(path, node): (&String, &Node)| (node.owner == session).then(|| path.clone());
            let nodes: Vec<String> = self.nodes.iter().filter_map(owned).collect();
            nodes.iter().for_each(|path| self.delete(path, &mut sent));
        }
        sent
    }

    /// Whether a connection's session is over, so that the server closes it.
    pub(crate) fn has_closed(&self, client: usize) -> bool {
        let session = self.connections.get(&client);
        session.is_some_and(|session| !self.sessions.contains_key(session))
    }

    pub(crate) fn disconnect(&mut self, client: usize) {
        self.connections.remove(&client);
        self.watches.retain(|(watcher, _)| *watcher != client);
    }

    /// Comes back with what was durable, which is everything; sessions begin anew.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.connections.clear();
        self.watches.clear();
        self.sessions.values_mut().for_each(|heard| *heard = now);
    }

    fn delete(&mut self, path: &str, sent: &mut Sent) {
        self.next_zxid();
        self.nodes.remove(path);
        let watchers: Vec<usize> =
            self.watches.iter().filter(|(_, watched)| watched == path).map(|(c, _)| *c).collect();
        for client in watchers {
            self.watches.remove(&(client, path.to_owned()));
            sent.push((client, self.deleted(path.to_owned())));
        }
    }

    fn deleted(&self, path: String) -> Bytes {
        let header = ReplyHeader { xid: xid::NOTIFICATION, zxid: Zxid(-1), error: 0 };
        let event =
            WatchEvent { kind: EventKind::NodeDeleted, state: KeeperState::SyncConnected, path };
        framed(|out| {
            header.encode(out);
            event.encode(out);
        })
    }

    fn stat(&self, path: &str) -> Result<Stat, ErrorCode> {
        let node = self.nodes.get(path).ok_or(ErrorCode::NoNode)?;
        let (czxid, ephemeral_owner) = (Zxid(node.czxid), SessionId(node.owner));
        Ok(Stat { czxid, mzxid: czxid, ephemeral_owner, ..Stat::default() })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.nodes.contains_key(&format!("{LOCK}/{name}"))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.nodes.keys().map(|path| path[LOCK.len() + 1..].to_owned()).collect()
    }

    fn next_zxid(&mut self) -> i64 {
        self.zxid += 1;
        self.zxid
    }
}

fn framed(content: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write_frame(&mut out, content);
    out.freeze()
}
