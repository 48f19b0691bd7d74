//! What goes wrong in a run, and when. A new fault is one more variant here.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_testkit::history::What;
use tokio::time::sleep;

use crate::network::Route;
use crate::run::Run;
use crate::severity;

/// One thing that goes wrong for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Nothing passes between one client and the server.
    Partition(usize),
    /// Nothing passes between any client and the server.
    Isolation,
    /// Messages from the client wait; messages to it arrive.
    MuteClient(usize),
    /// Messages from the client arrive; messages to it wait.
    DeafClient(usize),
    /// The connections of one client break.
    Break(usize),
    /// The connections of one client break, and new ones are refused.
    Refuse(usize),
    /// What is sent over the connections of one client is lost without a word; new ones work.
    Forget(usize),
    /// A client does nothing for a while, but its clock runs on.
    PauseClient(usize),
    /// The program on a client pauses for a while, but the background tasks of its
    /// client continue.
    Stall(usize),
    /// The server does nothing for a while, but its clock runs on.
    PauseServer,
    /// The server is down for a while, and loses what was not synced.
    Crash,
    /// The same, and no client hears that its connection is gone.
    PowerCut,
    /// Syncs take long.
    SlowDisk,
    /// Answers take up to [`Timing::slowest_answer`](lockkeeper::Timing::slowest_answer).
    SlowAnswers,
    /// The server's wall clock is wrong, by hours in either direction.
    WallJump,
    /// A follower does not apply transactions for a while. It still answers reads and pings.
    Lag(usize),
}

impl Fault {
    /// Any of them.
    fn any(random: &mut fastrand::Rng, run: &Run) -> Self {
        if let Some(lag) = Self::lag(random, run) {
            return lag;
        }
        let clients = run.machines.len();
        let client = random.usize(0..clients);
        match random.u8(0..19) {
            0 | 1 => Self::Partition(client),
            2 => Self::MuteClient(client),
            3 => Self::DeafClient(client),
            4..=6 => Self::Break(client),
            7 | 8 => Self::PauseClient(client),
            9 => Self::PauseServer,
            10 | 11 => Self::Crash,
            12 => Self::SlowDisk,
            13 | 14 => Self::Stall(client),
            15 => Self::Refuse(client),
            16 => Self::Forget(client),
            17 => Self::PowerCut,
            _ => Self::WallJump,
        }
    }

    /// Any that holders survive if it ends soon enough.
    fn survivable(random: &mut fastrand::Rng, run: &Run) -> Self {
        if let Some(lag) = Self::lag(random, run) {
            return lag;
        }
        let clients = run.machines.len();
        let client = random.usize(0..clients);
        match random.u8(0..12) {
            0 => Self::Partition(client),
            1 | 2 => Self::Isolation,
            3 => Self::MuteClient(client),
            4 => Self::DeafClient(client),
            5 => Self::Refuse(client),
            6 => Self::Forget(client),
            7 | 8 => Self::PauseServer,
            9 => Self::Crash,
            10 => Self::PowerCut,
            _ => Self::SlowAnswers,
        }
    }

    /// A follower that lags, now and then where there are followers.
    fn lag(random: &mut fastrand::Rng, run: &Run) -> Option<Self> {
        let followers = run.host.followers.len();
        (followers > 0 && random.u8(0..3) == 0).then(|| Self::Lag(random.usize(0..followers)))
    }

    /// For how long it lasts, where anything may go wrong: for longer than a session lives, now and then. A
    /// follower often lags for so long, as the next session of a client may begin there.
    fn lasts(self, run: &Run, random: &mut fastrand::Rng) -> Duration {
        let share = match self {
            Self::Lag(_) => 2.5 * random.f64(),
            _ => 1.6 * random.f64() * random.f64(),
        };
        run.timing.timeout().mul_f64(share)
    }

    /// What goes wrong next, and for how long, if that is not left to chance: the session of a client ends
    /// while a follower lags, which may have the next one.
    fn leads_to(self, run: &Run, random: &mut fastrand::Rng) -> Option<(Self, Duration)> {
        let Self::Lag(_) = self else { return None };
        let client = random.usize(0..run.machines.len());
        let lasts = run.timing.timeout().mul_f64(1.1 + 0.4 * random.f64());
        random.bool().then_some((Self::Partition(client), lasts))
    }

    /// For how long it may last at most, if holders are to survive it.
    fn survived_for(self, run: &Run) -> Duration {
        let timing = run.timing;
        match self {
            Self::SlowAnswers => timing.timeout() * 2,
            _ => run.in_true_time(timing.outage()),
        }
    }

