//! Looks at every state that can be reached, the closest ones first.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use lockkeeper::Kind;

use crate::program::{Phase, Standing};
use crate::scenarios::Scenario;
use crate::state::{Broken, Parts, State};
use crate::timeline::Timeline;

/// What a search has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) states: usize,
    pub(crate) transitions: u64,
    /// The most steps to a state.
    pub(crate) depth: usize,
    /// The different histories of clients.
    pub(crate) histories: usize,
    /// The different states of the server.
    pub(crate) servers: usize,
    pub(crate) took: Duration,
    /// Whether all clients got the lock in some state, or a client has ended the item.
    all_had_it: bool,
    ended_by: BTreeSet<usize>,
    /// Whether somewhere a lease ended while it was held.
    lease_ended: bool,
    /// How holds stood that had been in jeopardy.
    held_again: bool,
    lost_in_jeopardy: bool,
}

/// Where a state was reached from: the state before, and which of its actions.
#[derive(Clone, Copy)]
struct Before {
    state: u32,
    action: u16,
}

/// A state without a predecessor.
const NONE: u32 = u32::MAX;

struct Search<'a> {
    scenario: &'a Scenario,
    start: Instant,
    /// Which of the combinations of what the clients ask for.
    combination: usize,
    parts: Parts,
    totals: Totals,
    visited: HashSet<u128>,
    before: Vec<Before>,
}

/// Looks at all states of a scenario.
///
/// # Errors
///
/// A promise is broken, and how.
pub(crate) fn search(scenario: &Scenario) -> Result<Totals, String> {
    let start = Instant::now();
    let (visited, before) = (HashSet::new(), Vec::new());
    let (parts, totals) = (Parts::new(scenario.bounds), Totals::default());
    let mut search = Search { scenario, start, combination: 0, parts, totals, visited, before };
    for (combination, asked) in scenario.bounds.combinations().into_iter().enumerate() {
        search.combination = combination;
        search.visited.clear();
        search.before.clear();
        search.from(asked)?;
    }
    let Search { parts, mut totals, .. } = search;
    totals.took = start.elapsed();
    totals.histories = parts.clients.iter().map(|client| client.len()).sum();
    totals.servers = parts.service.len();
    totals.judge(scenario)?;
    Ok(totals)
}

impl Search<'_> {
    /// All states in which the clients ask for that.
    fn from(&mut self, asked: Vec<Kind>) -> Result<(), String> {
        self.parts.asked = asked;
        let initial = self.parts.initial();
        let mut level =
            vec![(self.visit(&initial, Before { state: NONE, action: 0 }).unwrap_or(0), initial)];
        let mut depth = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for (number, state) in level {
                self.expand(number, &state, &mut next)?;
            }
            level = next;
            depth += usize::from(!level.is_empty());
        }
        self.totals.depth = self.totals.depth.max(depth);
        Ok(())
    }

    fn expand(
        &mut self,
        number: u32,
        state: &State,
        level: &mut Vec<(u32, State)>,
    ) -> Result<(), String> {
        let actions = self.parts.actions(state);
        if let Err(broken) = self.parts.check(state, actions.is_empty()) {
            return Err(self.told(number, None, broken));
        }
        self.totals.note(&self.parts, state);
        for (index, action) in actions.into_iter().enumerate() {
            self.totals.transitions += 1;
            let mut next = state.clone();
            if let Err(broken) = self.parts.next(&mut next, action) {
                return Err(self.told(number, Some(index), broken));
            }
            let action = u16::try_from(index).expect("a few actions");
            if let Some(number) = self.visit(&next, Before { state: number, action }) {
                level.push((number, next));
            }
        }
        Ok(())
    }

    /// Notes a state; gives its number if it is new.
    fn visit(&mut self, state: &State, before: Before) -> Option<u32> {
        let half = |seed: u64| {
            let mut sum = DefaultHasher::new();
            (seed, state).hash(&mut sum);
            u128::from(sum.finish())
        };
        if !self.visited.insert(half(1) << 64 | half(2)) {
            return None;
        }
        self.totals.states += 1;
        let number = u32::try_from(self.before.len()).expect("fewer than memory has room for");
        self.before.push(before);
        Some(number)
    }

    /// The way to a state, and perhaps one step on, for people.
    fn told(&mut self, number: u32, last: Option<usize>, broken: Broken) -> String {
        self.totals.took = self.start.elapsed();
        let mut path = Vec::new();
        let mut at = self.before[number as usize];
        while at.state != NONE {
            path.push(usize::from(at.action));
            at = self.before[at.state as usize];
        }
        path.reverse();
        path.extend(last);

        let (name, took) = (self.scenario.name, self.totals.took.as_secs_f64());
        let steps: Vec<_> = path.iter().map(usize::to_string).collect();
        let way = format!("{}:{}", self.combination, steps.join(","));
        format!(
            "violated: {broken} (step {}, after {} states and {took:.1} s), {name}\n{}\n\
             again: cargo xtask model --only {name:?} --path {way}",
            path.len(),
            self.totals.states,
            told(&mut self.parts, &path),
        )
    }
}

