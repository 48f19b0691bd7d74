//! Random steps: every operation, mostly on a few nodes, so that sessions meet.
//!
//! What is *not* generated, because the servers are known to differ there (`docs/engine.md`):
//! - before 3.9 a path has watches of one mode only per session, so for 3.8 every path has a mode
//!   of its own ([`Style`]), and there are no removals by the modes that 3.9 added;
//! - 3.8 reads the modes of creates in a `multi` in another way, if the request does not fit them;
//! - a `check` outside of a `multi`, after which 3.8 cannot read its own log;
//! - requests that bring ZooKeeper down or that no client may send: a `createTTL` without a TTL
//!   mode and time, `deleteContainer`, `createSession`;
//! - a `createContainer` with an ephemeral mode: until it is applied, ZooKeeper takes the container
//!   for ephemeral, so that requests in the pipeline behind it depend on how fast that is;
//! - paths with characters above U+FFFF where they come back: ZooKeeper does not write UTF-8 then;
//! - writes that cannot be decoded, for which 3.8 counts a transaction.

mod large;
mod quotas;

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use lockkeeper_wire::{
    Acl, AddWatchRequest, AuthRequest, CheckRequest, CreateMode, CreateRequest, CreateTtlRequest,
    DeleteRequest, NodeData, Op, OpCode, PathRequest, PathWatchRequest, Permissions, ReadOp,
    ReconfigRequest, RemoveWatchesRequest, Request, SaslRequest, SetAclRequest, SetDataRequest,
    SetWatchesRequest, Zxid,
};

use crate::known::Version;
use crate::lockstep::{Lockstep, State};
use crate::servers;
use crate::step::{Ask, Hello, Resume, Step, Who};

/// After so many steps the work moves to a new top node: refusing lists and leftovers pile up.
const ERA: u64 = 1500;
/// How many steps are between two sessions that expire, which takes a second each.
const EXPIRY_EVERY: u64 = 25_000;
/// How many steps are between two groups of requests whose length is near the limit.
const LARGE_EVERY: u64 = 10_000;

const ANN: &str = "ann:grDcJ7OS1jCu/cG2TyJHw/I9L8o=";
const BOB: &str = "bob:yqVrLFrvoaI9z9fohteaNPJvRu8=";

const ODD_PATHS: &[&str] = &[
    "",
    "/",
    "a",
    "/zookeeper",
    "/zookeeper/config",
    "/zookeeper/quota",
    "/zookeeper/other",
    "//",
    "/a//b",
    "/a/",
    "/./a",
    "/a/..",
    "/nul\0nul",
    "/bell\u{7}",
    "/private\u{e000}",
    "/missing/one",
];

/// Names that are fine, those that a number behind them makes fine, and those at the edges of what is.
const ODD_NAMES: &[&str] = &[
    ".",
    "..",
    "...",
    " ",
    "-",
    "%d",
    "a\nb",
    "0000000000",
    "-0000000001",
    "\u{7f}",
    "\u{a0}\u{d7ff}",
    "\u{d7ff}",
    "\u{f8ff}",
    "\u{f900}",
    "\u{ffef}",
    "\u{fff0}",
    "\u{fff1}",
    "\u{ffff}",
    "zookeeper_limits",
];

/// What passes as credentials for `digest`, however little it is.
const ODD_CREDENTIALS: &[&str] =
    &["", ":", "::", "ann", "ann:", ":one", "ann:one:two", " a : b ", "a\0:b"];

/// The mode of all watches on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    OneShot,
    Persistent,
    Recursive,
}

#[derive(Debug)]
pub(crate) struct Generator {
    rng: Rng,
    sessions: usize,
    steps: u64,
    /// Nodes that were created lately; some are gone.
    nodes: Vec<String>,
    version: Version,
}

impl Generator {
    pub(crate) fn new(seed: u64, sessions: usize, version: Version) -> Self {
        Self { rng: Rng::with_seed(seed), sessions, steps: 0, nodes: Vec::new(), version }
    }

