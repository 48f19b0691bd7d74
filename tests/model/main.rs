//! Every order in which things can happen to a few clients of one lock, up to a bound.
//!
//! The session and the order are the very code that runs in production. The server is a small one,
//! the network loses connections before and after each message, time passes in steps, sessions
//! expire, waits are cancelled, holders upgrade and downgrade, the number of permits changes, and the
//! server restarts. Counts are printed for `docs/guarantees.md`.

mod client;
mod server;
mod trade;

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lockkeeper::Kind;
use lockkeeper_session::{Instant, LeaseMode};
use lockkeeper_testkit::history::Share;
use lockkeeper_tests::is_wanted;
use stateright::{Checker, Expectation, Model, Property};

use crate::client::{Client, Step};
use crate::server::{Sent, Server};

/// Needs time to pass.
const LEASE_ENDS: &str = "a lease ends while it is held";

const LOCK: &str = "/l";
const TIMEOUT: Duration = Duration::from_secs(6);

/// How far time moves at once: far enough for a few steps to make up a timeout.
const STEP: Duration = Duration::from_secs(2);

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
enum Asking {
    /// Each client for any of the kinds: all combinations are tried.
    Any,
    /// Each client for the kind in its place.
    InTurn,
}

/// What may happen, and how often.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    clients: usize,
    kinds: &'static [Kind],
    asking: Asking,
    /// How many permits there are, where they are counted.
    permits: u32,
    losses: u8,
    cancellations: u8,
    restarts: u8,
    ticks: u8,
    /// How often a holder may turn into a writer, or a reader, without giving the lock back.
    turns: u8,
    /// How often somebody writes another number of permits.
    changes: u8,
    /// Whether what a server sends may be late, or is received at once unless it is lost. Late
    /// replies multiply the states, and matter where time passes.
    late: bool,
    mode: LeaseMode,
}

#[derive(Clone, Debug)]
struct State {
    now: Instant,
    server: Server,
    clients: Vec<Client>,
    losses: u8,
    cancellations: u8,
    restarts: u8,
    ticks: u8,
    turns: u8,
    changes: u8,
    late: bool,
    /// What was granted so far, with the tokens.
    grants: Vec<(Share, i64)>,
    /// A grant whose token is not above that of an earlier one that excludes it.
    disorder: bool,
    /// A grant beside one that is ahead in line and excludes it.
    overtaken: bool,
}

