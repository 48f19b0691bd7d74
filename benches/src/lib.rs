//! Lockkeeper beside its peers, measured in one run.
//!
//! ```text
//!   run        one run, from the look at the machine to the page
//!   report     results.json, the page, the charts; the targets described once
//!   tail       the slowest cycles, of the engine and Redis in turns, and what syncs met
//!   scenarios  what is done with each system
//!   bench      Bench: interleaves the systems, round after round, and notes their numbers
//!   machine    what the run ran on, and the processor time that it used
//!   baselines  what the machine itself allows: a round trip, a record on the disk
//!   peers      the servers and programs, started when a scenario first asks for them
//!   children   what this program does as a child of itself
//!   counters, subscribers  what such children do to a counter and a value
//!   orders     what programs that measure for us answer, in whatever language
//!   settings   how long, how often, how many: a quick run or a full one
//!   system     what is measured: a lock on a server, in one configuration
//!   locks      the peers' locks, behind measure::Lock
//!   measure    cycles, hand-offs and percentiles of anything that is a lock
//!   results    every number, and its median, least and greatest
//!   tap        a relay that counts bytes and watch events
//!   memory     the memory of a process
//!   processors which processor a thread runs on
//! ```
//!
//! Invariants: a ratio is only ever taken of numbers of one run; whatever could not be measured is
//! in the report, with the reason; and nothing that was started survives this process.

mod baselines;
mod bench;
pub mod children;
mod counters;
mod locks;
mod machine;
pub mod measure;
mod memory;
mod orders;
mod peers;
mod processors;
mod report;
pub mod results;
pub mod run;
pub mod scenarios;
pub mod settings;
mod subscribers;
mod system;
pub mod tail;
mod tap;
