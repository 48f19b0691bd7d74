//! `lockkeeper id`: unique 64-bit ids in the order of time.

use clap::Args;
use lockkeeper::overview::PathUse;
use lockkeeper::{WorkerIds, ZnodePath};
use serde::Serialize;

use crate::session::limited::{Limit, with_limit};
use crate::session::path_use;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::tell;
use crate::shared::{names, output};

/// The maximum number of ids of one call.
const MAX_COUNT: u32 = 1_000_000;

const NOTES: &str = "\
An id is a number of at most 63 bits that no other call for the same NAME prints, on any machine. The ids of one call \
increase, and those of a later call are nearly always larger: of two calls at the same time, either may print the \
smaller ones. The layout is that of Snowflake: 41 bits for the time in milliseconds, 10 for a worker number, and 12 \
for a sequence.

Each call acquires a worker number and releases it, which costs a few round trips. A script that needs many ids should \
call it once, with --count. For small consecutive numbers, use lockkeeper counter add.

Examples:
  order=$(lockkeeper id orders)
  lockkeeper id orders --count 1000 > ids
  lockkeeper id orders --count 3 --json | jq -r '.ids[]'

Exit codes: 0; 1, no worker number was free within the time of -w; others: lockkeeper run --help";

/// Print unique ids in the order of time
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct IdOptions {
    /// The namespace: ids of the same name are all different
    #[arg(value_name = "NAME", value_parser = names::lock)]
    name: ZnodePath,

    /// The number of ids
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    count: u32,

    #[command(flatten)]
    limit: Limit,
}

/// The ids as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownIds<'a> {
    name: &'a str,
    /// Strings: they exceed the integers that JSON readers keep exactly.
    ids: Vec<String>,
}

/// Prints ids.
pub(crate) async fn id(global: &Global, options: IdOptions) -> Result<u8, Failure> {
    let IdOptions { name, count, limit } = options;
    let time = limit.time.filter(|_| !limit.is_none());
    let ended = with_limit(global, time, async |connection| {
        path_use::check(&connection.client, &name, PathUse::Ids).await?;
        let failed = |error| Failure::of_recipe(&error);
        let workers = WorkerIds::new(&connection.client, name.as_str()).map_err(failed)?;
        let worker = match limit.is_none() {
            true => workers.try_acquire().await.map_err(failed)?,
            false => Some(workers.acquire().await.map_err(failed)?),
        };
        let Some(worker) = worker else { return Ok(None) };
        let mut ids = Vec::new();
        // Mint all ids before the first is written: a slow reader must not keep a worker number.
        for _ in 0..count {
            ids.push(worker.next().await.map_err(|error| Failure::of_recipe(&error))?.to_string());
        }
        // Otherwise, the worker number is released when the session ends.
        let _ = worker.release().await;
        Ok(Some(ids))
    });
    ended.await?.code(|ids| {
        let Some(ids) = ids else {
            tell(&format!("all worker numbers of {name} are in use"));
            return Ok(Exit::No.code());
        };
        let shown = ShownIds { name: name.as_str(), ids };
        output::show(global, &shown, || shown.ids.iter().map(|id| format!("{id}\n")).collect())?;
        Ok(Exit::Ok.code())
    })
}
