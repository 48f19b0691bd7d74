//! Inspects one server of an ensemble, to find out why clients make no progress.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, ErrorCode, OpCode, PathRequest, PathWatchRequest,
    Record, ReplyHeader, Request, Response, SessionId, Stat, Zxid,
};
use tokio::net::TcpStream;

use super::server::ZooKeeper;
use crate::frames;

/// Longer than a working server takes to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Longer than any inspection takes: no pings keep the session alive.
const SESSION_MS: i32 = 20_000;

/// The session id and password that a reconnect needs.
#[derive(Clone, Debug)]
pub struct Ticket {
    session: SessionId,
    password: Bytes,
}

/// A connection to one server that speaks the protocol by hand, because our client is in question. It sets no watches
/// and writes nothing but its session.
#[derive(Debug)]
pub struct Probe {
    stream: TcpStream,
    input: BytesMut,
    ticket: Ticket,
    xid: i32,
    /// The zxid of the latest reply.
    zxid: Zxid,
}

/// A part of the tree as one server shows it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The server had applied at least this before the first read.
    pub from: Zxid,
    /// The last transaction that the server can have applied when it answered the last read.
    pub to: Zxid,
    /// The nodes by their paths.
    pub nodes: BTreeMap<String, Stat>,
}

impl Probe {
    /// Connects to a server. With a ticket it resumes that session: a server that cannot commit accepts this, but no
    /// new session.
    ///
    /// # Errors
    ///
    /// The server does not answer within a few seconds, or refuses the session.
    pub async fn connect(server: &ZooKeeper, ticket: Option<&Ticket>) -> Result<Self> {
        let stream = server.connect().await?;
        let hello = match ticket {
            Some(Ticket { session, password }) => ConnectRequest {
                session_id: *session,
                password: password.clone(),
                ..ConnectRequest::new_session(SESSION_MS)
            },
            None => ConnectRequest::new_session(SESSION_MS),
        };

        let ticket = Ticket { session: SessionId::NONE, password: Bytes::new() };
        let mut probe =
            Self { stream, input: BytesMut::new(), ticket, xid: 0, zxid: Zxid::default() };
        frames::send(&mut probe.stream, |out| hello.encode(out)).await?;
        let welcome = ConnectResponse::decode(&mut Decoder::new(probe.frame().await?))?;
        ensure!(welcome.timeout_ms > 0, "the session is over");
        probe.ticket = Ticket { session: welcome.session_id, password: welcome.password };
        Ok(probe)
    }

    /// The data with which another connection resumes the session.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Makes the server catch up with its leader.
    ///
    /// # Errors
    ///
    /// The server does not confirm it within a few seconds.
    pub async fn sync(&mut self) -> Result<()> {
        self.ask(Request::Sync(PathRequest { path: "/".to_owned() })).await.map(drop)
    }

    /// All nodes below a path, as this server has them.
    ///
    /// # Errors
    ///
    /// The server does not answer within a few seconds.
    pub async fn view(&mut self, root: &str) -> Result<View> {
        self.ask(exists(root)).await?;
        let mut view = View { from: self.zxid, ..View::default() };

        let mut paths = vec![root.to_owned()];
        while let Some(path) = paths.pop() {
            let list = PathWatchRequest { path: path.clone(), watch: false };
            let Some(Response::Children { names, stat }) =
                self.ask(Request::GetChildren2(list)).await?
            else {
                continue;
            };
            paths.extend(names.iter().map(|name| format!("{path}/{name}")));
            view.nodes.insert(path, stat);
        }

        view.to = self.zxid;
        Ok(view)
    }

    /// Ends the session.
    ///
    /// # Errors
    ///
    /// The server does not confirm the end within a few seconds.
    pub async fn close(mut self) -> Result<()> {
        self.ask(Request::CloseSession).await.map(drop)
    }

