//! What the run ran on.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::micros;
use crate::floors::{Disk, Floors, Loopback};
use crate::peers::Peers;

/// What the run ran on, and the two physical costs of that very run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
    pub(crate) compiler: String,
    /// Runnable processes of others falsify the figures: near 0 is good.
    pub(crate) load_before: f64,
    /// Of a record at the end of a file that grows.
    pub(crate) fdatasync_p50_us: f64,
    pub(crate) fdatasync_p99_us: f64,
    pub(crate) fdatasync_in_place_p50_us: f64,
    pub(crate) fdatasync_in_place_p99_us: f64,
    /// On how many processors the next two are: two, or the only one.
    pub(crate) loopback_processors: usize,
    pub(crate) loopback_p50_us: f64,
    pub(crate) loopback_p99_us: f64,
    pub(crate) loopback_one_processor_p50_us: f64,
    pub(crate) loopback_one_processor_p99_us: f64,
}

impl Machine {
    /// Looks around, and measures the peers' disk and the loopback interface.
    pub(crate) async fn look(peers: &mut Peers) -> Result<Self> {
        let load_before = load();
        let data = peers.folder()?;
        let Floors { disk: Disk { in_place, appended }, loopback } =
            Floors::measure(peers, 300, 5_000).await?;
        let Loopback { one, two } = loopback;
        let (loopback_processors, two) = two.map_or((1, one), |two| (2, two));
        Ok(Self {
            date: jiff::Zoned::now().strftime("%Y-%m-%d").to_string(),
            commit: said("git", &["describe", "--always", "--dirty", "--exclude=*"]),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: file_system(&data),
            compiler: said("rustc", &["--version"]),
            load_before,
            fdatasync_p50_us: micros(appended.p50),
            fdatasync_p99_us: micros(appended.p99),
            fdatasync_in_place_p50_us: micros(in_place.p50),
            fdatasync_in_place_p99_us: micros(in_place.p99),
            loopback_processors,
            loopback_p50_us: micros(two.p50),
            loopback_p99_us: micros(two.p99),
            loopback_one_processor_p50_us: micros(one.p50),
            loopback_one_processor_p99_us: micros(one.p99),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} cores), load {:.2}, fdatasync {:.0} us, loopback {:.0} us",
            self.processor,
            self.cores,
            self.load_before,
            self.fdatasync_p50_us,
            self.loopback_p50_us
        )
    }
}

/// Processor time that was used since the machine started, in microseconds: by this process, and by
/// all others together with what the kernel does for nobody in particular.
#[derive(Clone, Copy)]
pub(crate) struct ProcessorTime {
    pub(crate) ours: f64,
    pub(crate) others: f64,
}

impl ProcessorTime {
    /// Counted in ticks of the kernel, usually 10 ms: for turns that are much longer.
    pub(crate) fn now() -> Result<Self> {
        let tick_us = 1e6 / rustix::param::clock_ticks_per_second() as f64;
        let sum = |fields: &mut dyn Iterator<Item = &str>| -> f64 {
            fields.filter_map(|field| field.parse::<f64>().ok()).sum()
        };
        let all = fs::read_to_string("/proc/stat")?;
        let fields = all.lines().next().unwrap_or_default().split_whitespace();
        // user, nice, system, then idle and waiting for disks, then interrupts.
        let fields: Vec<&str> = fields.skip(1).collect();
        let busy = fields.iter().enumerate().filter(|(at, _)| matches!(at, 0..=2 | 5..=6));
        let all = sum(&mut busy.map(|(_, field)| *field)) * tick_us;
        let own = fs::read_to_string("/proc/self/stat")?;
        // After the name, which may have spaces: state, ten numbers, user, system.
        let (_, own) = own.rsplit_once(')').context("/proc/self/stat has no name")?;
        let ours = sum(&mut own.split_whitespace().skip(11).take(2)) * tick_us;
        Ok(Self { ours, others: all - ours })
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

fn memory_gib() -> f64 {
    let kilobytes = field("/proc/meminfo", "MemTotal");
    let kilobytes = kilobytes.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) / 1024.0 / 1024.0
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The kind of file system that the folder is on: the longest mount point that it lies below.
fn file_system(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    });
    let below = mounts.filter(|(point, _)| folder.starts_with(point));
    below.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind).unwrap_or_default()
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}
