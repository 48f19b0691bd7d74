//! Presences in a run, and foreign nodes that block them: each program has a node of its own, and all
//! want one more. The data of a node names its program, so every reader can see whether the node was taken from
//! another program.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{
    Client, CreateMode, ErrorCode, Presence, PresenceState, SessionId, Stat, ZnodePath, Zxid,
};
use lockkeeper_testkit::history::What;
use tokio::time::{sleep, timeout};

use crate::run::{PATIENCE, Run};
use crate::severity::Severity;

const PRESENT: &str = "/present";

/// The node that all want.
const SHARED: &str = "shared";

/// Between two looks, and two changes, at most.
const PAUSE: Duration = Duration::from_millis(2_000);

fn path(name: &str) -> ZnodePath {
    ZnodePath::new(&format!("{PRESENT}/{name}")).expect("a path")
}

/// One task that keeps a presence.
pub(crate) struct Member {
    pub(crate) run: Arc<Run>,
    pub(crate) client: Client,
    pub(crate) severity: Severity,
    pub(crate) index: usize,
    /// Whether it is the node that all want, or its own.
    pub(crate) shared: bool,
    pub(crate) random: fastrand::Rng,
    /// The sessions that its client has had: a server may forget one, and keep its nodes for a while.
    pub(crate) sessions: Mutex<HashSet<SessionId>>,
}

impl Member {
    /// Is there, again and again, until `end`; and then until the last life has been judged.
    pub(crate) async fn work(mut self, end: Duration) {
        let mut life = 0;
        loop {
            life += 1;
            let Some(presence) = self.start(life).await else { return };
            // On servers that are well, one life lasts as long as it likes.
            let lasts = self.upto(PAUSE * 8);
            let until = if self.random.bool() { end } else { end.min(self.run.now() + lasts) };
            self.live(&presence, life, until).await;
            if self.run.now() >= end {
                return self.judge(presence).await;
            }
            self.leave(presence).await;
            let pause = self.upto(PAUSE);
            sleep(pause).await;
        }
    }

    async fn start(&mut self, life: u32) -> Option<Presence> {
        let begin = async {
            loop {
                let node = path(&self.node());
                let options = Presence::builder(&self.client, node.as_str()).data(self.data(life));
                match options.start().await {
                    Ok(presence) => return presence,
                    Err(error) => self.note(format!("cannot be there: {error}")),
                }
                sleep(PAUSE).await;
            }
        };
        match timeout(PATIENCE, begin).await {
            Ok(presence) => Some(presence),
            Err(_) => {
                self.stuck("cannot be there".into());
                None
            }
        }
    }

    async fn live(&mut self, presence: &Presence, life: u32, until: Duration) {
        let mut first = None;
        while self.run.now() < until {
            self.look(presence).await;
            let state = presence.state();
            let is_there = matches!(state, PresenceState::Present { .. });
            match &first {
                Some(first) if *first != state && self.is_kept() => {
                    let what = format!("{first:?} has become {state:?}");
                    return self.run.note(&self.name(), What::LostPresence(what));
                }
                None if is_there => first = Some(state),
                _ => {}
            }
            // Not where others make the node anew: one that is made before this presence hears of it, with
            // the same version, has that update. Only a version can be compared, which the docs say.
            if !self.shared && self.random.u8(0..4) == 0 {
                // What it had in it before is in it no more, or will not be.
                let update = presence.update(self.data(life));
                let _ = timeout(PAUSE, update).await;
            }
            let pause = self.upto(PAUSE);
            sleep(pause).await;
        }
    }

    /// Whether it is not blocked, and no session ends.
    fn is_kept(&self) -> bool {
        self.severity == Severity::Bounded && !self.shared
    }

    /// What it says must be so, as far as one can see.
    async fn look(&self, presence: &Presence) {
        let (state, before) = (presence.state(), self.client.session_id());
        self.sessions.lock().expect("not poisoned").insert(before);
        // In a new session, a server that is behind shows the node of the one before.
        if self.client.sync(presence.path()).await.is_err() {
            return;
        }
        let Ok((data, stat)) = self.client.data(presence.path()).await else { return };
        if self.client.session_id() != before {
            return;
        }
        let says = String::from_utf8_lossy(&data);
        let is_own = says.starts_with(&self.mark());
        let belongs = stat.ephemeral_owner == before;
        match state {
            PresenceState::Present { czxid } if czxid == stat.czxid && !(is_own && belongs) => {
                self.wrong(format!("says it is there in {before}, by {says:?} of {stat:?}"));
            }
            _ if is_own && !self.has_had(stat.ephemeral_owner) => {
                self.wrong(format!("its node {says:?} is of another session: {stat:?}"));
            }
            _ if belongs && !is_own => {
                self.wrong(format!("in its node there is {says:?}: {stat:?}"));
            }
            _ => {}
        }
    }

    fn has_had(&self, session: SessionId) -> bool {
        session == SessionId::NONE || self.sessions.lock().expect("not poisoned").contains(&session)
    }

    /// Ends it in one of the ways that there are.
    async fn leave(&mut self, presence: Presence) {
        let (node, state) = (presence.path().clone(), presence.state());
        if self.random.bool() {
            return drop(presence);
        }
        let Ok(Ok(())) = timeout(PATIENCE, presence.end()).await else { return };
        let PresenceState::Present { czxid } = state else { return };
        if let Ok((_, stat)) = self.run.read(&self.client, &node).await
            && stat.czxid == czxid
        {
            self.run.note(&self.name(), What::Left(format!("{node}, made by {czxid:?}")));
        }
    }

