//! P1 to P13: ratios of numbers of the same run, each described once.

use serde::Serialize;

use super::not_awaited;
use super::sides::{
    ALWAYS, CURATOR, EVERYSEC, FAIR, FAIR_ON_ZOOKEEPER, LINGER, MANY_PROCESSES, MEMORY, NAIVE,
    ON_ZOOKEEPER, ONE_PROCESS, OS, SYNC,
};
use crate::baselines::{ONE_PROCESSOR, TWO_PROCESSORS};
use crate::results::{Entries, Side};

/// What is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Nothing: the number is to be known.
    Stated,
}

impl Goal {
    fn is_met(self, ratio: Option<f64>) -> bool {
        match self {
            Self::AtMost(goal) => ratio.is_some_and(|ratio| ratio <= goal),
            Self::AtLeast(goal) => ratio.is_some_and(|ratio| ratio >= goal),
            Self::Stated => true,
        }
    }
}

/// A target of this run: met when all its parts are.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) met: bool,
    pub(crate) parts: Vec<Part>,
}

/// One ratio of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) part: &'static str,
    /// `None` where a number is missing.
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: Goal,
    pub(crate) met: bool,
}

/// Works out all targets.
pub(crate) fn targets(entries: &Entries) -> Vec<Target> {
    let target = |description: &Description| {
        let parts: Vec<Part> = description.2.iter().map(|ratio| ratio.of(entries)).collect();
        let met = parts.iter().all(|part| part.met);
        Target { id: description.0, what: description.1, met, parts }
    };
    DESCRIPTIONS.iter().map(target).collect()
}

/// A target's name, what it is about, and its ratios.
type Description = (&'static str, &'static str, &'static [Ratio]);

/// A ratio as it is described.
struct Ratio {
    part: &'static str,
    number: Number,
    against: Against,
    goal: Goal,
}

/// Where a number is: the scenario, how many tasks, the metric.
#[derive(Clone, Copy)]
struct Metric(&'static str, Tasks, &'static str);

#[derive(Clone, Copy)]
enum Tasks {
    Are(usize),
    Most,
}

/// A metric of the first of these sides that was measured.
#[derive(Clone, Copy)]
struct Number(Metric, &'static [Side<'static>]);

enum Against {
    /// The number itself is quoted.
    Nothing,
    Number(Number),
    /// The same with the fewest tasks.
    Fewest,
}

impl Number {
    fn of(self, entries: &Entries) -> Option<f64> {
        let Self(Metric(scenario, tasks, metric), sides) = self;
        sides.iter().find_map(|&side| match tasks {
            Tasks::Are(tasks) => entries.median(scenario, side, tasks, metric),
            Tasks::Most => entries.curve(scenario, side, metric).last().map(|point| point.1),
        })
    }

    fn of_fewest(self, entries: &Entries) -> Option<f64> {
        let Self(Metric(scenario, _, metric), sides) = self;
        let mut curves = sides.iter().map(|&side| entries.curve(scenario, side, metric));
        curves.find_map(|curve| curve.first().map(|point| point.1))
    }
}

impl Ratio {
    fn of(&self, entries: &Entries) -> Part {
        let ratio = self.ratio(entries);
        Part { part: self.part, ratio, goal: self.goal, met: self.goal.is_met(ratio) }
    }

    fn ratio(&self, entries: &Entries) -> Option<f64> {
        let ours = self.number.of(entries)?;
        match self.against {
            Against::Nothing => Some(ours),
            Against::Number(theirs) => {
                let theirs = theirs.of(entries)?;
                // A side that got nothing done in its turns has no ratio.
                (ours > 0.0 && theirs > 0.0).then(|| ours / theirs)
            }
            Against::Fewest => {
                let fewest = self.number.of_fewest(entries)?;
                // Nothing at all among few and among many is as flat as can be.
                Some(if ours == fewest { 1.0 } else { ours / fewest })
            }
        }
    }
}

const fn at(tasks: usize, scenario: &'static str, metric: &'static str) -> Metric {
    Metric(scenario, Tasks::Are(tasks), metric)
}

const fn at_most(scenario: &'static str, metric: &'static str) -> Metric {
    Metric(scenario, Tasks::Most, metric)
}

/// Ours against theirs, of one metric.
const fn ratio(
    part: &'static str,
    metric: Metric,
    [ours, theirs]: [&'static [Side<'static>]; 2],
    goal: Goal,
) -> Ratio {
    let against = Against::Number(Number(metric, theirs));
    Ratio { part, number: Number(metric, ours), against, goal }
}

/// What of one side is quoted by itself, or with the most tasks against the fewest.
const fn quoted(
    part: &'static str,
    metric: Metric,
    sides: &'static [Side<'static>],
    against: Against,
    goal: Goal,
) -> Ratio {
    Ratio { part, number: Number(metric, sides), against, goal }
}

