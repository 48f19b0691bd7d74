//! Our groups beside Curator's `GroupMember` and kazoo's parties on the same path: everybody sees the same
//! members, kills included. What comes of a member whose session ends is looked at one by one.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    Acl, Client, CreateMode, DefaultAcl, Group, GroupError, GroupLayout, Members, Membership,
    Permissions, ZnodePath,
};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::proxy::Proxy;
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{java, peers, python, scratch};
use tempfile::TempDir;

use crate::Language::{self, Java, Python};
use crate::{LIMIT, SESSION_MS};

const GROUP: &str = "/members";

/// How often a program looks before it is said that something does not happen.
const LOOKS: usize = 60;

/// A layout of ours, and what they call it.
#[derive(Clone, Copy)]
struct GroupKind {
    layout: GroupLayout,
    language: Language,
    theirs: &'static str,
}

const MEMBER: GroupKind =
    GroupKind { layout: GroupLayout::CuratorMember, language: Java, theirs: "member" };
const PARTY: GroupKind =
    GroupKind { layout: GroupLayout::KazooParty, language: Python, theirs: "party" };
const SHALLOW: GroupKind =
    GroupKind { layout: GroupLayout::KazooShallowParty, language: Python, theirs: "shallow" };

impl GroupKind {
    fn is_ready(self) -> bool {
        let peer = match self.language {
            Java => peers::Peer::Curator,
            Python => peers::Peer::Kazoo,
        };
        peers::ready("interop: groups", &[peers::Peer::ZooKeeper, peer])
    }

    fn group(self, client: &Client) -> Result<Group> {
        Ok(Group::builder(client, GROUP).layout(self.layout).build()?)
    }
}

/// A program that is a member, and says again and again who is there.
struct Theirs {
    id: String,
    process: Process,
    // After the program, which writes into it.
    _folder: TempDir,
}

impl Theirs {
    fn start(kind: GroupKind, connect: &str, id: &str) -> Result<Self> {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let folder = scratch::folder()?;
        let mut command = match kind.language {
            Java => java::Program::compile(&interop.join("CuratorGroup.java"))?.command(),
            Python => python::command(&interop.join("kazoo_party.py")),
        };
        command.args([connect, GROUP]);
        if kind.language == Python {
            command.arg(kind.theirs);
        }
        command.args([id, SESSION_MS]);
        let process = Process::spawn("member", &command, folder.path())?;
        Ok(Self { id: id.to_owned(), process, _folder: folder })
    }

    /// Who was there at each look, beginning after so many lines.
    fn looks(&self, after: usize) -> Vec<BTreeSet<String>> {
        let text = self.process.stdout();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let looks = whole.lines().skip(after).filter_map(|line| line.strip_prefix("LOOK "));
        let split = |look: &str| look.split(',').map(str::to_owned).collect();
        looks.map(split).collect()
    }

    fn lines(&self) -> usize {
        self.process.stdout().lines().count()
    }

    async fn sees(&self, who: &BTreeSet<String>) -> Result<()> {
        let after = self.lines();
        let seen = until(|| self.looks(after).last() == Some(who)).await;
        let tail = || format!("{} does not see {who:?}: {}", self.id, self.process.tail());
        seen.with_context(tail)
    }
}

