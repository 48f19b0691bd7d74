//! Groups in a run: members that join and leave, and watchers of all of them.
//!
//! Whoever has a view of some name must have the same members in it as everybody else who ever had one
//! of that name; the names that one watcher sees only grow; and its changes lead from one view to the
//! next. A member that stays through all faults is in everybody's view at the end, and where no session
//! ends it has not left in between.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Client, Group, GroupView, MemberChange, Members, Membership, ViewId};
use lockkeeper_testkit::history::What;
use tokio::time::{sleep, timeout};

use crate::run::Run;
use crate::severity::Severity;

/// Where the group is.
const GROUP: &str = "/group/a";

/// How long the end of a run waits between two looks, and how often it looks.
const PAUSE: Duration = Duration::from_millis(200);
const LOOKS: u32 = 600;

/// The node of a member, and the token of its joining.
type There = BTreeMap<String, u128>;

/// What everybody in a run has seen of the group.
#[derive(Default)]
pub(crate) struct Seen {
    views: RefCell<BTreeMap<ViewId, There>>,
    /// How many watchers have seen everybody who stays, and how many of these have left.
    complete: Cell<usize>,
    left: Cell<usize>,
}

/// One program with a member that stays, a member that comes and goes, and a view.
pub(crate) struct Program {
    pub(crate) run: Arc<Run>,
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) seen: Rc<Seen>,
    pub(crate) random: fastrand::Rng,
    /// Which one it is, and of how many.
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl Program {
    fn group(&self) -> Group {
        Group::new(&self.client, GROUP).expect("a path")
    }

    /// Joins and leaves until `end`. The ids are few, so that some are taken.
    pub(crate) async fn come_and_go(mut self, end: Duration) {
        let group = self.group();
        while self.run.now() < end {
            let id = ["a", "b", "c", "d"][self.random.usize(0..4)];
            if let Ok(member) = group.join(id, self.name.clone()).await {
                self.pause().await;
                match self.random.bool() {
                    true => drop(member.leave().await),
                    false => drop(member),
                }
            }
            self.pause().await;
        }
    }

    async fn pause(&mut self) {
        sleep(self.run.pace.register.mul_f64(self.random.f64())).await;
    }

    /// Joins, and is there until everybody has seen everybody after `end`.
    pub(crate) async fn stay(self, end: Duration) {
        if let Err(why) = self.stays(end).await {
            self.run.note(&self.name, What::InexactSnapshot(why));
        }
    }

    async fn stays(&self, end: Duration) -> Result<(), String> {
        let member = loop {
            match self.group().join(stays(self.index), "").await {
                Ok(member) => break member,
                Err(_) => sleep(PAUSE).await,
            }
        };
        let joined = member.token();
        let members = loop {
            match self.group().watch().await {
                Ok(members) => break members,
                Err(_) => sleep(PAUSE).await,
            }
        };
        self.follow(&members, end).await?;
        self.meet(&member, &members).await?;

        let kept = self.run.severity == Severity::Unbounded || member.token() == joined;
        if !kept {
            return Err(format!("{joined:?} has become {:?}", member.token()));
        }
        let _ = member.leave().await;
        self.seen.left.set(self.seen.left.get() + 1);
        self.part(&members).await
    }

    /// Looks at every change until then.
    async fn follow(&self, members: &Members, until: Duration) -> Result<(), String> {
        let mut changes = members.changes();
        let mut there = self.look(&changes.view())?;
        let mut newest = changes.view().id();
        while self.run.now() < until {
            let left = until.saturating_sub(self.run.now()).max(Duration::from_millis(1));
            let update = match timeout(left, changes.next()).await {
                Ok(Ok(update)) => update,
                Ok(Err(error)) => return Err(format!("the views ended: {error}")),
                Err(_) => return Ok(()),
            };
            let (id, now) = (update.view.id(), self.look(&update.view)?);
            if id <= newest {
                return Err(format!("view {id} after {newest}"));
            }
            for change in &update.changes {
                apply(change, &mut there)?;
            }
            if there != now {
                return Err(format!("the changes lead to {there:?}, and view {id} is {now:?}"));
            }
            newest = id;
        }
        Ok(())
    }

    /// Who is in a view, if all views of this name have the same.
    fn look(&self, view: &GroupView) -> Result<There, String> {
        let members = view.members();
        let there: There =
            members.map(|member| (member.node.name().into(), member.token.to_u128())).collect();
        let mut views = self.seen.views.borrow_mut();
        let known = views.entry(view.id()).or_insert_with(|| there.clone());
        if *known != there {
            return Err(format!("view {} is {there:?}, and was {known:?}", view.id()));
        }
        Ok(there)
    }

    /// Waits until it has seen everybody who stays, and everybody else has.
    async fn meet(&self, own: &Membership, members: &Members) -> Result<(), String> {
        let mut is_complete = false;
        for _ in 0..LOOKS {
            let there = self.look(&members.view())?;
            let are_all = (0..self.of).all(|index| there.contains_key(&stays(index)));
            let is_own = own.token().map(|token| token.to_u128());
            if are_all
                && members.is_current()
                && there.get(&stays(self.index)).copied() == is_own
                && !std::mem::replace(&mut is_complete, true)
            {
                self.seen.complete.set(self.seen.complete.get() + 1);
            }
            if self.seen.complete.get() == self.of {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        Err(format!("not everybody is seen by everybody: {:?}", self.look(&members.view())?))
    }

    /// Waits until it has seen everybody leave.
    async fn part(&self, members: &Members) -> Result<(), String> {
        for _ in 0..LOOKS {
            let there = self.look(&members.view())?;
            let is_empty = (0..self.of).all(|index| !there.contains_key(&stays(index)));
            if self.seen.left.get() == self.of && is_empty {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        Err(format!("{:?} have not left", self.look(&members.view())?))
    }
}

fn stays(index: usize) -> String {
    format!("stays-{index}")
}

fn apply(change: &MemberChange, there: &mut There) -> Result<(), String> {
    let key = |member: &lockkeeper::Member| (member.node.name().to_owned(), member.token.to_u128());
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
            token > key(before).1 && there.insert(node, token) == Some(key(before).1)
        }
        MemberChange::Updated { member, .. } => there.get(&key(member).0) == Some(&key(member).1),
        _ => false,
    };
    match fits {
        true => Ok(()),
        false => Err(format!("{change:?} does not follow from the view before")),
    }
}
