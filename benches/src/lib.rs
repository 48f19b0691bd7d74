//! Lockkeeper beside its peers, measured in one run.
//!
//! ```text
//!   bench      Bench: one run; interleaves the systems, round after round
//!   settings   how long, how often, how many: a quick run or a full one
//!   system     what is measured: a lock on a server, in one configuration
//!   tail       the slowest cycles, of the engine and Redis in turns, and what syncs met
//!   rows       one file per row: what is done with each system
//!   locks      the peers' locks, behind measure::Lock
//!   measure    cycles, hand-offs and percentiles of anything that is a lock
//!   peers      the servers and programs, started when a row first asks for them
//!   tap        a relay that counts bytes and watch events
//!   machine    what the run ran on, and the processor time that it used
//!   floors     what the machine itself allows: a round trip, a record on the disk
//!   book       every number, and its median, least and greatest
//!   targets    P1 to P13: ratios of numbers of the same run
//!   report     results.json, the page, the charts
//! ```
//!
//! Invariants: a ratio is only ever taken of numbers of one run; whatever could not be measured is
//! in the report, with the reason; and nothing that was started survives this process.

pub mod bench;
pub mod book;
pub mod children;
mod floors;
mod locks;
mod machine;
pub mod measure;
mod peers;
mod report;
pub mod rows;
pub mod settings;
mod system;
pub mod tail;
mod tap;
mod targets;
