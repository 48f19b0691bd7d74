//! How long locks are held, from a recording.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use lockkeeper::ZnodePath;
use lockkeeper::overview::HoldTimes;

use super::history::{HistoryEvent, HistoryLine};
use super::older;
use super::why::read;
use crate::shared::exit::Failure;

/// How many holds there have to be before a time is usual.
const ENOUGH: usize = 5;

/// Reads a recording.
pub(crate) fn hold_times(file: &Path) -> Result<HoldTimes, Failure> {
    let mut collected = CollectedTimes::default();
    for part in [older(file), file.to_owned()] {
        read(&part, part == file, |line| collected.add(&line))?;
    }
    Ok(collected.finish())
}

/// The same, from events that are in memory.
#[cfg(feature = "console")]
pub(crate) fn hold_times_of<'a>(events: impl IntoIterator<Item = &'a HistoryLine>) -> HoldTimes {
    let mut collected = CollectedTimes::default();
    events.into_iter().for_each(|line| collected.add(line));
    collected.finish()
}

#[derive(Default)]
struct CollectedTimes {
    held_since: HashMap<ZnodePath, SystemTime>,
    /// How long each lock was held, in milliseconds.
    holds: HashMap<ZnodePath, Vec<u64>>,
}

impl CollectedTimes {
    fn add(&mut self, line: &HistoryLine) {
        let Some(node) = line.node.as_deref().and_then(|node| ZnodePath::new(node).ok()) else {
            return;
        };
        match line.event {
            HistoryEvent::Granted => {
                let at = Duration::from_millis(line.at_unix_ms);
                let at = SystemTime::UNIX_EPOCH.checked_add(at);
                self.held_since.extend(at.map(|at| (node, at)));
            }
            HistoryEvent::Ended => {
                self.held_since.remove(&node);
                let lock = ZnodePath::new(&line.lock).ok();
                if let Some((lock, held)) = lock.zip(line.lasted_ms) {
                    self.holds.entry(lock).or_default().push(held);
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> HoldTimes {
        let medians = self.holds.into_iter().filter_map(|(lock, mut holds)| {
            let middle = holds.len() / 2;
            let is_enough = holds.len() >= ENOUGH;
            is_enough.then(|| (lock, Duration::from_millis(*holds.select_nth_unstable(middle).1)))
        });
        HoldTimes { held_since: self.held_since, usual: medians.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_time_is_the_median_of_at_least_five() {
        let mut collected = CollectedTimes::default();
        let mut line = HistoryLine::of_recording(HistoryEvent::Ended, &ZnodePath::root(), 0);
        for (lock, holds) in [("/a", &[1, 900, 2, 3, 4][..]), ("/b", &[1, 2, 3, 4])] {
            for held in holds {
                line = HistoryLine {
                    lock: lock.to_owned(),
                    node: Some(format!("{lock}/x")),
                    lasted_ms: Some(*held),
                    ..line
                };
                collected.add(&line);
            }
        }
        line.event = HistoryEvent::Granted;
        collected.add(&line);
        let times = collected.finish();
        let a = ZnodePath::new("/a").unwrap();
        assert_eq!(times.usual, [(a, Duration::from_millis(3))].into());
        assert_eq!(times.held_since.len(), 1);
    }
}