    /// The next step, which depends on the seed and on the servers' common answers only.
    pub(crate) fn next(&mut self, world: &mut Lockstep) -> Step {
        let created = world.created.drain(..);
        self.nodes.extend(created.filter(|path| !path.starts_with("/zookeeper/quota/")));
        let excess = self.nodes.len().saturating_sub(200);
        self.nodes.drain(..excess);
        let who = self.rng.usize(..self.sessions);
        match world.state(who) {
            State::Vacant => return Step::Open(who, self.hello()),
            State::Dropped => return self.while_dropped(who),
            State::Connected => {}
        }
        self.steps += 1;
        if self.steps % ERA == 1 {
            self.nodes.clear();
            let request = self.create(self.top(), CreateMode::Persistent.flags(), Acl::open());
            return Step::one(who, Request::Create(request));
        }
        if self.has_quotas()
            && let Some(request) = self.first_quotas()
        {
            return Step::one(who, request);
        }
        if self.steps % LARGE_EVERY == LARGE_EVERY / 2 {
            return Step::Ask(who, self.large());
        }
        if self.steps.is_multiple_of(EXPIRY_EVERY) {
            return Step::Expire(who, self.last_words());
        }
        self.while_connected(who, world)
    }

    fn top(&self) -> String {
        format!("/era-{}", self.steps / ERA)
    }

    fn hello(&mut self) -> Hello {
        let timeouts = [30_000, 60_000, 100_000, i32::MAX];
        let timeout_ms = timeouts[self.rng.usize(..timeouts.len())];
        let read_only = [None, Some(false), Some(true)][self.rng.usize(..3)];
        Hello { timeout_ms, read_only }
    }

    fn while_dropped(&mut self, who: Who) -> Step {
        Step::Resume(
            who,
            match self.rng.u32(..10) {
                0 => Resume::Forgetful,
                1 => Resume::Ahead,
                2 => Resume::WrongPassword,
                3 => Resume::Unknown,
                _ => Resume::Rightly,
            },
        )
    }

    fn while_connected(&mut self, who: Who, world: &Lockstep) -> Step {
        match self.rng.u32(..2000) {
            0..=7 => Step::Drop(who),
            8..=11 => Step::Resume(who, Resume::Rightly),
            241 => Step::Resume(who, Resume::WrongPassword),
            242 => Step::Resume(who, Resume::Unknown),
            243 => Step::Resume(who, Resume::Ahead),
            12..=17 => Step::one(who, Request::CloseSession),
            18..=20 if !self.has_quotas() => self.closing_burst(who),
            21..=24 => Step::one(who, self.refused_auth()),
            25..=28 => Step::Ask(who, vec![self.no_request()]),
            29..=50 => Step::one(who, self.auth()),
            51..=54 => {
                Step::one(who, Request::Sasl(SaslRequest { token: Bytes::from_static(b"x") }))
            }
            55..=60 => Step::Ask(who, vec![self.truncated()]),
            244..=246 => Step::Ask(who, vec![self.writes_as_reads()]),
            61..=100 if self.has_quotas() => Step::one(who, self.about_quotas()),
            61..=100 => self.burst(who),
            101..=160 => Step::one(who, self.set_watches(world, who)),
            161..=240 => Step::one(who, self.set_acl()),
            _ => Step::one(who, self.request()),
        }
    }

    /// Requests that are in the pipeline together. Not those whose effect on the requests behind
    /// them depends on how fast ZooKeeper's stages are: lists and credentials.
    fn burst(&mut self, who: Who) -> Step {
        let count = self.rng.usize(2..6);
        let mut asks = Vec::new();
        while asks.len() < count {
            match self.request() {
                Request::Exists(request) => {
                    let request = PathWatchRequest { watch: false, ..request };
                    asks.push(Ask::Good(Request::Exists(request)));
                }
                request => asks.push(Ask::Good(request)),
            }
        }
        Step::Ask(who, asks)
    }

