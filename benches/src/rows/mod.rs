//! The rows: what is done with each system.

mod cycles;
mod hand_offs;
mod herd;
mod killed;
mod raw;
mod reacquire;
mod resources;
mod shared;
mod waiters;

use anyhow::{Result, bail};
use lockkeeper::Client;

use crate::bench::Bench;

/// So many sessions, each with a connection of its own.
async fn sessions(servers: &str, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(Client::connect(servers).await?);
    }
    Ok(clients)
}

/// A row.
pub struct Row {
    /// What it is called.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
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
}

/// Every row, in the order of the report.
pub const ALL: &[Row] = &[
    row(Kind::Cycles, "cycles", "acquire and release of a lock that nobody else wants"),
    row(Kind::HandOffs, "hand-offs", "one lock that several clients want"),
    row(Kind::Herd, "herd", "watch events and time of a release with many waiters"),
    row(Kind::Reacquire, "reacquire", "a lock taken again by the same process: linger, cohort"),
    row(Kind::Shared, "shared", "read-write locks and semaphores"),
    row(Kind::Killed, "killed", "until the next one is granted after a holder is killed"),
    row(Kind::Raw, "raw", "plain reads and writes of the servers"),
    row(Kind::Waiters, "waiters", "what one more waiter costs"),
    row(Kind::Resources, "resources", "start, and memory"),
];

const fn row(kind: Kind, name: &'static str, about: &'static str) -> Row {
    Row { name, about, kind }
}

impl Row {
    pub(crate) async fn run(&self, bench: &mut Bench) -> Result<()> {
        match self.kind {
            Kind::Cycles => cycles::run(bench).await,
            Kind::HandOffs => hand_offs::run(bench).await,
            Kind::Herd => herd::run(bench).await,
            Kind::Reacquire => reacquire::run(bench).await,
            Kind::Shared => shared::run(bench).await,
            Kind::Killed => killed::run(bench).await,
            Kind::Raw => raw::run(bench).await,
            Kind::Resources => resources::run(bench).await,
            Kind::Waiters => waiters::run(bench).await,
        }
    }
}

/// The rows of these names, or all.
pub(crate) fn choose(names: &[String]) -> Result<Vec<&'static Row>> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|row| row.name != **name)) {
        let known: Vec<&str> = ALL.iter().map(|row| row.name).collect();
        bail!("there is no row {unknown}; there are {}", known.join(", "));
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_in_their_own_order() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            choose(&names).map(|rows| rows.iter().map(|row| row.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["herd", "cycles"]).unwrap(), ["cycles", "herd"]);
        assert_eq!(names(&[]).unwrap().len(), ALL.len());
        let refusal = names(&["cycle"]).unwrap_err().to_string();
        assert!(refusal.contains("no row cycle") && refusal.contains("hand-offs"), "{refusal}");
    }
}
