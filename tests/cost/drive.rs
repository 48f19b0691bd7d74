//! A server under a scenario, measured.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_tree::{Config, ConnectionId, Entropy, Now, Output, Server};
use lockkeeper_wire::{AclList, ConnectRequest, CreateRequest, MAX_FRAME, Record as _, Request};
use rustix::time::{ClockId, clock_gettime};

use crate::requests::{Verb, frame};
use crate::scenario::{Scenario, Step};

/// How much a scenario sends at most. What takes longer to send takes the attacker longer, too.
const MAX_SENT: usize = 16 << 20;
/// How much processor time a scenario takes at most.
const MAX_TIME: Duration = Duration::from_secs(4);
/// After so many requests or bytes of replies the engine hands over what it has.
const PART: u32 = 128;
const PART_BYTES: usize = 256 << 10;

/// The longest that one client may keep the others waiting by one request: a tenth of a twentieth
/// of a session timeout of 10 s, as several may do it at once.
pub(crate) const MAX_CALL: Duration = Duration::from_millis(50);
/// The same in a debug build, whose code takes several times as long.
pub(crate) const MAX_CALL_DEBUG: Duration = Duration::from_millis(500);
/// The largest allowed growth of the server's memory, as a multiple of the bytes sent.
const MAX_GROWTH: f64 = 64.0;
/// Memory that is not worth a look.
const LITTLE: usize = 128 << 20;

/// What a scenario has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    /// Processor time of the longest call.
    pub(crate) longest: Duration,
    /// Processor time of all calls.
    pub(crate) total: Duration,
    /// What was sent.
    pub(crate) sent: usize,
    /// The longest that all waiting replies were together.
    pub(crate) replies: usize,
    /// By how much the memory of the process has grown.
    pub(crate) growth: usize,
}

impl Costs {
    /// Processor time for each byte that was sent, in nanoseconds.
    pub(crate) fn time_per_byte(&self) -> f64 {
        self.total.as_nanos() as f64 / self.sent.max(1 << 16) as f64
    }

    /// Memory for each byte that was sent.
    pub(crate) fn growth_per_byte(&self) -> f64 {
        self.growth.saturating_sub(LITTLE) as f64 / self.sent.max(1 << 16) as f64
    }

    /// Whether other clients are hardly affected: their calls take at most this long.
    pub(crate) fn check(&self, max_call: Duration) -> Result<()> {
        let Self { longest, .. } = self;
        ensure!(*longest <= max_call, "one call took {longest:?}, more than {max_call:?}");
        let growth = self.growth_per_byte();
        ensure!(growth <= MAX_GROWTH, "memory grew by {growth:.0} times what was sent");
        Ok(())
    }

    pub(crate) fn to_line(self) -> String {
        let Self { longest, total, sent, replies, growth } = self;
        format!("{} {} {sent} {replies} {growth}", longest.as_nanos(), total.as_nanos())
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let numbers: Vec<u64> =
            line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [longest, total, sent, replies, growth] = numbers[..] else { return None };
        Some(Self {
            longest: Duration::from_nanos(longest),
            total: Duration::from_nanos(total),
            sent: usize::try_from(sent).ok()?,
            replies: usize::try_from(replies).ok()?,
            growth: usize::try_from(growth).ok()?,
        })
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "longest call {:8.2} ms, {:8.1} ns a byte, {:8.3} MiB sent, {:7.1} MiB of replies, {:7.1} MiB taken",
            self.longest.as_secs_f64() * 1e3,
            self.time_per_byte(),
            mib(self.sent),
            mib(self.replies),
            mib(self.growth),
        )
    }
}

/// Passwords need not be secret here.
struct Zeros;

