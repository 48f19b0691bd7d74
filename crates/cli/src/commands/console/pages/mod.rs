//! What each page shows. A page is made from the newest model, so that it costs the servers nothing; those of a queue and of
//! the servers ask.

mod first;
mod graph;
mod history;
mod line;
mod lock;
mod locks;
mod parts;
mod picture;
mod programs;
mod queue;
mod recipes;
mod servers;

pub(super) use first::first;
pub(super) use graph::graph;
pub(super) use history::history;
pub(super) use lock::lock;
pub(super) use locks::locks;
pub(super) use programs::programs;
pub(super) use queue::{open as open_queue, queue};
pub(super) use recipes::recipes;
pub(super) use servers::servers;
