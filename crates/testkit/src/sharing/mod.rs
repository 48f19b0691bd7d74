//! Programs that share data through a server and record what they learn. The same programs run in the simulation, on
//! real servers behind proxies that lose replies, and on ensembles whose servers are killed. [`crate::checker`] has the
//! invariants for these records.

pub mod barriers;
pub mod crew;
mod done;
mod editions;
pub mod groups;
pub mod ids;
mod items;
mod judge;
mod minted;
mod padded;
pub mod partitions;
pub mod pools;
pub mod publications;
pub mod queues;
mod rounds;
pub mod services;
mod things;
pub mod trees;
pub mod values;
mod views;

use std::error::Error;
use std::time::Duration;

use lockkeeper::Instant;
use tokio::time::sleep;

pub use self::done::Done;
pub(crate) use self::editions::editions_fit;
pub(crate) use self::items::{
    answers_are_true, items_are_once, keys_in_order, lower_priorities_first, no_more_than_bound,
    removed_at_most_once, taken_in_order, taken_when_due, takes_grow, woken_for_items,
};
pub(crate) use self::judge::{directories_fit, snapshots_fit, values_fit};
pub(crate) use self::minted::ids_are_once;
pub(crate) use self::rounds::{
    deaths_are_true, gates_keep, latches_are_exact, rounds_end, rounds_fit,
};
pub(crate) use self::things::{
    holders_keep_their_limits, nobody_is_overtaken_for_a_thing, things_are_wanted,
};
pub(crate) use self::views::views_fit;
use crate::history::What;

/// The environment in which such programs run.
pub trait Scene {
    /// The true time since the beginning.
    fn now(&self) -> Duration;

    /// Whether the programs are to continue.
    fn goes_on(&self) -> bool;

    /// Adds an event to the history, at the present time.
    fn note(&self, who: &str, what: What);

    /// The longest pause between two steps of a program.
    fn pace(&self) -> Duration;

    /// The true time of a reading of the program's own clock; `None` where it is unknown.
    fn true_time(&self, reading: Instant) -> Option<Duration> {
        let _ = reading;
        None
    }

    /// What the server's clock shows, in milliseconds since 1970; `None` where it is unknown.
    fn server_unix_ms(&self) -> Option<u64> {
        None
    }

    /// How many events of the queue's nodes have reached clients; `None` where they are not counted.
    fn queue_events(&self) -> Option<usize> {
        None
    }
}

/// Tries again after each such pause until it succeeds: no server may be reachable for a while.
async fn retried<T, E, F>(pause: Duration, attempt: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
{
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(_) => sleep(pause).await,
        }
    }
}

/// Whether an error reports an unknown outcome without a reason. The reason is the end of the session, or that it
/// cannot be known whether the session has ended.
pub fn is_unknown_without_reason(error: &(dyn Error + 'static), same_session: bool) -> bool {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    let text: Vec<_> = chain.map(ToString::to_string).collect();
    same_session && !text.join(": ").contains("no server could be")
}