/// All that there is shows in its text, so two states with one text are one state.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        struct Sink<'a, H>(&'a mut H);
        impl<H: Hasher> std::fmt::Write for Sink<'_, H> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.write(text.as_bytes());
                Ok(())
            }
        }
        let _ = write!(Sink(hasher), "{self:?}");
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Connect(usize),
    Start(usize),
    /// The server takes the next message of a client.
    Arrive(usize),
    /// A client takes the next message of the server.
    Receive(usize),
    Release(usize),
    /// An upgrade or a downgrade.
    Turn(usize),
    Cancel(usize),
    /// The connection is lost, with everything on it.
    Lose(usize),
    /// The server takes the next message, and the connection is lost before the reply.
    LoseReply(usize),
    Restart,
    Tick,
    /// Somebody writes how many permits there are.
    Permits(u32),
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let clients = u32::try_from(self.clients).unwrap_or(u32::MAX);
        let combinations = match self.asking {
            Asking::Any => self.kinds.len().pow(clients),
            Asking::InTurn => 1,
        };
        (0..combinations).map(|number| self.init_state(number)).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, client) in state.clients.iter().enumerate() {
            // They start in the order of their numbers: others differ in the names only.
            let before = state.clients[..n].iter().all(|c| !matches!(c.step, Step::Idle));
            let possible = [
                (client.can_connect(), Action::Connect(n)),
                (matches!(client.step, Step::Idle) && before, Action::Start(n)),
                (!client.to_server.is_empty(), Action::Arrive(n)),
                (!client.to_client.is_empty(), Action::Receive(n)),
                (matches!(client.step, Step::Held { .. }), Action::Release(n)),
                (state.turns < self.turns && client.may_turn(), Action::Turn(n)),
                (
                    state.cancellations < self.cancellations && client.may_cancel(),
                    Action::Cancel(n),
                ),
                (state.losses < self.losses && client.connected, Action::Lose(n)),
                (
                    state.losses < self.losses && !self.late && !client.to_server.is_empty(),
                    Action::LoseReply(n),
                ),
            ];
            actions.extend(possible.iter().filter(|(able, _)| *able).map(|(_, action)| *action));
        }
        if state.restarts < self.restarts {
            actions.push(Action::Restart);
        }
        if state.ticks < self.ticks {
            actions.push(Action::Tick);
        }
        if state.changes < self.changes {
            let permits = state.server.permits();
            let others = [permits - 1, permits + 1].into_iter().filter(|permits| *permits > 0);
            actions.extend(others.map(Action::Permits));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.apply(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("mutual exclusion by lease", |_, state: &State| {
                let holders = state.clients.iter().filter(|client| client.believes(state.now));
                fit(&holders.map(Client::share).collect::<Vec<_>>())
            }),
            Property::always("whoever holds has its node", |_, state: &State| {
                let mut holders = state.clients.iter().filter(|client| client.believes(state.now));
                holders.all(|client| client.believed_nodes().any(|node| state.server.has(node)))
            }),
            Property::always("mutual exclusion by token", |_, state: &State| !state.disorder),
            Property::always("nobody is overtaken", |_, state: &State| !state.overtaken),
            Property::always("nobody waits for ever", |model: &Self, state: &State| {
                !model.is_over(state) || state.clients.iter().all(Client::is_finished)
            }),
            Property::always("nobody waits for nothing", |_, state: &State| {
                !state.is_quiet() || !state.clients.iter().any(|client| state.is_forgotten(client))
            }),
            Property::always("nobody gives up without a reason", |model: &Self, state: &State| {
                let gave_up = |client: &Client| matches!(client.step, Step::GaveUp(_));
                !model.is_calm() || !state.clients.iter().any(gave_up)
            }),
            Property::always("nothing is left behind", |model: &Self, state: &State| {
                !model.is_over(state) || state.server.nodes.is_empty()
            }),
            Property::sometimes("all get the lock", |_, state: &State| {
                state.clients.iter().all(|client| matches!(client.step, Step::Done))
            }),
            Property::sometimes(LEASE_ENDS, |_, state: &State| {
                let lost =
                    |c: &Client| matches!(c.step, Step::Held { .. }) && !c.believes(state.now);
                state.clients.iter().any(lost)
            }),
        ]
    }
}

impl Bounds {
    /// The clients ask for one of the combinations of what they may ask for.
    fn init_state(&self, mut combination: usize) -> State {
        let mut clients = Vec::new();
        for number in 0..self.clients {
            let kind = match self.asking {
                Asking::Any => self.kinds[combination % self.kinds.len()],
                Asking::InTurn => self.kinds[number],
            };
            combination /= self.kinds.len();
            clients.push(Client::new(number, kind, self));
        }
        let mut state = State {
            now: Instant::default(),
            server: Server::default(),
            clients,
            losses: 0,
            cancellations: 0,
            restarts: 0,
            ticks: 0,
            turns: 0,
            changes: 0,
            late: self.late,
            grants: Vec::new(),
            disorder: false,
            overtaken: false,
        };
        if self.changes > 0 {
            state.server.set_permits(self.permits);
        }
        // All are connected at the beginning: how they came there is a matter of the session's
        // own tests, and would multiply the states.
        for client in 0..self.clients {
            state.apply(Action::Connect(client));
            state.apply(Action::Arrive(client));
            state.apply(Action::Receive(client));
        }
        state
    }

