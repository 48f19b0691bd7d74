//! All of it at one moment, and what can happen next.

use std::collections::{BTreeMap, VecDeque};

use lockkeeper::Kind;
use lockkeeper_testkit::history::Share;

use crate::frames::Frames;
use crate::histories::{Histories, HistoryId, HistoryInput, Seen};
use crate::items::{self, Fate};
use crate::judge::{self, Promise};
use crate::machine::End;
use crate::program::{Command, Phase, Standing};
use crate::rounds;
use crate::scenarios::{Bounds, LockKind};
use crate::service::{self, Connection, Sent, Service, StateId};
use crate::timeline::{self, Timeline};

/// Everything at one moment. Two that are equal go on in the same ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) server: StateId,
    pub(crate) clients: Vec<Client>,
    pub(crate) used: Used,
    /// How many permits there are.
    pub(crate) permits: u32,
    /// The most permits that there were.
    pub(crate) most: u32,
    /// The highest token of each kind of grant.
    pub(crate) tokens: BTreeMap<Share, u128>,
    pub(crate) fate: Fate,
}

/// One client, as the network sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// `None`: its program has ended, and it has gone.
    pub(crate) history: Option<HistoryId>,
    /// How many connections it had.
    connections: u8,
    pub(crate) is_connected: bool,
    /// What is on its way to the server, and back.
    pub(crate) up: VecDeque<crate::frames::FrameId>,
    pub(crate) down: VecDeque<Down>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Down {
    Frame(crate::frames::FrameId),
    Close,
}

/// How often each thing happened that is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Used {
    pub(crate) losses: u8,
    pub(crate) cancellations: u8,
    pub(crate) restarts: u8,
    pub(crate) ticks: u8,
    pub(crate) turns: u8,
    pub(crate) changes: u8,
    pub(crate) again: u8,
    pub(crate) deletions: u8,
    pub(crate) restores: u8,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A client gets a connection.
    Connect(usize),
    /// The server takes the next message of a client.
    Arrive(usize),
    /// A client takes the next message of the server.
    Receive(usize),
    /// A client's next timer, which is due soon.
    Timer(usize),
    /// A client's program goes on.
    Tell(usize, Command),
    /// A client's connection is lost, with all on it but so many messages, which the server took.
    Lose(usize, usize),
    /// The server stops, and comes back with what it has stored.
    Restart,
    /// Time passes.
    Tick,
    /// Somebody deletes the node of a holder that is in jeopardy.
    Delete(usize),
    /// Somebody puts the server's data back, and starts it again.
    PutBack,
    /// Somebody writes how many permits there are.
    Permits(u32),
}

/// The parts that a state refers to, and the bounds.
pub(crate) struct Parts {
    pub(crate) bounds: Bounds,
    pub(crate) frames: Frames,
    pub(crate) clients: Vec<Histories>,
    pub(crate) service: Service,
    /// What the clients of this search ask for.
    pub(crate) asked: Vec<Kind>,
    /// What is told of the steps, if somebody wants to know.
    pub(crate) timeline: Option<Timeline>,
}

/// A state in which a promise is broken.
pub(crate) type Broken = &'static str;

