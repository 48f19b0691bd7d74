//! Lockkeeper's groups together with Curator's `GroupMember` and kazoo's parties on the same path: all programs see the
//! same members, also after kills. The tests below show what happens to a member whose session ends.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    Acl, Client, CreateMode, DefaultAcl, Group, GroupError, GroupLayout, Members, Membership,
    Permissions, ZnodePath,
};

use crate::theirs::Language::{self, Java, Python};
use crate::theirs::{Place, SESSION_MS, Theirs, until};
use crate::{seed_of, time_of_a_contest};

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
    async fn place(self) -> Result<Option<Place>> {
        Place::with("groups", &[self.language]).await
    }

    fn group(self, client: &Client) -> Result<Group> {
        Ok(Group::builder(client, GROUP).layout(self.layout).build()?)
    }

    /// Starts a program that is a member, and prints the members repeatedly.
    fn start(self, connect: &str, id: &str) -> Result<Member> {
        let arguments = [connect, GROUP, self.theirs, id, SESSION_MS];
        Ok(Member {
            id: id.to_owned(),
            program: Theirs::start(self.language, "Group", &arguments)?,
        })
    }
}

struct Member {
    id: String,
    program: Theirs,
}

impl Member {
    /// Who was there at each look.
    fn looks(&self) -> Vec<BTreeSet<String>> {
        let looks = self.program.said("LOOK ");
        looks.iter().map(|look| look.split(',').map(str::to_owned).collect()).collect()
    }

    async fn sees(&self, who: &BTreeSet<String>) -> Result<()> {
        let before = self.looks().len();
        let seen = until(async || Ok(self.looks()[before..].last() == Some(who))).await;
        let tail = || format!("{} does not see {who:?}: {}", self.id, self.program.process.tail());
        seen.with_context(tail)
    }
}

fn ids(members: &Members) -> BTreeSet<String> {
    members.view().members().map(|member| member.id).collect()
}

tests! {
    fn a_group_with_curator() = together(MEMBER);
    fn a_party_with_kazoo() = together(PARTY);
    fn a_shallow_party_with_kazoo() = together(SHALLOW);
    fn a_member_of_curators_comes_back_after_its_session() = after_a_session(MEMBER, true);
}

/// Members of both libraries join, leave and are killed. After each step, all programs see the present members.
async fn together(kind: GroupKind) -> Result<()> {
    let Some(Place { connect, client }) = kind.place().await? else { return Ok(()) };
    let mut random = fastrand::Rng::with_seed(seed_of(kind.theirs));
    let group = kind.group(&client)?;
    let members = group.watch().await?;
    let mut theirs = Vec::new();
    for number in 0..2 {
        theirs.push(kind.start(&connect, &format!("theirs-{number}"))?);
    }
    let mut ours: Vec<Membership> = vec![group.join("ours-0", "").await?];
    everybody_sees(&members, &ours, &theirs).await?;

    let (start, time, mut kills) = (Instant::now(), time_of_a_contest(), 0);
    for step in 10.. {
        if start.elapsed() > time && kills > 0 {
            break;
        }
        match random.u8(0..4) {
            0 => {
                let victim = random.usize(..theirs.len());
                theirs.swap_remove(victim).program.process.kill();
                theirs.push(kind.start(&connect, &format!("theirs-{step}"))?);
                kills += 1;
            }
            1 if !ours.is_empty() => ours.swap_remove(random.usize(..ours.len())).leave().await?,
            2 if !ours.is_empty() => drop(ours.swap_remove(random.usize(..ours.len()))),
            _ => ours.push(group.join(format!("ours-{step}"), "").await?),
        }
        everybody_sees(&members, &ours, &theirs).await?;
    }
    println!("{} killed, view {}", kills, members.view_id());
    Ok(())
}

async fn everybody_sees(members: &Members, ours: &[Membership], theirs: &[Member]) -> Result<()> {
    let our_ids = ours.iter().map(|member| member.id().to_owned());
    let who: BTreeSet<_> = our_ids.chain(theirs.iter().map(|other| other.id.clone())).collect();
    let seen = until(async || Ok(ids(members) == who)).await;
    seen.with_context(|| format!("we see {:?} and not {who:?}", ids(members)))?;
    ensure!(members.view().foreign().is_empty(), "{:?}", members.view().foreign());
    for other in theirs {
        other.sees(&who).await?;
    }
    Ok(())
}

