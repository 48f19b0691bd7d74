//! Clients, known by what has happened to them.
//!
//! A client is the real thing: real locks over the real client, in a runtime of its own. It cannot
//! be copied, but it is a function of its own history: the frames it received, the connections it
//! got and lost, its timers, and the commands to its program. So each history is run once, from the
//! beginning, and the result of its last step is remembered. Clients with equal histories are equal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_testkit::history::Share;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::WORK;
use crate::frames::{FrameId, Frames};
use crate::machine::{End, Machine};
use crate::program::{Belief, Command, Desk, Phase, Setup, Standing, run};

/// A history of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HistoryId(pub(crate) u32);

/// One thing that happens to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HistoryInput {
    /// It gets the connection that it waits for.
    Connected,
    Frame(FrameId),
    Ended(End),
    /// Its next timer, which is due soon.
    Timer,
    /// A step of time, in which it hears nothing.
    Tick,
    Told(Command),
}

/// What comes of a history, all of which the others or the search can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What it sent in its last step.
    pub(crate) sent: Vec<FrameId>,
    /// Whether it hung up in its last step.
    pub(crate) hung_up: bool,
    /// Whether it waits for a connection.
    pub(crate) dials: bool,
    /// Whether a timer is due soon.
    pub(crate) timer: bool,
    /// Whether it has panicked.
    pub(crate) panicked: bool,
    /// By its own clock.
    pub(crate) now: Duration,
    pub(crate) phase: Phase,
    /// What it was granted in its last step.
    pub(crate) granted: Option<(Share, u128)>,
    /// What it knows about the current hold, until the hold is released.
    pub(crate) belief: Option<Belief>,
    /// The token of that hold, and how it stands now.
    pub(crate) standing: Option<(u128, Standing)>,
    /// Whether that hold has ever been in jeopardy.
    pub(crate) was_in_jeopardy: bool,
    /// Whether its work was polled without the lock.
    pub(crate) is_astray: bool,
    /// Whether it sent something for its work in its last step.
    pub(crate) works: bool,
}

struct Known {
    before: Option<(HistoryId, HistoryInput)>,
    seen: Seen,
}

/// The histories of one client, as far as they are known.
pub(crate) struct Histories {
    number: usize,
    setup: Setup,
    times: Times,
    known: Vec<Known>,
    next: HashMap<(HistoryId, HistoryInput), HistoryId>,
}

/// One history of so many runs twice, and must go the same way: all rests on that.
const REPEAT_EACH: usize = 50;

/// How time passes for a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// How much of it passes at once.
    pub(crate) step: Duration,
    /// Timers that are due within such a time have their turn as messages have.
    pub(crate) soon: Duration,
}

impl Histories {
    pub(crate) fn new(number: usize, setup: Setup, times: Times, frames: &mut Frames) -> Self {
        let (known, next) = (Vec::new(), HashMap::new());
        let mut all = Self { number, setup, times, known, next };
        all.find(None, frames);
        all
    }

    /// The history in which nothing has happened.
    pub(crate) fn beginning(&self) -> HistoryId {
        HistoryId(0)
    }

