//! P1 to P13: ratios of numbers of the same run.

use serde::Serialize;

use crate::book::Book;
use crate::floors::{ONE_PROCESSOR, TWO_PROCESSORS};

/// On which side of the goal a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    AtMost,
    AtLeast,
}

/// One ratio with its goal.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Part {
    /// Which of the target's ratios it is.
    pub(crate) part: String,
    /// `None` where a number is missing.
    pub(crate) ratio: Option<f64>,
    /// `None` where nothing was aimed at: the number is to be known.
    pub(crate) goal: Option<f64>,
    pub(crate) side: Side,
    pub(crate) met: bool,
}

/// A target: met when all its parts are. Its ratio and goal are those of the part that is
/// furthest from its goal.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: Option<f64>,
    pub(crate) side: Side,
    pub(crate) met: bool,
    pub(crate) parts: Vec<Part>,
}

pub(crate) const SYNC: (&str, &str) = ("lockkeeper", "engine, sync");
pub(crate) const OS: (&str, &str) = ("lockkeeper", "engine, os");
pub(crate) const MEMORY: (&str, &str) = ("lockkeeper", "engine, memory");
pub(crate) const ON_ZOOKEEPER: (&str, &str) = ("lockkeeper", "zookeeper");
/// Curator has no release that is not awaited: both of ours are held against the one it has.
pub(crate) const ON_ZOOKEEPER_NOT_AWAITED: (&str, &str) =
    ("lockkeeper", "zookeeper; release not awaited");
/// What no lock can do without, on the same ZooKeeper.
pub(crate) const BARE: (&str, &str) = ("bare requests", "zookeeper");
pub(crate) const BARE_NOT_AWAITED: (&str, &str) =
    ("bare requests", "zookeeper; release not awaited");
/// The same, sure of its turn.
pub(crate) const SECOND_LOOK: (&str, &str) = ("bare requests, second look", "zookeeper");
pub(crate) const SECOND_LOOK_NOT_AWAITED: (&str, &str) =
    ("bare requests, second look", "zookeeper; release not awaited");
pub(crate) const CURATOR: (&str, &str) = ("curator", "zookeeper");
pub(crate) const ALWAYS: (&str, &str) = ("redis", "appendfsync always");
pub(crate) const EVERYSEC: (&str, &str) = ("redis", "appendfsync everysec");
pub(crate) const NO_PERSISTENCE: (&str, &str) = ("redis", "no persistence");
const NOT_AWAITED: &str = "; release not awaited";

/// What "flat" means: a waiter among the most costs no more than this against one among the
/// fewest.
const FLAT: f64 = 2.0;

