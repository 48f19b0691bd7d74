//! The program of a client. On command, it acquires the lock, changes the hold and releases the lock; or it puts an
//! item, takes it, and records that it is done.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{Client, Contact, HolderState, LeaseMode, SessionId, ZnodePath};
use lockkeeper_testkit::history::Share;
use lockkeeper_testkit::locks::Held;
use tokio::sync::mpsc;

use crate::WORK;
use crate::machine::Machine;
use crate::wanted::{Owned, Source, Wanted};

/// More than any run takes.
pub(crate) const ENDLESS: Duration = Duration::from_secs(1_000_000);

/// The next command to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Command {
    /// To put the item into the queue.
    Put,
    Acquire(Share),
    /// To drop the guard, and acquire again at once: a lock does both in one transaction.
    Again(Share),
    /// An upgrade or a downgrade.
    Turn,
    /// To give the lock back, or to record that the item is done.
    Release,
    /// To drop the item if it has it, and to go.
    Leave,
    /// To drop the future that it waits for.
    Cancel,
}

/// How far a program is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Connecting,
    Idle,
    Putting,
    Asking(Share),
    Holding(Share),
    /// From one share to another.
    Turning(Share),
    GivingBack,
    /// It had the lock and has released it, or it had the item and knows that it is done.
    Done,
    /// It gave up, and why.
    GaveUp(GaveUp),
}

/// Why a program does not have the lock, or the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GaveUp {
    Cancelled,
    /// There are fewer permits than it wants.
    TooMany,
    /// The other parties have not come in time.
    TimedOut,
    /// It learned of the loss when it recorded that the item is done.
    Lost,
    Failed(String),
}

/// What a program shows of itself.
#[derive(Default)]
pub(crate) struct Desk {
    phase: Mutex<Phase>,
    held: Mutex<Option<Arc<Owned>>>,
    /// The last grant that was not read yet.
    granted: Mutex<Option<(Share, u128)>>,
    /// Whether its work was done, or it entered once more, without the lock.
    is_astray: AtomicBool,
}

/// What a holder may believe at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Belief {
    /// Nobody else is granted the lock before that time by its clock.
    pub(crate) until: Duration,
    /// The paths of its nodes.
    pub(crate) nodes: Vec<String>,
    /// The session that they are of.
    pub(crate) session: SessionId,
}

/// How a hold stands, as its guard says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Held,
    Jeopardy,
    Lost,
}

impl Desk {
    pub(crate) fn phase(&self) -> Phase {
        self.phase.lock().expect("the lock is not poisoned").clone()
    }

    pub(crate) fn take_granted(&self) -> Option<(Share, u128)> {
        self.granted.lock().expect("the lock is not poisoned").take()
    }

    /// `None`: it holds nothing, or has lost it.
    pub(crate) fn belief(&self) -> Option<Belief> {
        let held = self.held.lock().expect("the lock is not poisoned");
        let held = held.as_ref()?;
        let deadline = held.deadline()?;
        if matches!(held.state(), HolderState::Lost(_)) {
            return None;
        }
        let until = deadline.since(Machine::reading(Duration::ZERO));
        let nodes = held.guards().iter().map(|guard| guard.node().to_string()).collect();
        Some(Belief { until, nodes, session: held.guard().session() })
    }

    /// The token of its grant, and the standing; `None` if it has released the lock.
    pub(crate) fn standing(&self) -> Option<(u128, Standing)> {
        let held = self.held.lock().expect("the lock is not poisoned");
        let held = held.as_ref()?;
        let standing = match held.state() {
            HolderState::Jeopardy => Standing::Jeopardy,
            HolderState::Lost(_) => Standing::Lost,
            _ => Standing::Held,
        };
        Some((held.guard().token().to_u128(), standing))
    }

    /// Whether its work was ever done, or it entered once more, without the lock.
    pub(crate) fn is_astray(&self) -> bool {
        self.is_astray.load(Ordering::Relaxed)
    }

    fn goes_astray(&self) {
        self.is_astray.store(true, Ordering::Relaxed);
    }

    fn enter(&self, phase: Phase) {
        *self.phase.lock().expect("the lock is not poisoned") = phase;
    }

    fn held(&self) -> Option<Arc<Owned>> {
        self.held.lock().expect("the lock is not poisoned").clone()
    }

    fn take(&self) -> Option<Owned> {
        let held = self.held.lock().expect("the lock is not poisoned").take()?;
        Some(Arc::into_inner(held).expect("its work is over"))
    }

