//! Every number of a run.

use serde::Serialize;

/// What a number is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// Such as `cycles`.
    pub row: String,
    /// Such as `redis`.
    pub system: String,
    /// Such as `appendfsync always`.
    pub config: String,
    /// Tasks, clients, or waiters.
    pub tasks: usize,
    /// Such as `cycles_per_s`; the end says the unit.
    pub metric: String,
}

/// The numbers of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// What they are about.
    #[serde(flatten)]
    pub key: Key,
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many.
    pub rounds: usize,
}

/// Something that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skip {
    /// The row.
    pub row: String,
    /// The system and its configuration.
    pub system: String,
    /// Why.
    pub why: String,
}

/// Every number of a run, in the order in which they first came.
#[derive(Debug, Default)]
pub struct Book {
    numbers: Vec<(Key, Vec<f64>)>,
    skips: Vec<Skip>,
}

impl Book {
    /// Adds the number of one round.
    pub fn add(&mut self, key: Key, value: f64) {
        match self.numbers.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.numbers.push((key, vec![value])),
        }
    }

    /// Notes what could not be measured, once.
    pub fn skip(&mut self, row: &str, system: &str, why: String) {
        let skip = Skip { row: row.to_owned(), system: system.to_owned(), why };
        if !self.skips.contains(&skip) {
            self.skips.push(skip);
        }
    }

    /// What could not be measured.
    pub fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// All numbers, rounds put together.
    pub fn entries(&self) -> Vec<Entry> {
        self.numbers.iter().map(|(key, values)| entry(key, values)).collect()
    }

    /// The rows that have numbers, in order.
    pub fn rows(&self) -> Vec<&str> {
        let mut rows: Vec<&str> = self.numbers.iter().map(|(key, _)| key.row.as_str()).collect();
        rows.dedup();
        rows
    }

    /// The numbers of one row, by a look at their keys.
    pub fn find(&self, wanted: impl Fn(&Key) -> bool) -> Vec<Entry> {
        let found = self.numbers.iter().filter(|(key, _)| wanted(key));
        found.map(|(key, values)| entry(key, values)).collect()
    }

    /// One number of the row `waiters`, from the fewest waiters to the most.
    pub fn of_waiters(&self, config: &str, metric: &str) -> Vec<Entry> {
        let mut found =
            self.find(|key| key.row == "waiters" && key.config == config && key.metric == metric);
        found.sort_by_key(|entry| entry.key.tasks);
        found
    }

    /// One median.
    pub fn median(
        &self,
        row: &str,
        (system, config): (&str, &str),
        tasks: usize,
        metric: &str,
    ) -> Option<f64> {
        let found = self.find(|key| {
            key.row == row
                && key.system == system
                && key.config == config
                && key.tasks == tasks
                && key.metric == metric
        });
        found.first().map(|entry| entry.median)
    }
}

/// Row, system with configuration, tasks, metric, value.
#[cfg(test)]
pub(crate) type Number<'a> = (&'a str, (&'a str, &'a str), usize, &'a str, f64);

#[cfg(test)]
impl Book {
    /// One with these numbers.
    pub(crate) fn of(numbers: &[Number<'_>]) -> Self {
        let mut book = Self::default();
        for &(row, (system, config), tasks, metric, value) in numbers {
            let key = Key {
                row: row.into(),
                system: system.into(),
                config: config.into(),
                tasks,
                metric: metric.into(),
            };
            book.add(key, value);
        }
        book
    }
}

fn entry(key: &Key, values: &[f64]) -> Entry {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    };
    let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
    Entry { key: key.clone(), median, min, max, rounds: sorted.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tasks: usize) -> Key {
        Key {
            row: "cycles".into(),
            system: "redis".into(),
            config: "no persistence".into(),
            tasks,
            metric: "cycles_per_s".into(),
        }
    }

    #[test]
    fn rounds_are_put_together() {
        let mut book = Book::default();
        for value in [3.0, 1.0, 2.0] {
            book.add(key(1), value);
        }
        book.add(key(2), 1.0);
        book.add(key(2), 2.0);
        let entries = book.entries();
        assert_eq!(entries.len(), 2);
        let Entry { median, min, max, rounds, .. } = entries[0];
        assert_eq!((median, min, max, rounds), (2.0, 1.0, 3.0, 3));
        assert_eq!(entries[1].median, 1.5);
        let found = book.median("cycles", ("redis", "no persistence"), 2, "cycles_per_s");
        assert_eq!(found, Some(1.5));
    }
}
