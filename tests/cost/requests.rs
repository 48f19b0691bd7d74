//! The frames of a step.

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    Acl, AddWatchRequest, AuthRequest, CheckRequest, CreateMode, CreateRequest, DeleteRequest,
    MAX_FRAME, Op, PathRequest, PathWatchRequest, Permissions, ReadOp, RemoveWatchesRequest,
    Request, SetAclRequest, SetDataRequest, SetWatchesRequest, Zxid,
};

use crate::scenario::Step;

/// Declares [`Verb`] with the names that scenarios have for them.
macro_rules! verbs {
    ($($name:ident = $text:literal,)*) => {
        /// What a step does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Verb { $($name,)* }

        impl Verb {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

verbs! {
    // What is not a request.
    Connect = "connect",
    Drop = "drop",
    Wait = "wait",
    // Requests.
    Auth = "auth",
    Close = "close",
    Create = "create",
    CreateEphemeral = "create-ephemeral",
    CreateSequential = "create-sequential",
    CreateWithList = "create-with-list",
    Delete = "delete",
    SetData = "set-data",
    SetAcl = "set-acl",
    GetData = "get-data",
    Exists = "exists",
    GetChildren = "get-children",
    GetChildren2 = "get-children2",
    GetAcl = "get-acl",
    GetEphemerals = "get-ephemerals",
    GetNumber = "get-number",
    WhoAmI = "who-am-i",
    MultiCreate = "multi-create",
    MultiCreate2 = "multi-create2",
    MultiCreateWithList = "multi-create-with-list",
    MultiSetData = "multi-set-data",
    MultiDelete = "multi-delete",
    MultiCheck = "multi-check",
    MultiGetData = "multi-get-data",
    MultiGetChildren = "multi-get-children",
    WatchData = "watch-data",
    WatchExists = "watch-exists",
    WatchChildren = "watch-children",
    AddWatch = "add-watch",
    SetWatches = "set-watches",
    RemoveWatches = "remove-watches",
}

/// How long a request becomes at most before it is thrown away as longer than a frame: what is made for
/// it here would count as memory of the server.
const MOST_BYTES: usize = 2 * MAX_FRAME;
/// How many entries the lists of one request have together at most, for the same reason.
const MOST_ENTRIES: u32 = 100_000;

impl Step {
    /// The request of the `round`th time; nothing for what is not a request.
    pub(crate) fn request(&self, round: u32) -> Option<Request> {
        let path = || self.path(round);
        let watched = |watch| PathWatchRequest { path: path(), watch };
        Some(match self.verb {
            Verb::Connect | Verb::Drop | Verb::Wait => return None,
            Verb::Auth => Request::Auth(AuthRequest {
                kind: 0,
                scheme: "digest".to_owned(),
                auth: Bytes::from(format!("user-{round}:{}", "p".repeat(self.length()))),
            }),
            Verb::Close => Request::CloseSession,
            Verb::Create => Request::Create(self.create(path(), 0, Acl::open())),
            Verb::CreateEphemeral => {
                let flags = CreateMode::Ephemeral.flags();
                Request::Create(self.create(path(), flags, Acl::open()))
            }
            Verb::CreateSequential => {
                let flags = CreateMode::EphemeralSequential.flags();
                Request::Create2(self.create(path(), flags, Acl::open()))
            }
            Verb::CreateWithList => Request::Create(self.create(path(), 0, self.list(self.parts))),
            Verb::Delete => Request::Delete(DeleteRequest { path: path(), version: -1 }),
            Verb::SetData => Request::SetData(self.set_data(path())),
            Verb::SetAcl => Request::SetAcl(SetAclRequest {
                path: path(),
                acl: self.list(self.parts).into(),
                version: -1,
            }),
            Verb::GetData => Request::GetData(watched(false)),
            Verb::Exists => Request::Exists(watched(false)),
            Verb::GetChildren => Request::GetChildren(watched(false)),
            Verb::GetChildren2 => Request::GetChildren2(watched(false)),
            Verb::GetAcl => Request::GetAcl(PathRequest { path: path() }),
            Verb::GetEphemerals => Request::GetEphemerals(PathRequest { path: path() }),
            Verb::GetNumber => Request::GetAllChildrenNumber(PathRequest { path: path() }),
            Verb::WhoAmI => Request::WhoAmI,
            Verb::MultiCreate => self
                .multi(round, self.length(), |path| Op::Create(self.create(path, 0, Acl::open()))),
            Verb::MultiCreate2 => self
                .multi(round, self.length(), |path| Op::Create2(self.create(path, 0, Acl::open()))),
            Verb::MultiCreateWithList => {
                let entries = self.bytes.min(MOST_ENTRIES / self.parts.max(1));
                self.multi(round, self.length(), |path| {
                    Op::Create(self.create(path, 0, self.list(entries)))
                })
            }
            Verb::MultiSetData => {
                self.multi(round, self.length(), |path| Op::SetData(self.set_data(path)))
            }
            Verb::MultiDelete => {
                self.multi(round, 0, |path| Op::Delete(DeleteRequest { path, version: -1 }))
            }
            Verb::MultiCheck => {
                self.multi(round, 0, |path| Op::Check(CheckRequest { path, version: -1 }))
            }
            Verb::MultiGetData => Request::MultiRead(
                self.paths(round).map(|path| ReadOp::GetData(PathRequest { path })).collect(),
            ),
            Verb::MultiGetChildren => Request::MultiRead(
                self.paths(round).map(|path| ReadOp::GetChildren(PathRequest { path })).collect(),
            ),
            Verb::WatchData => Request::GetData(watched(true)),
            Verb::WatchExists => Request::Exists(watched(true)),
            Verb::WatchChildren => Request::GetChildren(watched(true)),
            Verb::AddWatch => Request::AddWatch(AddWatchRequest {
                path: path(),
                mode: i32::from(self.parts.is_multiple_of(2)),
            }),
            Verb::SetWatches => self.set_watches(round),
            Verb::RemoveWatches => {
                Request::RemoveWatches(RemoveWatchesRequest { path: path(), kind: 3 })
            }
        })
    }

    /// A `multi` of operations, each with a path and so many bytes besides.
    fn multi(&self, round: u32, each: usize, op: impl Fn(String) -> Op) -> Request {
        let most = MOST_BYTES / each.max(1);
        Request::Multi(self.paths(round).take(most).map(op).collect())
    }

    /// The paths of the parts of a request.
    fn paths(&self, round: u32) -> impl Iterator<Item = String> {
        let first = round.wrapping_mul(self.parts);
        let mut bytes = 0;
        (0..self.parts).map(move |part| self.path(first.wrapping_add(part))).take_while(
            move |path| {
                bytes += path.len();
                bytes <= MOST_BYTES
            },
        )
    }

    fn path(&self, number: u32) -> String {
        match self.path {
            0 => format!("/n-{number}"),
            1 => "/d".to_owned(),
            2 => format!("/d/n-{number}"),
            3 => "/x".repeat(1 + number as usize % 20_000),
            4 => format!("/{}-{number}", "l".repeat(self.length())),
            5 => "/".to_owned(),
            6 => "/zookeeper/quota/d/zookeeper_limits".to_owned(),
            _ => format!("/d/d/n-{number}"),
        }
    }

    fn create(&self, path: String, flags: i32, acl: Vec<Acl>) -> CreateRequest {
        CreateRequest { path, data: self.data().into(), acl: acl.into(), flags }
    }

    fn set_data(&self, path: String) -> SetDataRequest {
        SetDataRequest { path, data: self.data().into(), version: -1 }
    }

    fn data(&self) -> Bytes {
        match self.path {
            6 => Bytes::from(format!("count={},bytes={}", self.parts, self.bytes)),
            _ => Bytes::from(vec![b'v'; self.length()]),
        }
    }

    /// No longer than a frame can be.
    fn length(&self) -> usize {
        self.bytes as usize
    }

    fn list(&self, entries: u32) -> Vec<Acl> {
        let entry = |number: u32| {
            let (scheme, id) = match (self.bytes.wrapping_add(number)) % 4 {
                0 => ("world", "anyone".to_owned()),
                1 => (
                    "ip",
                    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255),
                ),
                2 => ("digest", format!("user-{number}:grDcJ7OS1jCu/cG2TyJHw/I9L8o=")),
                _ => ("auth", String::new()),
            };
            Acl { permissions: Permissions::ALL, scheme: scheme.to_owned(), id }
        };
        match entries {
            0 => Acl::creator_all(),
            entries => (0..entries).map(entry).collect(),
        }
    }

    fn set_watches(&self, round: u32) -> Request {
        let paths = || self.paths(round).collect::<Vec<_>>();
        let mut request = SetWatchesRequest { relative_zxid: Zxid(1), ..Default::default() };
        match self.bytes % 5 {
            0 => request.data = paths(),
            1 => request.exist = paths(),
            2 => request.child = paths(),
            3 => request.persistent = paths(),
            _ => request.persistent_recursive = paths(),
        }
        Request::SetWatches2(request)
    }

    /// The frame of the `round`th time, without its length prefix.
    pub(crate) fn frame(&self, round: u32) -> Option<Bytes> {
        self.request(round).map(|request| frame(&request))
    }
}

/// The frame of a request, without its length prefix.
pub(crate) fn frame(request: &Request) -> Bytes {
    let mut frame = BytesMut::new();
    request.encode(request.reserved_xid().unwrap_or(1), &mut frame);
    frame.freeze()
}