    fn has(&self, share: Share, held: Owned) {
        let token = held.guard().token().to_u128();
        *self.granted.lock().expect("the lock is not poisoned") = Some((share, token));
        *self.held.lock().expect("the lock is not poisoned") = Some(Arc::new(held));
        self.enter(Phase::Holding(share));
    }
}

/// What the program of a client is like.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) wanted: Wanted,
    pub(crate) timeout: Duration,
    pub(crate) server_tick: Duration,
    pub(crate) mode: LeaseMode,
    /// Whether holders ride out outages.
    pub(crate) rides_out: bool,
}

/// Runs a program to its end.
pub(crate) async fn run(
    setup: Setup,
    machine: Arc<Machine>,
    desk: Arc<Desk>,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let builder = Client::builder()
        .session_timeout(setup.timeout)
        .server_tick(setup.server_tick)
        .lease(setup.mode)
        .connect_timeout(ENDLESS)
        .runtime(machine);
    let client = builder.connect("explored:1").await.expect("nothing is wrong yet");
    let source = setup.wanted.open(&client);
    source.prepare().await;
    desk.enter(Phase::Idle);
    loop {
        let held = desk.held().filter(|_| setup.rides_out);
        let command = tokio::select! {
            biased;
            command = commands.recv() => command,
            never = ride_out(&client, &desk, held) => match never {},
        };
        let Some(command) = command else { return };
        obey(&source, &desk, command, &mut commands).await;
        if source.has_nodes() && matches!(desk.phase(), Phase::Done | Phase::GaveUp(_)) {
            break;
        }
    }
    drop(source);
    // The client stays.
    pending().await
}

/// Works under a lock for as long as it is held, through outages.
async fn ride_out(client: &Client, desk: &Desk, held: Option<Arc<Owned>>) -> Infallible {
    if let Some(Owned::Lock(held)) = held.as_deref() {
        // How it stands is for all to see.
        let worked = held.run_through(ENDLESS, work(client, desk, held));
        let _ = tokio::join!(worked, enter_again(desk, held));
    }
    pending().await
}

/// Is polled whenever the connection changes, and asks for a write in each outage.
async fn work(client: &Client, desk: &Desk, held: &Held) {
    let node = ZnodePath::new(WORK).expect("a path");
    let mut status = client.status();
    let mut has_asked = false;
    loop {
        if held.deadline().is_none() {
            desk.goes_astray();
        }
        let is_away = client.contact() != Contact::Connected;
        if is_away && !has_asked {
            // Whether and when it is sent is what matters.
            drop(client.set_data(&node, "", None));
        }
        has_asked = is_away;
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Asks for the lock once more in each jeopardy, where its owner may.
async fn enter_again(desk: &Desk, held: &Held) {
    let is_reentrant = matches!(held, Held::Reentrant { .. } | Held::Exclusive { .. });
    while is_reentrant && held.jeopardy().await.is_ok() {
        match held.enter_again().await {
            Ok(Some(false)) => return desk.goes_astray(),
            Ok(_) => {}
            // It is lost.
            Err(_) => return,
        }
    }
}

async fn obey(
    source: &Source,
    desk: &Desk,
    command: Command,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) {
    let (share, getting): (_, lockkeeper_client::runtime::Boxed<'_, _>) = match command {
        Command::Put => {
            desk.enter(Phase::Putting);
            return desk.enter(source.put().await.map_or_else(Phase::GaveUp, |()| Phase::Idle));
        }
        Command::Acquire(share) => {
            desk.enter(Phase::Asking(share));
            (share, Box::pin(source.get(share)))
        }
        Command::Again(share) => {
            desk.enter(Phase::Asking(share));
            drop(desk.take());
            (share, Box::pin(source.get(share)))
        }
        Command::Turn => {
            let Some(held) = desk.take() else { return };
            let share = held.may_become().expect("only those turn that can");
            desk.enter(Phase::Turning(share));
            (share, Box::pin(held.turn()))
        }
        Command::Release => {
            let Some(held) = desk.take() else { return };
            desk.enter(Phase::GivingBack);
            return desk.enter(held.end().await);
        }
        Command::Leave => {
            drop(desk.take());
            return desk.enter(Phase::GaveUp(GaveUp::Cancelled));
        }
        Command::Cancel => return,
    };
    let result = tokio::select! {
        biased;
        _ = commands.recv() => return desk.enter(Phase::GaveUp(GaveUp::Cancelled)),
        result = getting => result,
    };
    match result {
        Ok(held) => desk.has(share, held),
        Err(why) => desk.enter(Phase::GaveUp(why)),
    }
}
