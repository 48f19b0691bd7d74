//! What the machine itself allows: a round trip over loopback, and a record that is on the disk.
//!
//! Both sway from one minute to the next, so they are measured beside what they explain.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::fdatasync;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::measure::{Latency, Recorder};
use crate::peers::Peers;

/// The names of the floors in the report.
pub(crate) const IN_PLACE: (&str, &str) = ("disk", "fdatasync, in place");
pub(crate) const APPENDED: (&str, &str) = ("disk", "fdatasync, appended");
pub(crate) const TWO_PROCESSORS: (&str, &str) = ("tcp", "loopback echo, two processors");
pub(crate) const ONE_PROCESSOR: (&str, &str) = ("tcp", "loopback echo, one processor");

/// All floors.
pub(crate) const ALL: [(&str, &str); 4] = [TWO_PROCESSORS, ONE_PROCESSOR, IN_PLACE, APPENDED];

/// A lock's create with its listing is about this long.
const ECHO_BYTES: usize = 200;

/// What a lock's create adds to a log.
pub(crate) const RECORD_BYTES: usize = 300;

/// Both floors of one moment.
pub(crate) struct Floors {
    pub(crate) disk: Disk,
    pub(crate) loopback: Loopback,
}

impl Floors {
    /// So many records and so many round trips, each way.
    pub(crate) async fn measure(
        peers: &mut Peers,
        records: usize,
        round_trips: usize,
    ) -> Result<Self> {
        let disk = disk(&peers.folder()?, records)?;
        let echo = peers.echo().await?;
        let loopback = loopback(&echo, Processors::look()?, round_trips).await?;
        Ok(Self { disk, loopback })
    }
}

/// Which processors an echo and its client are put on.
///
/// Left to themselves they are now on two, now on one, as the scheduler likes it: on one, a message
/// needs no other processor to be woken, and a round trip takes a fraction of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    server: usize,
    other: usize,
}

impl Processors {
    /// The first and the last that this process may use: where there are more than two, these are
    /// the least likely to be halves of one core.
    pub(crate) fn look() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("cannot ask for the processors")?;
        Self::among(&allowed).context("this process may use no processor")
    }

    fn among(allowed: &CpuSet) -> Option<Self> {
        let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        let server = processors.next()?;
        Some(Self { server, other: processors.next_back().unwrap_or(server) })
    }

    /// Where the echo is to run.
    pub(crate) fn server(self) -> usize {
        self.server
    }
}

/// The thread that made it stays on one processor for as long as it lives.
struct Pinned {
    before: CpuSet,
}

impl Pinned {
    fn to(processor: usize) -> io::Result<Self> {
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

/// Round trips to another process that sends everything back.
pub(crate) struct Loopback {
    /// With the client beside it on its processor.
    pub(crate) one: Latency,
    /// With the client on another; `None` where there is no other.
    pub(crate) two: Option<Latency>,
}

/// So many round trips each way, to an echo on the server's processor.
async fn loopback(echo: &str, processors: Processors, count: usize) -> Result<Loopback> {
    let Processors { server, other } = processors;
    let two = if other == server { None } else { Some(round_trips(echo, other, count).await?) };
    Ok(Loopback { one: round_trips(echo, server, count).await?, two })
}

/// So many round trips from a processor, after some that do not count.
///
/// The harness has one thread, which the runtime cannot leave while it is pinned.
async fn round_trips(echo: &str, processor: usize, count: usize) -> Result<Latency> {
    let mut stream = TcpStream::connect(echo).await?;
    stream.set_nodelay(true)?;
    let recorder = Recorder::new();
    let mut message = [0x55; ECHO_BYTES];
    let _pinned = Pinned::to(processor)?;
    for round in 0..count + count / 5 {
        let start = Instant::now();
        stream.write_all(&message).await?;
        stream.read_exact(&mut message).await?;
        if round >= count / 5 {
            recorder.record(start.elapsed());
        }
    }
    Ok(recorder.summary())
}

/// A record that is written and synced, as in a log.
pub(crate) struct Disk {
    /// Into a file that is as long as ever, as our log is.
    pub(crate) in_place: Latency,
    /// To the end of one that grows, as Redis's is: the file system writes down its new length, too.
    pub(crate) appended: Latency,
}

/// So many records each way, into files of this folder.
fn disk(folder: &Path, count: usize) -> Result<Disk> {
    let mut filled = tempfile::tempfile_in(folder)?;
    let length = u64::try_from(count * RECORD_BYTES)?;
    io::copy(&mut io::repeat(0).take(length), &mut filled)?;
    filled.rewind()?;
    filled.sync_all()?;
    let mut growing = tempfile::tempfile_in(folder)?;
    growing.sync_all()?;
    Ok(Disk { in_place: records(&mut filled, count)?, appended: records(&mut growing, count)? })
}

fn records(file: &mut File, count: usize) -> Result<Latency> {
    let recorder = Recorder::new();
    let record = [0x55; RECORD_BYTES];
    for _ in 0..count {
        let start = Instant::now();
        file.write_all(&record)?;
        fdatasync(&*file)?;
        recorder.record(start.elapsed());
    }
    Ok(recorder.summary())
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

    #[test]
    fn a_record_in_place_leaves_the_file_as_long_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(folder.path(), 3).unwrap();
        assert_eq!((disk.in_place.count, disk.appended.count), (3, 3));
    }
}