/// The way to a state, as [`search`] gives it, for people.
///
/// # Errors
///
/// If the path does not exist.
pub(crate) fn tell(scenario: &Scenario, way: &str) -> Result<String, String> {
    let wrong = || format!("the path {way:?} does not exist in {}", scenario.name);
    let (combination, path) = way.split_once(':').ok_or_else(wrong)?;
    let combination: usize = combination.parse().map_err(|_| wrong())?;
    let path: Result<Vec<usize>, _> = path.split(',').map(str::parse).collect();
    let mut parts = Parts::new(scenario.bounds);
    parts.asked = scenario.bounds.combinations().get(combination).ok_or_else(wrong)?.clone();
    Ok(told(&mut parts, &path.map_err(|_| wrong())?))
}

fn told(parts: &mut Parts, path: &[usize]) -> String {
    let mut state = parts.initial();
    parts.timeline = Some(Timeline::default());
    for index in path {
        let Some(action) = parts.actions(&state).get(*index).copied() else { break };
        parts.say(|timeline| timeline.step(&format!("{action:?}")));
        let result = parts.next(&mut state, action);
        let is_over = parts.actions(&state).is_empty();
        if let Err(broken) = result.and_then(|()| parts.check(&state, is_over)) {
            parts.say(|timeline| timeline.note(&format!("VIOLATED: {broken}")));
        }
    }
    parts.timeline.take().map(|timeline| timeline.text()).unwrap_or_default()
}

impl Totals {
    fn note(&mut self, parts: &Parts, state: &State) {
        let seen = || (0..state.clients.len()).map(|n| parts.seen(state, n));
        self.ended_by.extend(state.fate.ended_by);
        self.all_had_it |= !state.tokens.is_empty() && seen().all(|seen| seen.is_none())
            || self.ended_by.len() == state.clients.len() - usize::from(parts.bounds.puts);
        self.lease_ended |= seen().flatten().any(|seen| {
            matches!(seen.phase, Phase::Holding(_))
                && seen.belief.as_ref().is_none_or(|belief| belief.until <= seen.now)
        });
        for seen in seen().flatten().filter(|seen| seen.was_in_jeopardy) {
            let standing = seen.standing.map(|(_, standing)| standing);
            self.held_again |= standing == Some(Standing::Held);
            self.lost_in_jeopardy |= standing == Some(Standing::Lost);
        }
    }

    /// Whether it has seen what it must have.
    fn judge(&self, scenario: &Scenario) -> Result<(), String> {
        let Scenario { name, bounds, .. } = scenario;
        if !self.all_had_it {
            return Err(format!("violated: all get the lock (never), {name}"));
        }
        if bounds.ticks >= 3 && !self.lease_ended {
            return Err(format!("violated: a lease ends while it is held (never), {name}"));
        }
        if bounds.rides_out && !(self.held_again && self.lost_in_jeopardy) {
            let (again, lost) = (self.held_again, self.lost_in_jeopardy);
            return Err(format!(
                "violated: a jeopardy ends in both ways (held again: {again}, lost: {lost}), {name}"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, transitions, depth, histories, servers, took, .. } = self;
        write!(
            f,
            "{states} states, {transitions} steps, depth {depth}, {histories} histories, {servers} \
             servers, {:.1} s",
            took.as_secs_f64()
        )
    }
}
