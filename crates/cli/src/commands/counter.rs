//! `lockkeeper counter`: a number that many programs add to.

use clap::{Args, Subcommand};
use lockkeeper::overview::PathUse;
use lockkeeper::{Counter, ZnodePath};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::session::used;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::{names, output};

const ADD_NOTES: &str = "\
Each add counts once, also if the connection is lost meanwhile. Numbers that are to be given once: of add NAME N, those \
above the printed number less N, up to it.

Example: id=$(lockkeeper counter add orders)";

/// What is done with the number.
#[derive(Debug, Subcommand)]
pub(crate) enum CounterTask {
    /// Print the number
    Get(CounterName),
    /// Add to it, and print the number after that
    #[command(after_long_help = ADD_NOTES)]
    Add {
        #[command(flatten)]
        counter: CounterName,

        /// How much, which may be negative
        #[arg(default_value_t = 1, value_name = "N", allow_negative_numbers = true)]
        delta: i64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CounterName {
    /// The counter
    #[arg(value_name = "NAME", value_parser = names::lock)]
    name: ZnodePath,
}

/// The number as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct ShownCounter<'a> {
    counter: &'a str,
    value: i64,
}

/// Reads the number, or adds to it.
pub(crate) async fn counter(global: &Global, task: CounterTask) -> Result<u8, Failure> {
    let (CounterName { name }, delta) = match task {
        CounterTask::Get(counter) => (counter, None),
        CounterTask::Add { counter, delta } => (counter, Some(delta)),
    };
    let value = Connection::during(global, async |connection| {
        if delta.is_some() {
            used::check(&connection.client, &name, PathUse::Counter).await?;
        }
        let counter = Counter::new(&connection.client, name.as_str())
            .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        let value = match delta {
            None => counter.value().await,
            Some(delta) => counter.add(delta).await.map(|added| added.after),
        };
        value.map_err(|error| Failure::of_recipe(&error))
    });
    let value = value.await?;
    let shown = ShownCounter { counter: name.as_str(), value };
    output::show(global, &shown, || format!("{value}\n"))?;
    Ok(Exit::Ok.code())
}
