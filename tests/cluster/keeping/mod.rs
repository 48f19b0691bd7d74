//! No healthy holder loses its lock.
//!
//! A grant looks at a lease that was proven when the contender's node was created, so it may be old
//! by the time that the lock is granted. Each case takes one kind of lock after some share of a
//! lease (behind another holder, in an idle process, during a lock delay), and then holds it for
//! three leases on a healthy server. The lock must never be lost, and its deadline must always lie
//! in the future.
//!
//! | file | what |
//! |---|---|
//! | `kinds` | the kinds of locks, in the library and in the command |
//! | `scene` | what one case has to itself, how it waits, and how it holds |
//! | `servers` | the engine and a ZooKeeper with the tick of a round, and how fast they answer |
//! | `cases` | cases side by side; those that fail run again, alone; and the table |
//!
//! As a test, a few shares of short leases run. `cargo xtask keeping` runs all of them.

mod cases;
mod kinds;
mod scene;
mod servers;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use lockkeeper::LeaseMode;
use lockkeeper_testkit::command;

use self::kinds::{How, KINDS, KeptKind};
use self::servers::KeepingServer;

#[derive(Args)]
pub(crate) struct KeepingOptions {
    /// Session timeouts and server ticks, in seconds.
    #[arg(long, value_delimiter = ',', value_parser = parse_form,
        default_value = "4/0.4,4/2,6/2,10/2")]
    form: Vec<KeepingForm>,
    /// Shares of a lease, in percent. A grant is content with half a lease, so the oldest leases are those
    /// just under 50 %.
    #[arg(long, value_delimiter = ',', default_values_t = (0..=150).step_by(5).chain([48]))]
    share: Vec<u32>,
    /// Only the kinds of locks that have this in their name in the table.
    #[arg(long, default_value = "")]
    only: String,
}

/// A session timeout, and the tick of the servers. A lease is the shorter a share of the timeout
/// the longer the tick is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeepingForm {
    timeout: Duration,
    tick: Duration,
}

/// Reads `10/2` or `4/0.4`.
fn parse_form(text: &str) -> Result<KeepingForm> {
    let (timeout, tick) = text.split_once('/').context("write a form as TIMEOUT/TICK")?;
    let seconds = |text: &str| anyhow::Ok(Duration::try_from_secs_f64(text.parse()?)?);
    let form = KeepingForm { timeout: seconds(timeout)?, tick: seconds(tick)? };
    ensure!(form.timeout >= form.tick * 2, "servers grant no session of less than two ticks");
    Ok(form)
}

impl fmt::Display for KeepingForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timeout {:?}, tick {:?}", self.timeout, self.tick)
    }
}

/// Each of these kinds, in each mode, after each share of a lease.
struct Part {
    kinds: Vec<&'static KeptKind>,
    modes: &'static [LeaseMode],
    /// In percent of a lease.
    shares: Vec<u32>,
}

/// One lock, taken after one share of a lease.
#[derive(Clone)]
struct Case {
    kind: &'static KeptKind,
    server: Arc<KeepingServer>,
    mode: LeaseMode,
    /// In percent of a lease.
    share: u32,
    /// What became of the attempt before, which failed.
    before: Option<String>,
}

const QUORUM: &[LeaseMode] = &[LeaseMode::Quorum];
const DIRECT: &[LeaseMode] = &[LeaseMode::Direct];
const BOTH: &[LeaseMode] = &[LeaseMode::Quorum, LeaseMode::Direct];

/// What `cargo test` runs.
///
/// Two proportions of timeout and tick: the shortest session that servers grant, and that of
/// the defaults. The tick makes no difference to a direct lease. The first is a longer session,
/// as its lease is so small a share of it that a short standstill of a busy machine costs it.
pub(crate) async fn short() -> Result<()> {
    let part = |is_wanted: fn(&How) -> bool, modes, shares: &[u32]| Part {
        kinds: KINDS.iter().filter(|kind| is_wanted(&kind.how)).collect(),
        modes,
        shares: shares.to_vec(),
    };
    let library = |how: &How| matches!(how, How::Library(_));
    let command = |how: &How| matches!(how, How::Command(_));
    let shortest = [part(library, QUORUM, &[20, 30, 40, 45, 50])];
    let default = [
        part(library, QUORUM, &[0, 20, 30, 40, 50, 100]),
        part(library, DIRECT, &[20, 30, 40, 50]),
        part(command, BOTH, &[20, 30, 40, 50]),
    ];
    let (shortest, default) = tokio::try_join!(
        play(parse_form("8/4")?, &shortest),
        play(parse_form("4/0.8")?, &default)
    )?;
    judge(shortest + default)
}

impl KeepingOptions {
    pub(crate) async fn run(&self) -> Result<()> {
        let kinds: Vec<_> = KINDS.iter().filter(|kind| kind.name.contains(&self.only)).collect();
        ensure!(!kinds.is_empty(), "no kind of lock has this in its name");
        let parts = [Part { kinds, modes: BOTH, shares: self.share.clone() }];
        let mut failed = 0;
        for &form in &self.form {
            failed += play(form, &parts).await?;
        }
        judge(failed)
    }
}

fn judge(failed: usize) -> Result<()> {
    ensure!(failed == 0, "{failed} cases failed on healthy servers, see above");
    Ok(())
}

/// Runs what has the same servers, and prints its table; returns how many cases failed.
async fn play(form: KeepingForm, parts: &[Part]) -> Result<usize> {
    // Built by now, and not in the middle of a case.
    command::lockkeeper()?;
    let servers = servers::start(form).await?;
    let mut cases = Vec::new();
    for Part { kinds, modes, shares } in parts {
        for &share in shares {
            for (&kind, &mode) in
                kinds.iter().flat_map(|kind| modes.iter().map(move |it| (kind, it)))
            {
                cases.extend(servers.iter().map(|server| {
                    let server = Arc::clone(server);
                    Case { kind, server, mode, share, before: None }
                }));
            }
        }
    }
    let start = Instant::now();
    let outcomes = cases::all(cases, form).await;
    let (count, took) = (outcomes.len(), start.elapsed().as_secs_f64());
    println!("\n{form}: {count} cases, {took:.0} s\n{}", cases::page(&outcomes, &servers));
    Ok(outcomes.iter().filter(|outcome| outcome.has_failed()).count())
}