/// Works out all targets.
pub(crate) fn targets(book: &Book) -> Vec<Target> {
    let numbers = Numbers(book);
    vec![
        target(
            "P1",
            "cycle p50, 1 task: engine `os` against Redis `everysec`",
            vec![
                numbers.cycle_p50("release awaited", OS, EVERYSEC, "", 0.9),
                numbers.cycle_p50("release not awaited", OS, EVERYSEC, NOT_AWAITED, 1.0),
            ],
        ),
        target(
            "P2",
            "cycles/s, 256 tasks: engine `os` against Redis `everysec`",
            vec![
                numbers.cycles("release awaited", (OS, EVERYSEC), "", 256, 1.5),
                numbers.cycles("release not awaited", (OS, EVERYSEC), NOT_AWAITED, 256, 1.5),
            ],
        ),
        target(
            "P3",
            "cycle p50, 1 task: engine `sync` against Redis `always`",
            vec![
                numbers.cycle_p50("release awaited", SYNC, ALWAYS, "", 0.8),
                numbers.cycle_p50("release not awaited", SYNC, ALWAYS, NOT_AWAITED, 0.8),
            ],
        ),
        target(
            "P4",
            "cycles/s, 256 tasks: engine `sync` against Redis `always`",
            vec![
                numbers.cycles("release awaited", (SYNC, ALWAYS), "", 256, 1.5),
                numbers.cycles("release not awaited", (SYNC, ALWAYS), NOT_AWAITED, 256, 1.5),
            ],
        ),
        target(
            "P5",
            "cycle p50, 1 task, same ZooKeeper: against Curator",
            vec![
                numbers.cycle_p50("release awaited", ON_ZOOKEEPER, CURATOR, "", 0.6),
                numbers.cycle_p50(
                    "release not awaited",
                    ON_ZOOKEEPER_NOT_AWAITED,
                    CURATOR,
                    "",
                    0.6,
                ),
            ],
        ),
        target(
            "P6",
            "cycles/s, 64 tasks, same ZooKeeper: against Curator",
            vec![
                numbers.cycles("release awaited", (ON_ZOOKEEPER, CURATOR), "", 64, 1.7),
                numbers.cycles(
                    "release not awaited",
                    (ON_ZOOKEEPER_NOT_AWAITED, CURATOR),
                    "",
                    64,
                    1.7,
                ),
            ],
        ),
        target(
            "P7",
            "hand-offs/s, same ZooKeeper: against Curator",
            vec![
                numbers.hand_offs("8 clients; release awaited", 8, ON_ZOOKEEPER),
                numbers.hand_offs("8 clients; release not awaited", 8, ON_ZOOKEEPER_NOT_AWAITED),
                numbers.hand_offs("64 clients; release awaited", 64, ON_ZOOKEEPER),
                numbers.hand_offs("64 clients; release not awaited", 64, ON_ZOOKEEPER_NOT_AWAITED),
            ],
        ),
        target(
            "P8",
            "re-acquire with `linger`, same ZooKeeper: against Curator",
            vec![numbers.linger()],
        ),
        target(
            "P9",
            "acquire p50, 1 task, engine `memory`: against a loopback round trip",
            numbers.round_trips(),
        ),
        target(
            "P10",
            "same client, 256 tasks: engine `sync` against ZooKeeper",
            vec![
                numbers.raw("writes (setData)", "set_data_per_s"),
                numbers.raw("reads (getData)", "get_data_per_s"),
            ],
        ),
        target("P11", "start and memory of the engine", numbers.resources()),
        target(
            "P12",
            "watch events of one release, 1,000 waiters",
            vec![
                part(
                    "fair",
                    numbers.herd("engine, os, fair").or(numbers.herd("zookeeper, fair")),
                    Some(1.0),
                    Side::AtMost,
                ),
                part("naive", numbers.herd("engine, os, naive"), None, Side::AtMost),
            ],
        ),
        target(
            "P13",
            "one more waiter: among the most against among the fewest",
            vec![
                numbers.curve("one process, time", "engine, os, one process", TIME, Some(FLAT)),
                numbers.curve("one process, bytes", "engine, os, one process", BYTES, Some(FLAT)),
                numbers.curve("many processes, time", "engine, os, many processes", TIME, None),
                numbers.curve("many processes, bytes", "engine, os, many processes", BYTES, None),
            ],
        ),
    ]
}

const TIME: &str = "time_per_waiter_us";
const BYTES: &str = "bytes_per_waiter";

fn target(id: &'static str, what: &'static str, parts: Vec<Part>) -> Target {
    let worst = parts.iter().filter(|part| part.goal.is_some()).max_by(|a, b| {
        let distance = |part: &Part| match (part.ratio, part.goal, part.side) {
            (Some(ratio), Some(goal), Side::AtMost) => ratio / goal,
            (Some(ratio), Some(goal), Side::AtLeast) => goal / ratio,
            _ => f64::INFINITY,
        };
        distance(a).total_cmp(&distance(b))
    });
    let (ratio, goal) = worst.map_or((None, None), |part| (part.ratio, part.goal));
    let side = worst.map_or(Side::AtMost, |part| part.side);
    let met = parts.iter().all(|part| part.met);
    Target { id, what, ratio, goal, side, met, parts }
}