    /// `None` if the node does not exist.
    async fn ask(&mut self, request: Request) -> Result<Option<Response>> {
        self.xid += 1;
        let xid = self.xid;
        frames::send(&mut self.stream, |out| request.encode(xid, out)).await?;
        let mut reply = Decoder::new(self.frame().await?);
        let header = ReplyHeader::decode(&mut reply)?;
        ensure!(
            header.xid == self.xid,
            "an answer to request {} instead of {}",
            header.xid,
            self.xid
        );
        self.zxid = header.zxid;

        let op = match &request {
            Request::Exists(_) => OpCode::Exists,
            Request::GetChildren2(_) => OpCode::GetChildren2,
            Request::Sync(_) => OpCode::Sync,
            _ => return Ok(None),
        };
        match header.error {
            0 => Ok(Some(Response::decode(op, &mut reply)?)),
            error if error == ErrorCode::NoNode.code() => Ok(None),
            error => bail!("error {error} for {request:?}"),
        }
    }

    async fn frame(&mut self) -> Result<Bytes> {
        let frame = frames::next(&mut self.stream, &mut self.input);
        let answered = tokio::time::timeout(ANSWER_LIMIT, frame).await;
        answered.with_context(|| format!("no answer within {ANSWER_LIMIT:?}"))?
    }
}

fn exists(path: &str) -> Request {
    Request::Exists(PathWatchRequest { path: path.to_owned(), watch: false })
}

impl View {
    /// The nodes that this server has and that the other one should have had too, but did not: each existed before the
    /// other view began, and still exists after that ended. The histories of the two servers then differ, and no
    /// message in flight repairs that.
    pub fn lost_by<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a str, &'a Stat)> {
        let was_there = |stat: &Stat| stat.czxid <= other.from && other.to <= self.from;
        self.nodes.iter().filter_map(move |(path, stat)| {
            let lost = was_there(stat)
                && other.nodes.get(path).is_none_or(|there| there.czxid != stat.czxid);
            lost.then_some((path.as_str(), stat))
        })
    }
}

