//! A client's own machine: its clock, its way to the server, and whether it runs at all.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Instant;
use lockkeeper_client::Host;
use lockkeeper_client::runtime::{Boxed, Runtime, Transport};
use lockkeeper_testkit::gate::Gate;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::network::Route;
use crate::strays::STRAY;

/// Where a client lives.
pub(crate) struct Machine {
    /// From which the names of its contenders come, as everything else from the seed.
    pub(crate) ids: Mutex<fastrand::Rng>,
    pub(crate) clock: Drifting,
    pub(crate) route: Arc<Route>,
    /// To a server that is not of the service, if there is one.
    pub(crate) to_stray: Option<Arc<Route>>,
    /// Through which everything on the machine goes.
    pub(crate) gate: Arc<Gate>,
    /// Through which the program goes, but not what its client does in the background.
    pub(crate) program: Arc<Gate>,
}

impl Machine {
    /// Runs a part of the program.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
        tokio::task::spawn_local(self.gate.through(self.program.through(work)))
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Runtime for Machine {
    fn now(&self) -> Instant {
        self.clock.read(true_time(self.route.start))
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        _: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        let Host::Tcp { port, .. } = host else { panic!("no such server: {host}") };
        let (route, server) = match (*port, &self.to_stray) {
            (STRAY, Some(route)) => (route, 0),
            _ => (&self.route, usize::from(*port) - 1),
        };
        Box::pin(async move {
            let pipe = route.connect(server).await?;
            Ok(Transport::Other(Box::new(pipe), None))
        })
    }

    fn unique_id(&self) -> Uuid {
        let mut ids = self.ids.lock().expect("the lock is not poisoned");
        uuid::Builder::from_random_bytes(ids.u128(..).to_be_bytes()).into_uuid()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        tokio::spawn(self.gate.through(task));
    }
}

/// The true time since the start of the run, which is unknown to its programs.
pub(crate) fn true_time(start: tokio::time::Instant) -> Duration {
    start.elapsed()
}

/// A clock that started earlier and runs faster or slower than true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drifting {
    pub(crate) ahead: Duration,
    pub(crate) rate: f64,
}

impl Drifting {
    pub(crate) fn read(self, time: Duration) -> Instant {
        Instant::from_start(self.ahead + time.mul_f64(self.rate))
    }

    /// The true time of a reading.
    pub(crate) fn true_time(self, reading: Instant) -> Duration {
        reading.since_start().saturating_sub(self.ahead).div_f64(self.rate)
    }
}
