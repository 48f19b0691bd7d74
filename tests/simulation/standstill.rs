//! Programs that stood still, and then want a lock that no other program has.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{AcquireError, Client};
use lockkeeper_testkit::history::{Share, What};
use lockkeeper_testkit::locks::{Design, Held, Lock, Sharing, Wait};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::run::{PATIENCE, Run};
use crate::severity;

/// A lock of its own, so that no node of an earlier holder lingers there.
const LOCK: &str = "/locks/standstill";

type Answer = Result<Option<Held>, AcquireError>;

/// Stops a program for any time that its session survives, on servers that are well. It asks for a free lock
/// when it continues, or waits in the queue when it is stopped and the lock becomes free during the stop.
pub(crate) async fn want_a_free_lock(run: &Arc<Run>, clients: &[Client], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x57a2d);
    let design = Design::any(LOCK, &mut random);
    let shares = design.shares();
    let share = shares[random.usize(0..shares.len())];
    let index = random.usize(0..clients.len());
    let lock = design.open(&clients[index], Sharing::Never);
    let time = longest(run).mul_f64(1.0 - random.f64() * random.f64());
    // So that the last ping before it is as old as it may be.
    let before = run.timing.timeout().mul_f64(random.f64());
    let name = format!("client {index}.s");

    let waits = random.bool();
    let holder = &clients[(index + 1) % clients.len()];
    let held = match waits {
        true => design.open(holder, Sharing::Never).acquire(share, Wait::Forever).await,
        false => Ok(None),
    };
    let patience = match random.u8(0..3) {
        0 if !waits => Wait::Never,
        1 => Wait::For(PATIENCE),
        _ => Wait::Forever,
    };

    let asked = waits.then(|| ask(run, index, lock.clone(), share, patience));
    sleep(before).await;
    run.note("world", What::Fault(format!("begins: client {index} stands still for {time:?}")));
    let (gate, end) = (&run.machines[index].gate, Instant::now() + time);
    gate.close();
    sleep(time.mul_f64(0.8 * random.f64())).await;
    if let Ok(Some(held)) = held {
        held.release().await;
    }
    sleep_until(end).await;
    let asked = asked.unwrap_or_else(|| ask(run, index, lock, share, patience));
    gate.open();
    run.note("world", What::Fault(format!("over: client {index} stands still")));

    match timeout(PATIENCE, asked).await {
        Ok(Ok(Ok(Some(held)))) => drop(held.release().await),
        Ok(Ok(Ok(None))) => run.note(&name, What::DeniedFree(format!("{LOCK} ({share}): taken"))),
        Ok(Ok(Err(error))) => {
            run.note(&name, What::DeniedFree(format!("{LOCK} ({share}): {error}")));
        }
        Ok(Err(_)) | Err(_) => run.note(&name, What::Stuck(format!("waits for {LOCK} ({share})"))),
    }
}

/// The longest standstill that a session certainly survives: a ping went before it, and a message after it has
/// to arrive.
fn longest(run: &Run) -> Duration {
    let round_trip = severity::prompt(run.timing);
    let used = run.timing.ping_interval() + 2 * round_trip;
    run.in_true_time(run.timing.timeout().saturating_sub(used))
}

/// Has the program of a client ask for the lock.
fn ask(
    run: &Run,
    index: usize,
    lock: Lock,
    share: Share,
    patience: Wait,
) -> oneshot::Receiver<Answer> {
    let (sender, answer) = oneshot::channel();
    drop(run.machines[index].run(async move {
        // A run that is over has dropped the other end.
        drop(sender.send(lock.acquire(share, patience).await));
    }));
    answer
}
