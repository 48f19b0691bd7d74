//! The turns that systems have, and the numbers that come of them.

use std::collections::HashSet;
use std::time::Instant;

use anyhow::Result;

use crate::measure::{Latency, Plan, micros};
use crate::peers::Peers;
use crate::results::{Key, Results, Side};
use crate::settings::Settings;
use crate::system::System;

/// One run: its settings, its servers and its numbers.
pub(crate) struct Bench {
    pub(crate) settings: Settings,
    pub(crate) peers: Peers,
    pub(crate) results: Results,
    scenario: &'static str,
    begun: Instant,
}

impl Bench {
    pub(crate) fn new(settings: Settings, peers: Peers, begun: Instant) -> Self {
        Self { settings, peers, results: Results::default(), scenario: "", begun }
    }

    /// What is noted from here on belongs to this scenario.
    pub(crate) fn begin(&mut self, scenario: &'static str) {
        self.scenario = scenario;
    }

    /// Gives each of `turns` its turn, `rounds` times, as [`Self::interleave_each`] does.
    pub(crate) async fn interleave<T: Turn>(
        &mut self,
        rounds: usize,
        turns: &[T],
        measure: impl AsyncFnMut(&mut Self, &T) -> Result<()>,
    ) {
        self.interleave_each(turns, |_| rounds, measure).await;
    }

    /// The same where the systems may be those of a target, and so have other turns than the rest.
    pub(crate) async fn interleave_systems<L>(
        &mut self,
        turns: &[(System, L)],
        is_of_target: bool,
        mut measure: impl AsyncFnMut(&mut Self, &(System, L), Plan) -> Result<()>,
    ) where
        (System, L): Turn,
    {
        let settings = self.settings.clone();
        let turns_of = |&(system, _): &(System, L)| settings.turns_of(system, is_of_target);
        let rounds = |turn: &(System, L)| turns_of(turn).0;
        let measure = async |bench: &mut Self, turn: &(System, L)| {
            measure(bench, turn, turns_of(turn).1).await
        };
        self.interleave_each(turns, rounds, measure).await;
    }

    /// Gives each of `turns` its turn, as often as `rounds` says, round after round, each round in
    /// another order, so that whatever the machine does besides, and what one leaves for the next,
    /// hits all of them alike. One that fails has no more turns.
    async fn interleave_each<T: Turn>(
        &mut self,
        turns: &[T],
        rounds: impl Fn(&T) -> usize,
        mut measure: impl AsyncFnMut(&mut Self, &T) -> Result<()>,
    ) {
        let rounds: Vec<usize> = turns.iter().map(rounds).collect();
        let mut failed = HashSet::new();
        for round in 0..rounds.iter().copied().max().unwrap_or(0) {
            for index in order(&rounds, round) {
                if failed.contains(&index) {
                    continue;
                }

                let turn = &turns[index];
                let what = turn.describe();
                if self.settings.only.as_ref().is_some_and(|only| !what.contains(only)) {
                    continue;
                }

                let seconds = self.begun.elapsed().as_secs();
                let of = rounds[index];
                eprintln!("{seconds:4} s  {}  round {} of {of}  {what}", self.scenario, round + 1);
                if let Err(error) = measure(self, turn).await {
                    self.skip(&what, &error);
                    failed.insert(index);
                }
            }
        }
    }

    pub(crate) fn skip(&mut self, system: &str, error: &anyhow::Error) {
        eprintln!("SKIPPED: {}: {system}: {error:#}", self.scenario);
        self.results.skip(self.scenario, system, format!("{error:#}"));
    }

    /// Notes a number of the present row.
    pub(crate) fn note(&mut self, system: System, tasks: usize, metric: &str, value: f64) {
        self.note_as((system.name(), system.config()), tasks, metric, value);
    }

    pub(crate) fn note_as(&mut self, side: Side<'_>, tasks: usize, metric: &str, value: f64) {
        self.results.add(Key::new(self.scenario, side, tasks, metric), value);
    }

    /// Notes the percentiles of a latency, each in microseconds.
    pub(crate) fn note_latency(
        &mut self,
        side: Side<'_>,
        tasks: usize,
        name: &str,
        latency: Latency,
    ) {
        // On a busy machine nothing at all may come to its end within a short turn.
        if latency.count == 0 {
            return;
        }
        for (percentile, value) in
            [("p50", latency.p50), ("p99", latency.p99), ("p999", latency.p999)]
        {
            self.note_as(side, tasks, &format!("{name}_{percentile}_us"), micros(value));
        }
    }
}

/// Something that has its turn in each round.
pub(crate) trait Turn {
    /// What it is, for the progress.
    fn describe(&self) -> String;
}

impl Turn for System {
    fn describe(&self) -> String {
        self.to_string()
    }
}

impl<T: std::fmt::Display> Turn for (System, T) {
    fn describe(&self) -> String {
        format!("{}, {}", self.0, self.1)
    }
}

/// Who has a turn in a round, each of as many as `rounds` says, and in which order: in every run
/// the same.
fn order(rounds: &[usize], round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rounds.len()).filter(|&turn| round < rounds[turn]).collect();
    fastrand::Rng::with_seed(round as u64).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn in_every_round_others_follow_each_other() {
        let rounds: Vec<Vec<usize>> = (0..3).map(|round| order(&[3; 18], round)).collect();
        for (index, round) in rounds.iter().enumerate() {
            assert_eq!(round, &order(&[3; 18], index), "another run");
            assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), (0..18).collect());
        }
        let pairs = |round: &[usize]| round.windows(2).map(<[usize]>::to_vec).collect();
        let in_all = rounds.iter().map(|round| pairs(round)).reduce(|a: BTreeSet<_>, b| &a & &b);
        assert_eq!(in_all, Some(BTreeSet::new()));
    }

    #[test]
    fn each_has_as_many_turns_as_it_shall_have() {
        let mut turns: Vec<usize> = (0..7).flat_map(|round| order(&[7, 3, 0, 1], round)).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 3]);
    }
}
