//! A server as small as it can be: one queue of ephemeral nodes below a node of its own, sessions,
//! and watches.

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
    /// The lock's own node.
    lock: Lock,
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
    mzxid: i64,
    version: i32,
}

/// The node that all others are below. It has been there from the beginning.
#[derive(Clone, Debug, Default)]
struct Lock {
    mzxid: i64,
    pzxid: i64,
    version: i32,
    /// How many permits there are; 0: nobody has written a number.
    permits: u32,
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
                self.next_zxid();
                let path = format!("{}{:010}", create.path, self.sequence);
                self.insert(path.clone(), session);
                Ok(Response::Created { stat: self.stat(&path)?, path })
            }
            Request::Delete(delete) => {
                self.stat(&delete.path)?;
                self.next_zxid();
                self.delete(&delete.path, sent);
                Ok(Response::Empty)
            }
            Request::GetChildren(_) => Ok(Response::Names(self.names())),
            Request::GetChildren2(_) => {
                Ok(Response::Children { names: self.names(), stat: self.stat(LOCK)? })
            }
            Request::GetData(read) => {
                let stat = self.stat(&read.path)?;
                let data = self.data(&read.path);
                if read.watch {
                    self.watches.insert((client, read.path));
                }
                Ok(Response::Data { data: data.into(), stat })
            }
            Request::SetData(set) => {
                if self.stat(&set.path)?.version != set.version {
                    return Err(ErrorCode::BadVersion);
                }
                self.next_zxid();
                self.write(&set.path, sent);
                self.stat(&set.path).map(Response::Stat)
            }
            Request::Exists(read) => self.stat(&read.path).map(Response::Stat),
            Request::Sync(sync) => Ok(Response::Path(sync.path)),
            Request::Multi(ops) => Ok(Response::Multi(self.transact(session, &ops, sent))),
            Request::SetWatches(set) => {
                for path in set.data {
                    match self.stat(&path) {
                        Ok(stat) if stat.mzxid > set.relative_zxid => {
                            sent.push((client, event(EventKind::NodeDataChanged, path)));
                        }
                        Ok(_) => drop(self.watches.insert((client, path))),
                        Err(_) => sent.push((client, event(EventKind::NodeDeleted, path))),
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

    /// All of the steps or none. Those of our clients never depend on each other.
    fn transact(&mut self, session: i64, ops: &[Op], sent: &mut Sent) -> Vec<OpResult> {
        let failing = ops.iter().enumerate().find_map(|(n, op)| Some((n, self.obstacle(op)?)));
        if let Some((failing, code)) = failing {
            let error = |index: usize| match index.cmp(&failing) {
                std::cmp::Ordering::Less => OpResult::Error(None),
                std::cmp::Ordering::Equal => OpResult::Error(Some(code)),
                std::cmp::Ordering::Greater => {
                    OpResult::Error(Some(ErrorCode::RuntimeInconsistency))
                }
            };
            return (0..ops.len()).map(error).collect();
        }
        self.next_zxid();
        ops.iter().map(|op| self.step(session, op, sent)).collect()
    }

    /// Why a step cannot be done.
    fn obstacle(&self, op: &Op) -> Option<ErrorCode> {
        let missing = |path: &str| self.stat(path).err();
        match op {
            Op::Create(create) => {
                self.nodes.contains_key(&create.path).then_some(ErrorCode::NodeExists)
            }
            Op::Check(check) => missing(&check.path),
            Op::Delete(delete) => missing(&delete.path),
            Op::SetData(set) => match self.stat(&set.path) {
                Ok(stat) => (stat.version != set.version).then_some(ErrorCode::BadVersion),
                Err(code) => Some(code),
            },
            other => unreachable!("the model's clients do not send {other:?}"),
        }
    }

    fn step(&mut self, session: i64, op: &Op, sent: &mut Sent) -> OpResult {
        match op {
            Op::Create(create) => {
                self.insert(create.path.clone(), session);
                OpResult::Create { path: create.path.clone() }
            }
            Op::Delete(delete) => {
                self.delete(&delete.path, sent);
                OpResult::Delete
            }
            Op::SetData(set) => {
                self.write(&set.path, sent);
                OpResult::SetData(self.stat(&set.path).unwrap_or_default())
            }
            _ => OpResult::Check,
        }
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

    // What follows is part of the transaction that has the newest number.

    fn insert(&mut self, path: String, owner: i64) {
        let zxid = self.zxid;
        self.nodes.insert(path, Node { owner, czxid: zxid, mzxid: zxid, version: 0 });
        // It counts the children that ever were, whatever their names.
        self.sequence += 1;
        self.lock.pzxid = zxid;
    }

    fn delete(&mut self, path: &str, sent: &mut Sent) {
        self.nodes.remove(path);
        self.lock.pzxid = self.zxid;
        self.fire(EventKind::NodeDeleted, path, sent);
    }

    fn write(&mut self, path: &str, sent: &mut Sent) {
        let (mzxid, version) = match self.nodes.get_mut(path) {
            Some(node) => (&mut node.mzxid, &mut node.version),
            None => (&mut self.lock.mzxid, &mut self.lock.version),
        };
        *mzxid = self.zxid;
        *version += 1;
        self.fire(EventKind::NodeDataChanged, path, sent);
    }

    fn fire(&mut self, kind: EventKind, path: &str, sent: &mut Sent) {
        let watchers: Vec<usize> =
            self.watches.iter().filter(|(_, watched)| watched == path).map(|(c, _)| *c).collect();
        for client in watchers {
            self.watches.remove(&(client, path.to_owned()));
            sent.push((client, event(kind, path.to_owned())));
        }
    }

    /// How many permits there are.
    pub(crate) fn permits(&self) -> u32 {
        self.lock.permits
    }

    /// Somebody writes how many permits there are.
    pub(crate) fn set_permits(&mut self, permits: u32) -> Sent {
        let mut sent = Vec::new();
        self.next_zxid();
        self.lock.permits = permits;
        self.write(LOCK, &mut sent);
        sent
    }

    fn data(&self, path: &str) -> Bytes {
        match path {
            LOCK if self.lock.permits > 0 => self.lock.permits.to_string().into(),
            _ => Bytes::new(),
        }
    }

    fn stat(&self, path: &str) -> Result<Stat, ErrorCode> {
        if path == LOCK {
            let Lock { mzxid, pzxid, version, .. } = self.lock;
            let (mzxid, pzxid) = (Zxid(mzxid), Zxid(pzxid));
            return Ok(Stat { mzxid, pzxid, version, ..Stat::default() });
        }
        let Node { owner, czxid, mzxid, version } =
            *self.nodes.get(path).ok_or(ErrorCode::NoNode)?;
        let (czxid, mzxid, ephemeral_owner) = (Zxid(czxid), Zxid(mzxid), SessionId(owner));
        Ok(Stat { czxid, mzxid, version, ephemeral_owner, ..Stat::default() })
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

fn event(kind: EventKind, path: String) -> Bytes {
    let header = ReplyHeader { xid: xid::NOTIFICATION, zxid: Zxid(-1), error: 0 };
    let event = WatchEvent { kind, state: KeeperState::SyncConnected, path };
    framed(|out| {
        header.encode(out);
        event.encode(out);
    })
}

fn framed(content: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write_frame(&mut out, content);
    out.freeze()
}