impl Entropy for Zeros {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// Three clients of a server.
struct Driven {
    server: Server,
    now: Now,
    connections: [ConnectionId; 3],
    next_connection: u64,
    in_part: u32,
    costs: Costs,
}

/// Runs a scenario.
pub(crate) fn drive(scenario: &Scenario) -> Result<Costs> {
    let mut driven = Driven::begin()?;
    let before = memory("VmRSS")?;
    driven.costs = Costs::default();
    for step in &scenario.steps {
        driven.step(step);
    }
    driven.hand_over();
    driven.costs.growth = memory("VmHWM")?.saturating_sub(before);
    Ok(driven.costs)
}

impl Driven {
    fn begin() -> Result<Self> {
        let mut config = Config::default();
        config.enforce_quotas = true;
        let mut driven = Self {
            server: Server::new(config, Box::new(Zeros)),
            now: Now { monotonic: Duration::from_secs(1), unix_ms: 1_000 },
            connections: [ConnectionId(0); 3],
            next_connection: 1,
            in_part: 0,
            costs: Costs::default(),
        };
        for who in 0..3 {
            driven.connect(who);
        }
        for path in ["/d", "/d/d", "/zookeeper/quota/d"] {
            let request = Request::Create(CreateRequest {
                path: path.to_owned(),
                data: Bytes::new().into(),
                acl: AclList::OPEN,
                flags: 0,
            });
            driven.send(0, frame(&request));
        }
        driven.hand_over();
        Ok(driven)
    }

    /// Does a step, as often as the budget allows.
    fn step(&mut self, step: &Step) {
        for round in 0..step.repeat {
            if self.costs.sent > MAX_SENT || self.costs.total > MAX_TIME {
                return;
            }
            let who = step.who as usize % self.connections.len();
            match step.verb {
                Verb::Connect => self.connect(who),
                Verb::Drop => {
                    let connection = self.connections[who];
                    self.call(|server, _| server.disconnected(connection));
                }
                Verb::Wait => self.wait(Duration::from_millis(u64::from(step.bytes))),
                _ => {
                    let Some(frame) = step.frame(round) else { return };
                    if frame.len() > MAX_FRAME {
                        return;
                    }
                    self.send(who, frame);
                }
            }
        }
    }

    fn connect(&mut self, who: usize) {
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.connections[who] = connection;
        self.call(|server, _| server.connected(connection, Some([127, 0, 0, 1].into())));
        let mut hello = BytesMut::new();
        ConnectRequest::new_session(10_000).encode(&mut hello);
        self.send(who, hello.freeze());
    }

    fn send(&mut self, who: usize, frame: Bytes) {
        let connection = self.connections[who];
        self.costs.sent += frame.len() + 4;
        let mut left = Some(frame);
        while let Some(frame) = left.take() {
            self.call(|server, now| left = server.handle_part(now, connection, frame));
            // What is left may be for a later round.
            self.now.monotonic += Duration::from_nanos(1);
        }
        self.in_part += 1;
        if self.in_part >= PART || self.server.bytes_to_send() >= PART_BYTES {
            self.hand_over();
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now.monotonic += time;
        self.now.unix_ms += i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let is_due = |driven: &Self| {
            driven.server.next_timeout().is_some_and(|at| at <= driven.now.monotonic)
        };
        while is_due(self) && self.costs.total <= MAX_TIME {
            self.call(|server, now| drop(server.handle_timeout(now)));
            self.hand_over();
        }
    }

    /// What the tree thread does at the end of a part.
    fn hand_over(&mut self) {
        self.in_part = 0;
        self.costs.replies = self.costs.replies.max(self.server.bytes_to_send());
        let mut outputs = Vec::new();
        self.call(|server, _| {
            drop(server.take_changes());
            outputs = server.take_outputs();
        });
        for (connection, output) in outputs {
            if matches!(output, Output::Close(_)) {
                self.server.disconnected(connection);
            }
        }
    }

    /// Calls the server, and notes what that takes.
    fn call(&mut self, call: impl FnOnce(&mut Server, Now)) {
        let start = processor_time();
        call(&mut self.server, self.now);
        let took = processor_time().saturating_sub(start);
        self.costs.longest = self.costs.longest.max(took);
        self.costs.total += took;
    }
}

/// Processor time of this thread: other work on the machine does not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The memory of this process, in bytes.
fn memory(name: &str) -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let Some(kib) = line.and_then(|line| line.trim().strip_suffix(" kB")) else {
        bail!("no {name} in /proc/self/status");
    };
    let kib: usize = kib.trim().parse().with_context(|| name.to_owned())?;
    Ok(kib << 10)
}
