//! Checks leases against an ensemble in virtual time. The session is the product code, and three simulated
//! servers treat sessions like ZooKeeper's. Seeds decide when they are cut off, paused and deposed.
//!
//! Two promises are checked. *A lease never ends too late*: no leader with a quorum expires a session whose
//! lease is still valid. *A lease never ends too early*: an outage that is shorter than `Timing::outage`, or
//! servers that reply within `Timing::slowest_answer`, do not interrupt a lease.
//!
//! Assumptions, as in `docs/guarantees.md`: clocks drift by less than one percent, and a follower that
//! resumes after a pause answers its leader before it forwards anything.

mod client;
mod ensemble;
mod world;

use std::time::Duration;

use lockkeeper_session::{LeaseMode, Timing};

use crate::world::{Trouble, World};

/// The seeds of each test: `LOCKKEEPER_LEASE_SEEDS` many, starting from 1 or from `LOCKKEEPER_LEASE_FIRST`.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("LOCKKEEPER_LEASE_FIRST").unwrap_or(1);
    first..first + number("LOCKKEEPER_LEASE_SEEDS").unwrap_or(2_500)
}

/// Timeouts that servers can grant, at least 2 ticks and at least a second: a few round trips of this network
/// must be short in comparison.
fn timing_of(seed: u64) -> Timing {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x71);
    let tick = Duration::from_millis([500, 1_000, 2_000, 2_000][random.usize(0..4)]);
    let timeout = tick * random.u32(2..=10);
    Timing::new(LeaseMode::Quorum, timeout, tick)
}

#[test]
fn no_session_expires_before_its_lease_has_ended() {
    let mut expired = 0;
    for seed in seeds() {
        let mut world = World::new(seed, timing_of(seed), Trouble::Anything);
        world.run(timing_of(seed).timeout() * 8);
        if let Some((deadline, expiry)) = world.deadline_and_expiry() {
            expired += 1;
            assert!(
                deadline <= expiry,
                "seed {seed}: told {deadline:?}, expired at {expiry:?}\n{}",
                world.story()
            );
        }
    }
    // Otherwise the test would not have tested anything.
    let tried = seeds().end - seeds().start;
    assert!(expired * 4 > tried, "{expired} sessions expired");
}

#[test]
fn no_outage_shorter_than_promised_takes_a_lock_away() {
    for seed in seeds() {
        let mut world = World::new(seed, timing_of(seed), Trouble::Outages);
        world.run(timing_of(seed).timeout() * 12);
        assert!(world.is_held_through(), "seed {seed}: {}", world.story());
    }
}

#[test]
fn no_server_that_answers_in_time_takes_a_lock_away() {
    for seed in seeds() {
        let timing = timing_of(seed);
        let mut world = World::new(seed, timing, Trouble::SlowAnswers);
        // Timers and packets take some milliseconds.
        let least = timing.always_left().saturating_sub(Duration::from_millis(60));
        world.allow_least(least);
        world.run(timing.timeout() * 12);
        assert!(world.is_held_through(), "seed {seed}: {}", world.story());
        assert!(
            world.least_left() >= least,
            "seed {seed}: {:?} left, not {least:?}\n{}",
            world.least_left(),
            world.story()
        );
    }
}