    pub(crate) fn seen(&self, history: HistoryId) -> &Seen {
        &self.known[history.0 as usize].seen
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// The history with one more thing in it.
    pub(crate) fn then(
        &mut self,
        history: HistoryId,
        input: HistoryInput,
        frames: &mut Frames,
    ) -> HistoryId {
        match self.next.get(&(history, input)) {
            Some(known) => *known,
            None => self.find(Some((history, input)), frames),
        }
    }

    fn find(&mut self, last: Option<(HistoryId, HistoryInput)>, frames: &mut Frames) -> HistoryId {
        let mut inputs = Vec::new();
        let mut at = last;
        while let Some((before, input)) = at {
            inputs.push(input);
            at = self.known[before.0 as usize].before;
        }
        let mut look =
            || Live::start(self.number, &self.setup).look_after(&inputs, self.times, frames);
        let mut seen = look();
        if self.known.len().is_multiple_of(REPEAT_EACH) {
            assert_eq!(seen, look(), "a client with one history went two ways: {inputs:?}");
        }
        if let Some((before, _)) = last {
            seen.remember(&self.known[before.0 as usize].seen);
        }
        let id =
            HistoryId(u32::try_from(self.known.len()).expect("fewer than memory has room for"));
        self.known.push(Known { before: last, seen });
        self.next.extend(last.map(|last| (last, id)));
        id
    }
}

impl Seen {
    /// What was promised stays promised until it is given back, whatever is known later.
    fn remember(&mut self, before: &Self) {
        let token = |seen: &Self| seen.standing.map(|(token, _)| token);
        self.was_in_jeopardy |= before.was_in_jeopardy && token(self) == token(before);
        let goes_on =
            self.granted.is_none() && matches!(self.phase, Phase::Holding(_) | Phase::Turning(_));
        let Some(earlier) = before.belief.as_ref().filter(|_| goes_on) else { return };
        match &mut self.belief {
            Some(belief) => belief.until = belief.until.max(earlier.until),
            None => self.belief = Some(earlier.clone()),
        }
    }
}

/// A client that runs.
struct Live {
    runtime: Runtime,
    machine: Arc<Machine>,
    desk: Arc<Desk>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Live {
    fn start(number: usize, setup: &Setup) -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        // It yields only when nothing else is left to do.
        runtime.enable_time().start_paused(true).event_interval(u32::MAX);
        #[cfg(tokio_unstable)]
        runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&[7]));
        let runtime = runtime.build().expect("a runtime without I/O");
        let desk = Arc::<Desk>::default();
        let (commands, receiver) = mpsc::unbounded_channel();
        let machine = runtime.block_on(async {
            let machine = Arc::new(Machine::new(number));
            let program = run(setup.clone(), Arc::clone(&machine), Arc::clone(&desk), receiver);
            machine.run(program);
            machine.settle().await;
            machine
        });
        Self { runtime, machine, desk, commands }
    }

    /// Lets all that happen, the last one first in the list, and says what came of the last one.
    fn look_after(self, inputs: &[HistoryInput], times: Times, frames: &mut Frames) -> Seen {
        let Self { runtime, machine, desk, commands } = &self;
        runtime.block_on(async {
            let mut last = machine.take_sent();
            for input in inputs.iter().rev() {
                let _ = desk.take_granted();
                match *input {
                    HistoryInput::Connected => machine.connect(),
                    HistoryInput::Frame(frame) => machine.receive(frames.bytes(frame)),
                    HistoryInput::Ended(end) => machine.end(end),
                    HistoryInput::Timer => drop(machine.pass_to_timer(times.soon).await),
                    HistoryInput::Tick => tokio::time::advance(times.step).await,
                    HistoryInput::Told(command) => drop(commands.send(command)),
                }
                machine.settle().await;
                last = machine.take_sent();
            }
            let (sent, hung_up) = last;
            let works =
                sent.iter().any(|frame| frame.windows(WORK.len()).any(|it| it == WORK.as_bytes()));
            let sent = sent.into_iter().map(|frame| frames.id(frame)).collect();
            let (now, dials) = (machine.elapsed(), machine.dials());
            let (phase, granted, belief) = (desk.phase(), desk.take_granted(), desk.belief());
            let (standing, is_astray) = (desk.standing(), desk.is_astray());
            // At last: it changes the client, which has served.
            let timer = machine.pass_to_timer(times.soon).await;
            let panicked = machine.panicked();
            Seen {
                sent,
                hung_up,
                dials,
                timer,
                panicked,
                now,
                phase,
                granted,
                belief,
                standing,
                was_in_jeopardy: matches!(standing, Some((_, Standing::Jeopardy))),
                is_astray,
                works,
            }
        })
    }
}