/// kazoo: a member of a party has to join again by itself after each session. Lockkeeper's member returns.
#[tokio::test]
async fn a_member_of_kazoos_party_does_not_come_back() -> Result<()> {
    after_a_session(PARTY, false).await?;
    after_a_session(SHALLOW, false).await
}

/// Curator: it reports its own presence although its node could not be created.
#[tokio::test]
async fn a_member_of_curators_sees_itself_without_a_node() -> Result<()> {
    let Some(Place { connect, client }) = MEMBER.place().await? else { return Ok(()) };
    let read = Acl { permissions: Permissions::READ, scheme: "world".into(), id: "anyone".into() };
    let closed = client.with_default_acl(&DefaultAcl::List(vec![read]));
    let group = ZnodePath::new(GROUP)?;
    closed.create(&group, "", CreateMode::Persistent).await?;
    let ours = MEMBER.group(&client)?.join("ours", "").await;
    ensure!(matches!(ours, Err(GroupError::Join(_))), "{ours:?}");

    let theirs = MEMBER.start(&connect, "theirs")?;
    let alone = BTreeSet::from(["theirs".to_owned()]);
    until(async || Ok(theirs.looks().len() > LOOKS))
        .await
        .with_context(|| theirs.program.process.tail())?;
    let looks = theirs.looks();
    ensure!(looks.iter().skip(LOOKS / 2).all(|look| *look == alone), "{looks:?}");
    ensure!(client.children(&group).await?.0.is_empty(), "the group is empty");
    Ok(())
}

/// Curator: it overwrites the node of another member with the same id. Lockkeeper waits until that member has left.
#[tokio::test]
async fn a_member_of_curators_writes_over_the_node_of_another() -> Result<()> {
    let Some(Place { connect, client }) = MEMBER.place().await? else { return Ok(()) };
    let members = MEMBER.group(&client)?.watch().await?;
    let ours = MEMBER.group(&client)?.join("node", "rust").await?;
    members.wait_for(1).await?;
    let theirs = MEMBER.start(&connect, "node")?;
    let written =
        async || Ok(members.view().member("node").is_some_and(|node| &node.data[..] == b"java"));
    until(written).await.with_context(|| theirs.program.process.tail())?;
    let node = members.view().member("node").context("it is there")?;
    ensure!(node.session == client.session_id() && Some(node.token) == ours.token(), "{node:?}");
    Ok(())
}

async fn after_a_session(kind: GroupKind, comes_back: bool) -> Result<()> {
    let Some(place) = kind.place().await? else { return Ok(()) };
    let (their_proxy, to_them) = place.proxy().await?;
    let (our_proxy, to_us) = place.proxy().await?;
    let client = Client::connect(&to_us).await?;
    let members = kind.group(&place.client)?.watch().await?;
    let ours = kind.group(&client)?.join("ours", "").await?;
    let theirs = kind.start(&to_them, "theirs")?;
    let both = BTreeSet::from(["ours".to_owned(), "theirs".to_owned()]);
    until(async || Ok(ids(&members) == both)).await?;
    theirs.sees(&both).await?;
    let token = |id: &str| members.view().member(id).map(|member| member.token);
    let before = (token("ours"), token("theirs"));

    our_proxy.expire_session().await?;
    until(async || Ok(token("ours") > before.0)).await.context("ours is back")?;
    ensure!(ours.token() == token("ours") || ours.token().is_none(), "{:?}", ours.token());

    let before_it = theirs.looks().len();
    their_proxy.expire_session().await?;
    if comes_back {
        until(async || Ok(token("theirs") > before.1)).await?;
        return theirs.sees(&both).await;
    }
    // It is connected again, and looks and looks.
    let alone = BTreeSet::from(["ours".to_owned()]);
    let is_alone = |looks: &[BTreeSet<String>]| looks.iter().rev().take(LOOKS).all(|l| *l == alone);
    let looked = async || {
        let looks = theirs.looks().split_off(before_it);
        Ok(looks.len() > LOOKS && is_alone(&looks))
    };
    until(looked).await.with_context(|| theirs.program.process.tail())?;
    ensure!(token("theirs").is_none(), "it has joined again");
    let states = theirs.program.process.stdout();
    ensure!(states.contains("STATE LOST"), "its session has not ended: {states}");
    Ok(())
}
