//! Groups: members that join and return, and views that have the same name for all watchers.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{
    Acl, AcquireError, Client, CreateMode, Group, GroupError, GroupLayout, Member, MemberChange,
    MemberChanges, Members, Membership, PresenceError, PresenceState, WhenTaken, ZnodePath, Zxid,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::directory::hidden;
use crate::{Clients, Observed, contract};

contract!(group);

const GROUP: &str = "/workers";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(60);

fn group(client: &Client) -> Result<Group> {
    Ok(Group::new(client, GROUP)?)
}

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a path")
}

fn ids(members: impl Iterator<Item = Member>) -> Vec<String> {
    members.map(|member| member.id).collect()
}

/// The events, with the members.
fn told(changes: &[MemberChange]) -> Vec<String> {
    let tell = |change: &MemberChange| match change {
        MemberChange::Joined(member) => format!("joined {}", member.id),
        MemberChange::Left(member) => format!("left {}", member.id),
        MemberChange::Rejoined { member, .. } => format!("rejoined {}", member.id),
        MemberChange::Updated { member, .. } => format!("updated {}", member.id),
        MemberChange::Foreign(node) => format!("foreign {node}"),
        MemberChange::ForeignGone(node) => format!("foreign gone {node}"),
        MemberChange::Unreadable(node) => format!("unreadable {node}"),
        other => format!("{other:?}"),
    };
    changes.iter().map(tell).collect()
}

async fn next(changes: &mut MemberChanges) -> Result<Vec<String>> {
    let update = tokio::time::timeout(LONG, changes.next()).await.context("no change")??;
    Ok(told(&update.changes))
}

fn token(member: &Membership) -> Result<Zxid> {
    Ok(member.token().context("it is not there")?.zxid())
}

async fn pzxid(client: &Client) -> Result<Zxid> {
    client.sync(&path(GROUP)).await?;
    Ok(client.exists(&path(GROUP)).await?.context("no group")?.pzxid)
}

async fn members_see_each_other_come_and_go((alice, bob): Clients) -> Result<()> {
    let first = group(&alice)?.join("alice", "10.0.0.1").await?;
    let members = group(&alice)?.watch().await?;
    let view = members.view();
    assert_eq!((ids(view.members()), view.len()), (vec!["alice".to_owned()], 1));
    assert_eq!(view.id().zxid(), token(&first)?);

    let mut changes = members.changes();
    let second = group(&bob)?.join("bob", "10.0.0.2").await?;
    assert_eq!(next(&mut changes).await?, ["joined bob"]);
    let bobs = members.view().member("bob").context("bob is there")?;
    assert_eq!((&bobs.data[..], bobs.session), (&b"10.0.0.2"[..], bob.session_id()));
    assert_eq!((Some(bobs.token), &bobs.node), (second.token(), second.node()));
    assert_eq!(members.view_id().zxid(), token(&second)?);

    alice.set_data(second.node(), "10.0.0.9", None).await?;
    assert_eq!(next(&mut changes).await?, ["updated bob"]);
    assert_eq!(members.view_id().zxid(), token(&second)?, "the members are the same");
    second.leave().await?;
    assert_eq!(next(&mut changes).await?, ["left bob"]);
    assert_eq!(members.view_id().zxid(), pzxid(&alice).await?);
    drop(first);
    assert_eq!(next(&mut changes).await?, ["left alice"]);
    assert!(members.view().is_empty());
    Ok(())
}