    /// Whether nothing is allowed to go wrong.
    fn is_calm(&self) -> bool {
        let faults = [self.losses, self.cancellations, self.restarts, self.ticks, self.changes];
        faults.iter().all(|bound| *bound == 0)
    }

    /// Whether nothing can happen any more.
    fn is_over(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.is_empty()
    }
}

impl Client {
    fn may_cancel(&self) -> bool {
        matches!(
            self.step,
            Step::Entering { .. }
                | Step::Recovering { .. }
                | Step::Waiting { .. }
                | Step::Listing { .. }
                | Step::Counting { .. }
                | Step::Trading { .. }
        )
    }

    fn may_turn(&self) -> bool {
        let kinds = [Kind::Upgradeable, Kind::Write];
        matches!(self.step, Step::Held { .. }) && kinds.contains(&self.kind)
    }
}

impl State {
    fn apply(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Connect(n) => self.clients[n].connect(now),
            Action::Start(n) => self.clients[n].start(now),
            Action::Arrive(n) => self.arrive(n),
            Action::Receive(n) => self.receive(n),
            Action::LoseReply(n) => {
                self.losses += 1;
                self.arrive(n);
                self.lose(n);
            }
            Action::Release(n) => self.clients[n].release(now),
            Action::Turn(n) => {
                self.turns += 1;
                match self.clients[n].kind {
                    Kind::Upgradeable => self.clients[n].upgrade(now),
                    _ => self.clients[n].downgrade(now),
                }
            }
            Action::Cancel(n) => {
                self.cancellations += 1;
                self.clients[n].cancel(now);
            }
            Action::Lose(n) => {
                self.losses += 1;
                self.lose(n);
            }
            Action::Restart => {
                self.restarts += 1;
                self.server.restart(now);
                (0..self.clients.len()).for_each(|n| self.lose(n));
            }
            Action::Tick => self.tick(),
            Action::Permits(permits) => {
                self.changes += 1;
                for client in &mut self.clients {
                    let idle = matches!(client.step, Step::Idle);
                    client.most = if idle { permits } else { client.most.max(permits) };
                }
                let sent = self.server.set_permits(permits);
                self.deliver(sent);
            }
        }
        if !self.late {
            while let Some(n) = self.clients.iter().position(|c| !c.to_client.is_empty()) {
                self.receive(n);
            }
        }
        self.note_grants();
    }

    fn arrive(&mut self, n: usize) {
        if let Some(frame) = self.clients[n].to_server.pop_front() {
            let sent = self.server.handle(self.now, n, frame);
            self.deliver(sent);
        }
    }

    fn receive(&mut self, n: usize) {
        self.clients[n].receive(self.now);
        if !self.clients[n].connected {
            self.server.disconnect(n);
        }
        // Here, and not after all: two grants at once must not look like one after the other.
        self.note_grants();
    }

    fn lose(&mut self, n: usize) {
        self.server.disconnect(n);
        if self.clients[n].connected {
            self.clients[n].lose(self.now);
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        self.now = self.now + STEP;
        let sent = self.server.expire(self.now);
        self.deliver(sent);
        for n in 0..self.clients.len() {
            self.clients[n].tick(self.now);
            if self.server.has_closed(n) || !self.clients[n].connected {
                self.lose(n);
            }
        }
    }

    fn deliver(&mut self, sent: Sent) {
        for (n, frame) in sent {
            if self.clients[n].connected {
                self.clients[n].to_client.push_back(frame);
            }
        }
    }

    fn note_grants(&mut self) {
        for client in &mut self.clients {
            let Some(token) = client.granted.take() else { continue };
            let share = client.share();
            let not_above = |&(other, earlier): &(Share, i64)| {
                // A reader that was a writer has the writer's token.
                let own = share == Share::Reader && (other, earlier) == (Share::Alone, token);
                token <= earlier && !own && !fit(&[share, other])
            };
            self.disorder |= self.grants.iter().any(not_above);
            self.grants.push((share, token));
            let line = client::line(self.server.names());
            let own = line.places().iter().position(|p| Some(&*p.name) == client.held_node());
            let ahead = &line.places()[..own.unwrap_or_default()];
            let ahead = ahead.iter().map(|place| client::share(place.kind, client.most));
            self.overtaken |= !share.fits_behind(&ahead.collect::<Vec<_>>());
        }
    }

    /// Whether nothing is on its way, and everybody could hear of it.
    fn is_quiet(&self) -> bool {
        let quiet = |c: &Client| c.connected && c.to_server.is_empty() && c.to_client.is_empty();
        self.clients.iter().all(quiet)
    }

    /// Whether it should hold by now.
    fn is_forgotten(&self, client: &Client) -> bool {
        let permits = Some(self.server.permits()).filter(|permits| *permits > 0);
        client.waits_for_nothing(self.server.names(), permits)
    }
}

