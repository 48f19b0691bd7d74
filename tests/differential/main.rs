//! The differential test: the same random operations on Apache ZooKeeper and on the engine, with
//! every reply, error, stat and watch event compared.
//!
//! ```text
//!   generate    random steps, from a seed        step     what a step is
//!   lockstep    takes a step on both servers     view     what was seen, made comparable
//!   known       the known differences            reaping  what goes by time
//!   encrypted    the same over TLS, with certificates
//!   connection, servers, certificates
//! ```
//!
//! `LOCKKEEPER_SEED` repeats a run, `LOCKKEEPER_OPERATIONS` sets its length;
//! `cargo xtask differential` is the long form.

mod certificates;
mod connection;
mod encrypted;
mod generate;
mod known;
mod lockstep;
mod reaping;
mod servers;
mod step;
mod view;

use std::collections::VecDeque;
use std::env;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use lockkeeper_testkit::peers::{self, Peer};

use crate::certificates::Certificates;
use crate::generate::Generator;
use crate::lockstep::Lockstep;
use crate::servers::Servers;
use crate::step::Step;

const OPERATIONS: u64 = 100_000;
const ENCRYPTED_OPERATIONS: u64 = 10_000;
const SESSIONS: usize = 6;
/// How many of the last steps a failure shows.
const SHOWN: usize = 12;

#[test]
fn random_operations_are_answered_alike() -> Result<()> {
    if !peers::ready("differential", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let seed = setting("LOCKKEEPER_SEED")?.unwrap_or_else(|| fastrand::u64(..));
    let operations = setting("LOCKKEEPER_OPERATIONS")?.unwrap_or(OPERATIONS);
    println!("LOCKKEEPER_SEED={seed} LOCKKEEPER_OPERATIONS={operations}");
    compare(&Servers::start(servers::NEVER)?, seed, operations)
}

#[test]
fn tls_and_certificates_are_taken_alike() -> Result<()> {
    if !peers::ready("differential: TLS", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let seed = setting("LOCKKEEPER_SEED")?.unwrap_or_else(|| fastrand::u64(..));
    println!("LOCKKEEPER_SEED={seed}");
    let certificates = Certificates::new()?;
    let servers = Servers::start_with_tls(&certificates)?;
    encrypted::run(&servers, &certificates)?;
    compare(&servers, seed, ENCRYPTED_OPERATIONS)
}

/// Random operations on both.
fn compare(servers: &Servers, seed: u64, operations: u64) -> Result<()> {
    let mut world = Lockstep::new(servers, SESSIONS);
    let mut generator = Generator::new(seed, SESSIONS, servers.version());
    let mut last = VecDeque::with_capacity(SHOWN);
    let since = Instant::now();
    while world.operations < operations {
        let step = generator.next(&mut world);
        let result = world.take(&step);
        last.push_back(step);
        result.map_err(|e| failure(seed, world.operations, &last, &e))?;
        if last.len() == SHOWN {
            last.pop_front();
        }
    }
    println!("errors, and how often: {:?}", world.errors);
    let rate = world.operations as f64 / since.elapsed().as_secs_f64();
    println!("{} operations, no difference, {rate:.0} a second", world.operations);
    Ok(())
}

#[test]
fn containers_and_ttl_nodes_are_reaped_alike() -> Result<()> {
    if !peers::ready("differential: reaping", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let servers = Servers::start(reaping::INTERVAL)?;
    reaping::run(&mut Lockstep::new(&servers, 1))
}

/// Everything up to the failing step is a run of its own: the shortest one that shows it.
fn failure(
    seed: u64,
    operations: u64,
    last: &VecDeque<Step>,
    error: &anyhow::Error,
) -> anyhow::Error {
    let steps: Vec<String> = last.iter().map(|step| format!("  {step:?}")).collect();
    anyhow!(
        "a difference after {operations} operations; to repeat:\n\
         LOCKKEEPER_SEED={seed} LOCKKEEPER_OPERATIONS={operations} \
         cargo test --package lockkeeper-tests --test differential\n\
         the last steps:\n{}\n{error:#}",
        steps.join("\n")
    )
}

fn setting<T: FromStr<Err: Display>>(name: &str) -> Result<Option<T>> {
    let Ok(text) = env::var(name) else { return Ok(None) };
    let value = text.parse().map_err(|e| anyhow!("{e}"));
    value.map(Some).with_context(|| format!("{name}={text}"))
}
