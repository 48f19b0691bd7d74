//! Waits in the queue for the lock.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use lockkeeper::overview::PathUse;
use lockkeeper::{AcquireError, Client, LossReason, ZnodePath, graph};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::events::{Event, Events};
use super::lock::{Held, Lock};
use super::parent_lock;
use super::watchdog::Watchdog;
use crate::session::connect::Connection;
use crate::session::waiting::WaitOptions;
use crate::session::{nested, path_use, waiting};
use crate::shared::exit::{Exit, Failure};
use crate::shared::output::tell;
use crate::shared::signals::Signals;
use crate::shared::view;

/// How many things of a pool are listed with their holders.
const MAX_SHOWN: usize = 3;

/// How a wait ended.
#[derive(Debug)]
pub(super) enum WaitOutcome {
    Held(Box<Held>),
    Conflict,
    Signal(Signal),
}

/// Waits for the lock, unless it can never be acquired. Without a grant, no place in the queue is left: dropping the
/// attempt gives it up, and closing the session deletes the node.
pub(super) async fn acquire(
    connection: &Connection,
    lock: &Lock,
    wait: WaitOptions,
    signals: &mut Signals,
    watchdog: &mut Watchdog,
    events: &Events,
) -> Result<WaitOutcome, Failure> {
    let client = &connection.client;
    if wait.limit.is_none() {
        for path in lock.paths() {
            nested::check(connection, path, |outer| lock.goes_together_with(outer)).await?;
        }
    }
    let checks = async {
        for path in lock.paths() {
            parent_lock::check(client, path).await?;
        }
        lock.check_layout(client).await?;
        lock.check_delay(client).await
    };
    let attempt = async {
        match wait.limit {
            Some(Duration::ZERO) => {
                checks.await?;
                at_once(lock).await.map_err(|error| lock.failure(error))
            }
            limit => within(lock, limit, connection, checks, watchdog).await,
        }
    };
    let notice = async {
        sleep(waiting::NOTICE_DELAY).await;
        if !wait.quiet || events.are_written() {
            let holder = holder(client, lock).await;
            events.write(Event::Waiting { holder: holder.as_deref() });
            if !wait.quiet {
                tell(&format!("waiting for {}{}", lock.name(), holder.unwrap_or_default()));
            }
        }
        pending::<Infallible>().await
    };
    let attempt = async {
        if !wait.detects_deadlocks {
            return attempt.await.map(Some);
        }
        match graph::unless_deadlocked(client, &ZnodePath::root(), attempt).await {
            Ok(outcome) => outcome.map(Some),
            Err(deadlock) => {
                tell(&view::printable(&format!("{deadlock}; gave up waiting for {}", lock.name())));
                Ok(None)
            }
        }
    };
    let outcome = tokio::select! {
        outcome = attempt => match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(WaitOutcome::Conflict),
            Err(failure) => return Err(explained(with_way_out(failure, connection), lock, client).await),
        },
        failure = connection.keep_engine() => return Err(failure),
        signal = signals.next_of_wait() => WaitOutcome::Signal(signal),
        never = notice => match never {},
    };

    match outcome {
        WaitOutcome::Conflict => {
            connection.still_there(&lock.name())?;
            if !wait.quiet {
                let holder = holder(client, lock).await.unwrap_or_default();
                let wait_for_it = match wait.limit {
                    Some(Duration::ZERO) if lock.delay_left().is_some() => {
                        "; to wait for it, run without -n or with a longer -w"
                    }
                    _ => "",
                };
                let is = if lock.paths().len() > 1 { "are not all" } else { "is not" };
                tell(&format!("{} {is} free{holder}{wait_for_it}", lock.name()));
            }
        }
        WaitOutcome::Held(_) | WaitOutcome::Signal(_) => {}
    }
    Ok(outcome)
}

/// Adds advice: the disk of this machine's engine is on this machine.
fn with_way_out(failure: Failure, connection: &Connection) -> Failure {
    match failure.code() == Exit::CannotCreate.code() && connection.engine.is_some() {
        true => failure.advise("see lockkeeper local status, and free disk space"),
        false => failure,
    }
}

/// Names the recipe that uses one of the paths, if it is another one.
async fn explained(mut failure: Failure, lock: &Lock, client: &Client) -> Failure {
    let wanted = match lock {
        Lock::OneOf(_) => PathUse::Pool,
        _ => PathUse::Lock,
    };
    for path in lock.paths() {
        failure = path_use::explain(client, path, wanted, failure).await;
    }
    failure
}

