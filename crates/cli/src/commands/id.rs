//! `lockkeeper id`: 64-bit ids that come once, in the order of time.

use clap::Args;
use lockkeeper::overview::PathUse;
use lockkeeper::{WorkerIds, ZnodePath};
use serde::Serialize;

use crate::session::lasting::{Limit, lasting};
use crate::session::used;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::tell;
use crate::shared::{names, output};

/// More are minted a part at a time.
const MOST: u32 = 1_000_000;

const NOTES: &str = "\
An id is a number of 63 bits at most that no other call prints, on any machine, for the same NAME. The ids of one call \
grow, and those of a later call are nearly always larger: of two calls at the same moment, either may have the smaller ones. \
The layout is that of Snowflake: 41 bits for the time in milliseconds, 10 for a worker number, and 12 for a sequence.

Each call takes a worker number and gives it back, which costs a few round trips. A script that needs many ids calls it \
once, with --count. For small numbers without gaps in a row, use lockkeeper counter add.

Examples:
  order=$(lockkeeper id orders)
  lockkeeper id orders --count 1000 > ids
  lockkeeper id orders --count 3 --json | jq -r '.ids[]'

Exit codes: 0; 1, all worker numbers were taken for the time of -w; others: lockkeeper run --help";

/// Print ids that come once, in the order of time
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct IdOptions {
    /// What they are for: ids of the same name are all different
    #[arg(value_name = "NAME", value_parser = names::lock)]
    name: ZnodePath,

    /// How many
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    count: u32,

    #[command(flatten)]
    limit: Limit,
}

/// The ids as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct ShownIds<'a> {
    name: &'a str,
    /// As text: they are larger than what some readers keep exactly.
    ids: Vec<String>,
}

/// Prints ids.
pub(crate) async fn id(global: &Global, options: IdOptions) -> Result<u8, Failure> {
    let IdOptions { name, count, limit } = options;
    let time = limit.time.filter(|_| !limit.is_none());
    let ended = lasting(global, time, async |connection| {
        used::check(&connection.client, &name, PathUse::Ids).await?;
        let failed = |error| Failure::of_recipe(&error);
        let workers = WorkerIds::new(&connection.client, name.as_str()).map_err(failed)?;
        let worker = match limit.is_none() {
            true => workers.try_acquire().await.map_err(failed)?,
            false => Some(workers.acquire().await.map_err(failed)?),
        };
        let Some(worker) = worker else { return Ok(None) };
        let mut ids = Vec::new();
        // All of them before the first is written: a reader that is slow keeps no number.
        for _ in 0..count {
            ids.push(worker.next().await.map_err(|error| Failure::of_recipe(&error))?.to_string());
        }
        // It ends with the session otherwise.
        let _ = worker.release().await;
        Ok(Some(ids))
    });
    ended.await?.code(|ids| {
        let Some(ids) = ids else {
            tell(&format!("all worker numbers of {name} are taken"));
            return Ok(Exit::No.code());
        };
        let shown = ShownIds { name: name.as_str(), ids };
        output::show(global, &shown, || shown.ids.iter().map(|id| format!("{id}\n")).collect())?;
        Ok(Exit::Ok.code())
    })
}
