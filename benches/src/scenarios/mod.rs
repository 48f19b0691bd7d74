//! The scenarios: what is done with each system.

mod caches;
mod counters;
mod elections;
mod herd;
mod killed;
mod locks;
mod picks;
mod publish;
mod queue;
mod raw;
mod reacquire;
mod resources;
mod shared;
mod waiters;

use anyhow::{Result, bail};

use crate::bench::Bench;

/// A scenario.
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// What its numbers count many of.
    pub(crate) counted: &'static str,
    kind: Kind,
}

/// Which file measures it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Cycles,
    HandOffs,
    Herd,
    Reacquire,
    Shared,
    Killed,
    Raw,
    Resources,
    Waiters,
    Cache,
    Counter,
    Publish,
    Election,
    Picks,
}

/// Every scenario, in the order of the report.
pub const ALL: &[Scenario] = &[
    scenario(
        Kind::Cycles,
        "cycles",
        "task",
        "acquire and release of a lock that nobody else wants",
    ),
    scenario(Kind::HandOffs, "hand-offs", "client", "one lock that several clients want"),
    scenario(Kind::Herd, "herd", "waiter", "watch events and time of a release with many waiters"),
    scenario(
        Kind::Reacquire,
        "reacquire",
        "task",
        "a lock taken again by the same process: linger, cohort",
    ),
    scenario(Kind::Shared, "shared", "task", "read-write locks and semaphores"),
    scenario(
        Kind::Killed,
        "killed",
        "task",
        "until the next one is granted after a holder is killed",
    ),
    scenario(Kind::Raw, "raw", "task", "plain reads and writes of the servers"),
    scenario(Kind::Waiters, "waiters", "waiter", "what one more waiter costs"),
    scenario(
        Kind::Cache,
        "cache",
        "node",
        "a part of the tree in memory: until it is complete, and until a change is seen",
    ),
    scenario(Kind::Counter, "counter", "task", "one number that everybody adds to"),
    scenario(
        Kind::Publish,
        "publish",
        "subscriber",
        "one value is written, until the last of its subscribers in ten processes has it",
    ),
    scenario(
        Kind::Election,
        "election",
        "candidate",
        "until the next one leads, and the watch events of a change of leader",
    ),
    scenario(Kind::Picks, "picks", "instance", "the choice of the instance that a call goes to"),
    scenario(Kind::Resources, "resources", "of them", "start, and memory"),
];

const fn scenario(
    kind: Kind,
    name: &'static str,
    counted: &'static str,
    about: &'static str,
) -> Scenario {
    Scenario { name, about, counted, kind }
}

impl Scenario {
    pub(crate) async fn run(&self, bench: &mut Bench) -> Result<()> {
        match self.kind {
            Kind::Cycles => locks::cycles(bench).await,
            Kind::HandOffs => locks::hand_offs(bench).await,
            Kind::Herd => herd::run(bench).await,
            Kind::Reacquire => reacquire::run(bench).await,
            Kind::Shared => shared::run(bench).await,
            Kind::Killed => killed::run(bench).await,
            Kind::Raw => raw::run(bench).await,
            Kind::Resources => resources::run(bench).await,
            Kind::Waiters => waiters::run(bench).await,
            Kind::Cache => caches::run(bench).await,
            Kind::Counter => counters::run(bench).await,
            Kind::Publish => publish::run(bench).await,
            Kind::Election => elections::run(bench).await,
            Kind::Picks => picks::run(bench).await,
        }
    }
}

/// The scenarios of these names, or all.
pub(crate) fn choose(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|known| known.name != **name)) {
        let known: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        bail!("there is no scenario {unknown}; there are {}", known.join(", "));
    }
    let is_wanted =
        |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(ALL.iter().filter(is_wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_name_in_their_own_order() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            choose(&names).map(|chosen| chosen.iter().map(|it| it.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["herd", "cycles"]).unwrap(), ["cycles", "herd"]);
        assert_eq!(names(&[]).unwrap().len(), ALL.len());
        let refusal = names(&["cycle"]).unwrap_err().to_string();
        assert!(
            refusal.contains("no scenario cycle") && refusal.contains("hand-offs"),
            "{refusal}"
        );
    }
}
