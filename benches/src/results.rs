//! Every number of a run.

use serde::{Deserialize, Serialize};

/// A system and its configuration, as in the tables.
pub(crate) type Side<'a> = (&'a str, &'a str);

/// What a number is about.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Key {
    /// Such as `cycles`.
    pub(crate) scenario: String,
    /// Such as `redis`.
    pub(crate) system: String,
    /// Such as `appendfsync always`.
    pub(crate) config: String,
    /// Tasks, clients, or waiters.
    pub(crate) tasks: usize,
    /// Such as `cycles_per_s`; the end says the unit.
    pub(crate) metric: String,
}

impl Key {
    pub(crate) fn new(
        scenario: &str,
        (system, config): Side<'_>,
        tasks: usize,
        metric: &str,
    ) -> Self {
        let [scenario, system, config, metric] =
            [scenario, system, config, metric].map(str::to_owned);
        Self { scenario, system, config, tasks, metric }
    }

    pub(crate) fn side(&self) -> Side<'_> {
        (&self.system, &self.config)
    }
}

/// The numbers of all rounds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Entry {
    /// What they are about.
    #[serde(flatten)]
    pub(crate) key: Key,
    /// The middle one.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
    /// How many.
    pub(crate) rounds: usize,
}

impl Entry {
    fn new(key: &Key, values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (middle, odd) = (sorted.len() / 2, sorted.len() % 2);
        let median = f64::midpoint(sorted[middle + odd - 1], sorted[middle]);
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        Self { key: key.clone(), median, min, max, rounds: sorted.len() }
    }
}

/// Something that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Skip {
    /// The scenario.
    pub(crate) scenario: String,
    /// The system and its configuration.
    pub(crate) system: String,
    /// Why.
    pub(crate) why: String,
}

/// Every number of a run, in the order in which they first came.
#[derive(Debug, Default)]
pub(crate) struct Results {
    numbers: Vec<(Key, Vec<f64>)>,
    skips: Vec<Skip>,
}

impl Results {
    /// Adds the number of one round.
    pub(crate) fn add(&mut self, key: Key, value: f64) {
        match self.numbers.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.numbers.push((key, vec![value])),
        }
    }

    /// Notes what could not be measured, once.
    pub(crate) fn skip(&mut self, scenario: &str, system: &str, why: String) {
        let (scenario, system) = (scenario.to_owned(), system.to_owned());
        let skip = Skip { scenario, system, why };
        if !self.skips.contains(&skip) {
            self.skips.push(skip);
        }
    }

    /// What could not be measured.
    pub(crate) fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// All numbers, rounds put together.
    pub(crate) fn entries(&self) -> Entries {
        Entries(self.numbers.iter().map(|(key, values)| Entry::new(key, values)).collect())
    }
}

/// The numbers of a run, rounds put together.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Entries(pub Vec<Entry>);

impl Entries {
    /// Those of one metric of a scenario.
    pub(crate) fn of<'a>(
        &'a self,
        scenario: &'a str,
        metric: &'a str,
    ) -> impl Iterator<Item = &'a Entry> {
        let wanted = move |key: &Key| key.scenario == scenario && key.metric == metric;
        self.0.iter().filter(move |entry| wanted(&entry.key))
    }

    /// What one side has with each number of tasks, from the fewest to the most.
    pub(crate) fn curve(&self, scenario: &str, side: Side<'_>, metric: &str) -> Vec<(usize, f64)> {
        let entries = self.of(scenario, metric).filter(|entry| entry.key.side() == side);
        let mut points: Vec<_> = entries.map(|entry| (entry.key.tasks, entry.median)).collect();
        points.sort_by_key(|&(tasks, _)| tasks);
        points
    }

    /// Scenario, side, tasks, metric, value of each.
    #[cfg(test)]
    pub(crate) fn from_numbers(numbers: &[(&str, Side<'_>, usize, &str, f64)]) -> Self {
        let mut results = Results::default();
        for &(scenario, side, tasks, metric, value) in numbers {
            results.add(Key::new(scenario, side, tasks, metric), value);
        }
        results.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_put_together() {
        let key = |tasks| Key::new("cycles", ("redis", "no persistence"), tasks, "cycles_per_s");
        let mut results = Results::default();
        for value in [3.0, 1.0, 2.0] {
            results.add(key(1), value);
        }
        results.add(key(2), 1.0);
        results.add(key(2), 2.0);
        let Entries(entries) = results.entries();
        assert_eq!(entries.len(), 2);
        let Entry { median, min, max, rounds, .. } = entries[0];
        assert_eq!((median, min, max, rounds), (2.0, 1.0, 3.0, 3));
        assert_eq!((&entries[1].key, entries[1].median), (&key(2), 1.5));
    }
}
