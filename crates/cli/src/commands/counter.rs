//! `lockkeeper counter`: a number that many programs increment.

use clap::{Args, Subcommand};
use lockkeeper::overview::PathUse;
use lockkeeper::{Counter, ZnodePath};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::session::path_use;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::{names, output};

const ADD_NOTES: &str = "\
Each add counts exactly once, even if the connection is lost in between. To allocate N unique numbers, use add NAME \
N: they are the N numbers up to and including the printed one.

Example: id=$(lockkeeper counter add orders)";

/// A subcommand of `counter`.
#[derive(Debug, Subcommand)]
pub(crate) enum CounterTask {
    /// Print the number
    Get(CounterName),
    /// Add to the number, and print the result
    #[command(after_long_help = ADD_NOTES)]
    Add {
        #[command(flatten)]
        counter: CounterName,

        /// The amount; may be negative
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

/// The number as JSON. The field names are stable.
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
            path_use::check(&connection.client, &name, PathUse::Counter).await?;
        }
        let counter = Counter::new(&connection.client, name.as_str())
            .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        let value = match delta {
            None => counter.value().await,
            Some(delta) => counter.add(delta).await.map(|added| added.after),
        };
        let value = value.map_err(|error| Failure::of_recipe(&error));
        path_use::explained(&connection.client, &name, PathUse::Counter, value).await
    });
    let value = value.await?;
    let shown = ShownCounter { counter: name.as_str(), value };
    output::show(global, &shown, || format!("{value}\n"))?;
    Ok(Exit::Ok.code())
}
