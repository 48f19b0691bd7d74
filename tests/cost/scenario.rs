//! Short programs of requests, as text and as random changes of others.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, bail, ensure};
use fastrand::Rng;

use crate::requests::Verb;

/// How many steps a scenario has at most.
const MAX_STEPS: usize = 16;
/// How often a step is repeated at most, and how much one request has of anything.
const MAX_COUNT: u32 = 200_000;

/// One request, or the same with other numbers many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) verb: Verb,
    /// How often.
    pub(crate) repeat: u32,
    /// Of how many parts each request is: operations, entries of a list, paths.
    pub(crate) parts: u32,
    /// The length of its data or of names, in bytes.
    pub(crate) bytes: u32,
    /// Which kind of path.
    pub(crate) path: u32,
    /// Which connection sends it.
    pub(crate) who: u32,
}

/// The steps, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) steps: Vec<Step>,
}

impl Scenario {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let steps = (0..rng.usize(1..=6)).map(|_| Step::random(rng)).collect();
        Self { steps }
    }

    /// The same with a few changes.
    pub(crate) fn mutated(&self, rng: &mut Rng) -> Self {
        let mut steps = self.steps.clone();
        for _ in 0..rng.usize(1..=3) {
            let at = rng.usize(..steps.len());
            match rng.u32(..10) {
                0 if steps.len() < MAX_STEPS => steps.insert(at, Step::random(rng)),
                1 if steps.len() > 1 => drop(steps.remove(at)),
                2 if steps.len() < MAX_STEPS => {
                    let step = steps[rng.usize(..steps.len())];
                    steps.insert(at, step);
                }
                3 => {
                    let other = rng.usize(..steps.len());
                    steps.swap(at, other);
                }
                _ => steps[at].change(rng),
            }
        }
        Self { steps }
    }
}

impl Step {
    fn random(rng: &mut Rng) -> Self {
        Self {
            verb: Verb::ALL[rng.usize(..Verb::ALL.len())],
            repeat: count(rng),
            parts: count(rng),
            bytes: count(rng),
            path: rng.u32(..8),
            who: rng.u32(..3),
        }
    }

    fn change(&mut self, rng: &mut Rng) {
        let scale = |value: u32, rng: &mut Rng| match rng.u32(..4) {
            0 => value.saturating_mul(2).min(MAX_COUNT),
            1 => value / 2,
            2 => (f64::from(value) * (0.7 + 0.6 * rng.f64())) as u32,
            _ => count(rng),
        };
        match rng.u32(..6) {
            0 => self.verb = Verb::ALL[rng.usize(..Verb::ALL.len())],
            1 => self.repeat = scale(self.repeat, rng).max(1),
            2 => self.parts = scale(self.parts, rng),
            3 => self.bytes = scale(self.bytes, rng),
            4 => self.path = rng.u32(..8),
            _ => self.who = rng.u32(..3),
        }
    }
}

/// Small ones as often as large ones.
fn count(rng: &mut Rng) -> u32 {
    f64::from(MAX_COUNT).powf(rng.f64()) as u32
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<_> = self.steps.iter().map(ToString::to_string).collect();
        f.write_str(&steps.join(" "))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, repeat, parts, bytes, path, who } = self;
        write!(f, "{}*{repeat}:{parts}:{bytes}:{path}:{who}", verb.name())
    }
}

impl FromStr for Scenario {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let steps: Vec<Step> =
            text.split_whitespace().map(str::parse).collect::<Result<_, Error>>()?;
        ensure!(!steps.is_empty(), "a scenario has a step");
        Ok(Self { steps })
    }
}

impl FromStr for Step {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (verb, numbers) =
            text.split_once('*').with_context(|| format!("{text} is not a step"))?;
        let verb = Verb::ALL.iter().find(|known| known.name() == verb);
        let verb = *verb.with_context(|| format!("{text} has an unknown verb"))?;
        let numbers: Vec<u32> =
            numbers.split(':').map(str::parse).collect::<Result<_, _>>().context("numbers")?;
        let [repeat, parts, bytes, path, who] = numbers[..] else {
            bail!("{text} does not have five numbers");
        };
        Ok(Self { verb, repeat, parts, bytes, path, who })
    }
}
