//! What goes wrong in a run, and when. A new fault is one more variant here.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_testkit::history::What;
use tokio::time::sleep;

use crate::run::Run;

/// One thing that goes wrong for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Nothing passes between one client and the server.
    Partition(usize),
    /// What the client sends waits; what it is sent arrives.
    MuteClient(usize),
    /// What the client sends arrives; what it is sent waits.
    DeafClient(usize),
    /// The connections of one client break.
    Break(usize),
    /// A client does nothing for a while, but its clock runs on.
    PauseClient(usize),
    /// The program on a client does nothing for a while, but what goes on in the background of its
    /// client does.
    Stall(usize),
    /// The server does nothing for a while, but its clock runs on.
    PauseServer,
    /// The server is down for a while, and loses what was not synced.
    Crash,
    /// Syncs take long.
    SlowDisk,
    /// The server's wall clock is wrong, by hours in either direction.
    WallJump,
}

impl Fault {
    /// Any of them.
    fn any(random: &mut fastrand::Rng, clients: usize) -> Self {
        let client = random.usize(0..clients);
        match random.u8(0..16) {
            0 | 1 => Self::Partition(client),
            2 => Self::MuteClient(client),
            3 => Self::DeafClient(client),
            4..=6 => Self::Break(client),
            7 | 8 => Self::PauseClient(client),
            9 => Self::PauseServer,
            10 | 11 => Self::Crash,
            12 => Self::SlowDisk,
            13 | 14 => Self::Stall(client),
            _ => Self::WallJump,
        }
    }

    fn begin(self, run: &Run, random: &mut fastrand::Rng) {
        match self {
            Self::Partition(client) => run.machines[client].route.set(false, false),
            Self::MuteClient(client) => run.machines[client].route.set(false, true),
            Self::DeafClient(client) => run.machines[client].route.set(true, false),
            Self::Break(client) => run.machines[client].route.break_all(),
            Self::PauseClient(client) => run.machines[client].gate.close(),
            Self::Stall(client) => run.machines[client].program.close(),
            Self::PauseServer => run.host.gate.close(),
            Self::Crash => {
                run.host.crash();
                run.machines.iter().for_each(|machine| machine.route.break_all());
            }
            Self::SlowDisk => run.host.set_sync(Duration::from_millis(random.u64(100..3_000))),
            Self::WallJump => run.host.set_wall(random.i64(-40_000_000..40_000_000)),
        }
    }

    fn end(self, run: &Run) {
        match self {
            Self::Partition(client) | Self::MuteClient(client) | Self::DeafClient(client) => {
                run.machines[client].route.set(true, true);
            }
            Self::PauseClient(client) => run.machines[client].gate.open(),
            Self::Stall(client) => run.machines[client].program.open(),
            Self::PauseServer => run.host.gate.open(),
            Self::Crash => run.host.start(),
            Self::SlowDisk => run.host.set_sync(run.usual_sync),
            Self::Break(_) | Self::WallJump => {}
        }
    }
}

/// Lets things go wrong, one after the other or several at once, until `end`; then all is well.
pub(crate) async fn chaos(run: Arc<Run>, mut random: fastrand::Rng, end: Duration) {
    let mut going_on: Vec<(Duration, Fault)> = Vec::new();
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
        let fault = Fault::any(&mut random, run.machines.len());
        // The same machine cannot be stopped twice.
        let same = |other: &Fault| {
            std::mem::discriminant(other) == std::mem::discriminant(&fault)
                || matches!((other, fault), (Fault::Crash, Fault::PauseServer))
                || matches!((other, fault), (Fault::PauseServer, Fault::Crash))
        };
        if !going_on.iter().any(|(_, other)| same(other)) {
            run.note("world", What::Fault(format!("begins: {fault:?}")));
            fault.begin(&run, &mut random);
            let lasts = run.timeout.mul_f64(1.6 * random.f64() * random.f64());
            going_on.push((now + lasts, fault));
        }
    }
    for (_, fault) in going_on {
        fault.end(&run);
    }
    run.note("world", What::Fault("all is well from now on".into()));
}