    fn closing_burst(&mut self, who: Who) -> Step {
        let Step::Ask(who, mut asks) = self.burst(who) else {
            return Step::one(who, Request::CloseSession);
        };
        asks.extend(self.last_words());
        asks.push(Ask::Good(Request::CloseSession));
        Step::Ask(who, asks)
    }

    /// Ephemerals that the end of a session will find.
    fn last_words(&mut self) -> Vec<Ask> {
        let mut asks = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            let mode = [CreateMode::Ephemeral, CreateMode::EphemeralSequential];
            let mode = mode[self.rng.usize(..2)];
            let path = self.path();
            let request = self.create(path, mode.flags(), Acl::open());
            asks.push(Ask::Good(Request::Create2(request)));
        }
        asks
    }

    fn request(&mut self) -> Request {
        match self.rng.u32(..100) {
            0..=13 => {
                let request = self.any_create();
                if self.rng.bool() { Request::Create(request) } else { Request::Create2(request) }
            }
            14..=16 => Request::CreateContainer(self.container()),
            17..=19 => Request::CreateTtl(self.create_ttl()),
            20..=35 => {
                Request::Delete(DeleteRequest { path: self.node(), version: self.version() })
            }
            36..=43 => Request::SetData(self.set_data()),
            44..=48 => Request::Exists(self.watched()),
            49..=54 => Request::GetData(self.watched()),
            55..=58 => Request::GetChildren(self.watched()),
            59..=62 => Request::GetChildren2(self.watched()),
            63..=65 => Request::GetAcl(PathRequest { path: self.node() }),
            66 => Request::Sync(PathRequest { path: self.path() }),
            67 => Request::Ping,
            68..=80 => self.multi(),
            81..=84 => self.multi_read(),
            85..=89 => Request::AddWatch(self.add_watch()),
            90..=91 => Request::RemoveWatches(self.remove_watches()),
            92..=93 => Request::CheckWatches(self.remove_watches()),
            94..=95 => Request::GetEphemerals(PathRequest { path: self.prefix() }),
            96..=97 => Request::GetAllChildrenNumber(PathRequest { path: self.path() }),
            98 => Request::WhoAmI,
            _ => Request::Reconfig(ReconfigRequest {
                joining: String::new(),
                leaving: "1".to_owned(),
                new_members: String::new(),
                config_id: -1,
            }),
        }
    }

    /// Any path; usually one that other sessions may choose too.
    fn path(&mut self) -> String {
        match self.rng.u32(..60) {
            0 => ODD_PATHS[self.rng.usize(..ODD_PATHS.len())].to_owned(),
            1 => self.top(),
            _ => {
                let mut path = self.top();
                for _ in 0..self.rng.usize(1..4) {
                    path.push('/');
                    path.push_str(["a", "b", "c", "d-"][self.rng.usize(..4)]);
                }
                path
            }
        }
    }

    /// A path at which there probably is a node.
    fn node(&mut self) -> String {
        if self.nodes.is_empty() || self.rng.u32(..4) == 0 {
            return self.path();
        }
        self.nodes[self.rng.usize(..self.nodes.len())].clone()
    }

    fn prefix(&mut self) -> String {
        match self.rng.u32(..4) {
            0 => ["", "/", " "][self.rng.usize(..3)].to_owned(),
            1 => self.top(),
            _ => self.path(),
        }
    }

    fn version(&mut self) -> i32 {
        match self.rng.u32(..8) {
            0 => 0,
            1 => 1,
            2 => self.rng.i32(-3..6),
            _ => -1,
        }
    }

    fn bytes(&mut self, length: usize) -> Bytes {
        std::iter::repeat_with(|| self.rng.u8(..)).take(length).collect()
    }

    fn few_bytes(&mut self) -> Bytes {
        let length = self.rng.usize(..12);
        self.bytes(length)
    }

    fn data(&mut self) -> NodeData {
        match self.rng.u32(..6) {
            0 => NodeData::NULL,
            1 => Bytes::new().into(),
            _ => self.few_bytes().into(),
        }
    }

    fn acl(&mut self) -> Vec<Acl> {
        match self.rng.u32(..20) {
            0..=13 => Acl::open(),
            14 => Acl::creator_all(),
            _ => (0..self.rng.usize(..4)).map(|_| self.acl_entry()).collect(),
        }
    }

    fn acl_entry(&mut self) -> Acl {
        let ids = [
            ("world", "anyone"),
            ("world", "anyone"),
            ("auth", ""),
            ("digest", ANN),
            ("digest", BOB),
            ("ip", "127.0.0.1"),
            ("ip", "127.0.0.0/8"),
            ("ip", "10.0.0.1"),
        ];
        let odd = [
            ("world", "someone"),
            ("digest", "no-colon"),
            ("digest", "a:b:"),
            ("digest", "a:b:c"),
            ("ip", "127.0.0.1/33"),
            ("ip", "127.0.0.1/"),
            ("ip", "127.0.1"),
            ("ip", "127.000.0.1"),
            ("ip", "0.0.0.0/0"),
            ("none", "x"),
        ];
        let (scheme, id) = match self.rng.u32(..12) {
            0 => odd[self.rng.usize(..odd.len())],
            _ => ids[self.rng.usize(..ids.len())],
        };
        let permissions = match self.rng.u32(..10) {
            0..=3 => Permissions::ALL,
            4 => Permissions(self.rng.i32(-2..70)),
            _ => Permissions(self.rng.i32(0..32)),
        };
        Acl { permissions, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    fn flags(&mut self) -> i32 {
        match self.rng.u32(..30) {
            0 => [-1, 7, 99, i32::MAX][self.rng.usize(..4)],
            1 => self.rng.i32(4..7),
            2..=12 => CreateMode::Persistent.flags(),
            13..=20 => CreateMode::Ephemeral.flags(),
            21..=25 => CreateMode::PersistentSequential.flags(),
            _ => CreateMode::EphemeralSequential.flags(),
        }
    }

    fn create(&mut self, path: String, flags: i32, acl: Vec<Acl>) -> CreateRequest {
        CreateRequest { path, data: self.data(), acl: acl.into(), flags }
    }

    fn any_create(&mut self) -> CreateRequest {
        let path = match self.rng.u32(..500) {
            // In a path that ZooKeeper sends back, such a character would not be UTF-8.
            0 => "/lock\u{1f512}".to_owned(),
            1..=100 => self.child_of_node(),
            _ => self.path(),
        };
        let (flags, acl) = (self.flags(), self.acl());
        self.create(path, flags, acl)
    }

    fn child_of_node(&mut self) -> String {
        let name = match self.rng.u32(..6) {
            0 => ODD_NAMES[self.rng.usize(..ODD_NAMES.len())],
            _ => ["e", "f-", ""][self.rng.usize(..3)],
        };
        let parent = self.node();
        // Whoever deletes it would lose the connection to ZooKeeper, which takes it for a quota's.
        let passes_for_a_quota = name == "zookeeper_limits"
            && parent.starts_with("/zookeeper")
            && !parent.starts_with("/zookeeper/quota");
        format!("{parent}/{}", if passes_for_a_quota { "e" } else { name })
    }

    /// Always with a TTL mode or a time: without both ZooKeeper ends itself.
    fn create_ttl(&mut self) -> CreateTtlRequest {
        let CreateRequest { path, data, acl, .. } = self.any_create();
        let (flags, ttl_ms) = match self.rng.u32(..8) {
            0 => (self.rng.i32(0..5), self.rng.i64(0..5)),
            1 => (5, [0, -1, (1 << 40) - 1, 1 << 40, i64::MAX][self.rng.usize(..5)]),
            _ => (self.rng.i32(5..7), self.rng.i64(1..1_000_000)),
        };
        CreateTtlRequest { path, data, acl, flags, ttl_ms }
    }

    fn set_data(&mut self) -> SetDataRequest {
        SetDataRequest { path: self.node(), data: self.data(), version: self.version() }
    }

    /// Nobody could create the next era's top node below a list that refuses it.
    fn set_acl(&mut self) -> Request {
        let path = match self.node() {
            path if path == "/" || path == self.top() => format!("{path}/a"),
            path => path,
        };
        Request::SetAcl(SetAclRequest { path, acl: self.acl().into(), version: self.version() })
    }

    fn multi(&mut self) -> Request {
        let count = self.rng.usize(..6);
        Request::Multi((0..count).map(|_| self.op()).collect())
    }

    fn op(&mut self) -> Op {
        match self.rng.u32(..20) {
            0..=4 => Op::Create(self.create_in_multi()),
            5..=6 => Op::Create2(self.create_in_multi()),
            7 => self.container_in_multi(),
            8 => Op::CreateTtl(self.create_ttl()),
            9..=12 => Op::Delete(DeleteRequest { path: self.node(), version: self.version() }),
            13..=16 => Op::SetData(self.set_data()),
            _ => Op::Check(CheckRequest { path: self.node(), version: self.version() }),
        }
    }

    fn create_in_multi(&mut self) -> CreateRequest {
        let mut request = self.any_create();
        if self.version == Version::V38 && !(0..5).contains(&request.flags) {
            request.flags = 0;
        }
        request
    }

    fn container(&mut self) -> CreateRequest {
        let mut request = self.any_create();
        if CreateMode::from_flags(request.flags).is_some_and(CreateMode::is_ephemeral) {
            request.flags = CreateMode::Container.flags();
        }
        request
    }

    fn container_in_multi(&mut self) -> Op {
        let mut request = self.container();
        if self.version == Version::V38 {
            request.flags = CreateMode::Container.flags();
        }
        Op::CreateContainer(request)
    }

    fn multi_read(&mut self) -> Request {
        let count = self.rng.usize(..6);
        let mut ops = Vec::new();
        for _ in 0..count {
            let request = PathRequest { path: self.node() };
            let data = self.rng.bool();
            ops.push(if data { ReadOp::GetData(request) } else { ReadOp::GetChildren(request) });
        }
        Request::MultiRead(ops)
    }

    fn watched(&mut self) -> PathWatchRequest {
        let path = self.node();
        let watch = self.may_be(&path, Style::OneShot) && self.rng.bool();
        PathWatchRequest { path, watch }
    }

    fn add_watch(&mut self) -> AddWatchRequest {
        let path = self.path();
        let mode = match self.rng.u32(..20) {
            0 => [-1, 2, 7][self.rng.usize(..3)],
            _ if self.may_be(&path, Style::Persistent) && self.rng.bool() => 0,
            _ if self.may_be(&path, Style::Recursive) => 1,
            _ => return self.add_watch(),
        };
        AddWatchRequest { path, mode }
    }

    fn remove_watches(&mut self) -> RemoveWatchesRequest {
        let mut path = self.path();
        if self.version == Version::V38 && !path.starts_with('/') {
            // 3.8 looks for its parent, and finds an exception.
            path.insert(0, '/');
        }
        let kind = match self.version {
            _ if self.rng.u32(..20) == 0 => [-1, 0, 6][self.rng.usize(..3)],
            Version::Later => self.rng.i32(1..6),
            Version::V38 if self.may_be(&path, Style::OneShot) => self.rng.i32(1..4),
            Version::V38 => 3,
        };
        RemoveWatchesRequest { path, kind }
    }

    /// What a client might have watched, not what it has: more than any client asks for.
    fn set_watches(&mut self, world: &Lockstep, who: Who) -> Request {
        let newest = world.last_zxid.0;
        let relative_zxid = match self.rng.u32(..4) {
            0 => Zxid(newest - self.rng.i64(0..300).min(newest)),
            1 => Zxid([0, newest, i64::MAX][self.rng.usize(..3)]),
            _ => world.last_seen(who),
        };
        let mut request = SetWatchesRequest { relative_zxid, ..SetWatchesRequest::default() };
        for _ in 0..self.rng.usize(..8) {
            let path = self.node();
            let list = match self.rng.u32(..9) {
                0 if self.may_be(&path, Style::Persistent) => &mut request.persistent,
                1 if self.may_be(&path, Style::Recursive) => &mut request.persistent_recursive,
                2..=4 if self.may_be(&path, Style::OneShot) => &mut request.data,
                5..=6 if self.may_be(&path, Style::OneShot) => &mut request.exist,
                7..=8 if self.may_be(&path, Style::OneShot) => &mut request.child,
                _ => continue,
            };
            list.push(path);
        }
        if self.rng.bool() {
            return Request::SetWatches2(request);
        }
        let (persistent, persistent_recursive) = Default::default();
        Request::SetWatches(SetWatchesRequest { persistent, persistent_recursive, ..request })
    }

    fn may_be(&self, path: &str, wanted: Style) -> bool {
        self.version == Version::Later || style(path) == wanted
    }

    fn auth(&mut self) -> Request {
        let (scheme, auth) = match self.rng.u32(..20) {
            0 => ("digest", servers::SUPER),
            1 => ("digest", "super:a wrong password"),
            2..=7 => ("digest", "ann:one"),
            8..=11 => ("digest", "bob:two"),
            12..=13 => ("digest", ODD_CREDENTIALS[self.rng.usize(..ODD_CREDENTIALS.len())]),
            _ => ("ip", "anything"),
        };
        credentials(scheme, auth)
    }

    fn refused_auth(&mut self) -> Request {
        let scheme = ["world", "none", "", "auth"][self.rng.usize(..4)];
        credentials(scheme, "x:y")
    }

    fn no_request(&mut self) -> Ask {
        if self.version == Version::Later && self.rng.u32(..5) == 0 {
            let request = CheckRequest { path: self.path(), version: self.version() };
            return Ask::Good(Request::Check(request));
        }
        let op = [0, 10, 23, 99, 108, 1000, -2, -1, i32::MIN][self.rng.usize(..9)];
        Ask::Odd { op, body: self.few_bytes() }
    }

    fn writes_as_reads(&mut self) -> Ask {
        const HEADER: usize = 8;
        let mut request = BytesMut::new();
        self.multi().encode(0, &mut request);
        Ask::Odd { op: OpCode::MultiRead.code(), body: request.split_off(HEADER).freeze() }
    }

    fn truncated(&mut self) -> Ask {
        let reads = [3, 4, 6, 8, 9, 12, 17, 18, 22, 101, 103, 104, 105, 106];
        let writes = [1, 2, 5, 7, 14, 15, 16, 19, 21];
        let op = match self.version {
            Version::Later if self.rng.bool() => writes[self.rng.usize(..writes.len())],
            _ => reads[self.rng.usize(..reads.len())],
        };
        let body = [&[][..], &[0, 0, 0], &[0, 0, 0, 9, b'/'], &[0xff, 0xff, 0xff, 0xf0, 0, 0]]
            [self.rng.usize(..4)];
        Ask::Odd { op, body: Bytes::from_static(body) }
    }
}

fn credentials(scheme: &str, auth: &'static str) -> Request {
    let auth = Bytes::from_static(auth.as_bytes());
    Request::Auth(AuthRequest { kind: 0, scheme: scheme.to_owned(), auth })
}

/// The one mode of watches that a path may have.
fn style(path: &str) -> Style {
    let sum: usize = path.bytes().map(usize::from).sum();
    match sum % 5 {
        0 => Style::Persistent,
        1 => Style::Recursive,
        _ => Style::OneShot,
    }
}
