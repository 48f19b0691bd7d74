//! Programs that are members of a group: some come and go, and some stay and watch the group.
//!
//! Watchers record the members of each view and the view's name; [`crate::checker`] compares these records. A watcher
//! judges itself what only it knows: the changes lead from each view to the next, and at the end its view contains all
//! members that stay, its own with the token that it received.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{
    Client, FencingToken, Group, GroupView, Member, MemberChange, Members, Membership,
};
use tokio::time::{sleep, timeout};

use super::{Scene, retried};
use crate::data_event::DataEvent;
use crate::history::What;

const GROUP: &str = "/group/a";

/// The interval between two looks, and their number after the faults.
const GLANCE: Duration = Duration::from_millis(200);
const GLANCES: u32 = 600;

/// The node of each member and the token of its joining.
type There = BTreeMap<String, FencingToken>;

fn group(client: &Client) -> Group {
    Group::new(client, GROUP).expect("a valid path")
}

/// Joins and leaves. There are few ids, so that some are taken.
pub async fn come_and_go(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    mut random: fastrand::Rng,
) {
    let group = group(&client);
    while scene.goes_on() {
        let id = ["a", "b", "c", "d"][random.usize(0..4)];
        if let Ok(member) = group.join(id, name.clone()).await {
            sleep(scene.pace().mul_f64(random.f64())).await;
            match random.bool() {
                // An error is one of the session or the server, with which the node disappears too.
                true => drop(member.leave().await),
                false => drop(member),
            }
        }
        sleep(scene.pace().mul_f64(random.f64())).await;
    }
}

/// A member that stays until this value is dropped.
#[derive(Debug)]
pub struct Stays {
    /// The member.
    pub membership: Membership,
    /// The token with which it joined. It gets another one after a session has ended.
    pub joined: Option<FencingToken>,
    /// Its view of the group.
    pub watcher: Watcher,
}

/// Joins and watches the group until the end of the run, and then until its view contains all of these ids. Returns
/// `None` after it has recorded a violation.
pub async fn stay(
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    client: Client,
    id: String,
    ids: Vec<String>,
) -> Option<Stays> {
    let group = group(&client);
    let membership = retried(GLANCE, || group.join(&*id, "")).await;
    let joined = membership.token();
    let members = retried(GLANCE, || group.watch()).await;
    let number = client.unique_id().as_u64_pair().0;
    let mut watcher = Watcher { scene, name, number, members, last: None };

    let seen = match watcher.follow().await {
        Ok(()) => watcher.meet(&membership, &ids).await,
        wrong => wrong,
    };
    match seen {
        Ok(()) => Some(Stays { membership, joined, watcher }),
        Err(why) => {
            watcher.scene.note(&watcher.name, What::WrongView(why));
            None
        }
    }
}

/// A watcher of a group.
pub struct Watcher {
    scene: Arc<dyn Scene + Send + Sync>,
    name: String,
    number: u64,
    members: Members,
    /// The last view that it recorded.
    last: Option<DataEvent>,
}

impl Watcher {
    /// Records every view while the programs run.
    async fn follow(&mut self) -> Result<(), String> {
        let mut changes = self.members.changes();
        let mut there = self.tell(&changes.view());
        while self.scene.goes_on() {
            let update = match timeout(GLANCE, changes.next()).await {
                Ok(Ok(update)) => update,
                Ok(Err(error)) => return Err(format!("the views ended: {error}")),
                Err(_) => continue,
            };

            let (id, now) = (update.view.id(), self.tell(&update.view));
            update.changes.iter().try_for_each(|change| apply(change, &mut there))?;
            if there != now {
                return Err(format!("the changes lead to {there:?}, and view {id} is {now:?}"));
            }
        }
        Ok(())
    }

    /// Records the members of a view, unless it is the last one recorded.
    fn tell(&mut self, view: &GroupView) -> There {
        let there: There = view.members().map(|member| key(&member)).collect();
        let id = view.id().zxid().0;
        let told = DataEvent::View { watcher: self.number, id, members: there.clone() };
        if self.last.as_ref() != Some(&told) {
            self.scene.note(&self.name, What::Data(told.clone()));
            self.last = Some(told);
        }
        there
    }

    /// Waits until its view contains all of these ids, and its own member with the token that the member knows.
    async fn meet(&mut self, own: &Membership, ids: &[String]) -> Result<(), String> {
        for _ in 0..GLANCES {
            let is_current = self.members.is_current();
            let there = self.tell(&self.members.view());
            let token = own.token();
            let is_own = token.is_some() && there.get(own.id()).copied() == token;
            if is_current && is_own && ids.iter().all(|id| there.contains_key(id)) {
                return Ok(());
            }
            sleep(GLANCE).await;
        }
        Err(format!("not all of {ids:?} are there: {}", said(&self.members.view())))
    }

    /// Waits until its view is empty, after all members have left.
    pub async fn part(&mut self) {
        if let Err(left) = is_deserted(&self.members).await {
            self.scene.note(&self.name, What::WrongView(format!("still sees {left}")));
        }
        self.tell(&self.members.view());
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Waits until the group is empty, after all programs have ended.
pub async fn look_at_the_end(scene: &dyn Scene, client: &Client) {
    let group = group(client);
    let members = retried(GLANCE, || group.watch()).await;
    if let Err(left) = is_deserted(&members).await {
        scene.note("world", What::Left(format!("members: {left}")));
    }
}

/// Waits until a view is empty; otherwise returns its members.
async fn is_deserted(members: &Members) -> Result<(), String> {
    for _ in 0..GLANCES {
        if members.is_current() && members.view().is_empty() {
            return Ok(());
        }
        sleep(GLANCE).await;
    }
    Err(said(&members.view()))
}

fn said(view: &GroupView) -> String {
    format!("{:?}", view.members().collect::<Vec<_>>())
}

fn key(member: &Member) -> (String, FencingToken) {
    (member.node.name().to_owned(), member.token)
}

/// Applies a change that was reported, if it follows from the previous view.
fn apply(change: &MemberChange, there: &mut There) -> Result<(), String> {
    let fits = match change {
        MemberChange::Joined(member) => {
            let (node, token) = key(member);
            there.insert(node, token).is_none()
        }
        MemberChange::Left(member) => {
            let (node, token) = key(member);
            there.remove(&node) == Some(token)
        }
        MemberChange::Rejoined { before, member } => {
            let (node, token) = key(member);
            token > before.token && there.insert(node, token) == Some(before.token)
        }
        MemberChange::Updated { member, .. } => {
            let (node, token) = key(member);
            there.get(&node) == Some(&token)
        }
        _ => false,
    };

    match fits {
        true => Ok(()),
        false => Err(format!("{change:?} does not follow from the previous view")),
    }
}
