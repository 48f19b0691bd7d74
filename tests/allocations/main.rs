//! What is done for every call of a busy program allocates nothing.
//!
//! The allocator of this program counts for each thread, so the tests do not disturb each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::{Candidate, Ejection, InstanceHealth, Instant, Pick, Picker};

struct Server {
    id: String,
    weight: u32,
}

impl Candidate for Server {
    fn id(&self) -> &str {
        &self.id
    }

    fn weight(&self) -> u32 {
        self.weight
    }

    fn zone(&self) -> Option<&str> {
        Some(if self.weight.is_multiple_of(2) { "even" } else { "odd" })
    }
}

fn servers(count: u32) -> impl Iterator<Item = Arc<Server>> {
    (0..count).map(|number| Arc::new(Server { id: format!("web-{number}"), weight: number % 7 }))
}

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7)))), 1);
    assert_eq!(allocations(|| ()), 0);
}

#[test]
fn a_pick_and_its_end_allocate_nothing() {
    let picker = Picker::builder().zone("odd").build();
    picker.update(servers(100));
    for how in [Pick::RoundRobin, Pick::Weighted, Pick::PowerOfTwo, Pick::key("user-7")] {
        let count = allocations(|| {
            for _ in 0..1_000 {
                drop(picker.pick(how));
            }
        });
        assert_eq!(count, 0, "{how:?}");
    }
}

/// Ejections, trials and returns change who may be picked, in the middle of picks, and an update comes while
/// half of them are ejected.
#[test]
fn ejections_allocate_nothing() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let picker = Picker::builder()
        .ejection(Ejection::default().failures(1))
        .clock(move || Instant::from_start(Duration::from_secs(clock.load(Ordering::Relaxed))))
        .build();
    let out = || picker.loads().iter().filter(|one| one.health != InstanceHealth::Healthy).count();

    picker.update(servers(20));
    let failing = allocations(|| {
        for _ in 0..1_000 {
            picker.pick(Pick::RoundRobin).expect("an instance").failed();
        }
    });
    assert_eq!((failing, out()), (0, 8), "of the 17 that have a weight, half");

    // With those that return there are 65, and a list that grew to 57 by itself has room for 64.
    picker.update(servers(76));
    assert_eq!(out(), 8);
    now.store(100, Ordering::Relaxed);
    let returning = allocations(|| {
        for _ in 0..1_000 {
            drop(picker.pick(Pick::RoundRobin));
        }
    });
    assert_eq!((returning, out()), (0, 0));
}