/// Everybody finds the same name by another way: told of each change, or looking for the first time.
///
/// Fails with the newest token for the name.
async fn equal_names_of_views_name_equal_members((alice, bob): Clients) -> Result<()> {
    let members = group(&alice)?.watch().await?;
    let (mut joined, mut last) = (Vec::<Membership>::new(), members.view_id());
    for n in 0..24 {
        match n % 3 {
            2 => joined.remove(fastrand::usize(..joined.len())).leave().await?,
            _ => joined.push(group(&bob)?.join(format!("m{n:02}"), "").await?),
        }
        let mut there: Vec<_> = joined.iter().map(|member| member.id().to_owned()).collect();
        there.sort();
        while ids(members.view().members()) != there || !members.is_current() {
            alice.sync(&path(GROUP)).await?;
        }
        let (view, id) = (members.view(), pzxid(&bob).await?);
        assert!(view.id() > last, "{view:?} after {last}");
        let other = group(&bob)?.watch().await?.view();
        assert_eq!((view.id().zxid(), other.id()), (id, view.id()));
        assert_eq!((ids(view.members()), ids(other.members())), (there.clone(), there));
        last = view.id();
    }
    Ok(())
}

async fn a_view_of_a_group_that_is_not_there_is_empty(client: Client) -> Result<()> {
    let members = group(&client)?.watch().await?;
    let (view, mut changes) = (members.view(), members.changes());
    assert!(
        view.is_empty() && members.is_current() && client.exists(&path(GROUP)).await?.is_none()
    );
    let member = group(&client)?.join("a", "").await?;
    assert_eq!(next(&mut changes).await?, ["joined a"]);
    assert!(members.view_id() > view.id() && members.view_id().zxid() == token(&member)?);
    Ok(())
}

/// Like a server that deletes an unused container.
async fn a_group_that_is_deleted_has_larger_names_afterwards(client: Client) -> Result<()> {
    let members = group(&client)?.watch().await?;
    let mut last = members.view_id();
    for n in 0..3 {
        let member = group(&client)?.join("a", "").await?;
        let joined = members.wait_for(1).await?.id();
        member.leave().await?;
        let left = pzxid(&client).await?;
        client.delete(&path(GROUP), None).await?;
        while members.view_id().zxid() <= left {
            client.sync(&path(GROUP)).await?;
        }
        let now = client.create(&path(&format!("/n{n}")), "", CreateMode::Persistent).await?;
        let id = members.view_id();
        assert!(last < joined && joined.zxid() < left && id.zxid() < now.stat.czxid);
        last = id;
    }
    Ok(())
}

async fn a_member_comes_back_with_the_next_session((alice, bob): Observed) -> Result<()> {
    let members = group(&bob)?.watch().await?;
    let mut changes = members.changes();
    let member = group(&alice.client)?.join("alice", "here").await?;
    assert_eq!(next(&mut changes).await?, ["joined alice"]);
    let first = token(&member)?;
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    assert_eq!(next(&mut changes).await?, ["left alice"]);
    alice.proxy.restore();
    assert_eq!(next(&mut changes).await?, ["joined alice"]);
    let again = members.view().member("alice").context("alice is there")?;
    assert!(again.token.zxid() > first && &again.data[..] == b"here");
    let mut states = member.changes();
    let czxid = again.token.zxid();
    states.wait_for(|state| *state == PresenceState::Present { czxid }).await?;
    member.leave().await?;
    assert_eq!(next(&mut changes).await?, ["left alice"]);
    Ok(())
}

async fn what_happened_while_it_was_cut_off_comes_as_changes(backend: Backend) -> Result<()> {
    for ends_session in [false, true] {
        let (alice, bob) = (backend.participant().await?, backend.observer().await?);
        let theirs = group(&bob)?;
        let (stays, goes) = (theirs.join("stays", "").await?, theirs.join("goes", "").await?);
        let back = theirs.join("back", "").await?;
        let members = group(&alice.client)?.watch().await?;
        let before = members.view();
        let mut changes = members.changes();
        alice.proxy.refuse();
        if ends_session {
            alice.proxy.expire_session().await?;
        }
        goes.leave().await?;
        back.leave().await?;
        let (back, comes) = (theirs.join("back", "").await?, theirs.join("comes", "").await?);
        assert_eq!((members.view().id(), members.view().len()), (before.id(), 3));
        alice.proxy.restore();
        assert_eq!(next(&mut changes).await?, ["rejoined back", "joined comes", "left goes"]);
        assert_eq!(members.view_id().zxid(), pzxid(&bob).await?);
        drop((stays, back, comes));
        while !members.view().is_empty() {
            changes.next().await?;
        }
    }
    Ok(())
}

