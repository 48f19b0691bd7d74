//! The hot paths, each as a loop, for `cargo xtask instructions` to count.
//!
//! ```text
//!   hot-paths                     lists the paths
//!   hot-paths PATH ITERATIONS     runs one
//! ```
//!
//! Whoever counts runs a path twice, with different numbers of iterations, and takes the
//! difference: what is left is the loop alone.
//!
//! Invariant: no I/O, no clock and no randomness but the hash seeds of the standard library, so
//! that the same code makes nearly the same count.

mod acquire;
mod codec;
mod pick;
mod session;
mod tree;

use std::process::ExitCode;

use lockkeeper::Pick;

/// A path: its name, and what runs it so many times.
type Path = (&'static str, fn(u32));

const PATHS: &[Path] = &[
    ("acquire-cycle", acquire::cycle),
    ("codec-create", codec::create),
    ("codec-listing-100", codec::listing),
    ("tree-cycle", tree::cycle),
    ("tree-hand-off-64", tree::hand_off),
    ("tree-multi-64", tree::multi),
    ("pick-in-turn-100", |times| pick::run(Pick::RoundRobin, times)),
    ("pick-weighted-100", |times| pick::run(Pick::Weighted, times)),
    ("pick-of-two-100", |times| pick::run(Pick::PowerOfTwo, times)),
    ("pick-by-key-100", |times| pick::run(Pick::key("user-7"), times)),
    ("session-cycle", session::cycle),
    ("session-watch", session::watch),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        for (name, _) in PATHS {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    };
    let path = PATHS.iter().find(|(known, _)| *known == name);
    let iterations = arguments.next().and_then(|text| text.parse().ok());
    match (path, iterations) {
        (Some((_, run)), Some(iterations)) => {
            run(iterations);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: hot-paths [PATH ITERATIONS]");
            ExitCode::FAILURE
        }
    }
}