    fn begin(self, run: &Run, random: &mut fastrand::Rng) {
        match self {
            Self::Partition(client) => run.machines[client].route.set(false, false),
            Self::Isolation => run.routes().for_each(|route| route.set(false, false)),
            Self::MuteClient(client) => run.machines[client].route.set(false, true),
            Self::DeafClient(client) => run.machines[client].route.set(true, false),
            Self::Break(client) => run.machines[client].route.break_all(),
            Self::Refuse(client) => run.machines[client].route.refuse(),
            Self::Forget(client) => run.machines[client].route.forget_all(),
            Self::PauseClient(client) => run.machines[client].gate.close(),
            Self::Stall(client) => run.machines[client].program.close(),
            Self::PauseServer => run.host.gate.close(),
            Self::Crash => {
                run.host.crash();
                run.routes().for_each(Route::break_all);
            }
            Self::PowerCut => {
                run.host.crash();
                run.routes().for_each(Route::forget_all);
            }
            Self::SlowDisk => run.host.set_sync(Duration::from_millis(random.u64(100..3_000))),
            Self::SlowAnswers => {
                let longest = run.in_true_time(run.timing.slowest_answer());
                // So that many messages take as long as they may.
                run.set_speed(run.over_followers(severity::slow(longest, longest, random), random));
            }
            Self::WallJump => {
                run.host.set_wall(random.i64(-40_000_000..40_000_000));
                run.tell_server_clock();
            }
            Self::Lag(follower) => run.host.followers[follower].set_lag(true),
        }
    }

    fn end(self, run: &Run) {
        match self {
            Self::Partition(client) | Self::MuteClient(client) | Self::DeafClient(client) => {
                run.machines[client].route.set(true, true);
            }
            Self::Isolation => run.routes().for_each(|route| route.set(true, true)),
            Self::Refuse(client) => run.machines[client].route.accept(),
            Self::PauseClient(client) => run.machines[client].gate.open(),
            Self::Stall(client) => run.machines[client].program.open(),
            Self::PauseServer => run.host.gate.open(),
            Self::Crash | Self::PowerCut => run.host.start(),
            Self::SlowDisk | Self::SlowAnswers => run.set_speed(run.usual),
            Self::Lag(follower) => run.host.followers[follower].set_lag(false),
            Self::Break(_) | Self::Forget(_) | Self::WallJump => {}
        }
    }
}

/// Lets things go wrong, one after the other or several at once, until `end`; then all is well.
pub(crate) async fn chaos(run: Arc<Run>, mut random: fastrand::Rng, end: Duration) {
    let mut going_on: Vec<(Duration, Fault)> = Vec::new();
    let mut planned = None;
    while run.now() < end {
        sleep(Duration::from_millis(random.u64(1..2_500))).await;
        let now = run.now();
        going_on.retain(|(until, fault)| {
            let over = *until <= now;
            if over {
                run.note("world", What::Fault(format!("over: {fault:?}")));
                fault.end(&run);
            }
            !over
        });
        let (fault, lasts) = planned.take().unwrap_or_else(|| {
            let fault = Fault::any(&mut random, &run);
            (fault, fault.lasts(&run, &mut random))
        });
        // The same machine cannot be stopped twice.
        let stops_server =
            |fault: &Fault| matches!(fault, Fault::Crash | Fault::PowerCut | Fault::PauseServer);
        let same = |other: &Fault| {
            let is_same = std::mem::discriminant(other) == std::mem::discriminant(&fault);
            // Both followers may lag at once.
            is_same && !matches!((other, &fault), (Fault::Lag(one), Fault::Lag(two)) if one != two)
                || stops_server(other) && stops_server(&fault)
        };
        if !going_on.iter().any(|(_, other)| same(other)) {
            run.note("world", What::Fault(format!("begins: {fault:?}")));
            fault.begin(&run, &mut random);
            going_on.push((now + lasts, fault));
            planned = fault.leads_to(&run, &mut random);
        }
    }
    for (_, fault) in going_on {
        fault.end(&run);
    }
    run.note("world", What::Fault("all is well from now on".into()));
}

/// Lets things go wrong, one after the other until `end`, for no longer and no more often than a
/// lock survives.
pub(crate) async fn bounded(run: Arc<Run>, mut random: fastrand::Rng, end: Duration) {
    let timeout = run.timing.timeout();
    let recovery = timeout / 2 + run.timing.renewal_interval();
    while run.now() < end {
        sleep(recovery + timeout.mul_f64(random.f64())).await;
        if random.u8(0..4) == 0 {
            // Deadlines do not depend on wall clocks, so no recovery is needed.
            run.note("world", What::Fault(format!("{:?}", Fault::WallJump)));
            Fault::WallJump.begin(&run, &mut random);
        }

        let fault = Fault::survivable(&mut random, &run);
        run.note("world", What::Fault(format!("begins: {fault:?}")));
        fault.begin(&run, &mut random);
        // Many are as long as they may be: what is too slow by little shows in these.
        let share = (2.0 * random.f64()).min(1.0);
        sleep(fault.survived_for(&run).mul_f64(share)).await;
        run.note("world", What::Fault(format!("over: {fault:?}")));
        fault.end(&run);
    }
    run.note("world", What::Fault("all is well from now on".into()));
}