impl Parts {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let mut frames = Frames::default();
        let client = |number| Histories::new(number, bounds.setup(), bounds.times(), &mut frames);
        let clients = (0..bounds.clients).map(client).collect();
        let counted = bounds.lock.keeps_permits().then_some(bounds.permits);
        let service = Service::new(counted, bounds.step());
        Self { bounds, frames, clients, service, asked: Vec::new(), timeline: None }
    }

    /// The state in which all are connected: how they come there is a matter of other tests.
    pub(crate) fn initial(&mut self) -> State {
        let client = |histories: &Histories| Client {
            history: Some(histories.beginning()),
            connections: 0,
            is_connected: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
        };
        let mut state = State {
            server: self.service.beginning(),
            clients: self.clients.iter().map(client).collect(),
            used: Used::default(),
            permits: self.bounds.permits,
            most: self.bounds.permits,
            tokens: BTreeMap::new(),
            fate: Fate::default(),
        };
        for n in 0..self.bounds.clients {
            self.next(&mut state, Action::Connect(n)).expect("nothing is broken yet");
            self.quieten(&mut state);
            assert_eq!(self.seen(&state, n).map(|seen| &seen.phase), Some(&Phase::Idle));
        }
        if self.bounds.lock == LockKind::Queue && !self.bounds.puts {
            self.next(&mut state, Action::Tell(0, Command::Put)).expect("nothing is broken yet");
            self.quieten(&mut state);
        }
        // Where no time passes, only the arrival of what they send matters, and not when they begin.
        let in_line = self.bounds.in_line.min(self.bounds.clients);
        if self.bounds.ticks == 0 || in_line > 0 {
            let those = if in_line > 0 { in_line } else { self.bounds.clients };
            for n in usize::from(self.bounds.puts)..those {
                let acquire = Action::Tell(n, Command::Acquire(self.share(n)));
                self.next(&mut state, acquire).expect("nothing is broken yet");
                if in_line > 0 {
                    self.quieten(&mut state);
                }
            }
        }
        let waits_for_others =
            self.bounds.lock == LockKind::Rounds && in_line < self.bounds.clients;
        if in_line > 0 && !self.bounds.puts && !waits_for_others {
            assert!(matches!(
                self.seen(&state, 0).map(|seen| &seen.phase),
                Some(Phase::Holding(_))
            ));
        }
        if self.bounds.restores > 0 {
            self.serve(&mut state, service::Input::BackUp).expect("nothing is broken yet");
            self.next(&mut state, Action::Tick).expect("nothing is broken yet");
            self.quieten(&mut state);
        }
        state
    }

    /// Lets all arrive that is on its way.
    fn quieten(&mut self, state: &mut State) {
        let on_its_way = |client: &Client| !client.up.is_empty() || !client.down.is_empty();
        while let Some(n) = state.clients.iter().position(on_its_way) {
            let action = match state.clients[n].down.is_empty() {
                true => Action::Arrive(n),
                false => Action::Receive(n),
            };
            self.next(state, action).expect("nothing is broken yet");
        }
    }

    /// What can be seen of a client, unless it has gone.
    pub(crate) fn seen(&self, state: &State, n: usize) -> Option<&Seen> {
        state.clients[n].history.map(|history| self.clients[n].seen(history))
    }

    // ----- what can happen --------------------------------------------------------------------

    pub(crate) fn actions(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        let (used, bounds) = (&state.used, &self.bounds);
        let mut all_started = true;
        for n in 0..state.clients.len() {
            let Some(seen) = self.seen(state, n) else { continue };
            let client = &state.clients[n];
            let possible = [
                (seen.dials && !client.is_connected, Action::Connect(n)),
                (!client.up.is_empty(), Action::Arrive(n)),
                (!client.down.is_empty(), Action::Receive(n)),
                (seen.timer && client.is_connected, Action::Timer(n)),
            ];
            actions.extend(possible.iter().filter(|(able, _)| *able).map(|(_, action)| *action));
            let idle = seen.phase == Phase::Idle;
            // They start in the order of their numbers: others differ in the names only.
            if !idle || all_started {
                let commands = self.commands(state, seen, n);
                actions.extend(commands.into_iter().map(|command| Action::Tell(n, command)));
            }
            all_started &= !idle;
            if used.losses < bounds.losses && client.is_connected {
                let most = if bounds.late { 0 } else { client.up.len() };
                actions.extend((0..=most).map(|taken| Action::Lose(n, taken)));
            }
            let in_jeopardy = matches!(seen.standing, Some((_, Standing::Jeopardy)));
            if used.deletions < bounds.deletions && in_jeopardy {
                actions.push(Action::Delete(n));
            }
            if used.restores < bounds.restores && in_jeopardy && n == 0 {
                actions.push(Action::PutBack);
            }
        }
        if state.clients.iter().all(|client| client.history.is_none()) {
            return actions;
        }
        if used.restarts < bounds.restarts {
            actions.push(Action::Restart);
        }
        if used.ticks < bounds.ticks {
            actions.push(Action::Tick);
        }
        if used.changes < bounds.changes {
            let others = [state.permits - 1, state.permits + 1];
            actions.extend(others.into_iter().filter(|permits| *permits > 0).map(Action::Permits));
        }
        actions
    }

    /// What a program may do next.
    fn commands(&self, state: &State, seen: &Seen, n: usize) -> Vec<Command> {
        let used = &state.used;
        let mut commands = Vec::new();
        match seen.phase {
            Phase::Idle if self.bounds.puts && n == 0 => {
                commands.push(if state.fate.is_put { Command::Leave } else { Command::Put });
            }
            Phase::Idle => commands.push(Command::Acquire(self.share(n))),
            Phase::Holding(share) => {
                commands.push(Command::Release);
                let turns = matches!(share, Share::Upgradeable)
                    || share == Share::Alone && self.asked[n] == Kind::Write
                    || share == Share::Alone && self.asked[n] == Kind::Upgradeable;
                if turns && used.turns < self.bounds.turns {
                    commands.push(Command::Turn);
                }
                if used.again < self.bounds.again {
                    commands.push(Command::Again(share));
                }
                if matches!(self.bounds.lock, LockKind::Queue | LockKind::Rounds) {
                    commands.push(Command::Leave);
                }
            }
            Phase::Asking(_) | Phase::Turning(_)
                if used.cancellations < self.bounds.cancellations =>
            {
                commands.push(Command::Cancel);
            }
            _ => {}
        }
        commands
    }

    fn share(&self, n: usize) -> Share {
        match self.asked[n] {
            Kind::Read => Share::Reader,
            Kind::Upgradeable => Share::Upgradeable,
            Kind::Permits(taken) => Share::Permits { taken, of: self.bounds.permits },
            _ => Share::Alone,
        }
    }

    // ----- what happens -----------------------------------------------------------------------

    /// Lets it happen, and all that follows from it at once.
    ///
    /// # Errors
    ///
    /// A promise is broken on the way.
    pub(crate) fn next(&mut self, state: &mut State, action: Action) -> Result<(), Broken> {
        self.act(state, action)?;
        if !self.bounds.late {
            while let Some(n) = state.clients.iter().position(|client| !client.down.is_empty()) {
                self.receive(state, n)?;
            }
        }
        self.let_go(state)
    }

    fn act(&mut self, state: &mut State, action: Action) -> Result<(), Broken> {
        match action {
            Action::Connect(n) => {
                let client = &mut state.clients[n];
                client.connections += 1;
                client.is_connected = true;
                let connection = state.connection(n);
                self.serve(state, service::Input::Connected(connection))?;
                self.feed(state, n, HistoryInput::Connected)?;
            }
            Action::Arrive(n) if self.bounds.together => {
                while !state.clients[n].up.is_empty() {
                    self.arrive(state, n)?;
                }
            }
            Action::Arrive(n) => self.arrive(state, n)?,
            Action::Receive(n) => self.receive(state, n)?,
            Action::Timer(n) => self.feed(state, n, HistoryInput::Timer)?,
            Action::Tell(n, command) => {
                match command {
                    Command::Cancel => state.used.cancellations += 1,
                    Command::Turn => state.used.turns += 1,
                    Command::Again(_) => state.used.again += 1,
                    Command::Put | Command::Acquire(_) | Command::Release | Command::Leave => {}
                }
                self.feed(state, n, HistoryInput::Told(command))?;
            }
            Action::Lose(n, taken) => {
                state.used.losses += 1;
                for _ in 0..taken {
                    self.arrive(state, n)?;
                }
                let connection = state.connection(n);
                self.serve(state, service::Input::Disconnected(connection))?;
                self.cut(state, n, End::Lost)?;
            }
            Action::Restart => {
                state.used.restarts += 1;
                self.start_again(state, service::Input::Restart)?;
            }
            Action::PutBack => {
                state.used.restores += 1;
                self.start_again(state, service::Input::PutBack)?;
            }
            Action::Tick => {
                state.used.ticks += 1;
                self.serve(state, service::Input::Tick)?;
                for n in 0..state.clients.len() {
                    self.feed(state, n, HistoryInput::Tick)?;
                }
            }
            Action::Delete(n) => {
                state.used.deletions += 1;
                let belief = self.seen(state, n).and_then(|seen| seen.belief.as_ref());
                if let Some(session) = belief.map(|belief| belief.session) {
                    self.serve(state, service::Input::Delete(session))?;
                }
            }
            Action::Permits(permits) => {
                state.used.changes += 1;
                state.permits = permits;
                state.most = state.most.max(permits);
                self.serve(state, service::Input::Permits(permits))?;
            }
        }
        Ok(())
    }

    fn arrive(&mut self, state: &mut State, n: usize) -> Result<(), Broken> {
        let Some(frame) = state.clients[n].up.pop_front() else { return Ok(()) };
        let connection = state.connection(n);
        self.serve(state, service::Input::Frame(connection, frame))
    }

    fn receive(&mut self, state: &mut State, n: usize) -> Result<(), Broken> {
        match state.clients[n].down.pop_front() {
            Some(Down::Frame(frame)) => self.feed(state, n, HistoryInput::Frame(frame)),
            Some(Down::Close) => self.cut(state, n, End::Closed),
            None => Ok(()),
        }
    }

    /// The server stops and starts, and all connections end.
    fn start_again(&mut self, state: &mut State, how: service::Input) -> Result<(), Broken> {
        self.serve(state, how)?;
        for n in 0..state.clients.len() {
            if state.clients[n].is_connected {
                self.cut(state, n, End::Lost)?;
            }
        }
        Ok(())
    }

    /// The connection ends; the server knows.
    fn cut(&mut self, state: &mut State, n: usize, end: End) -> Result<(), Broken> {
        state.clients[n].hang_up();
        self.feed(state, n, HistoryInput::Ended(end))
    }

    fn serve(&mut self, state: &mut State, input: service::Input) -> Result<(), Broken> {
        self.say_server(input);
        let (server, sent) = self.service.then(state.server, input, &mut self.frames);
        let before = std::mem::replace(&mut state.server, server);
        for (to, sent) in sent {
            let client = &mut state.clients[usize::from(to.client)];
            if client.is_connected && client.connections == to.number {
                client.down.push_back(match sent {
                    Sent::Frame(frame) => Down::Frame(*frame),
                    Sent::Close => Down::Close,
                });
            }
        }
        items::step(self, before, input, state)
    }

    fn feed(&mut self, state: &mut State, n: usize, input: HistoryInput) -> Result<(), Broken> {
        let Some(history) = state.clients[n].history else { return Ok(()) };
        let next = self.clients[n].then(history, input, &mut self.frames);
        state.clients[n].history = Some(next);
        self.say_client(n, history, input, next);
        let (before, seen) = (self.clients[n].seen(history), self.clients[n].seen(next));
        state.clients[n].up.extend(&seen.sent);
        let granted = seen.granted;
        judge::step(&self.bounds, seen)?;
        judge::goes_on(self, state, before, seen)?;
        items::told(self, state, n, before, seen)?;
        rounds::told(self, state, n, before, seen)?;
        if seen.hung_up {
            let connection = state.connection(n);
            state.clients[n].hang_up();
            self.serve(state, service::Input::Disconnected(connection))?;
        }
        if let Some((share, token)) = granted {
            judge::grant(self, state, n, share, token)?;
        }
        // Without a connection it goes on until it waits for one: that concerns nobody else.
        match self.seen(state, n).is_some_and(|seen| seen.timer && !seen.dials) {
            true if !state.clients[n].is_connected => self.feed(state, n, HistoryInput::Timer),
            _ => Ok(()),
        }
    }

    /// A client whose program has ended, and that has nothing left to do, goes away. Nobody could
    /// tell whether it is there.
    fn let_go(&mut self, state: &mut State) -> Result<(), Broken> {
        for n in 0..state.clients.len() {
            let Some(seen) = self.seen(state, n) else { continue };
            let ended = matches!(seen.phase, Phase::Done | Phase::GaveUp(_));
            if !ended || seen.timer || !state.clients[n].is_quiet() {
                continue;
            }
            judge::leaves(self, state, n)?;
            let connection = state.connection(n);
            self.serve(state, service::Input::Disconnected(connection))?;
            state.clients[n].hang_up();
            state.clients[n].history = None;
            state.clients[n].connections = 0;
        }
        Ok(())
    }

    // ----- what is told of it -----------------------------------------------------------------

    pub(crate) fn say(&mut self, say: impl FnOnce(&mut Timeline)) {
        if let Some(timeline) = &mut self.timeline {
            say(timeline);
        }
    }

    fn say_client(&mut self, n: usize, before: HistoryId, input: HistoryInput, after: HistoryId) {
        let Some(timeline) = &mut self.timeline else { return };
        let mut what = timeline::input(input);
        if let HistoryInput::Frame(frame) = input {
            what += " ";
            what += &timeline.reply(n, self.frames.bytes(frame));
        }
        let (before, seen) = (&self.clients[n].seen(before).phase, self.clients[n].seen(after));
        timeline.client(n, &what, before, seen);
        seen.sent.iter().for_each(|frame| timeline.sends(n, self.frames.bytes(*frame)));
    }

    fn say_server(&mut self, input: service::Input) {
        let Some(timeline) = &mut self.timeline else { return };
        let what = match input {
            service::Input::Frame(from, frame) => {
                let n = usize::from(from.client);
                let request = timeline.request(n, self.frames.bytes(frame));
                format!("server: takes {request} of client {n}")
            }
            other => format!("server: {other:?}"),
        };
        timeline.note(&what);
    }

    /// What must be true of every state.
    pub(crate) fn check(&self, state: &State, is_over: bool) -> Result<(), Broken> {
        judge::PROMISES.iter().try_for_each(|Promise { name, holds }| {
            if holds(self, state, is_over) { Ok(()) } else { Err(*name) }
        })
    }
}

impl State {
    pub(crate) fn connection(&self, n: usize) -> Connection {
        let number = self.clients[n].connections;
        Connection { client: u8::try_from(n).expect("a few clients"), number }
    }
}

impl Client {
    /// Whether nothing is on its way, and it could hear of everything.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_connected && self.up.is_empty() && self.down.is_empty()
    }

    fn hang_up(&mut self) {
        self.is_connected = false;
        self.up.clear();
        self.down.clear();
    }
}
