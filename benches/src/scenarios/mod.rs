//! The scenarios: what is done with each system.

mod barriers;
mod caches;
mod counters;
mod elections;
mod groups;
mod herd;
mod killed;
mod locks;
mod partitions;
mod picks;
mod publish;
mod queues;
mod raw;
mod reacquire;
mod resources;
mod shared;
mod waiters;

use std::future::Future;
use std::pin::Pin;

use anyhow::{Result, bail};

use crate::bench::Bench;

/// A scenario.
pub(crate) struct Scenario {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) about: &'static str,
    /// What its numbers count many of.
    pub(crate) counted: &'static str,
    /// Measures it.
    pub(crate) run: for<'a> fn(&'a mut Bench) -> Measuring<'a>,
}

type Measuring<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

macro_rules! scenarios {
    ($($name:literal: $about:literal, by $counted:literal => $run:path;)*) => {
        &[$(Scenario {
            name: $name,
            about: $about,
            counted: $counted,
            run: |bench| Box::pin($run(bench)),
        }),*]
    };
}

/// Every scenario, in the order of the report.
pub(crate) const ALL: &[Scenario] = scenarios! {
    "cycles": "acquire and release of a lock that nobody else wants", by "task" => locks::cycles;
    "hand-offs": "one lock that several clients want", by "client" => locks::hand_offs;
    "herd": "watch events and time of a release with many waiters", by "waiter" => herd::run;
    "reacquire": "a lock taken again by the same process: linger, cohort", by "task" => reacquire::run;
    "shared": "read-write locks and semaphores", by "task" => shared::run;
    "killed": "until the next one is granted after a holder is killed", by "task" => killed::run;
    "raw": "plain reads and writes of the servers", by "task" => raw::run;
    "waiters": "what one more waiter costs", by "waiter" => waiters::run;
    "cache": "a part of the tree in memory: until it is complete, and until a change is seen",
        by "node" => caches::run;
    "counter": "one number that everybody adds to", by "task" => counters::run;
    "publish": "one value is written, until the last of its subscribers in ten processes has it",
        by "subscriber" => publish::run;
    "election": "until the next one leads, and the watch events of a change of leader",
        by "candidate" => elections::run;
    "group": "what is sent to each who sees a group when one more joins", by "member" => groups::run;
    "queue": "items of a queue, from the put until they are recorded as done", by "consumer" => queues::run;
    "queue-keys": "items of a thousand keys, from the first take until all are done", by "consumer" => queues::keys;
    "queue-size": "what a put, a take and an end cost in a long queue", by "item" => queues::sizes;
    "barrier": "rounds of a double barrier, which all parties enter and leave together",
        by "party" => barriers::run;
    "partitions": "items that members share, when one of them leaves", by "member" => partitions::run;
    "picks": "the choice of the instance that a call goes to", by "instance" => picks::run;
    "resources": "start, and memory", by "of them" => resources::run;
};

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