async fn until(mut is_so: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is_so() {
        ensure!(start.elapsed() < LIMIT, "it takes longer than {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn ids(members: &Members) -> BTreeSet<String> {
    members.view().members().map(|member| member.id).collect()
}

#[tokio::test]
async fn a_group_with_curator() -> Result<()> {
    together(MEMBER).await
}

#[tokio::test]
async fn a_party_with_kazoo() -> Result<()> {
    together(PARTY).await
}

#[tokio::test]
async fn a_shallow_party_with_kazoo() -> Result<()> {
    together(SHALLOW).await
}

/// Members of both join, leave and are killed; after each step everybody sees who is there.
async fn together(kind: GroupKind) -> Result<()> {
    if !kind.is_ready() {
        return Ok(());
    }
    let seed = std::env::var("LOCKKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("{}: LOCKKEEPER_SEED={seed}", kind.theirs);
    let mut random = fastrand::Rng::with_seed(seed);
    let is_long = std::env::var_os("LOCKKEEPER_LONG").is_some_and(|value| value == "1");
    let time = Duration::from_secs(if is_long { 30 } else { 8 });

    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let group = kind.group(&client)?;
    let members = group.watch().await?;
    let mut theirs = Vec::new();
    for number in 0..2 {
        theirs.push(Theirs::start(kind, &connect, &format!("theirs-{number}"))?);
    }
    let mut ours: Vec<Membership> = vec![group.join("ours-0", "").await?];
    everybody_sees(&members, &ours, &theirs).await?;

    let (start, mut kills) = (Instant::now(), 0);
    for step in 10.. {
        if start.elapsed() > time && kills > 0 {
            break;
        }
        match random.u8(0..4) {
            0 => {
                let victim = random.usize(..theirs.len());
                theirs.swap_remove(victim).process.kill();
                theirs.push(Theirs::start(kind, &connect, &format!("theirs-{step}"))?);
                kills += 1;
            }
            1 if !ours.is_empty() => ours.swap_remove(random.usize(..ours.len())).leave().await?,
            2 if !ours.is_empty() => drop(ours.swap_remove(random.usize(..ours.len()))),
            _ => ours.push(group.join(format!("ours-{step}"), "").await?),
        }
        everybody_sees(&members, &ours, &theirs).await?;
    }
    println!("{} killed, view {}", kills, members.view_id());
    client.close().await;
    Ok(())
}

async fn everybody_sees(members: &Members, ours: &[Membership], theirs: &[Theirs]) -> Result<()> {
    let our_ids = ours.iter().map(|member| member.id().to_owned());
    let who: BTreeSet<_> = our_ids.chain(theirs.iter().map(|other| other.id.clone())).collect();
    let seen = until(|| ids(members) == who).await;
    seen.with_context(|| format!("we see {:?} and not {who:?}", ids(members)))?;
    ensure!(members.view().foreign().is_empty(), "{:?}", members.view().foreign());
    for other in theirs {
        other.sees(&who).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_member_of_curators_comes_back_after_its_session() -> Result<()> {
    after_a_session(MEMBER, true).await
}

/// Theirs: who is in a party has to join again by itself after each session. Ours is back.
#[tokio::test]
async fn a_member_of_kazoos_party_does_not_come_back() -> Result<()> {
    after_a_session(PARTY, false).await?;
    after_a_session(SHALLOW, false).await
}

/// Theirs: it says that it is there although nobody, itself included, could make its node.
#[tokio::test]
async fn a_member_of_curators_sees_itself_without_a_node() -> Result<()> {
    if !MEMBER.is_ready() {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let read = Acl { permissions: Permissions::READ, scheme: "world".into(), id: "anyone".into() };
    let closed = client.with_default_acl(&DefaultAcl::List(vec![read]));
    let group = ZnodePath::new(GROUP)?;
    closed.create(&group, "", CreateMode::Persistent).await?;
    let ours = MEMBER.group(&client)?.join("ours", "").await;
    ensure!(matches!(ours, Err(GroupError::Join(_))), "{ours:?}");

    let theirs = Theirs::start(MEMBER, &connect, "theirs")?;
    let alone = BTreeSet::from(["theirs".to_owned()]);
    until(|| theirs.looks(0).len() > LOOKS).await.with_context(|| theirs.process.tail())?;
    let looks = theirs.looks(0);
    ensure!(looks.iter().skip(LOOKS / 2).all(|look| *look == alone), "{looks:?}");
    ensure!(client.children(&group).await?.0.is_empty(), "nobody is there");
    Ok(())
}

/// Theirs: it writes over the node of somebody else who has its id. Ours waits until that one has left.
#[tokio::test]
async fn a_member_of_curators_writes_over_the_node_of_another() -> Result<()> {
    if !MEMBER.is_ready() {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let client = Client::connect(&connect).await?;
    let members = MEMBER.group(&client)?.watch().await?;
    let ours = MEMBER.group(&client)?.join("node", "rust").await?;
    members.wait_for(1).await?;
    let theirs = Theirs::start(MEMBER, &connect, "node")?;
    let written = || members.view().member("node").is_some_and(|node| &node.data[..] == b"java");
    until(written).await.with_context(|| theirs.process.tail())?;
    let node = members.view().member("node").context("it is there")?;
    ensure!(node.session == client.session_id() && Some(node.token) == ours.token(), "{node:?}");
    Ok(())
}

async fn after_a_session(kind: GroupKind, comes_back: bool) -> Result<()> {
    if !kind.is_ready() {
        return Ok(());
    }
    let connect = shared_chroot().await?;
    let (server, chroot) = connect.split_once('/').context("no chroot")?;
    let (their_proxy, our_proxy) = (Proxy::start(server).await?, Proxy::start(server).await?);
    let through = |proxy: &Proxy| format!("{}/{chroot}", proxy.address());
    let (watcher, client) =
        (Client::connect(&connect).await?, Client::connect(&through(&our_proxy)).await?);
    let members = kind.group(&watcher)?.watch().await?;
    let ours = kind.group(&client)?.join("ours", "").await?;
    let theirs = Theirs::start(kind, &through(&their_proxy), "theirs")?;
    let both = BTreeSet::from(["ours".to_owned(), "theirs".to_owned()]);
    until(|| ids(&members) == both).await?;
    theirs.sees(&both).await?;
    let token = |id: &str| members.view().member(id).map(|member| member.token);
    let before = (token("ours"), token("theirs"));

    our_proxy.expire_session().await?;
    until(|| token("ours").is_some() && token("ours") > before.0).await.context("ours is back")?;
    ensure!(ours.token() == token("ours") || ours.token().is_none(), "{:?}", ours.token());

    let after = theirs.lines();
    their_proxy.expire_session().await?;
    if comes_back {
        until(|| token("theirs").is_some() && token("theirs") > before.1).await?;
        return theirs.sees(&both).await;
    }
    // It is connected again, and looks and looks.
    let alone = BTreeSet::from(["ours".to_owned()]);
    let is_alone = |looks: &[BTreeSet<String>]| looks.iter().rev().take(LOOKS).all(|l| *l == alone);
    let looked = || {
        let looks = theirs.looks(after);
        looks.len() > LOOKS && is_alone(&looks)
    };
    until(looked).await.with_context(|| theirs.process.tail())?;
    ensure!(token("theirs").is_none(), "it has joined again");
    let states = theirs.process.stdout();
    ensure!(states.contains("STATE LOST"), "its session has not ended: {states}");
    Ok(())
}