/// Whether all of these may be held at the same time. Who came before there were more permits must
/// bear those who came since.
fn fit(shares: &[Share]) -> bool {
    let of = |share: &Share| match share {
        Share::Permits { of, .. } => *of,
        _ => 0,
    };
    let most = shares.iter().map(of).max().unwrap_or_default();
    let shares = shares.iter().map(|share| match *share {
        Share::Permits { taken, .. } => Share::Permits { taken, of: most },
        other => other,
    });
    Share::fit(&shares.collect::<Vec<_>>())
}

/// What is checked: its name, its bounds, and whether a plain test run has the time for it.
struct Scenario {
    name: &'static str,
    bounds: Bounds,
    length: Length,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Length {
    /// A second without optimization.
    Moment,
    /// Some seconds.
    Short,
    Long,
}

const MUTEX: Bounds = Bounds {
    clients: 3,
    kinds: &[Kind::Exclusive],
    asking: Asking::Any,
    permits: 1,
    losses: 0,
    cancellations: 0,
    restarts: 0,
    ticks: 0,
    turns: 0,
    changes: 0,
    late: false,
    mode: LeaseMode::Direct,
};

const RW_LOCK: Bounds = Bounds { kinds: &[Kind::Read, Kind::Write], ..MUTEX };

/// Readers, one of which at a time may turn into a writer, and writers, that turn into readers.
const TURNING: Bounds =
    Bounds { kinds: &[Kind::Read, Kind::Upgradeable, Kind::Write], turns: 1, ..MUTEX };

/// Two permits, of which each wants one or both.
const SEMAPHORE: Bounds =
    Bounds { kinds: &[Kind::Permits(1), Kind::Permits(2)], permits: 2, ..MUTEX };

/// Each client asks for the kind in its place.
const fn turning(kinds: &'static [Kind]) -> Bounds {
    Bounds { clients: kinds.len(), kinds, asking: Asking::InTurn, ..TURNING }
}

const SEMAPHORE_IN_TURN: Bounds = Bounds {
    kinds: &[Kind::Permits(1), Kind::Permits(2), Kind::Permits(1)],
    asking: Asking::InTurn,
    ..SEMAPHORE
};

/// One line of [`SCENARIOS`].
const fn scenario(name: &'static str, length: Length, bounds: Bounds) -> Scenario {
    Scenario { name, bounds, length }
}

/// A new scenario is one more line here.
const SCENARIOS: &[Scenario] = &[
    scenario("`Mutex`, 3 clients", Length::Moment, MUTEX),
    scenario("`RwLock`, 3 clients", Length::Moment, RW_LOCK),
    scenario("`Semaphore`, 3 clients", Length::Moment, SEMAPHORE),
    scenario(
        "`RwLock`, 2 clients, two upgrades or downgrades",
        Length::Moment,
        Bounds { clients: 2, turns: 2, ..TURNING },
    ),
    scenario(
        "`Semaphore`, 2 clients, two changes of the number of permits",
        Length::Short,
        Bounds { clients: 2, changes: 2, ..SEMAPHORE },
    ),
    scenario(
        "`Mutex`, 3 clients, a cancelled wait",
        Length::Short,
        Bounds { cancellations: 1, ..MUTEX },
    ),
    scenario("`Mutex`, 3 clients, a lost connection", Length::Short, Bounds { losses: 1, ..MUTEX }),
    scenario(
        "`RwLock`, 3 clients, a lost connection",
        Length::Long,
        Bounds { losses: 1, ..RW_LOCK },
    ),
    scenario(
        "`Semaphore`, 3 clients, a lost connection",
        Length::Long,
        Bounds { losses: 1, ..SEMAPHORE },
    ),
    scenario("`Mutex`, 3 clients, a restart", Length::Long, Bounds { restarts: 1, ..MUTEX }),
    scenario(
        "`Mutex`, 2 clients, two lost connections, a cancelled wait",
        Length::Long,
        Bounds { clients: 2, losses: 2, cancellations: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, a lost connection, a restart",
        Length::Long,
        Bounds { clients: 2, losses: 1, restarts: 1, ..MUTEX },
    ),
    scenario(
        "`Mutex`, 2 clients, sessions that expire",
        Length::Long,
        Bounds { clients: 2, ticks: 3, ..MUTEX },
    ),
    scenario(
        "`RwLock`, 2 clients, a lost connection, a restart",
        Length::Long,
        Bounds { clients: 2, losses: 1, restarts: 1, ..RW_LOCK },
    ),
    scenario(
        "`Semaphore`, 2 clients, a lost connection, a restart",
        Length::Long,
        Bounds { clients: 2, losses: 1, restarts: 1, ..SEMAPHORE },
    ),
    scenario(
        "`RwLock`, 2 clients, sessions that expire",
        Length::Long,
        Bounds { clients: 2, ticks: 3, ..RW_LOCK },
    ),
    scenario(
        "`Semaphore`, 2 clients, sessions that expire",
        Length::Long,
        Bounds { clients: 2, ticks: 3, ..SEMAPHORE },
    ),
    scenario(
        "`Mutex`, 2 clients, late replies, time",
        Length::Long,
        Bounds { clients: 2, ticks: 2, late: true, ..MUTEX },
    ),
    scenario(
        "`RwLock`, a writer between two readers, a restart",
        Length::Long,
        Bounds { restarts: 1, turns: 0, ..turning(&[Kind::Read, Kind::Write, Kind::Read]) },
    ),
    scenario(
        "`Semaphore`, one for both permits between two for one, a restart",
        Length::Long,
        Bounds { restarts: 1, ..SEMAPHORE_IN_TURN },
    ),
    scenario("`RwLock`, 3 clients, an upgrade or downgrade", Length::Long, TURNING),
    scenario(
        "`RwLock`, 2 clients, an upgrade or downgrade, a cancelled wait",
        Length::Long,
        Bounds { clients: 2, cancellations: 1, ..TURNING },
    ),
    scenario(
        "`RwLock`, 2 clients, an upgrade or downgrade, a lost connection",
        Length::Long,
        Bounds { clients: 2, losses: 1, ..TURNING },
    ),
    scenario(
        "`RwLock`, an upgrade beside a reader, a lost connection, a cancelled wait",
        Length::Long,
        Bounds { losses: 1, cancellations: 1, ..turning(&[Kind::Upgradeable, Kind::Read]) },
    ),
    scenario(
        "`RwLock`, 2 clients, an upgrade or downgrade, a restart",
        Length::Long,
        Bounds { clients: 2, restarts: 1, ..TURNING },
    ),
    scenario(
        "`RwLock`, an upgrade beside a reader, sessions that expire",
        Length::Long,
        Bounds { ticks: 3, ..turning(&[Kind::Upgradeable, Kind::Read]) },
    ),
    scenario(
        "`RwLock`, a downgrade before a writer, sessions that expire",
        Length::Long,
        Bounds { ticks: 3, ..turning(&[Kind::Write, Kind::Write]) },
    ),
    scenario(
        "`RwLock`, an upgrade before a writer and a reader, a cancelled wait",
        Length::Short,
        Bounds { cancellations: 1, ..turning(&[Kind::Upgradeable, Kind::Write, Kind::Read]) },
    ),
    scenario(
        "`Semaphore`, one for both permits between two for one, a change of their number",
        Length::Long,
        Bounds { changes: 1, ..SEMAPHORE_IN_TURN },
    ),
    scenario(
        "`Semaphore`, 2 clients, a change of the number of permits, a lost connection",
        Length::Long,
        Bounds { clients: 2, changes: 1, losses: 1, ..SEMAPHORE },
    ),
];

/// What the command line asks for.
struct Plan {
    length: Length,
    filter: String,
    /// Where the page goes.
    docs: Option<PathBuf>,
}

impl Plan {
    fn parse(arguments: &[String]) -> Option<Self> {
        let mut plan = Self { length: Length::Short, filter: String::new(), docs: None };
        let mut arguments = arguments.iter();
        while let Some(option) = arguments.next() {
            match option.as_str() {
                "--long" => plan.length = Length::Long,
                "--only" => plan.filter.clone_from(arguments.next()?),
                "--docs" => plan.docs = Some(arguments.next()?.into()),
                _ => return None,
            }
        }
        Some(plan)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    const NAME: &str = "model::scenarios";
    let plan = if arguments.first().is_some_and(|first| first == "run") {
        Plan::parse(&arguments[1..])
    } else if is_wanted(NAME, &arguments) {
        Some(Plan { length: Length::Moment, filter: String::new(), docs: None })
    } else {
        return ExitCode::SUCCESS;
    };
    let Some(plan) = plan else {
        eprintln!("arguments: run [--long] [--only WORDS] [--docs FOLDER]");
        return ExitCode::FAILURE;
    };
    match check_all(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn check_all(plan: &Plan) -> Result<(), String> {
    let mut table = String::from(
        "# States of the model\n\nWritten by `cargo xtask model --long`; do not edit. Every state \
         that can be reached within the bounds, and in each of them every promise was true.\n\n\
         | what, and what may go wrong | states | depth |\n|---|--:|--:|\n",
    );
    for scenario in SCENARIOS {
        let Scenario { name, bounds, length } = scenario;
        if *length > plan.length || !name.contains(&plan.filter) {
            continue;
        }
        let start = std::time::Instant::now();
        let (states, depth) = check(name, *bounds)?;
        println!("{name}: {states} states, depth {depth}, {:.1} s", start.elapsed().as_secs_f64());
        let _ = writeln!(table, "| {name} | {} | {depth} |", thousands(states));
    }
    if let Some(docs) = &plan.docs {
        let page = docs.join("model.md");
        std::fs::write(&page, table).map_err(|error| format!("{}: {error}", page.display()))?;
    }
    Ok(())
}

/// Looks at all states within the bounds: how many, and how many steps away they are.
fn check(name: &str, bounds: Bounds) -> Result<(usize, usize), String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = bounds.checker().threads(threads).spawn_bfs().join();
    let discoveries = checker.discoveries();
    for property in bounds.properties() {
        let found = discoveries.get(property.name);
        match (property.expectation, found) {
            (Expectation::Sometimes, None) if bounds.ticks >= 3 || property.name != LEASE_ENDS => {
                return Err(format!("violated: {} (never), {name}", property.name));
            }
            (Expectation::Always, Some(path)) => {
                let actions = path.clone().into_actions();
                let steps: Vec<String> = actions.iter().map(|step| format!("  {step:?}")).collect();
                let last = path.last_state();
                return Err(format!(
                    "violated: {} ({} steps), {name}\n{}\nand then: {last:#?}\n\
                     again: cargo xtask model --only {name:?}",
                    property.name,
                    steps.len(),
                    steps.join("\n")
                ));
            }
            _ => {}
        }
    }
    Ok((checker.unique_state_count(), checker.max_depth()))
}

/// A number as people read it.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