async fn a_lost_reply_is_no_second_member((alice, bob): Observed) -> Result<()> {
    bob.ensure(&path(GROUP), CreateMode::Persistent).await?;
    let layouts =
        [GroupLayout::CuratorMember, GroupLayout::KazooParty, GroupLayout::KazooShallowParty];
    for layout in layouts {
        for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
            let group = Group::builder(&alice.client, GROUP).layout(layout).build()?;
            alice.proxy.lose_next(OpCode::Multi, loss);
            let member = group.join("alice", "").await?;
            let (names, _) = bob.children(&path(GROUP)).await?;
            assert_eq!(names, [member.node().name()]);
            member.leave().await?;
            bob.sync(&path(GROUP)).await?;
            assert!(bob.children(&path(GROUP)).await?.0.is_empty());
        }
    }
    Ok(())
}

async fn what_is_too_large_is_named(alice: Participant) -> Result<()> {
    let joined = group(&alice.client)?.join("alice", "x".repeat(2_000_000)).await;
    let error = joined.err().context("it does not fit into a request")?.to_string();
    for part in ["/workers/", "alice", "2000", "1048575", "jute.maxbuffer", "max_frame"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    Ok(())
}

/// Fails without the refusal.
async fn the_servers_own_is_no_group(backend: Backend) -> Result<()> {
    let client = crate::without_chroot(&backend).await?;
    for reserved in ["/", "/zookeeper", "/zookeeper/quota"] {
        let refused = Group::new(&client, reserved).map(drop);
        assert_eq!(refused, Err(GroupError::Reserved(path(reserved))));
    }
    for bad in ["", "workers", "/workers/", "/a//b", "/a/../b"] {
        let refused = Group::new(&client, bad).map(drop);
        assert!(matches!(refused, Err(GroupError::Path(_))), "{bad:?}: {refused:?}");
    }
    let client = backend.observer().await?;
    Group::new(&client, "/zookeepers")?.join("me", "").await?.leave().await?;
    Ok(())
}

async fn an_id_that_is_taken_is_waited_for_or_an_error((alice, bob): Clients) -> Result<()> {
    let theirs = group(&alice)?.join("node", "theirs").await?;
    let fails = group(&bob)?.member("node").when_taken(WhenTaken::Fail).join().await;
    let Err(GroupError::Join(PresenceError::Taken { by, .. })) = fails else { bail!("{fails:?}") };
    assert_eq!(by, alice.session_id());

    let waits = group(&bob)?.join("node", "ours").await?;
    assert_eq!(waits.state(), PresenceState::Taken { by: alice.session_id() });
    assert_eq!(waits.token(), None);
    let members = group(&bob)?.watch().await?;
    assert_eq!(&members.view().member("node").context("it is there")?.data[..], b"theirs");
    theirs.leave().await?;
    let mut states = waits.changes();
    states.wait_for(|state| matches!(state, PresenceState::Present { .. })).await?;
    assert_eq!(&bob.data(waits.node()).await?.0[..], b"ours");

    // One of this client that was dropped makes room for the next one.
    drop(waits);
    let next = group(&bob)?.member("node").when_taken(WhenTaken::Fail).join().await?;
    assert!(next.token().is_some(), "{:?}", next.state());

    // Two in one party may have one id.
    let party = Group::builder(&bob, "/party").layout(GroupLayout::KazooParty).build()?;
    let both = (party.join("node", "").await?, party.join("node", "").await?);
    let view = party.watch().await?.view();
    assert_eq!((ids(view.members()), both.0.id()), (vec!["node".to_owned(); 2], "node"));
    assert_eq!(view.member("node").map(|member| member.token), both.0.token(), "the first one");
    Ok(())
}

async fn an_earlier_life_is_replaced_without_a_gap((earlier, later): Clients) -> Result<()> {
    let member = |client: &Client, data: &'static str| {
        Ok::<_, anyhow::Error>(
            group(client)?
                .member("host-7")
                .data(data)
                .replaces(|data| data.starts_with(b"host-7 "))
                .join(),
        )
    };
    let _first = member(&earlier, "host-7 1")?.await?;
    let members = group(&later)?.watch().await?;
    let mut changes = members.changes();
    let second = member(&later, "host-7 2")?.await?;
    assert_eq!(next(&mut changes).await?, ["rejoined host-7"]);
    assert_eq!(members.view_id().zxid(), token(&second)?);
    Ok(())
}

