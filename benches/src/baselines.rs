//! What the machine itself allows: a round trip over loopback, and a record that is on the disk.
//!
//! Both sway from one minute to the next, so they are measured beside what they explain.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use rustix::fs::fdatasync;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::measure::{Latency, Recorder};
use crate::peers::{Peers, Program};
use crate::processors::{Pinned, Processors};

/// The names of the baselines in the report.
pub(crate) const IN_PLACE: (&str, &str) = ("disk", "fdatasync, in place");
pub(crate) const APPENDED: (&str, &str) = ("disk", "fdatasync, appended");
pub(crate) const TWO_PROCESSORS: (&str, &str) = ("tcp", "loopback echo, two processors");
pub(crate) const ONE_PROCESSOR: (&str, &str) = ("tcp", "loopback echo, one processor");

/// All of them.
pub(crate) const ALL: [(&str, &str); 4] = [TWO_PROCESSORS, ONE_PROCESSOR, IN_PLACE, APPENDED];

/// A lock's create with its listing is about this long.
const ECHO_BYTES: usize = 200;

/// What a lock's create adds to a log.
pub(crate) const RECORD_BYTES: usize = 300;

/// Both baselines of one moment.
pub(crate) struct Baselines {
    pub(crate) disk: Disk,
    pub(crate) loopback: Loopback,
}

impl Baselines {
    /// So many records and so many round trips, each way.
    pub(crate) async fn measure(
        peers: &mut Peers,
        records: usize,
        round_trips: usize,
    ) -> Result<Self> {
        let disk = disk(&peers.folder()?, records)?;
        let echo = peers.address(Program::Echo).await?.to_owned();
        let loopback = loopback(&echo, Processors::allowed()?, round_trips).await?;
        Ok(Self { disk, loopback })
    }
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

    #[test]
    fn a_record_in_place_leaves_the_file_as_long_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(folder.path(), 3).unwrap();
        assert_eq!((disk.in_place.count, disk.appended.count), (3, 3));
    }
}
