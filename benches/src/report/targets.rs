//! The targets: ratios of numbers of the same run.

use anyhow::Result;
use serde::Serialize;

use super::description::{self, Description};
use crate::results::Entries;

/// A target of this run: met when all its parts are.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) met: bool,
    pub(crate) parts: Vec<Part>,
}

/// One ratio of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) part: String,
    /// `None` where a number is missing.
    pub(crate) ratio: Option<f64>,
    pub(crate) at_most: Option<f64>,
    pub(crate) at_least: Option<f64>,
    pub(crate) met: bool,
}

/// Works out all targets.
pub(super) fn targets(description: &Description, entries: &Entries) -> Result<Vec<Target>> {
    let target = |target: &description::Target| {
        let parts = target.parts.iter().map(|part| judge(description, part, entries));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let met = parts.iter().all(|part| part.met);
        Ok(Target { id: target.id.clone(), what: target.what.clone(), met, parts })
    };
    description.targets.iter().map(target).collect()
}

fn judge(description: &Description, part: &description::Part, entries: &Entries) -> Result<Part> {
    let ratio = ratio(description, part, entries)?;
    let (at_most, at_least) = (part.at_most, part.at_least);
    let met = at_most.is_none_or(|goal| ratio.is_some_and(|ratio| ratio <= goal))
        && at_least.is_none_or(|goal| ratio.is_some_and(|ratio| ratio >= goal));
    Ok(Part { part: part.part.clone(), ratio, at_most, at_least, met })
}

fn ratio(
    description: &Description,
    part: &description::Part,
    entries: &Entries,
) -> Result<Option<f64>> {
    let number = |metric: &str, sides: &[String]| description.number(entries, metric, sides);
    let Some((ours, fewest)) = number(&part.metric, &part.of)? else { return Ok(None) };
    if part.against_fewest {
        // Nothing at all among few and among many is as flat as can be.
        return Ok(Some(if ours == fewest { 1.0 } else { ours / fewest }));
    }
    if part.against.is_empty() {
        return Ok(Some(ours));
    }
    let metric = part.against_metric.as_ref().unwrap_or(&part.metric);
    let theirs = number(metric, &part.against)?.map(|(theirs, _)| theirs);
    // A side that got nothing done in its turns has no ratio.
    Ok(theirs.filter(|&theirs| ours > 0.0 && theirs > 0.0).map(|theirs| ours / theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::{ONE_PROCESSOR, TWO_PROCESSORS};
    use crate::results::Side;

    const OS: Side<'static> = ("lockkeeper", "engine, os");
    const OS_UNAWAITED: Side<'static> = ("lockkeeper", "engine, os; release not awaited");
    const EVERYSEC: Side<'static> = ("redis", "appendfsync everysec");
    const EVERYSEC_UNAWAITED: Side<'static> =
        ("redis", "appendfsync everysec; release not awaited");
    const MEMORY: Side<'static> = ("lockkeeper", "engine, memory");
    const ONE_PROCESS: Side<'static> = ("lockkeeper", "engine, os, one process");

    fn all(numbers: &[(&str, Side<'_>, usize, &str, f64)]) -> Vec<Target> {
        targets(&Description::read().unwrap(), &Entries::from_numbers(numbers)).unwrap()
    }

    /// Whether a target is met, and the ratios of its parts.
    fn of(id: &str, numbers: &[(&str, Side<'_>, usize, &str, f64)]) -> (bool, Vec<Option<f64>>) {
        let target = all(numbers).into_iter().find(|target| target.id == id).unwrap();
        (target.met, target.parts.iter().map(|part| part.ratio).collect())
    }

    #[test]
    fn none_is_met_without_numbers() {
        let targets = all(&[]);
        let ids: Vec<String> = targets.iter().map(|target| target.id.clone()).collect();
        let locks = (1..=13).map(|n| format!("P{n}"));
        let recipes = (1..=6).chain([10]).map(|n| format!("C{n}"));
        assert_eq!(ids, locks.chain(recipes).collect::<Vec<_>>());
        assert!(targets.iter().all(|target| !target.met));
    }

    #[test]
    fn a_target_is_as_good_as_its_worst_part() {
        let mut numbers = [
            ("cycles", OS, 1, "cycle_p50_us", 80.0),
            ("cycles", EVERYSEC, 1, "cycle_p50_us", 100.0),
            ("cycles", OS_UNAWAITED, 1, "cycle_p50_us", 66.0),
            ("cycles", EVERYSEC_UNAWAITED, 1, "cycle_p50_us", 60.0),
        ];
        assert_eq!(of("P1", &numbers), (false, vec![Some(0.8), Some(1.1)]));
        numbers[2].4 = 30.0;
        assert_eq!(of("P1", &numbers), (true, vec![Some(0.8), Some(0.5)]));
    }

    #[test]
    fn p9_is_held_against_the_echo_on_as_many_processors_as_there_are() {
        let numbers = [
            ("cycles", MEMORY, 1, "acquire_p50_us", 60.0),
            ("cycles", ONE_PROCESSOR, 1, "round_trip_p50_us", 20.0),
            ("cycles", TWO_PROCESSORS, 1, "round_trip_p50_us", 50.0),
        ];
        assert_eq!(of("P9", &numbers), (true, vec![Some(1.2), Some(3.0)]));
        assert_eq!(of("P9", &numbers[..2]), (false, vec![Some(3.0), Some(3.0)]));
    }

    #[test]
    fn one_more_among_many_is_held_against_one_more_among_few() {
        let waiters = |count, metric, value| ("waiters", ONE_PROCESS, count, metric, value);
        let numbers = [
            waiters(1_000, "time_per_waiter_us", 3.0),
            waiters(10, "time_per_waiter_us", 2.0),
            waiters(1_000, "bytes_per_waiter", 0.0),
            waiters(10, "bytes_per_waiter", 0.0),
        ];
        assert_eq!(of("P13", &numbers), (true, vec![Some(1.5), Some(1.0), None, None]));
    }
}