const CYCLE_TIME: Metric = at(1, "cycles", "cycle_p50_us");
const CYCLES_64: Metric = at(64, "cycles", "cycles_per_s");
const CYCLES_256: Metric = at(256, "cycles", "cycles_per_s");
const HAND_OFFS_8: Metric = at(8, "hand-offs", "hand_offs_per_s");
const HAND_OFFS_64: Metric = at(64, "hand-offs", "hand_offs_per_s");
const ACQUIRE: Number = Number(at(1, "cycles", "acquire_p50_us"), &[MEMORY]);
const ROUND_TRIP: Metric = at(1, "cycles", "round_trip_p50_us");
const EVENTS: Metric = at_most("herd", "events_per_release");
const TIME: Metric = at_most("waiters", "time_per_waiter_us");
const BYTES: Metric = at_most("waiters", "bytes_per_waiter");

/// Whether the client waits for the release.
const WAITS: &str = "release awaited";
const WAITS_NOT: &str = "release not awaited";

type Pair = [&'static [Side<'static>]; 2];

/// What the engine confirms from memory, as Redis does.
const FROM_MEMORY: [Pair; 2] =
    [[&[OS], &[EVERYSEC]], [&[not_awaited::OS], &[not_awaited::EVERYSEC]]];
/// What both confirm once it is on the disk.
const FROM_DISK: [Pair; 2] = [[&[SYNC], &[ALWAYS]], [&[not_awaited::SYNC], &[not_awaited::ALWAYS]]];
/// Curator has no release that is not awaited: both of ours are held against the one it has.
const SAME_ZOOKEEPER: [Pair; 2] =
    [[&[ON_ZOOKEEPER], &[CURATOR]], [&[not_awaited::ON_ZOOKEEPER], &[CURATOR]]];

use Goal::{AtLeast, AtMost, Stated};

