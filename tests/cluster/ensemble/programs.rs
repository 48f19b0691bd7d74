//! The programs in three languages that contend for the locks.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::SemaphoreProfile;
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::java::Program;
use lockkeeper_testkit::locks::{self, Design};
use lockkeeper_testkit::network::Host;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::python;

use super::field::{SESSION, TICK};
use super::recorder::Recorder;

/// A line of contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    /// A mutex, in all languages.
    Mutex,
    /// A read-write lock, in all languages.
    ReadWrite,
    /// A semaphore as Curator's programs have it.
    CuratorSemaphore,
    /// A semaphore as kazoo's programs have it.
    KazooSemaphore,
    /// A semaphore of ours.
    Semaphore,
    /// Two mutexes at once, of ours.
    Multi,
    /// A leader election, of ours and by Curator's `LeaderLatch`.
    Election,
}

/// How many permits the semaphores have.
pub(super) const PERMITS: u32 = 2;

impl ProgramKind {
    pub(super) const ALL: [Self; 7] = [
        Self::Mutex,
        Self::ReadWrite,
        Self::CuratorSemaphore,
        Self::KazooSemaphore,
        Self::Semaphore,
        Self::Multi,
        Self::Election,
    ];

    /// What a worker is called that contends for it, as the programs in other languages say.
    fn name(self) -> &'static str {
        &self.path()["/locks/".len()..]
    }

    /// Where it is.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Mutex => "/locks/mutex",
            Self::ReadWrite => "/locks/rw",
            Self::CuratorSemaphore => "/locks/curator-semaphore",
            Self::KazooSemaphore => "/locks/kazoo-semaphore",
            Self::Semaphore => "/locks/semaphore",
            Self::Multi => "/locks/multi",
            Self::Election => "/locks/election",
        }
    }

    /// As the test kit has it.
    pub(super) fn design(self) -> Design {
        let semaphore = |layout| locks::Kind::Semaphore { permits: PERMITS, layout };
        let kind = match self {
            Self::Mutex => locks::Kind::Mutex,
            Self::ReadWrite => locks::Kind::RwLock,
            Self::CuratorSemaphore => semaphore(SemaphoreProfile::Curator),
            Self::KazooSemaphore => semaphore(SemaphoreProfile::Kazoo),
            Self::Semaphore => semaphore(SemaphoreProfile::Native),
            Self::Multi => locks::Kind::Multi,
            Self::Election => locks::Kind::Election,
        };
        Design { path: self.path(), kind }
    }

    /// What one of the workers of a program is called.
    pub(super) fn worker(self, program: &str) -> String {
        format!("{program}/{}", self.name())
    }
}

/// What a program is written in, and so which library it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Java,
    Python,
}

impl Language {
    fn kinds(self) -> &'static [ProgramKind] {
        match self {
            Self::Rust => &ProgramKind::ALL,
            Self::Java => &[
                ProgramKind::Mutex,
                ProgramKind::ReadWrite,
                ProgramKind::CuratorSemaphore,
                ProgramKind::Election,
            ],
            Self::Python => {
                &[ProgramKind::Mutex, ProgramKind::ReadWrite, ProgramKind::KazooSemaphore]
            }
        }
    }

    fn command(self) -> Result<Command> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/ensemble");
        Ok(match self {
            Self::Rust => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["run", "contender"]);
                command
            }
            Self::Java => Program::compile(&source.join("CuratorParticipant.java"))?.command(),
            Self::Python => python::command(&source.join("kazoo_participant.py")),
        })
    }
}

/// A program that takes part.
pub(super) struct Participant {
    pub(super) name: &'static str,
    pub(super) language: Language,
    /// Where it runs, counted from 0.
    site: usize,
}

impl Participant {
    const fn new(name: &'static str, language: Language, site: usize) -> Self {
        Self { name, language, site }
    }

    /// What its workers are called.
    pub(super) fn workers(&self) -> impl Iterator<Item = String> {
        self.language.kinds().iter().map(|kind| kind.worker(self.name))
    }

    pub(super) fn is_ours(&self) -> bool {
        self.language == Language::Rust
    }
}

/// All of them.
pub(super) const PARTICIPANTS: [Participant; 7] = [
    Participant::new("rust-1", Language::Rust, 0),
    Participant::new("rust-2", Language::Rust, 1),
    Participant::new("rust-3", Language::Rust, 2),
    Participant::new("java-1", Language::Java, 0),
    Participant::new("java-2", Language::Java, 1),
    Participant::new("python-1", Language::Python, 1),
    Participant::new("python-2", Language::Python, 2),
];

