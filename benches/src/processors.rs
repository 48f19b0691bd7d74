//! Which processor a thread runs on.

use std::io;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Which processors an echo and its client are put on.
///
/// Left to themselves they are now on two, now on one, as the scheduler likes it: on one, a message
/// needs no other processor to be woken, and a round trip takes a fraction of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Where the echo runs.
    pub(crate) server: usize,
    /// Where its client runs, if not beside it; the same one if there is only one.
    pub(crate) other: usize,
}

impl Processors {
    /// The first and the last that this process may use: where there are more than two, these are
    /// the least likely to be halves of one core.
    pub(crate) fn allowed() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("cannot ask for the processors")?;
        Self::among(&allowed).context("this process may use no processor")
    }

    fn among(allowed: &CpuSet) -> Option<Self> {
        let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        let server = processors.next()?;
        Some(Self { server, other: processors.next_back().unwrap_or(server) })
    }
}

/// The thread that made it stays on one processor for as long as it lives.
pub(crate) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    pub(crate) fn to(processor: usize) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        pin(processor)?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // What was allowed before is allowed again; if that fails, it goes on on one.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Keeps the calling thread, and those that it starts, on one processor.
pub(crate) fn pin(processor: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(sched_setaffinity(None, &one)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|&processor| set.set(processor));
        set
    }

    #[test]
    fn the_outermost_processors_are_taken_and_one_does() {
        let among = |processors| Processors::among(&allowed(processors));
        assert_eq!(among(&[1, 2, 5]), Some(Processors { server: 1, other: 5 }));
        assert_eq!(among(&[3]), Some(Processors { server: 3, other: 3 }));
        assert_eq!(among(&[]), None);
    }

    #[test]
    fn a_thread_is_pinned_no_longer_than_it_should_be() {
        let processors = || {
            let now = sched_getaffinity(None).unwrap();
            (0..CpuSet::MAX_CPU).filter(|&at| now.is_set(at)).collect::<Vec<_>>()
        };
        let before = processors();
        let last = *before.last().unwrap();
        let pinned = Pinned::to(last).unwrap();
        assert_eq!(processors(), [last]);
        drop(pinned);
        assert_eq!(processors(), before);
    }
}
