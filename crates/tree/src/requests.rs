//! One request: from its frame to the reply.

use bytes::Bytes;
use lockkeeper_wire::{
    AuthRequest, DecodeError, Decoder, ErrorCode, OpCode, PathWatchRequest, Record as _,
    ReplyHeader, Request, RequestHeader, Response, Zxid, xid,
};

use crate::auth;
use crate::connections::RequestContext;
use crate::notices::Notice;
use crate::output::{CloseReason, ConnectionId};
use crate::reads::View;
use crate::rearming::{Left, Rearming};
use crate::server::Server;
use crate::watchers::Kinds;

/// The zxid of replies without a transaction.
pub(crate) const NO_ZXID: Zxid = Zxid(-1);

/// The reply to a request.
pub(crate) type Reply = Result<Response, ErrorCode>;

impl Server {
    pub(crate) fn request(&mut self, context: RequestContext, frame: Bytes) {
        self.sessions.hear_from(context.now.monotonic, context.session);
        let mut input = Decoder::new(frame);
        let header = match RequestHeader::decode(&mut input) {
            Ok(header) => header,
            Err(error) => return self.close(context.connection, CloseReason::BadFrame(error)),
        };
        match Request::decode(header.op, &mut input) {
            Ok(request) => self.dispatch(context, header.xid, request),
            Err(error) => self.undecodable(context, header, error),
        }
    }

    /// Handles a portion of a long `setWatches`. Returns whether more of it remains.
    pub(crate) fn rearm(&mut self, context: RequestContext, mut rearming: Box<Rearming>) -> bool {
        self.sessions.hear_from(context.now.monotonic, context.session);
        let reply = match rearming.next_portion() {
            Ok(request) => self.set_watches(context.connection, &request, rearming.left),
            Err(_) => Err(ErrorCode::MarshallingError),
        };

        let goes_on = reply.is_ok() && rearming.left.count > 0;
        if !goes_on {
            self.reply(context.connection, rearming.xid, self.last_zxid, reply);
        } else if let Some(connection) = self.connections.get_mut(&context.connection) {
            connection.rearming = Some(rearming);
        }
        goes_on
    }

    fn undecodable(&mut self, context: RequestContext, header: RequestHeader, error: DecodeError) {
        let code = match OpCode::from_code(header.op) {
            // A client that cannot encode an authentication request is disconnected.
            Some(OpCode::Auth | OpCode::Sasl) => {
                return self.close(context.connection, CloseReason::BadFrame(error));
            }
            // Unlike other writes, a `multi` takes its transaction number before it is decoded.
            Some(OpCode::Multi) => {
                self.next_stamp(context.now);
                ErrorCode::MarshallingError
            }
            // As in ZooKeeper, the connection is closed.
            None | Some(OpCode::DeleteContainer | OpCode::CreateSession | OpCode::Error) => {
                return self.no_request(context, header.xid, header.op);
            }
            Some(_) => ErrorCode::MarshallingError,
        };
        self.reply(context.connection, header.xid, self.last_zxid, Err(code));
    }

    /// The requests with a special reply; all others go to [`answer`](Self::answer).
    fn dispatch(&mut self, context: RequestContext, xid: i32, request: Request) {
        match request {
            Request::Ping => {
                self.reply(context.connection, xid::PING, self.last_zxid, Ok(Response::Empty));
            }
            Request::Auth(auth) => self.authenticate(context.connection, xid, &auth),
            // Like a ZooKeeper server without SASL: nothing is proven, and it is not an error.
            Request::Sasl(_) => {
                self.reply(context.connection, xid, Zxid(0), Ok(Response::Sasl(None)));
            }
            Request::CloseSession => self.close_session(context, xid),
            // Valid only in a `multi`.
            Request::Check(_) => self.no_request(context, xid, request.op().code()),
            request => {
                let reply = self.answer(context, request);
                self.reply(context.connection, xid, self.last_zxid, reply);
            }
        }
    }

    fn no_request(&mut self, context: RequestContext, xid: i32, op: i32) {
        self.reply(context.connection, xid, NO_ZXID, Err(ErrorCode::Unimplemented));
        self.close(context.connection, CloseReason::UnknownOp(op));
    }

