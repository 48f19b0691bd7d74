//! One run.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::measure::{Latency, Plan};
use anyhow::{Result, bail};

use crate::book::{Book, Key};
use crate::machine::Machine;
use crate::peers::Peers;
use crate::report;
use crate::rows::{self, Row};
use crate::settings::Settings;
use crate::system::System;

/// Where the results go.
#[derive(Clone, Debug)]
pub struct Places {
    /// For `results.json`, the page and its charts, of every run.
    pub output: PathBuf,
    /// The documentation's folder, for the page of a full run of all rows.
    pub docs: PathBuf,
    /// For the data of the servers: on the disk that is to be measured.
    pub data: PathBuf,
}

/// One run: its settings, its servers and its numbers.
pub(crate) struct Bench {
    pub(crate) settings: Settings,
    pub(crate) peers: Peers,
    book: Book,
    row: &'static str,
    begun: Instant,
}

/// Runs the rows of these names, or all, and writes the results.
///
/// # Errors
/// If a name is unknown, the machine cannot be looked at, or a file cannot be written. A system
/// that cannot be measured is no error: the report says why.
pub async fn run(settings: Settings, places: &Places, names: &[String]) -> Result<()> {
    let chosen = rows::choose(names)?;
    let all = chosen.len() == rows::ALL.len() && settings.only.is_none();
    let begun = Instant::now();
    let mut peers = Peers::new(&places.data);
    let mut machine = Machine::look(&mut peers).await?;
    eprintln!("{machine}");
    let mut bench = Bench { settings, peers, book: Book::default(), row: "", begun };
    for row in chosen {
        bench.run_row(row).await;
    }
    let Bench { settings, peers, book, .. } = bench;
    let configurations = peers.configurations();
    drop(peers);
    machine.look_back()?;
    let report = report::Report::new(&settings, machine, configurations, &book, begun.elapsed());
    report.write(&places.output)?;
    if all && !settings.quick {
        report.publish(&places.docs)?;
    }
    eprintln!("{}", report.summary());
    if book.entries().is_empty() {
        bail!("nothing could be measured");
    }
    Ok(())
}

impl Bench {
    async fn run_row(&mut self, row: &Row) {
        self.row = row.name;
        if let Err(error) = row.run(self).await {
            self.skip("all", &error);
        }
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
                eprintln!("{seconds:4} s  {}  round {} of {of}  {what}", self.row, round + 1);
                if let Err(error) = measure(self, turn).await {
                    self.skip(&what, &error);
                    failed.insert(index);
                }
            }
        }
    }

    pub(crate) fn skip(&mut self, system: &str, error: &anyhow::Error) {
        eprintln!("SKIPPED: {}: {system}: {error:#}", self.row);
        self.book.skip(self.row, system, format!("{error:#}"));
    }

    /// Notes a number of the present row.
    pub(crate) fn note(&mut self, system: System, tasks: usize, metric: &str, value: f64) {
        self.note_as((system.name(), system.config()), tasks, metric, value);
    }

    pub(crate) fn note_as(
        &mut self,
        (system, config): (&str, &str),
        tasks: usize,
        metric: &str,
        value: f64,
    ) {
        let key = Key {
            row: self.row.to_owned(),
            system: system.to_owned(),
            config: config.to_owned(),
            tasks,
            metric: metric.to_owned(),
        };
        self.book.add(key, value);
    }

    /// Notes the percentiles of a latency, each in microseconds.
    pub(crate) fn note_latency(
        &mut self,
        system: (&str, &str),
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
            self.note_as(system, tasks, &format!("{name}_{percentile}_us"), micros(value));
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

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
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