async fn at_once(lock: &Lock) -> Result<WaitOutcome, AcquireError> {
    Ok(lock.try_acquire().await?.map_or(WaitOutcome::Conflict, held))
}

fn held(guard: Held) -> WaitOutcome {
    WaitOutcome::Held(Box::new(guard))
}

async fn within(
    lock: &Lock,
    limit: Option<Duration>,
    connection: &Connection,
    checks: impl Future<Output = Result<(), Failure>>,
    watchdog: &mut Watchdog,
) -> Result<WaitOutcome, Failure> {
    let acquired = async {
        checks.await?;
        in_line(lock, limit, connection, watchdog).await.map_err(|error| lock.failure(error))
    };
    tokio::select! {
        guard = acquired => Ok(held(guard?)),
        () = waiting::over(limit) => Ok(WaitOutcome::Conflict),
    }
}

/// Joins the queue again if the session expired and its node with it, for example while the machine was suspended. Also
/// after an outage, if a time limit ends the wait.
async fn in_line(
    lock: &Lock,
    limit: Option<Duration>,
    connection: &Connection,
    watchdog: &mut Watchdog,
) -> Result<Held, AcquireError> {
    let client = &connection.client;
    let path = lock.paths()[0];

    loop {
        match lock.acquire().await {
            Err(error) if is_lost_with_session(&error) => {
                tell(&format!(
                    "the place in the queue for {} was lost with its session; joining again",
                    lock.name()
                ));
                // This waits for the next session, across lost connections. If it fails permanently, the next step
                // fails as well.
                while let Err(error) = client.exists(path).await
                    && waiting::is_passing(&error)
                {
                    sleep(waiting::LOOK_AGAIN).await;
                }
            }
            Err(error) if limit.is_some() && is_outage(&error) => {
                client.reachable().await;
                sleep(waiting::LOOK_AGAIN).await;
            }
            result => return result,
        }
        watchdog.follow(connection);
    }
}

/// Whether the only cause is servers that could not be reached, or that lost the connection each time.
fn is_outage(error: &AcquireError) -> bool {
    match error {
        AcquireError::Unreachable { .. } | AcquireError::GaveUp { .. } => true,
        AcquireError::Servers { .. } => error.is_retryable(),
        _ => false,
    }
}

/// Whether the place in the queue was lost with its session, while waiting or at the front of the queue.
fn is_lost_with_session(error: &AcquireError) -> bool {
    use LossReason::{DeadlinePassed, SessionExpired};
    match error {
        AcquireError::SessionExpired { .. } => true,
        AcquireError::Lost { reason, .. } => matches!(reason, SessionExpired | DeadlinePassed),
        _ => false,
    }
}

/// ", held by ..."; `None` if the queue cannot be read now. For several locks, the first one that another program
/// holds: "; /a is not free, held by ...".
async fn holder(client: &Client, lock: &Lock) -> Option<String> {
    if let Lock::OneOf(pool) = lock {
        let report = timeout(waiting::NOTICE_DELAY, pool.inspect()).await.ok()?.ok()?;
        let held = report.held.iter().map(|thing| match &thing.info {
            Some(info) => format!("{} by {}", thing.name, view::program(info)),
            None => thing.name.clone(),
        });
        let shown: Vec<_> = held.take(MAX_SHOWN).collect();
        let more = report.held.len() - shown.len();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        return (!shown.is_empty()).then(|| format!("; held: {}{more}", shown.join(", ")));
    }
    let paths = lock.paths();
    if let [path] = paths[..] {
        return holder_of(client, lock, path).await;
    }
    for path in paths {
        let mut queue = waiting::queue(client, path).await?;
        if queue.holders().any(|entry| entry.session == client.session_id()) {
            // A lock delay may still be pending.
            queue.entries.clear();
        }
        if !view::is_free(&queue) {
            return Some(format!("; {path} is not free{}", view::held_by(&queue)));
        }
    }
    None
}

async fn holder_of(client: &Client, lock: &Lock, path: &ZnodePath) -> Option<String> {
    let queue = waiting::queue(client, path).await?;
    let is_our_turn = queue.holders().any(|entry| entry.session == client.session_id());
    if is_our_turn {
        let what = ", which no program holds: waiting for proof that this session is alive, or that its servers \
                    are one service";
        return Some(what.to_owned());
    }
    match (&queue.delay, lock.delay_left()) {
        (Some(delay), Some(left)) => {
            let (vanished, delay) = (view::vanished(delay), view::lock_delay(delay));
            let left = view::duration(left);
            Some(format!(": {vanished}, and {left} of its {delay} are left"))
        }
        _ => Some(view::held_by(&queue)),
    }
}