    /// After the faults: it is present, or a present program blocks it. Then it leaves.
    async fn judge(&self, presence: Presence) {
        let is_settled = async {
            loop {
                if self.is_settled(&presence).await {
                    return;
                }
                sleep(PAUSE / 8).await;
            }
        };
        if timeout(PATIENCE, is_settled).await.is_err() {
            return self.stuck(format!("is {:?} and stays so", presence.state()));
        }
        // The presences that wait for it are present next, one after the other.
        sleep(PAUSE).await;
        let node = presence.path().clone();
        let state = presence.state();
        let ended = timeout(PATIENCE, presence.end()).await;
        match (ended, state, self.run.read(&self.client, &node).await) {
            (Ok(Ok(())), PresenceState::Present { czxid }, Ok((_, stat)))
                if stat.czxid == czxid =>
            {
                self.run.note(&self.name(), What::Left(node.to_string()));
            }
            (Err(_), ..) => self.stuck("does not end".into()),
            _ => {}
        }
    }

    async fn is_settled(&self, presence: &Presence) -> bool {
        let state = presence.state();
        let Ok((_, stat)) = self.run.read(&self.client, presence.path()).await else {
            return false;
        };
        match state {
            PresenceState::Present { czxid } => {
                czxid == stat.czxid && stat.ephemeral_owner == self.client.session_id()
            }
            PresenceState::Taken { by } => self.shared && by == stat.ephemeral_owner,
            _ => false,
        }
    }

    fn node(&self) -> String {
        if self.shared { SHARED.to_owned() } else { self.index.to_string() }
    }

    /// What its node begins with, and no other.
    fn mark(&self) -> String {
        format!("member {} of {} ", self.index, self.node())
    }

    fn data(&self, life: u32) -> String {
        format!("{}life {life} at {:?}", self.mark(), self.run.now())
    }

    fn name(&self) -> String {
        format!("client {}.p {}", self.index, self.node())
    }

    fn upto(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.random.f64())
    }

    fn wrong(&self, what: String) {
        self.run.note(&self.name(), What::WrongPresence(what));
    }

    fn stuck(&self, what: String) {
        self.run.note(&self.name(), What::Stuck(format!("the presence {what}")));
    }

    fn note(&self, what: String) {
        self.run.note(&self.name(), What::Note(what));
    }
}

/// Makes nodes where presences want to be, looks after them, and deletes nodes of presences, until `end`.
pub(crate) async fn disturb(
    run: Arc<Run>,
    client: Client,
    mut random: fastrand::Rng,
    end: Duration,
) {
    let mut number = 0;
    while run.now() < end {
        sleep(PAUSE.mul_f64(random.f64())).await;
        let name = ["0", "1", "2", SHARED, SHARED][random.usize(0..5)];
        let node = path(name);
        if random.u8(0..4) == 0 {
            let _ = client.delete(&node, None).await;
        }
        number += 1;
        let data = format!("stranger {number}");
        let mode = [CreateMode::Ephemeral, CreateMode::Persistent][random.usize(0..2)];
        let session = client.session_id();
        let _ = client.create(&node, data.clone(), mode).await;
        // It may be present without a report.
        let made = match run.read(&client, &node).await {
            Ok((found, stat)) if found == data => stat,
            _ => continue,
        };
        let until = run.now() + PAUSE.mul_f64(2.0 * random.f64());
        while run.now() < until {
            sleep(PAUSE.mul_f64(0.3 * random.f64())).await;
            if let Err(wrong) = untouched(&run, &client, &node, &data, &made, session).await {
                return run.note("stranger", What::WrongPresence(wrong));
            }
        }
        clear(&run, &client, &node, made.czxid).await;
    }
    // No node of it blocks others.
    'names: for name in ["0", "1", "2", SHARED] {
        let (data, stat) = loop {
            match run.read(&client, &path(name)).await {
                Ok(found) => break found,
                Err(error) if error.code() == Some(ErrorCode::NoNode) => continue 'names,
                // Until all is well.
                Err(_) => sleep(PAUSE).await,
            }
        };
        if data.starts_with(b"stranger") {
            clear(&run, &client, &path(name), stat.czxid).await;
        }
    }
}

async fn untouched(
    run: &Run,
    client: &Client,
    node: &ZnodePath,
    data: &str,
    made: &Stat,
    session: SessionId,
) -> Result<(), String> {
    let is_ephemeral = made.ephemeral_owner != SessionId::NONE;
    match run.read(client, node).await {
        Ok((found, stat)) if stat.czxid == made.czxid => match found == data && stat == *made {
            true => Ok(()),
            false => Err(format!("{data:?} was written over: {found:?}, {stat:?}")),
        },
        // It went with its session.
        _ if is_ephemeral && client.session_id() != session => Ok(()),
        Ok((found, stat)) => Err(format!("{data:?} was replaced by {found:?}, {stat:?}")),
        Err(error) if error.code() == Some(lockkeeper::ErrorCode::NoNode) => {
            Err(format!("{data:?} was deleted"))
        }
        Err(_) => Ok(()),
    }
}

/// Deletes its own node, until that is certain.
async fn clear(run: &Run, client: &Client, node: &ZnodePath, czxid: Zxid) {
    loop {
        match run.read(client, node).await {
            Ok((_, stat)) if stat.czxid == czxid => {
                if client.delete(node, Some(stat.version)).await.is_ok() {
                    return;
                }
            }
            Ok(_) => return,
            Err(error) if error.code() == Some(lockkeeper::ErrorCode::NoNode) => return,
            Err(_) => {}
        }
        sleep(PAUSE / 8).await;
    }
}
