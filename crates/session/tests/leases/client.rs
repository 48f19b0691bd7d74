//! The client: a real session, a clock that drifts, and a driver without sockets.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_session::{Config, Disconnect, Instant, LeaseMode, NameUse, Session, Timing};
use lockkeeper_wire::{PathRequest, Request, SetDataRequest, ZnodePath};

pub(crate) struct Client {
    pub(crate) session: Session<()>,
    input: BytesMut,
    /// The reading of its clock at the beginning, and how fast it runs.
    ahead: Duration,
    rate: f64,
    /// The latest deadline that it ever had, in true time.
    deadline: Duration,
}

impl Client {
    pub(crate) fn new(timing: Timing, tick: Duration, random: &mut fastrand::Rng) -> Self {
        let mut config = Config::default();
        config.session_timeout = timing.timeout();
        config.lease = LeaseMode::Quorum;
        config.server_tick = tick;
        let ahead = Duration::from_secs(1_000);
        let rate = 0.991 + 0.018 * random.f64();
        let session = Session::new(config, Instant::from_start(ahead));
        Self { session, input: BytesMut::new(), ahead, rate, deadline: Duration::ZERO }
    }

    pub(crate) fn hold(&mut self, now: Duration) {
        let now = self.read_clock(now);
        self.session.hold(now, ZnodePath::new("/held").expect("a path"), NameUse::Once);
    }

    pub(crate) fn connected(&mut self, now: Duration) {
        self.input.clear();
        self.session.handle_connected(self.read_clock(now));
    }

    pub(crate) fn disconnected(&mut self, now: Duration) {
        self.session.handle_disconnected(self.read_clock(now));
    }

    pub(crate) fn receive(&mut self, now: Duration, bytes: &Bytes) -> Result<(), Disconnect> {
        self.input.extend_from_slice(bytes);
        let now = self.read_clock(now);
        let taken = self.session.handle_input(now, &mut self.input);
        self.look();
        taken
    }

    pub(crate) fn timeout(&mut self, now: Duration) -> Result<(), Disconnect> {
        self.session.handle_timeout(self.read_clock(now))
    }

    /// A request of its own: a `sync`, which proves nothing, or a write, which is a proof.
    pub(crate) fn chat(&mut self, now: Duration, random: &mut fastrand::Rng) {
        let path = "/other".to_owned();
        let request = match random.bool() {
            true => Request::Sync(PathRequest { path }),
            false => {
                Request::SetData(SetDataRequest { path, data: Bytes::new().into(), version: -1 })
            }
        };
        self.session.submit(self.read_clock(now), request, ());
    }

    /// When it wants to be woken.
    pub(crate) fn wakes_at(&self) -> Option<Duration> {
        self.session.poll_timeout().map(|at| self.true_time(at))
    }

    pub(crate) fn transmits(&mut self) -> BytesMut {
        let mut bytes = BytesMut::new();
        while let Some(more) = self.session.poll_transmit() {
            bytes.extend_from_slice(&more);
        }
        while self.session.poll_event().is_some() {}
        bytes
    }

    /// The remaining lease, by its own clock.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        self.session.lease().remaining(self.read_clock(now))
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    fn look(&mut self) {
        if let Some(deadline) = self.session.lease().deadline {
            self.deadline = self.deadline.max(self.true_time(deadline));
        }
    }

    fn read_clock(&self, now: Duration) -> Instant {
        Instant::from_start(self.ahead + now.mul_f64(self.rate))
    }

    fn true_time(&self, reading: Instant) -> Duration {
        // Rounded up, because waking up too early causes repeated wake-ups.
        let passed = reading.since_start().saturating_sub(self.ahead);
        passed.div_f64(self.rate) + Duration::from_nanos(100)
    }
}
