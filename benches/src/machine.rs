//! What the run ran on.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::baselines::{Baselines, Disk};
use crate::measure::{Latency, micros};
use crate::peers::{Peers, said};

/// What separates the two kinds of machine.
const FAST_ROUND_TRIP: Duration = Duration::from_micros(45);

/// The kind of a machine: what waking a thread on another processor costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeUp {
    /// Little: a round trip between two of them is 35 us or less.
    Fast,
    /// Several times what a thread on the same one costs: a round trip is 55 us or more.
    Slow,
}

impl WakeUp {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
        }
    }
}

/// What the run ran on, and the two physical costs of that very run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
    pub(crate) compiler: String,
    /// The share of the processors' time that was used just before the run, by whatever else runs
    /// here or on the host: near 0 is good.
    pub(crate) busy_before: f64,
    /// The share of it that the host of a virtual machine gave to others during the run.
    pub(crate) stolen: f64,
    /// Whether its processors were kept from sleeping.
    #[serde(default)]
    pub(crate) kept_awake: bool,
    #[serde(skip)]
    begun: Ticks,
    pub(crate) record_in_place: Latency,
    /// At the end of a file that grows.
    pub(crate) record_appended: Latency,
    /// Between two processors, where there are two.
    pub(crate) loopback_two: Option<Latency>,
    pub(crate) loopback_one: Latency,
}

impl Machine {
    /// Looks around, and measures the peers' disk and the loopback interface.
    pub(crate) async fn look(peers: &mut Peers) -> Result<Self> {
        let before = Ticks::now()?;
        tokio::time::sleep(LOOK).await;
        let begun = Ticks::now()?;

        let data = peers.folder()?;
        let Baselines { disk: Disk { in_place, appended }, loopback } =
            Baselines::measure(peers, 300, 5_000).await?;
        Ok(Self {
            date: jiff::Zoned::now().strftime("%Y-%m-%d").to_string(),
            commit: said("git", &["describe", "--always", "--dirty", "--exclude=*"]),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: file_system(&data),
            compiler: said("rustc", &["--version"]),
            busy_before: begun.since(before).busy_share(),
            stolen: f64::NAN,
            kept_awake: false,
            begun,
            record_in_place: in_place,
            record_appended: appended,
            loopback_two: loopback.two,
            loopback_one: loopback.one,
        })
    }

    pub(crate) fn wake_up(&self) -> WakeUp {
        let round_trip = self.loopback_two.unwrap_or(self.loopback_one).p50;
        if round_trip < FAST_ROUND_TRIP { WakeUp::Fast } else { WakeUp::Slow }
    }

    /// Looks again, after the run.
    pub(crate) fn look_back(&mut self) -> Result<()> {
        self.stolen = Ticks::now()?.since(self.begun).stolen_share();
        Ok(())
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} cores), {:.1} % busy, fdatasync {:.0} us, loopback {:.0} us",
            self.processor,
            self.cores,
            self.busy_before * 100.0,
            micros(self.record_appended.p50),
            micros(self.loopback_two.unwrap_or(self.loopback_one).p50)
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
        let all = Ticks::now()?.busy * tick_us();
        let ours = processor_time(std::process::id())?;
        Ok(Self { ours, others: all - ours })
    }
}

/// The processor time that a process has used, in microseconds, counted in ticks as well.
pub(crate) fn processor_time(id: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // After the name, which may have spaces: state, ten numbers, user, system.
    let (_, numbers) = stat.rsplit_once(')').context("/proc/<id>/stat has no name")?;
    let times = numbers.split_whitespace().skip(11).take(2);
    Ok(times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * tick_us())
}

fn tick_us() -> f64 {
    1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// How long the machine is looked at before the run.
const LOOK: Duration = Duration::from_secs(2);

/// What the processors have done since the machine started, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    busy: f64,
    stolen: f64,
    all: f64,
}

impl Ticks {
    fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&text).context("/proc/stat does not begin as expected")
    }

    fn parse(stat: &str) -> Option<Self> {
        let words = stat.lines().next()?.split_whitespace().skip(1);
        let fields: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        // Those of guests, behind these, count as a user's already.
        let &[user, nice, system, idle, disks, interrupts, soft, stolen] = fields.first_chunk()?;
        let busy = user + nice + system + interrupts + soft;
        Some(Self { busy, stolen, all: busy + idle + disks + stolen })
    }

    fn since(self, before: Self) -> Self {
        Self {
            busy: self.busy - before.busy,
            stolen: self.stolen - before.stolen,
            all: self.all - before.all,
        }
    }

    fn busy_share(self) -> f64 {
        (self.busy + self.stolen) / self.all
    }

    fn stolen_share(self) -> f64 {
        self.stolen / self.all
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_processors_time() {
        let at = |numbers: &str| Ticks::parse(&format!("cpu  {numbers}\ncpu0 1 2 3\n")).unwrap();
        let before = at("10 20 30 400 50 6 7 8 9 10");
        let after = at("20 25 45 460 55 8 10 8 90 100");
        let between = after.since(before);
        assert_eq!((between.busy, between.all), (35.0, 100.0));
        assert_eq!((between.busy_share(), between.stolen_share()), (0.35, 0.0));
        let later = at("20 25 45 460 55 8 10 58 90 100").since(after);
        assert_eq!((later.busy_share(), later.stolen_share()), (1.0, 1.0));
        assert!(Ticks::parse("cpu 1 2 3\n").is_none() && Ticks::parse("").is_none());
    }
}
