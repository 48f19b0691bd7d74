//! The targets: ratios of numbers of the same run.

use anyhow::Result;
use serde::Serialize;

use super::description::{self, Description};
use crate::machine::WakeUp;
use crate::results::Entries;

/// A target of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) parts: Vec<Part>,
}

/// One ratio of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) part: String,
    /// `None` where a number is missing.
    pub(crate) ratio: Option<f64>,
    /// The same of what cannot be done without.
    pub(crate) floor: Option<f64>,
    /// Empty if the number is only to be known.
    pub(crate) goal: String,
    /// `None` without a goal or a number.
    pub(crate) met: Option<bool>,
}

/// Works out all targets, with the goals of one kind of machine.
pub(super) fn targets(
    description: &Description,
    entries: &Entries,
    wake_up: WakeUp,
) -> Result<Vec<Target>> {
    let target = |target: &description::Target| {
        let parts = target.parts.iter().map(|part| judge(description, part, entries, wake_up));
        let (id, what) = (target.id.clone(), target.what.clone());
        Ok(Target { id, what, parts: parts.collect::<Result<_>>()? })
    };
    description.targets.iter().map(target).collect()
}

fn judge(
    description: &Description,
    part: &description::Part,
    entries: &Entries,
    wake_up: WakeUp,
) -> Result<Part> {
    let ratio = ratio(description, part, &part.of, entries)?;
    let floor = self::ratio(description, part, &part.floor, entries)?;
    let (goal, met) = match (part.at_most, part.at_least) {
        (Some(most), _) => {
            (format!("at most {most}"), ratio.map(|ratio| ratio <= most.on(wake_up)))
        }
        (None, Some(least)) => {
            (format!("at least {least}"), ratio.map(|ratio| ratio >= least.on(wake_up)))
        }
        (None, None) => (String::new(), None),
    };
    Ok(Part { part: part.part.clone(), ratio, floor, goal, met })
}

/// The ratio of a part, for the first of `sides` that was measured.
fn ratio(
    description: &Description,
    part: &description::Part,
    sides: &[String],
    entries: &Entries,
) -> Result<Option<f64>> {
    let number = |metric: &str, sides: &[String]| description.number(entries, metric, sides);
    let Some((ours, fewest)) = number(&part.metric, sides)? else { return Ok(None) };
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

    type Number<'a> = (&'a str, Side<'a>, usize, &'a str, f64);

    fn all(numbers: &[Number<'_>], wake_up: WakeUp) -> Vec<Target> {
        let (description, entries) = (Description::read().unwrap(), Entries::from_numbers(numbers));
        targets(&description, &entries, wake_up).unwrap()
    }

    /// The ratios of a target's parts, and whether they are as wanted.
    fn of(id: &str, numbers: &[Number<'_>], wake_up: WakeUp) -> Vec<(Option<f64>, Option<bool>)> {
        let target = all(numbers, wake_up).into_iter().find(|target| target.id == id).unwrap();
        target.parts.iter().map(|part| (part.ratio, part.met)).collect()
    }

    #[test]
    fn none_is_met_without_numbers() {
        let targets = all(&[], WakeUp::Slow);
        let ids: Vec<String> = targets.iter().map(|target| target.id.clone()).collect();
        let locks = (1..=13).map(|n| format!("P{n}"));
        let recipes = (1..=7).chain([10]).map(|n| format!("C{n}"));
        assert_eq!(ids, locks.chain(recipes).collect::<Vec<_>>());
        assert!(targets.iter().flat_map(|target| &target.parts).all(|part| part.met.is_none()));
    }

    #[test]
    fn goals_depend_on_the_kind_of_machine() {
        let numbers = [
            ("cycles", OS, 1, "cycle_p50_us", 70.0),
            ("cycles", EVERYSEC, 1, "cycle_p50_us", 100.0),
            ("cycles", OS_UNAWAITED, 1, "cycle_p50_us", 66.0),
            ("cycles", EVERYSEC_UNAWAITED, 1, "cycle_p50_us", 60.0),
        ];
        let with = |met| vec![(Some(0.7), Some(met)), (Some(1.1), Some(false))];
        assert_eq!(of("P1", &numbers, WakeUp::Fast), with(true));
        assert_eq!(of("P1", &numbers, WakeUp::Slow), with(false));
    }

    #[test]
    fn a_floor_stands_beside_what_is_held_against_a_peer() {
        let hand_over = |side, value| ("election", side, 8, "hand_over_p50_us", value);
        let numbers = [
            hand_over(("lockkeeper", "zookeeper"), 90.0),
            hand_over(("curator", "zookeeper"), 100.0),
            hand_over(("bare requests, second look", "zookeeper"), 80.0),
        ];
        let part =
            &all(&numbers, WakeUp::Fast).into_iter().find(|it| it.id == "C6").unwrap().parts[0];
        assert_eq!((part.ratio, part.floor, part.met), (Some(0.9), Some(0.8), Some(false)));
        assert_eq!(part.goal, "at most 0.5");
    }

    #[test]
    fn p9_is_held_against_the_echo_on_as_many_processors_as_there_are() {
        let numbers = [
            ("cycles", MEMORY, 1, "acquire_p50_us", 60.0),
            ("cycles", ONE_PROCESSOR, 1, "round_trip_p50_us", 20.0),
            ("cycles", TWO_PROCESSORS, 1, "round_trip_p50_us", 50.0),
        ];
        let of_p9 = |numbers| of("P9", numbers, WakeUp::Slow);
        assert_eq!(of_p9(&numbers), [(Some(1.2), Some(true)), (Some(3.0), None)]);
        assert_eq!(of_p9(&numbers[..2]), [(Some(3.0), Some(false)), (Some(3.0), None)]);
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
        let parts = of("P13", &numbers, WakeUp::Slow);
        assert_eq!(parts[..2], [(Some(1.5), Some(true)), (Some(1.0), Some(true))]);
        assert_eq!(parts[2..], [(None, None); 2]);
    }
}