fn part(name: &str, ratio: Option<f64>, goal: Option<f64>, side: Side) -> Part {
    let met = match (ratio, goal, side) {
        (_, None, _) => true,
        (Some(ratio), Some(goal), Side::AtMost) => ratio <= goal,
        (Some(ratio), Some(goal), Side::AtLeast) => ratio >= goal,
        (None, Some(_), _) => false,
    };
    Part { part: name.to_owned(), ratio, goal, side, met }
}

struct Numbers<'a>(&'a Book);

impl Numbers<'_> {
    fn ratio(
        &self,
        (row, tasks, metric): (&str, usize, &str),
        ours: (&str, &str),
        theirs: (&str, &str),
    ) -> Option<f64> {
        let ours = self.0.median(row, ours, tasks, metric)?;
        let theirs = self.0.median(row, theirs, tasks, metric)?;
        // A side that got nothing done in its turns has no ratio.
        (ours > 0.0 && theirs > 0.0).then(|| ours / theirs)
    }

    fn cycle_p50(
        &self,
        name: &str,
        ours: (&str, &str),
        theirs: (&str, &str),
        suffix: &str,
        goal: f64,
    ) -> Part {
        let (a, b) = (format!("{}{suffix}", ours.1), format!("{}{suffix}", theirs.1));
        let ratio = self.ratio(("cycles", 1, "cycle_p50_us"), (ours.0, &a), (theirs.0, &b));
        part(name, ratio, Some(goal), Side::AtMost)
    }

    fn cycles(
        &self,
        name: &str,
        (ours, theirs): ((&str, &str), (&str, &str)),
        suffix: &str,
        tasks: usize,
        goal: f64,
    ) -> Part {
        let (a, b) = (format!("{}{suffix}", ours.1), format!("{}{suffix}", theirs.1));
        let ratio = self.ratio(("cycles", tasks, "cycles_per_s"), (ours.0, &a), (theirs.0, &b));
        part(name, ratio, Some(goal), Side::AtLeast)
    }

    fn hand_offs(&self, name: &str, clients: usize, ours: (&str, &str)) -> Part {
        let what = ("hand-offs", clients, "hand_offs_per_s");
        part(name, self.ratio(what, ours, CURATOR), Some(2.0), Side::AtLeast)
    }

    /// The engine and its client are on two processors; a machine that has one has one round trip.
    fn round_trips(&self) -> Vec<Part> {
        const GOAL: Option<f64> = Some(1.3);
        let acquire = self.0.median("cycles", MEMORY, 1, "acquire_p50_us");
        let against =
            |echo| Some(acquire? / self.0.median("cycles", echo, 1, "round_trip_p50_us")?);
        let round_trips =
            |how, ratio, goal| part(&format!("round trips, {how}"), ratio, goal, Side::AtMost);
        let (two, one) = (against(TWO_PROCESSORS), against(ONE_PROCESSOR));
        if two.is_none() && one.is_some() {
            return vec![round_trips("one processor", one, GOAL)];
        }
        vec![round_trips("two processors", two, GOAL), round_trips("one processor", one, None)]
    }

    fn linger(&self) -> Part {
        let ours = ("lockkeeper", "zookeeper, linger");
        let ratio = self.ratio(("reacquire", 1, "cycles_per_s"), ours, CURATOR);
        part("cycles/s", ratio, Some(100.0), Side::AtLeast)
    }

    fn raw(&self, name: &str, metric: &str) -> Part {
        let ratio = self.ratio(("raw", 256, metric), SYNC, ON_ZOOKEEPER);
        part(name, ratio, Some(10.0), Side::AtLeast)
    }

    fn herd(&self, config: &str) -> Option<f64> {
        let found = self.0.find(|key| {
            key.row == "herd" && key.config == config && key.metric == "events_per_release"
        });
        found.first().map(|entry| entry.median)
    }

    fn resources(&self) -> Vec<Part> {
        let start = self.0.median("resources", SYNC, 0, "start_ms");
        let memory = self.ratio(("resources", 0, "after_load_mib"), SYNC, ON_ZOOKEEPER);
        let contender = self.0.find(|key| key.metric == "bytes_per_contender");
        vec![
            part("start to first answer, ms", start, Some(50.0), Side::AtMost),
            part("idle memory against ZooKeeper's", memory, Some(0.05), Side::AtMost),
            part(
                "bytes per waiting contender",
                contender.first().map(|entry| entry.median),
                None,
                Side::AtMost,
            ),
        ]
    }

    fn curve(&self, name: &str, config: &str, metric: &str, goal: Option<f64>) -> Part {
        let found = self.0.of_waiters(config, metric);
        let ratio = match (found.first(), found.last()) {
            // No bytes at all among few and among many is as flat as can be.
            (Some(few), Some(many)) if few.median == 0.0 && many.median == 0.0 => Some(1.0),
            (Some(few), Some(many)) => Some(many.median / few.median),
            _ => None,
        };
        part(name, ratio, goal, Side::AtMost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(targets: &'a [Target], id: &str) -> &'a Target {
        targets.iter().find(|target| target.id == id).unwrap()
    }

    #[test]
    fn there_are_thirteen_and_none_is_met_without_numbers() {
        let targets = targets(&Book::default());
        let ids: Vec<String> = targets.iter().map(|target| target.id.to_owned()).collect();
        assert_eq!(ids, (1..=13).map(|n| format!("P{n}")).collect::<Vec<_>>());
        assert!(targets.iter().all(|target| !target.met));
    }

    #[test]
    fn a_target_is_as_good_as_its_worst_part() {
        let not_awaited = |config: &str| format!("{config}{NOT_AWAITED}");
        let (os, redis) = (not_awaited(OS.1), not_awaited(EVERYSEC.1));
        let mut numbers = vec![
            ("cycles", OS, 1, "cycle_p50_us", 80.0),
            ("cycles", EVERYSEC, 1, "cycle_p50_us", 100.0),
            ("cycles", ("lockkeeper", os.as_str()), 1, "cycle_p50_us", 66.0),
            ("cycles", ("redis", redis.as_str()), 1, "cycle_p50_us", 60.0),
        ];
        let unmet = targets(&Book::of(&numbers));
        let first = find(&unmet, "P1");
        assert_eq!((first.ratio, first.goal, first.met), (Some(1.1), Some(1.0), false));
        numbers[2].4 = 30.0;
        let met = targets(&Book::of(&numbers));
        let first = find(&met, "P1");
        assert_eq!((first.ratio, first.goal, first.met), (Some(0.8), Some(0.9), true));
    }

    #[test]
    fn p9_is_held_against_the_echo_on_as_many_processors_as_there_are() {
        let numbers = [
            ("cycles", MEMORY, 1, "acquire_p50_us", 60.0),
            ("cycles", ONE_PROCESSOR, 1, "round_trip_p50_us", 20.0),
            ("cycles", TWO_PROCESSORS, 1, "round_trip_p50_us", 50.0),
        ];
        let parts = |numbers: &[_]| {
            let targets = targets(&Book::of(numbers));
            let ninth = find(&targets, "P9");
            let part = |part: &Part| (part.part.clone(), part.ratio, part.goal);
            (ninth.ratio, ninth.met, ninth.parts.iter().map(part).collect::<Vec<_>>())
        };
        let (two, one) = ("round trips, two processors", "round trips, one processor");
        let both = vec![(two.into(), Some(1.2), Some(1.3)), (one.into(), Some(3.0), None)];
        assert_eq!(parts(&numbers), (Some(1.2), true, both));
        let alone = vec![(one.into(), Some(3.0), Some(1.3))];
        assert_eq!(parts(&numbers[..2]), (Some(3.0), false, alone));
    }
}