/// Those of [`PARTICIPANTS`] that run, each at its index.
pub(super) struct Programs {
    processes: Vec<Option<Process>>,
    /// How many were started so far.
    starts: u64,
    seed: u64,
    sites: Vec<Host>,
    connect: String,
    folder: PathBuf,
    recorder: Recorder,
}

impl Programs {
    pub(super) fn start(
        seed: u64,
        sites: Vec<Host>,
        connect: String,
        folder: &Path,
        recorder: Recorder,
    ) -> Result<Self> {
        let processes = PARTICIPANTS.iter().map(|_| None).collect();
        let folder = folder.to_owned();
        let mut programs = Self { processes, starts: 0, seed, sites, connect, folder, recorder };
        programs.go_on()?;
        Ok(programs)
    }

    fn begin(&mut self, index: usize) -> Result<()> {
        let participant = &PARTICIPANTS[index];
        self.starts += 1;
        let mut command = participant.language.command()?;
        command.arg(&self.connect).arg(&self.folder).arg(SESSION.as_millis().to_string());
        if participant.is_ours() {
            command.arg(TICK.as_millis().to_string());
        }
        // Java's seeds are signed.
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(self.starts) >> 1;
        command.arg(participant.name).arg(seed.to_string());
        let command = self.sites[participant.site].command(&command);
        let name = format!("{}-{}", participant.name, self.starts);
        self.processes[index] = Some(Process::spawn(&name, &command, &self.folder)?);
        Ok(())
    }

    pub(super) fn pause(&self, index: usize) -> Result<()> {
        self.processes[index].as_ref().context("it was killed")?.pause()
    }

    pub(super) fn kill(&mut self, index: usize) {
        self.processes[index] = None;
        for worker in PARTICIPANTS[index].workers() {
            self.recorder.note(&worker, What::Died);
        }
    }

    /// Starts those that were killed, and lets those go on that were paused.
    pub(super) fn go_on(&mut self) -> Result<()> {
        for index in 0..PARTICIPANTS.len() {
            match &self.processes[index] {
                Some(process) => process.resume()?,
                None => self.begin(index)?,
            }
        }
        Ok(())
    }

    /// Starts those of other libraries again that have one of these workers: some of their
    /// failures leave nodes behind that only the end of the session removes.
    pub(super) fn help(&mut self, stuck: &[String]) -> Result<()> {
        for (index, participant) in PARTICIPANTS.iter().enumerate() {
            if !participant.is_ours() && participant.workers().any(|who| stuck.contains(&who)) {
                let what = What::Note("has to be started again, to go on".into());
                self.recorder.note(participant.name, what);
                self.kill(index);
            }
        }
        self.go_on()
    }

    /// # Errors
    ///
    /// One has ended by itself.
    pub(super) fn all_run(&mut self) -> Result<()> {
        for process in self.processes.iter_mut().flatten() {
            if let Some(status) = process.status()? {
                bail!("{status}\n{}", process.tail());
            }
        }
        Ok(())
    }

    /// Waits for the end of the programs of other libraries, which got the command to end. Programs that do not end are
    /// killed.
    pub(super) async fn theirs_end(&mut self, limit: Duration) {
        for (process, participant) in self.processes.iter_mut().zip(&PARTICIPANTS) {
            let Some(running) = process.as_mut().filter(|_| !participant.is_ours()) else {
                continue;
            };
            if running.end(limit).await.is_err() {
                let what = What::Note("does not end by itself".into());
                self.recorder.note(participant.name, what);
                *process = None;
            }
        }
    }

    /// Waits for the end of Lockkeeper programs, which got the command to end. They must end successfully.
    pub(super) async fn ours_end(&mut self, limit: Duration) {
        for (process, participant) in self.processes.iter_mut().zip(&PARTICIPANTS) {
            let Some(process) = process.as_mut().filter(|_| participant.is_ours()) else {
                continue;
            };
            let ended = process.end(limit).await;
            if !ended.as_ref().is_ok_and(ExitStatus::success) {
                let what = format!("does not end well: {ended:?}\n{}", process.tail());
                self.recorder.note(participant.name, What::Stuck(what));
            }
        }
    }
}
