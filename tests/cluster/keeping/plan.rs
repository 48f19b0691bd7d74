//! What runs: rounds, each with servers of one tick and sessions of one timeout.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::LeaseMode;
use lockkeeper_tests::read_options;

use crate::keeping::kinds::{KINDS, Kind, Party};
use crate::keeping::servers::Name;

/// A session timeout, and the tick of the servers. A lease is the shorter a share of the timeout
/// the longer the tick is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) timeout: Duration,
    pub(crate) tick: Duration,
}

impl Form {
    const fn of_millis(timeout: u64, tick: u64) -> Self {
        Self { timeout: Duration::from_millis(timeout), tick: Duration::from_millis(tick) }
    }

    /// Reads `10/2` or `4/0.4`: timeout and tick, in seconds.
    fn parse(text: &str) -> Result<Self> {
        let (timeout, tick) = text.split_once('/').context("write a form as TIMEOUT/TICK")?;
        let seconds =
            |text: &str| Ok::<_, anyhow::Error>(Duration::try_from_secs_f64(text.parse()?)?);
        let form = Self { timeout: seconds(timeout)?, tick: seconds(tick)? };
        ensure!(form.timeout >= form.tick * 2, "servers grant no session of less than two ticks");
        Ok(form)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timeout {:?}, tick {:?}", self.timeout, self.tick)
    }
}

/// What runs on the same servers.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) form: Form,
    parts: Vec<Part>,
}

/// Each of these kinds, in each mode, after each share of a lease.
#[derive(Clone, Debug)]
struct Part {
    kinds: Vec<&'static Kind>,
    modes: &'static [LeaseMode],
    /// In percent of a lease.
    shares: Vec<u32>,
}

/// One lock, taken after one share of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) kind: &'static Kind,
    pub(crate) server: Name,
    pub(crate) mode: LeaseMode,
    /// In percent of a lease.
    pub(crate) share: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, server, mode, share } = self;
        write!(f, "{} on {server}, {mode:?}, after {share} % of a lease", kind.name)
    }
}

impl Round {
    /// The cases on these servers.
    pub(crate) fn cases(&self, servers: &[Name]) -> Vec<Case> {
        self.parts.iter().flat_map(|part| part.cases(servers)).collect()
    }

    /// Whether some of its cases run the command.
    pub(crate) fn has_commands(&self) -> bool {
        let mut kinds = self.parts.iter().flat_map(|part| &part.kinds);
        kinds.any(|kind| kind.party() == Party::Command)
    }
}

impl Part {
    fn new(party: Party, modes: &'static [LeaseMode], shares: &[u32]) -> Self {
        let kinds = KINDS.iter().filter(|kind| kind.party() == party).collect();
        Self { kinds, modes, shares: shares.to_vec() }
    }

    fn cases(&self, servers: &[Name]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &share in &self.shares {
            for &kind in &self.kinds {
                for &mode in self.modes {
                    cases.extend(servers.iter().map(|&server| Case { kind, server, mode, share }));
                }
            }
        }
        cases
    }
}

/// All that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: Vec<Round>,
}

const QUORUM: &[LeaseMode] = &[LeaseMode::Quorum];
const DIRECT: &[LeaseMode] = &[LeaseMode::Direct];
const BOTH: &[LeaseMode] = &[LeaseMode::Quorum, LeaseMode::Direct];

impl Plan {
    /// What `cargo test` runs, in two minutes at most.
    ///
    /// Two proportions of timeout and tick: the shortest session that servers grant, and that of
    /// the defaults. The tick makes no difference to a direct lease. The first is a longer session,
    /// as its lease is so small a share of it that a short standstill of a busy machine costs it.
    pub(crate) fn short() -> Self {
        let shortest = vec![Part::new(Party::Library, QUORUM, &[20, 30, 40, 45, 50])];
        let default = vec![
            Part::new(Party::Library, QUORUM, &[0, 20, 30, 40, 50, 100]),
            Part::new(Party::Library, DIRECT, &[20, 30, 40, 50]),
            Part::new(Party::Command, BOTH, &[20, 30, 40, 50]),
        ];
        let rounds = vec![
            Round { form: Form::of_millis(8_000, 4_000), parts: shortest },
            Round { form: Form::of_millis(4_000, 800), parts: default },
        ];
        Self { rounds }
    }

    /// Reads what follows `run` on the command line; without options, everything.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut forms = vec![
            Form::of_millis(4_000, 400),
            Form::of_millis(4_000, 2_000),
            Form::of_millis(6_000, 2_000),
            Form::of_millis(10_000, 2_000),
        ];
        // A grant is content with half a lease, so the oldest leases are those just under 50 %.
        let mut shares: Vec<_> = (0..=150).step_by(5).chain([48]).collect();
        let mut kinds: Vec<_> = KINDS.iter().collect();
        read_options(arguments, |option, value| {
            match option {
                "--form" => forms = each(value, Form::parse)?,
                "--share" => shares = each(value, |text| Ok(text.parse()?))?,
                "--only" => kinds.retain(|kind| kind.name.contains(value)),
                _ => bail!("there is no such option"),
            }
            Ok(())
        })?;
        ensure!(!kinds.is_empty(), "no kind of lock has this in its name");
        let part = Part { kinds, modes: BOTH, shares };
        let round = |form| Round { form, parts: vec![part.clone()] };
        Ok(Self { rounds: forms.into_iter().map(round).collect() })
    }
}

fn each<T>(value: &str, read: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    value.split(',').map(read).collect()
}
