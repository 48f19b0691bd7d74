//! The scenarios with the highest scores, and the search for higher ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;

use crate::drive::{Costs, MAX_CALL};
use crate::measure;
use crate::scenario::Scenario;

/// How many scenarios are kept for each score.
const KEPT: usize = 16;

/// How often one that is too expensive is measured again: a machine that is busy lets a call take half as
/// long again now and then.
const AGAIN: usize = 3;

/// One way to compare scenarios.
type Score = fn(&Costs) -> f64;

const SCORES: [(&str, Score); 4] = [
    ("longest call, in ms", |costs| costs.longest.as_secs_f64() * 1e3),
    ("processor time for each byte sent, in ns", Costs::time_per_byte),
    ("replies of one part, in MiB", |costs| costs.replies as f64 / f64::from(1 << 20)),
    ("memory for each byte sent, in bytes", Costs::growth_per_byte),
];

/// What was found so far.
#[derive(Default)]
pub(crate) struct Found {
    /// By the index of a score: the best ones, the best first.
    best: [Vec<(f64, Scenario, Costs)>; SCORES.len()],
    /// Scenarios that a server did not survive, and how it ended.
    fatal: BTreeMap<String, String>,
    tried: u64,
}

pub(crate) struct Search {
    seed: u64,
    found: Mutex<Found>,
    first: Vec<Scenario>,
}

impl Search {
    /// Begins with what is known already.
    pub(crate) fn begin(seed: u64, first: Vec<Scenario>) -> Self {
        Self { seed, found: Mutex::default(), first }
    }

    /// Searches for so long, on all processors.
    pub(crate) fn run(self, time: Duration) -> Result<Found> {
        let end = Instant::now() + time;
        for scenario in &self.first {
            self.look_at(scenario.clone());
        }
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for worker in 0..workers {
                let search = &self;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(search.seed.wrapping_add(worker as u64));
                    while Instant::now() < end {
                        let scenario = search.next(&mut rng);
                        search.look_at(scenario);
                    }
                });
            }
        });
        Ok(self.found.into_inner().unwrap_or_default())
    }

    /// A change of one of the best, or something new.
    fn next(&self, rng: &mut Rng) -> Scenario {
        let Ok(found) = self.found.lock() else { return Scenario::random(rng) };
        let best = &found.best[rng.usize(..SCORES.len())];
        match best.is_empty() || rng.u32(..8) == 0 {
            true => Scenario::random(rng),
            false => best[rng.usize(..best.len())].1.mutated(rng),
        }
    }

    fn look_at(&self, scenario: Scenario) {
        let costs = quickest(&scenario);
        let Ok(mut found) = self.found.lock() else { return };
        match costs {
            Ok(costs) => found.add(scenario, costs),
            Err(error) => {
                println!("FATAL {error:#}");
                found.fatal.insert(scenario.to_string(), format!("{error:#}"));
            }
        }
    }
}

/// What a scenario costs; if that is too much, the least that it cost in some more runs.
fn quickest(scenario: &Scenario) -> Result<Costs> {
    let mut costs = measure(scenario)?;
    for _ in 0..AGAIN {
        if costs.check(MAX_CALL).is_ok() {
            break;
        }
        let again = measure(scenario)?;
        if again.longest < costs.longest {
            costs = again;
        }
    }
    Ok(costs)
}

impl Found {
    fn add(&mut self, scenario: Scenario, costs: Costs) {
        self.tried += 1;
        for ((name, score), best) in SCORES.iter().zip(&mut self.best) {
            let score = score(&costs);
            if best.first().is_none_or(|(highest, ..)| score > highest * 1.05) {
                println!("{score:10.2} {name}: {scenario}");
            }
            if best.iter().any(|(_, known, _)| *known == scenario) {
                continue;
            }
            let at = best.partition_point(|(other, ..)| *other >= score);
            best.insert(at, (score, scenario.clone(), costs));
            best.truncate(KEPT);
        }
    }

    pub(crate) fn report(&self) -> String {
        let mut text = format!("{} scenarios\n", self.tried);
        for ((name, _), best) in SCORES.iter().zip(&self.best) {
            let _ = writeln!(text, "\n{name}");
            for (score, scenario, costs) in best.iter().take(4) {
                let _ = writeln!(text, "{score:10.2}  {costs}\n            {scenario}");
            }
        }
        text
    }

    /// The actions that no client may be able to take, one per line.
    pub(crate) fn expensive(&self) -> Vec<String> {
        let all = self.best.iter().flatten();
        let mut lines: Vec<_> = all
            .filter_map(|(_, scenario, costs)| {
                costs.check(MAX_CALL).err().map(|error| format!("\n  {error}: {scenario}"))
            })
            .chain(self.fatal.values().map(|error| format!("\n  {error}")))
            .collect();
        lines.sort();
        lines.dedup();
        lines
    }
}
