//! `lockkeeper leader`: shows the leader of an election.

use clap::Args;
use lockkeeper::{Election, Leader, Leaders, ZnodePath};
use serde::Serialize;

use crate::session::limited::with_limit;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{self, print_to_reader, tell};
use crate::shared::{names, view};

const NOTES: &str = "\
Prints the leader's value (elect --data), or else its name.

Exit codes: 1, no candidate leads; others: lockkeeper run --help";

/// Print the leader of an election
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct LeaderOptions {
    /// The election
    #[arg(value_parser = names::lock, value_name = "NAME")]
    name: ZnodePath,

    /// Print the leader again after each change, until Ctrl-C; an empty line while no candidate leads. With --json,
    /// one object on each line
    #[arg(long)]
    watch: bool,
}

/// The leader as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownLeader<'a> {
    election: &'a str,
    /// `null` if no candidate leads.
    id: Option<&'a str>,
    value: Option<&'a str>,
    node: Option<&'a str>,
    /// A string: it may exceed the integers that JSON readers keep exactly.
    token: Option<String>,
}

/// Prints the leader.
pub(crate) async fn leader(global: &Global, options: LeaderOptions) -> Result<u8, Failure> {
    let name = &options.name;
    let ended = with_limit(global, None, async |connection| {
        let election = Election::new(&connection.client, name.as_str())?;
        let mut leaders: Leaders =
            election.observe().await.map_err(|error| Failure::of_recipe(&error))?;
        let mut leader = leaders.current().cloned();
        loop {
            let is_read = show(global, &options, leader.as_ref())?;
            if !options.watch {
                let exit = if leader.is_some() { Exit::Ok } else { Exit::No };
                return Ok(exit.code());
            }
            if !is_read {
                return Ok(Exit::Ok.code());
            }
            leader = leaders.next().await.map_err(|error| Failure::of_recipe(&error))?;
        }
    });
    ended.await?.code(Ok)
}

/// Returns `false` if the reader has closed the pipe.
fn show(
    global: &Global,
    options: &LeaderOptions,
    leader: Option<&Leader>,
) -> Result<bool, Failure> {
    let shown = ShownLeader {
        election: options.name.as_str(),
        id: leader.map(|leader| leader.id.as_str()),
        value: leader.and_then(|leader| leader.value.as_deref()),
        node: leader.map(|leader| leader.node.as_str()),
        token: leader.map(|leader| leader.token.to_string()),
    };
    match (global.json, options.watch) {
        (true, true) => print_to_reader(&format!("{}\n", output::json(&shown)?)),
        (true, false) => output::print_json(&shown).map(|()| true),
        (false, _) => match shown.value.or(shown.id) {
            Some(text) => print_to_reader(&format!("{}\n", view::printable(text))),
            None if options.watch => print_to_reader("\n"),
            None => {
                tell(&format!("{}: no candidate leads", options.name));
                Ok(true)
            }
        },
    }
}