/// Fails with every child taken for a member.
async fn foreign_nodes_are_named_and_everyone_else_goes_on((alice, bob): Clients) -> Result<()> {
    let member = group(&alice)?.join("alice", "").await?;
    let members = group(&bob)?.watch().await?;
    let mut changes = members.changes();
    let lasting = path("/workers/stranger");
    bob.create(&lasting, "", CreateMode::Persistent).await?;
    assert_eq!(next(&mut changes).await?, ["foreign /workers/stranger"]);
    bob.create(&path("/workers/stranger/below"), "", CreateMode::Persistent).await?;

    // A member of a party: another layout.
    let party = Group::builder(&bob, GROUP).layout(GroupLayout::KazooParty).build()?;
    let theirs = party.join("x", "").await?;
    assert_eq!(next(&mut changes).await?, [format!("foreign {}", theirs.node())]);
    let view = members.view();
    assert_eq!((ids(view.members()), view.len()), (vec!["alice".to_owned()], 1));
    let mut foreign = view.foreign();
    foreign.sort_by_key(ToString::to_string);
    let mut expected = vec![lasting.clone(), theirs.node().clone()];
    expected.sort_by_key(ToString::to_string);
    assert_eq!(foreign, expected);
    // The other nodes are foreign there.
    let seen = party.watch().await?.view();
    assert_eq!((ids(seen.members()), seen.foreign().len()), (vec!["x".to_owned()], 2));

    let second = group(&bob)?.join("bob", "").await?;
    assert_eq!(next(&mut changes).await?, ["joined bob"]);
    theirs.leave().await?;
    assert!(next(&mut changes).await?[0].starts_with("foreign gone"));
    second.leave().await?;
    member.leave().await?;
    assert!(bob.exists(&lasting).await?.is_some(), "nothing of theirs is deleted");
    let refused = lockkeeper::Mutex::new(&bob, GROUP)?.try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::Foreign { .. })), "nor is it a lock");
    Ok(())
}

/// Fails without `skip_unreadable`.
async fn a_node_that_may_not_be_read_is_named_and_everyone_else_goes_on(
    backend: Backend,
) -> Result<()> {
    let (one, two) = (backend.observer().await?, backend.participant().await?);
    let me = group(&one)?.join("me", "").await?;
    let other = group(&one)?.join("other", "").await?;
    let members = group(&two.client)?.watch().await?;
    let mut changes = members.changes();
    one.set_acl(other.node(), hidden(), None).await?;
    two.proxy.cut();
    assert_eq!(next(&mut changes).await?, ["left other", "unreadable /workers/other"]);
    let view = members.view();
    let left_out = vec![other.node().clone()];
    assert_eq!((ids(view.members()), view.unreadable()), (vec!["me".into()], left_out));

    one.set_acl(other.node(), Acl::open(), None).await?;
    assert_eq!(next(&mut changes).await?, ["joined other"]);
    assert_eq!(members.view().unreadable(), []);
    me.leave().await?;
    assert_eq!(next(&mut changes).await?, ["left me"]);
    Ok(())
}

