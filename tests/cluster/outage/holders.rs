//! Groups of holders that see an outage together.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use lockkeeper_testkit::process::Process;

use crate::outage::programs::{Site, runs, sleeps};
use crate::outage::timeout::Timeout;

/// Longer than a grant takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(10);

/// Who believes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A guard of the library.
    Guard,
    /// One that is in jeopardy at its deadline, and not lost.
    Jeopardy,
    /// A command that `lockkeeper run` runs.
    Run,
    /// One that stands still in an outage.
    Pause,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Guard, Self::Jeopardy, Self::Run, Self::Pause];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Jeopardy => "guard, jeopardy",
            Self::Run => "run",
            Self::Pause => "run, pause",
        }
    }

    /// Whether it goes on when its session was there all the time.
    pub(crate) fn rides_out(self) -> bool {
        matches!(self, Self::Jeopardy | Self::Pause)
    }

    /// Whether it is one program for all locks.
    fn is_guard(self) -> bool {
        matches!(self, Self::Guard | Self::Jeopardy)
    }
}

/// Holders that are alike, each with a lock and a session of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) timeout: Timeout,
    /// The length of the timeout.
    pub(crate) session: Duration,
    pub(crate) size: u32,
}

/// All of a [`Group`], at work.
pub(crate) struct Crowd {
    pub(crate) group: Group,
    processes: Vec<Process>,
}

impl Crowd {
    /// Starts them over the time of `spread`, and returns when all hold. Their locks begin with
    /// `lock`.
    pub(crate) async fn gather(
        site: Site,
        group: Group,
        lock: String,
        spread: Duration,
    ) -> Result<Self> {
        let mut crowd = Self { group, processes: Vec::new() };
        match group.kind {
            Kind::Guard | Kind::Jeopardy => {
                let name = lock.replace('/', "-");
                let guards = site.guards(group, &lock, &name, spread)?;
                crowd.processes.push(guards);
            }
            Kind::Run | Kind::Pause => {
                for number in 0..group.size {
                    let lock = format!("{lock}-{number}");
                    let name = lock.replace('/', "-");
                    crowd.processes.push(site.run(
                        group.kind,
                        group.timeout,
                        &lock,
                        &name,
                        &sleeps()?,
                    )?);
                    tokio::time::sleep(spread / group.size).await;
                }
            }
        }
        crowd.all_hold().await?;
        Ok(crowd)
    }

    async fn all_hold(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.count("HELD") < self.group.size {
            for process in &mut self.processes {
                // What was held and is lost already is for `lost` to tell.
                let has_held = process.stdout().contains(" HELD ");
                if let Some(status) = process.status()?.filter(|_| !has_held) {
                    bail!("ended ({status}) before it held\n{}", process.tail());
                }
            }
            ensure!(start.elapsed() < LIMIT, "{:?}: not all hold after {LIMIT:?}", self.group);
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// How many have lost what they held.
    pub(crate) fn lost(&mut self) -> Result<u32> {
        let mut lost = 0;
        match self.group.kind {
            Kind::Guard | Kind::Jeopardy => {
                for process in &mut self.processes {
                    let status = process.status()?;
                    ensure!(status.is_none(), "the holders have ended\n{}", process.tail());
                }
                lost = self.count("GONE");
            }
            Kind::Run | Kind::Pause => {
                for process in &mut self.processes {
                    lost += u32::from(!runs(process)?);
                }
            }
        }
        Ok(lost)
    }

    /// What the first of those who lost something has said, for whoever asks why.
    pub(crate) fn complaint(&self) -> String {
        let said = |process: &Process| match self.group.kind {
            Kind::Guard | Kind::Jeopardy => process.stdout(),
            Kind::Run | Kind::Pause => process.stderr(),
        };
        let lines = self.processes.iter().flat_map(|process| {
            let text = said(process);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        let mut complaints =
            lines.filter(|line| !self.group.kind.is_guard() || line.contains(" GONE "));
        complaints.next().unwrap_or_default()
    }

    fn count(&self, word: &str) -> u32 {
        let lines = self.processes.iter().map(|process| {
            let output = process.stdout();
            output.lines().filter(|line| line.split(' ').nth(1) == Some(word)).count()
        });
        u32::try_from(lines.sum::<usize>()).unwrap_or(u32::MAX)
    }
}