    fn answer(&mut self, context: RequestContext, request: Request) -> Reply {
        let connection = context.connection;
        match &request {
            Request::Exists(r) => self.exists(connection, r),
            Request::GetData(r) => {
                self.watched(connection, r, Kinds::DATA, |view| view.data(&r.path))
            }
            Request::GetChildren(r) => {
                self.watched(connection, r, Kinds::CHILD, |view| view.children(&r.path))
            }
            Request::GetChildren2(r) => {
                self.watched(connection, r, Kinds::CHILD, |view| view.children_and_stat(&r.path))
            }
            Request::GetAcl(r) => self.view(connection).acl(&r.path),
            Request::Sync(r) => Ok(Response::Path(r.path.clone())),
            Request::MultiRead(ops) => {
                self.check_ops(connection, ops.len(), 0)?;
                self.view(connection).multi(ops)
            }
            Request::GetEphemerals(r) => self.view(connection).ephemerals(context.session, &r.path),
            Request::GetAllChildrenNumber(r) => self.view(connection).descendants(&r.path),
            Request::WhoAmI => Ok(self.view(connection).identities()),
            Request::SetWatches(r) | Request::SetWatches2(r) => {
                self.set_watches(connection, r, Left::default())
            }
            Request::AddWatch(r) => self.add_watch(connection, r),
            Request::CheckWatches(r) => self.check_watches(connection, r),
            Request::RemoveWatches(r) => self.remove_watches(connection, r),
            _ => self.write(context, request),
        }
    }

    fn view(&self, connection: ConnectionId) -> View<'_> {
        View {
            tree: &self.tree,
            identities: self.identities(connection),
            connection,
            max_frame: self.config.max_frame,
            notices: &self.notices,
        }
    }

    /// A read that sets a watch if it succeeds.
    fn watched(
        &mut self,
        connection: ConnectionId,
        request: &PathWatchRequest,
        kinds: Kinds,
        read: impl FnOnce(View<'_>) -> Reply,
    ) -> Reply {
        let response = read(self.view(connection))?;
        if request.watch {
            self.watch(connection, &request.path, kinds)?;
        }
        Ok(response)
    }

    /// Unlike other reads, it can also watch a missing node.
    fn exists(&mut self, connection: ConnectionId, request: &PathWatchRequest) -> Reply {
        let reply = self.view(connection).exists(&request.path);
        if request.watch && matches!(reply, Ok(_) | Err(ErrorCode::NoNode)) {
            self.watch(connection, &request.path, Kinds::DATA)?;
        }
        reply
    }

    fn authenticate(&mut self, id: ConnectionId, xid: i32, request: &AuthRequest) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let identities =
            auth::authenticate(request, connection.peer, &connection.identities, &self.config);
        if identities.is_empty() {
            return self.refuse_credentials(id, xid, CloseReason::AuthFailed);
        }

        let before = connection.identity_bytes();
        let added = identities.into_iter().try_for_each(|who| connection.add_identity(who));
        self.identity_bytes += connection.identity_bytes() - before;
        if let Err(reason) = added {
            return self.refuse_credentials(id, xid, reason);
        }
        // ZooKeeper replies to this before the request enters its order of transactions.
        self.reply(id, xid, Zxid(0), Ok(Response::Empty));
    }

    fn refuse_credentials(&mut self, connection: ConnectionId, xid: i32, reason: CloseReason) {
        self.reply(connection, xid, Zxid(0), Err(ErrorCode::AuthFailed));
        self.close(connection, reason);
    }

    fn close_session(&mut self, context: RequestContext, xid: i32) {
        self.end_closed(context.now, context.session);
        self.reply(context.connection, xid, self.last_zxid, Ok(Response::Empty));
        self.close(context.connection, CloseReason::SessionClosed);
    }

    fn reply(&mut self, connection: ConnectionId, xid: i32, zxid: Zxid, reply: Reply) {
        let error = |code: ErrorCode| ReplyHeader { xid, zxid, error: code.code() };
        let response = match reply {
            Ok(response) => response,
            Err(code) => return self.outbox.frame(connection, |out| error(code).encode(out)),
        };

        let max = self.config.max_frame;
        let sent = self.outbox.frame_within(connection, max, |out| {
            ReplyHeader { xid, zxid, error: 0 }.encode(out);
            response.encode(out);
        });

        // The client gets an error, because the connection is still usable.
        if let Err(len) = sent {
            self.notices.add(Notice::ReplyTooLong { connection, len, max });
            let code = ErrorCode::MarshallingError;
            self.outbox.frame(connection, |out| error(code).encode(out));
        }
    }
}