async fn members_are_named_as_curator_and_kazoo_name_them(client: Client) -> Result<()> {
    let join = |layout: GroupLayout, data: &'static str| {
        let group = Group::builder(&client, "/named").layout(layout).build();
        async move { anyhow::Ok(group?.join("host-7", data).await?) }
    };
    let data = |member: &Membership| {
        let (client, node) = (client.clone(), member.node().clone());
        async move { anyhow::Ok(String::from_utf8(client.data(&node).await?.0.to_vec())?) }
    };
    let curators = join(GroupLayout::CuratorMember, "told").await?;
    assert_eq!((curators.node().name(), &*data(&curators).await?), ("host-7", "told"));
    let party = join(GroupLayout::KazooParty, "").await?;
    let name = party.node().name();
    assert!(name.len() == 32 + "__party__".len() && name.ends_with("__party__"), "{name}");
    assert_eq!(data(&party).await?, "host-7");
    let shallow = join(GroupLayout::KazooShallowParty, "").await?;
    let name = shallow.node().name();
    assert!(name.len() == 32 + "-host-7".len() && name.ends_with("-host-7"), "{name}");
    assert_eq!(data(&shallow).await?, "host-7");
    let told = join(GroupLayout::KazooShallowParty, "told").await?;
    assert_eq!(data(&told).await?, "told");
    let refused = join(GroupLayout::KazooParty, "told").await.err().map(|error| error.to_string());
    assert!(refused.is_some_and(|error| error.contains("cannot have other data")));
    Ok(())
}

/// kazoo makes it once for each `Party`, and fails when it is gone.
async fn the_node_of_a_party_is_kept(backend: Backend) -> Result<()> {
    for (layout, is_container) in [
        (GroupLayout::CuratorMember, true),
        (GroupLayout::KazooParty, false),
        (GroupLayout::KazooShallowParty, false),
    ] {
        let alice = backend.participant().await?;
        let group =
            Group::builder(&alice.client, &format!("/{layout:?}")).layout(layout).build()?;
        group.join("a", "").await?.leave().await?;
        let requests = alice.proxy.requests();
        assert_eq!(requests.contains(&OpCode::CreateContainer), is_container, "{requests:?}");
    }
    Ok(())
}

async fn waiting_for_so_many_ends_when_they_are_there(client: Client) -> Result<()> {
    let members = group(&client)?.watch().await?;
    assert_eq!(members.wait_for(0).await?.len(), 0);
    assert!(members.wait_for_timeout(1, Duration::ZERO).await?.is_none());
    let waiting = tokio::spawn({
        let members = members.clone();
        async move { members.wait_for(3).await }
    });
    let mut joined = Vec::new();
    for id in ["a", "b", "c"] {
        assert!(!waiting.is_finished());
        joined.push(group(&client)?.join(id, "").await?);
    }
    let view = tokio::time::timeout(LONG, waiting).await???;
    assert_eq!((ids(view.members()).len(), view.id().zxid()), (3, token(&joined[2])?));
    assert!(members.wait_for_timeout(3, LONG).await?.is_some());
    Ok(())
}

async fn joining_costs_one_write_and_leaving_one(alice: Participant) -> Result<()> {
    alice.client.ensure(&path(GROUP), CreateMode::Persistent).await?;
    let group = group(&alice.client)?;
    alice.proxy.clear();
    let member = group.join("alice", "here").await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Multi, OpCode::GetData]);
    alice.proxy.clear();
    member.leave().await?;
    let requests = alice.proxy.requests();
    let writes = [OpCode::Multi, OpCode::Delete, OpCode::Create, OpCode::SetData];
    let written: Vec<_> = requests.iter().filter(|request| writes.contains(request)).collect();
    assert_eq!(written, [&OpCode::Delete], "{requests:?}");
    assert!(!requests.contains(&OpCode::GetChildren2), "{requests:?}");
    Ok(())
}