/// The transactions after which a server has reported in its log that its tree differs from its leader's: ZooKeeper
/// sends a digest of the tree with each transaction.
///
/// Only reports about commits count: while a server reads its log, which may contain a transaction twice, the digests
/// differ briefly without harm, and another thread reports it.
pub fn complaints_in(log: &str) -> impl Iterator<Item = Zxid> {
    const COMPLAINT: &str = "Message:Digests are not matching. Value is Zxid. Value:";
    let commits = log.lines().filter(|line| line.contains("[CommitProcessor:"));
    let zxids = commits.filter_map(|line| line.split_once(COMPLAINT)?.1.trim().parse().ok());
    zxids.map(Zxid)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::path::Path;

    use super::*;
    use crate::peers::{self, Peer};
    use crate::scratch;
    use crate::zookeeper::Config;
    use crate::zookeeper::server::free_ports;

    fn view(from: i64, to: i64, nodes: &[(&str, i64)]) -> View {
        let node = |(path, czxid): &(&str, i64)| {
            (String::from(*path), Stat { czxid: Zxid(*czxid), ..Stat::default() })
        };
        View { from: Zxid(from), to: Zxid(to), nodes: nodes.iter().map(node).collect() }
    }

    fn lost(one: &View, other: &View) -> Vec<String> {
        one.lost_by(other).map(|(path, _)| path.to_owned()).collect()
    }

    #[test]
    fn only_what_the_other_must_have_had_is_lost() {
        let with = view(20, 20, &[("/a", 10), ("/b", 15)]);
        assert_eq!(lost(&with, &view(20, 20, &[("/a", 10)])), ["/b"]);
        assert_eq!(lost(&with, &view(17, 19, &[("/a", 10)])), ["/b"]);
        assert_eq!(lost(&with, &view(20, 20, &[("/a", 10), ("/b", 15)])), [""; 0]);
        // It has a different node of that name.
        assert_eq!(lost(&with, &view(20, 20, &[("/a", 10), ("/b", 16)])), ["/b"]);
        // It lags and has not seen the node yet.
        assert_eq!(lost(&with, &view(14, 20, &[("/a", 10)])), [""; 0]);
        // It is ahead: the node may have been deleted.
        assert_eq!(lost(&with, &view(20, 21, &[("/a", 10)])), [""; 0]);
    }

    #[test]
    fn only_complaints_about_commits_count() {
        let log = "\
            [main] WARN o.a.z.server.DataTree - Message:Digests are not matching. Value is Zxid. \
            Value:8589935160\n\
            [CommitProcessor:2] WARN o.a.z.server.DataTree - [121 times] Message: Digests are not \
            matching. Value is Zxid. Last value:60129542275\n\
            [CommitProcessor:1] WARN o.a.z.server.DataTree - Message:Digests are not matching. Value \
            is Zxid. Value:30064771073\n\
            [CommitProcessor:1] INFO o.a.z.server.quorum.LearnerSessionTracker - Committing global \
            session 0x20002e08eb80000\n";
        assert_eq!(complaints_in(log).collect::<Vec<_>>(), [Zxid(0x7_0000_0001)]);
    }

    #[tokio::test]
    async fn all_servers_show_the_same_to_a_session_that_goes_from_one_to_the_next() -> Result<()> {
        if !peers::ready("testkit: probes", &[Peer::ZooKeeper]) {
            return Ok(());
        }
        let ensemble = Config::new().ensemble(3).await?;
        ensemble.chroot("locks").await?;
        let mut first = Probe::connect(ensemble.server(0), None).await?;
        let ticket = first.ticket().clone();
        let view = first.view("/locks").await?;
        assert_eq!(view.nodes.keys().collect::<Vec<_>>(), ["/locks"]);
        for index in [1, 2] {
            let mut probe = Probe::connect(ensemble.server(index), Some(&ticket)).await?;
            assert_eq!(probe.ticket().session, ticket.session);
            probe.sync().await?;
            let there = probe.view("/locks").await?;
            assert_eq!(there.nodes, view.nodes);
            assert_eq!(there.lost_by(&view).count() + view.lost_by(&there).count(), 0);
            if index == 2 {
                probe.close().await?;
            }
        }
        Ok(())
    }

    /// The log of a follower has other transactions than its leader's under the same numbers: ZooKeeper does not
    /// compare them when the follower rejoins.
    #[tokio::test]
    async fn servers_with_different_histories_are_found_out() -> Result<()> {
        if !peers::ready("testkit: servers that disagree", &[Peer::ZooKeeper]) {
            return Ok(());
        }
        let mut ensemble = Config::new().ensemble(3).await?;
        ensemble.chroot("before").await?;
        let follower = ensemble.follower().await?;
        Probe::connect(ensemble.server(follower), None).await?.sync().await?;
        ensemble.kill(follower);
        let data = ensemble.server(follower).folder().join("data/version-2");
        alone_with(&data, "only-there").await?;
        let leader = ensemble.leader().await?;
        for name in ["one", "two", "three", "four"] {
            ensemble.server(leader).chroot(name).await?;
        }
        ensemble.restart(follower).await?;

        let mut right = Probe::connect(ensemble.server(leader), None).await?;
        let right = right.view("/only-there").await?;
        let mut wrong = Probe::connect(ensemble.server(follower), None).await?;
        wrong.sync().await?;
        let wrong = wrong.view("/only-there").await?;
        assert_eq!(lost(&wrong, &right), ["/only-there"]);
        assert_eq!(lost(&right, &wrong), [""; 0]);
        let counts = ensemble.server(follower).four_letter("mntr").await?;
        assert!(counts.contains("zk_digest_mismatches_count\t"), "{counts}");
        assert!(!counts.contains("zk_digest_mismatches_count\t0\n"), "{counts}");
        Ok(())
    }

    /// Runs a standalone server on this data and creates a node.
    async fn alone_with(data: &Path, name: &str) -> Result<()> {
        let folder = scratch::folder()?;
        let [port] = free_ports()?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let mut server =
            ZooKeeper::prepare(&Config::new(), folder.path().to_owned(), address, &[])?;
        let copy = folder.path().join("data/version-2");
        copy_files(data, &copy)?;
        server.restart().await?;
        server.chroot(name).await?;
        server.kill();
        copy_files(&copy, data)
    }

    fn copy_files(from: &Path, to: &Path) -> Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
        Ok(())
    }
}