const DESCRIPTIONS: &[Description] = &[
    (
        "P1",
        "median cycle, 1 task: engine `os` against Redis `everysec`, both confirming from memory",
        &[
            ratio(WAITS, CYCLE_TIME, FROM_MEMORY[0], AtMost(0.9)),
            ratio(WAITS_NOT, CYCLE_TIME, FROM_MEMORY[1], AtMost(1.0)),
        ],
    ),
    (
        "P2",
        "cycles/s, 256 tasks: engine `os` against Redis `everysec`, both confirming from memory",
        &[
            ratio(WAITS, CYCLES_256, FROM_MEMORY[0], AtLeast(1.5)),
            ratio(WAITS_NOT, CYCLES_256, FROM_MEMORY[1], AtLeast(1.5)),
        ],
    ),
    (
        "P3",
        "median cycle, 1 task: engine `sync` against Redis `always`, both confirming from disk",
        &[
            ratio(WAITS, CYCLE_TIME, FROM_DISK[0], AtMost(0.8)),
            ratio(WAITS_NOT, CYCLE_TIME, FROM_DISK[1], AtMost(0.8)),
        ],
    ),
    (
        "P4",
        "cycles/s, 256 tasks: engine `sync` against Redis `always`, both confirming from disk",
        &[
            ratio(WAITS, CYCLES_256, FROM_DISK[0], AtLeast(1.5)),
            ratio(WAITS_NOT, CYCLES_256, FROM_DISK[1], AtLeast(1.5)),
        ],
    ),
    (
        "P5",
        "median cycle, 1 task, same ZooKeeper: against Curator",
        &[
            ratio(WAITS, CYCLE_TIME, SAME_ZOOKEEPER[0], AtMost(0.6)),
            ratio(WAITS_NOT, CYCLE_TIME, SAME_ZOOKEEPER[1], AtMost(0.6)),
        ],
    ),
    (
        "P6",
        "cycles/s, 64 tasks, same ZooKeeper: against Curator",
        &[
            ratio(WAITS, CYCLES_64, SAME_ZOOKEEPER[0], AtLeast(1.7)),
            ratio(WAITS_NOT, CYCLES_64, SAME_ZOOKEEPER[1], AtLeast(1.7)),
        ],
    ),
    (
        "P7",
        "hand-offs/s, same ZooKeeper: against Curator",
        &[
            ratio("8 clients; release awaited", HAND_OFFS_8, SAME_ZOOKEEPER[0], AtLeast(2.0)),
            ratio("8 clients; release not awaited", HAND_OFFS_8, SAME_ZOOKEEPER[1], AtLeast(2.0)),
            ratio("64 clients; release awaited", HAND_OFFS_64, SAME_ZOOKEEPER[0], AtLeast(2.0)),
            ratio("64 clients; release not awaited", HAND_OFFS_64, SAME_ZOOKEEPER[1], AtLeast(2.0)),
        ],
    ),
    (
        "P8",
        "re-acquire with `linger`, same ZooKeeper: against Curator",
        &[ratio(
            "cycles/s",
            at(1, "reacquire", "cycles_per_s"),
            [&[LINGER], &[CURATOR]],
            AtLeast(100.0),
        )],
    ),
    (
        "P9",
        "median acquire, 1 task, engine `memory`: against a loopback round trip",
        &[
            // The engine and its client are on two processors, where there are two.
            Ratio {
                part: "round trips, two processors (one, if there is only one)",
                number: ACQUIRE,
                against: Against::Number(Number(ROUND_TRIP, &[TWO_PROCESSORS, ONE_PROCESSOR])),
                goal: AtMost(1.3),
            },
            Ratio {
                part: "round trips, one processor",
                number: ACQUIRE,
                against: Against::Number(Number(ROUND_TRIP, &[ONE_PROCESSOR])),
                goal: Stated,
            },
        ],
    ),
    (
        "P10",
        "same client, 256 tasks: engine `sync` against ZooKeeper",
        &[
            ratio(
                "writes (setData)",
                at(256, "raw", "set_data_per_s"),
                [&[SYNC], &[ON_ZOOKEEPER]],
                AtLeast(10.0),
            ),
            ratio(
                "reads (getData)",
                at(256, "raw", "get_data_per_s"),
                [&[SYNC], &[ON_ZOOKEEPER]],
                AtLeast(10.0),
            ),
        ],
    ),
    (
        "P11",
        "start and memory of the engine",
        &[
            quoted(
                "start to first answer, ms",
                at(0, "resources", "start_ms"),
                &[SYNC],
                Against::Nothing,
                AtMost(50.0),
            ),
            ratio(
                "idle memory against ZooKeeper's",
                at(0, "resources", "after_load_mib"),
                [&[SYNC], &[ON_ZOOKEEPER]],
                AtMost(0.05),
            ),
            quoted(
                "bytes per waiting contender",
                at_most("resources", "bytes_per_contender"),
                &[MEMORY],
                Against::Nothing,
                Stated,
            ),
        ],
    ),
    (
        "P12",
        "watch events of one release, 1,000 waiters",
        &[
            quoted("fair", EVENTS, &[FAIR, FAIR_ON_ZOOKEEPER], Against::Nothing, AtMost(1.0)),
            quoted("naive", EVENTS, &[NAIVE], Against::Nothing, Stated),
        ],
    ),
    (
        "P13",
        "one more waiter: among the most against among the fewest",
        &[
            quoted("one process, time", TIME, &[ONE_PROCESS], Against::Fewest, AtMost(2.0)),
            quoted("one process, bytes", BYTES, &[ONE_PROCESS], Against::Fewest, AtMost(2.0)),
            quoted("many processes, time", TIME, &[MANY_PROCESSES], Against::Fewest, Stated),
            quoted("many processes, bytes", BYTES, &[MANY_PROCESSES], Against::Fewest, Stated),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(targets: &'a [Target], id: &str) -> &'a Target {
        targets.iter().find(|target| target.id == id).unwrap()
    }

    #[test]
    fn there_are_thirteen_and_none_is_met_without_numbers() {
        let targets = targets(&Entries::default());
        let ids: Vec<String> = targets.iter().map(|target| target.id.to_owned()).collect();
        assert_eq!(ids, (1..=13).map(|n| format!("P{n}")).collect::<Vec<_>>());
        assert!(targets.iter().all(|target| !target.met));
    }

    #[test]
    fn a_target_is_as_good_as_its_worst_part() {
        let mut numbers = [
            ("cycles", OS, 1, "cycle_p50_us", 80.0),
            ("cycles", EVERYSEC, 1, "cycle_p50_us", 100.0),
            ("cycles", not_awaited::OS, 1, "cycle_p50_us", 66.0),
            ("cycles", not_awaited::EVERYSEC, 1, "cycle_p50_us", 60.0),
        ];
        let first = |numbers: &[_]| {
            let targets = targets(&Entries::from_numbers(numbers));
            let first = find(&targets, "P1");
            (first.met, first.parts.iter().map(|part| (part.ratio, part.met)).collect::<Vec<_>>())
        };
        assert_eq!(first(&numbers), (false, vec![(Some(0.8), true), (Some(1.1), false)]));
        numbers[2].4 = 30.0;
        assert_eq!(first(&numbers), (true, vec![(Some(0.8), true), (Some(0.5), true)]));
    }

    #[test]
    fn p9_is_held_against_the_echo_on_as_many_processors_as_there_are() {
        let numbers = [
            ("cycles", MEMORY, 1, "acquire_p50_us", 60.0),
            ("cycles", ONE_PROCESSOR, 1, "round_trip_p50_us", 20.0),
            ("cycles", TWO_PROCESSORS, 1, "round_trip_p50_us", 50.0),
        ];
        let ratios = |numbers: &[_]| {
            let targets = targets(&Entries::from_numbers(numbers));
            let ninth = find(&targets, "P9");
            (ninth.met, ninth.parts.iter().filter_map(|part| part.ratio).collect::<Vec<_>>())
        };
        assert_eq!(ratios(&numbers), (true, vec![1.2, 3.0]));
        assert_eq!(ratios(&numbers[..2]), (false, vec![3.0, 3.0]));
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
        let targets = targets(&Entries::from_numbers(&numbers));
        let last = find(&targets, "P13");
        let ratios: Vec<_> = last.parts.iter().map(|part| part.ratio).collect();
        assert_eq!(ratios, [Some(1.5), Some(1.0), None, None]);
    }
}
