//! Memory that goes back when the engine comes to rest after a load
//! (`docs/decisions/0008-allocator.md`).

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is asked whether the engine rests. Longer than an allocator like mimalloc keeps
/// free memory for the next who wants some (a second).
const INTERVAL: Duration = Duration::from_secs(2);
/// How often rest comes after a load: what the first time has freed, an allocator gives back when
/// it is asked again later.
const TIMES: u8 = 2;
/// Up to how many requests an interval counts as rest: some sessions' pings.
const FEW: usize = 200;

/// What makes a thread's heap look for pages that it can do without: so many allocations, of so
/// many bytes. It takes about a millisecond.
const ALLOCATIONS: usize = 17_000;
const LARGE: usize = 2 * 1024;

/// Whether a load is over.
#[derive(Debug)]
pub(crate) struct Rest {
    /// When the present interval began.
    since: Instant,
    /// The requests of the present interval.
    requests: usize,
    /// How often rest is still to come, as there was more to do lately.
    to_come: u8,
}

impl Rest {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, requests: 0, to_come: 0 }
    }

    pub(crate) fn count(&mut self, requests: usize) {
        self.requests += requests;
    }

    /// Whether a load has ended a while ago. True [`TIMES`] times after each. To be asked at least
    /// once an interval.
    pub(crate) fn has_come(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) < INTERVAL {
            return false;
        }
        let few = self.requests <= FEW;
        let come = few && self.to_come > 0;
        let to_come = if few { self.to_come.saturating_sub(1) } else { TIMES };
        *self = Self { since: now, requests: 0, to_come };
        come
    }
}

/// Lets the allocator give back what this thread has freed, and what others have.
///
/// One that has a heap for each thread looks for that when more is asked of it, and when a thread
/// ends; a process at rest does neither. mimalloc's looks at the empty pages of its thread with
/// each thousandth allocation of more than a kilobyte, and gives up those that it has found empty
/// up to sixteen times; what all have given up goes back when any thread ends.
pub(crate) fn give_back() {
    for _ in 0..ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(LARGE)));
    }
    let thread = thread::Builder::new().name("lockkeeper-rest".to_owned());
    // Where there can be no thread, nothing is lost but memory.
    let _ = thread.spawn(|| drop(black_box(Box::new(0_u64))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_comes_twice_after_each_load() {
        let start = Instant::now();
        let mut rest = Rest::new(start);
        let mut seconds = 0;
        let mut after = |rest: &mut Rest, requests| {
            rest.count(requests);
            seconds += 2;
            let come = rest.has_come(start + Duration::from_secs(seconds));
            assert!(!rest.has_come(start + Duration::from_secs(seconds + 1)), "too soon");
            come
        };
        let loads = [0, FEW, FEW + 1, 100_000, FEW, 3, 0, 1_000, 0, 1_000, 0, 0, 0];
        let come: Vec<bool> = loads.iter().map(|&load| after(&mut rest, load)).collect();
        let expected: Vec<bool> = "....RR..R.RR.".chars().map(|mark| mark == 'R').collect();
        assert_eq!(come, expected);
    }
}