async fn watching_costs_a_listing_and_a_read_for_each_member((alice, bob): Observed) -> Result<()> {
    let mut joined = Vec::new();
    for n in 0..10 {
        joined.push(group(&bob)?.join(format!("m{n}"), "").await?);
    }
    alice.client.sync(&path(GROUP)).await?;
    alice.proxy.clear();
    let members = group(&alice.client)?.watch().await?;
    let requests = alice.proxy.requests();
    let count = |code: OpCode| requests.iter().filter(|request| **request == code).count();
    // The group, and its list; nine members in one request, as their length is not known, and one more.
    let reads = [OpCode::AddWatch, OpCode::GetChildren2, OpCode::GetData, OpCode::MultiRead];
    assert_eq!(reads.map(count), [1, 1, 2, 1], "{requests:?}");
    assert_eq!((requests.len(), members.view().len()), (5, 10), "{requests:?}");
    Ok(())
}

/// Each watcher gets one event, reads one node, and does not list the group.
///
/// Fails with a presence that writes its node twice.
async fn with_a_thousand_members_a_change_is_one_event_and_one_read(
    backend: Backend,
) -> Result<()> {
    const MEMBERS: usize = 1_000;
    let others = backend.observer().await?;
    others.ensure(&path(GROUP), CreateMode::Persistent).await?;
    let made = (0..MEMBERS)
        .map(|n| others.create(&path(&format!("{GROUP}/m{n:04}")), "here", CreateMode::Ephemeral));
    for made in made.collect::<Vec<_>>() {
        made.await?;
    }
    let watchers = [backend.participant().await?, backend.participant().await?];
    let mut views = Vec::new();
    for watcher in &watchers {
        watcher.client.sync(&path(GROUP)).await?;
        let members = group(&watcher.client)?.watch().await?;
        assert_eq!(members.view().len(), MEMBERS);
        views.push((members.changes(), members));
        watcher.proxy.clear();
    }

    let one_more = group(&others)?.join("one-more", "here").await?;
    told_once(&watchers, &mut views, "joined one-more").await?;
    others.set_data(one_more.node(), "there", None).await?;
    told_once(&watchers, &mut views, "updated one-more").await?;
    one_more.leave().await?;
    told_once(&watchers, &mut views, "left one-more").await?;
    others.delete(&path("/workers/m0500"), None).await?;
    told_once(&watchers, &mut views, "left m0500").await?;
    let id = pzxid(&others).await?;
    for (_, members) in &views {
        assert_eq!((members.view_id().zxid(), members.view().len()), (id, MEMBERS - 1));
    }
    Ok(())
}

async fn told_once(
    watchers: &[Participant],
    views: &mut [(MemberChanges, Members)],
    what: &str,
) -> Result<()> {
    for (watcher, (changes, _)) in watchers.iter().zip(views) {
        assert_eq!(next(changes).await?, [what]);
        assert_eq!(watcher.proxy.requests(), [OpCode::GetData], "{what}");
        assert_eq!(watcher.proxy.events().len(), 1, "{what}");
        // The event came first.
        let passed = watcher.proxy.passed();
        assert!(matches!(passed.first(), Some(Passed::Event(..))), "{what}: {passed:?}");
        watcher.proxy.clear();
    }
    Ok(())
}

async fn a_closed_client_ends_the_views(client: Client) -> Result<()> {
    let members = group(&client)?.watch().await?;
    assert!(members.ended().is_none());
    client.close().await;
    let ended = tokio::time::timeout(LONG, members.wait_for(1)).await?;
    let Err(GroupError::View { group, .. }) = ended else { bail!("{ended:?}") };
    assert_eq!(group.as_str(), GROUP);
    assert!(members.ended().is_some());
    Ok(())
}
