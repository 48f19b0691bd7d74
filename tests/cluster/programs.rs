//! Programs that hold locks, where they run, and what they say.
//!
//! Each line is a time (`clock::now`, in nanoseconds), a word such as `HELD` or `GONE`, and what belongs to
//! it.

use std::fs;
use std::future;
use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use lockkeeper::{AcquireError, Client, Election, Guard, HolderState, LeaseMode, Mutex};
use lockkeeper_testkit::java::Program;
use lockkeeper_testkit::network::Host;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::{clock, command};
use tokio::task::JoinSet;

/// Where programs are.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The servers that they connect to.
    pub(crate) connect: String,
    /// If that is not the machine itself.
    pub(crate) host: Option<Host>,
    /// Where they write.
    pub(crate) folder: PathBuf,
}

impl Site {
    /// Starts a program. `name` is that of its output.
    pub(crate) fn start(&self, name: &str, command: &Command) -> Result<Process> {
        match &self.host {
            Some(host) => Process::spawn(name, &host.command(command), &self.folder),
            None => Process::spawn(name, command, &self.folder),
        }
    }

    /// This program, in a role that takes `CONNECT PATH` and what follows.
    pub(crate) fn ours(
        &self,
        name: &str,
        role: &str,
        lock: &str,
        rest: &[&str],
    ) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["run", role, &self.connect, lock]).args(rest);
        self.start(name, &command)
    }

    /// `lockkeeper run` with this command.
    pub(crate) fn run(
        &self,
        name: &str,
        lock: &str,
        timeout: Option<Duration>,
        pauses: bool,
        work: &Command,
    ) -> Result<Process> {
        let mut command = plain(&command::lockkeeper()?);
        command.args(["--connect", &self.connect]);
        if let Some(timeout) = timeout {
            command.arg("--session-timeout").arg(format!("{}s", timeout.as_secs()));
        }
        command.args(["run", "--quiet"]).args(pauses.then_some("--on-outage=pause"));
        command.args([lock, "--"]).arg(work.get_program()).args(work.get_args());
        self.start(name, &command)
    }
}

/// `lockkeeper` without what the environment of this suite says to it.
pub(crate) fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for variable in ["CONNECT", "LOG", "DIGEST", "SUPER_DIGEST"] {
        command.env_remove(format!("LOCKKEEPER_{variable}"));
    }
    command
}

/// A program in `tests/interop` that uses Curator.
pub(crate) fn curator(class: &str) -> Result<Command> {
    Ok(Program::compile(&interop().join(format!("{class}.java")))?.command())
}

/// Where the programs are that use other libraries.
pub(crate) fn interop() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/interop"))
}

// ----- a command under `lockkeeper run` -------------------------------------------------------

/// This program as a command that says when it begins, and sleeps until it is ended.
pub(crate) fn sleeps() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "work"]);
    Ok(command)
}

pub(crate) fn work() -> Result<()> {
    say(clock::now(), &format!("HELD {}", std::process::id()));
    loop {
        std::thread::park();
    }
}

/// Whether the command under a `lockkeeper run` is there still, which has held its lock before.
pub(crate) fn runs(process: &mut Process) -> Result<bool> {
    if process.status()?.is_some() {
        return Ok(false);
    }
    let output = process.stdout();
    let line = output.lines().next().context("a command that has not begun")?;
    let id = line.rsplit(' ').next().unwrap_or_default();
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    Ok(state.is_some_and(|state| !state.starts_with(['Z', 'X'])))
}

// ----- what programs say ----------------------------------------------------------------------

/// Prints a line with a time.
pub(crate) fn say(at: Duration, what: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever reads it may be gone.
    let _ = writeln!(out, "{} {what}", at.as_nanos()).and_then(|()| out.flush());
}

/// The lines that a program has said: times, in seconds, and words.
pub(crate) fn said(output: &str) -> Vec<(f64, &str)> {
    let line = |line| {
        let (nanos, words): (&str, _) = str::split_once(line, ' ')?;
        Some((Duration::from_nanos(nanos.parse().ok()?).as_secs_f64(), words))
    };
    output.lines().filter_map(line).collect()
}

/// When it first said something that begins with this.
pub(crate) fn first_said(output: &str, word: &str) -> Option<f64> {
    said(output).iter().find(|(_, words)| words.starts_with(word)).map(|(time, _)| *time)
}

// ----- a program that holds through the library -----------------------------------------------

/// Takes locks, each with a session of its own, keeps them, and says `HELD`, `SUSPECT` and `GONE`, each
/// with the number of the lock.
#[derive(Args, Clone, Debug)]
pub(crate) struct Hold {
    connect: String,
    /// The lock; `PATH-0`, `PATH-1`, ... if they are several.
    path: String,
    #[arg(long)]
    session_ms: Option<u64>,
    #[arg(long)]
    direct: bool,
    #[arg(long, value_enum, default_value_t)]
    way: Way,
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Over how long the sessions begin, so that their heartbeats are spread.
    #[arg(long, default_value_t)]
    spread_ms: u64,
}

/// How to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    #[default]
    Lock,
    /// It is in jeopardy at its deadline, and not lost.
    Jeopardy,
    /// By an election.
    Lead,
}

impl Hold {
    pub(crate) async fn run(self) -> Result<()> {
        let mut holders = JoinSet::new();
        for number in 0..self.count {
            holders.spawn(self.clone().hold(number));
        }
        while let Some(ended) = holders.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn hold(self, number: u32) -> Result<()> {
        let share = (f64::from(number) + fastrand::f64()) / f64::from(self.count);
        tokio::time::sleep(Duration::from_millis(self.spread_ms).mul_f64(share)).await;
        let mut builder = Client::builder();
        if let Some(ms) = self.session_ms {
            builder = builder.session_timeout(Duration::from_millis(ms));
        }
        if self.direct {
            builder = builder.lease(LeaseMode::Direct);
        }
        let client = builder.connect(&self.connect).await?;
        let path = match self.count {
            1 => self.path,
            _ => format!("{}-{number}", self.path),
        };
        let guard = loop {
            match take(&client, &path, self.way).await? {
                Ok(guard) => break guard,
                Err(error) => say(clock::now(), &format!("RETRY {number} {error}")),
            }
        };
        if self.way == Way::Jeopardy
            && let Err(reason) = guard.allow_jeopardy()
        {
            bail!("{path}: lost before it was held: {reason}");
        }
        // Looking costs the machine something, so many look less often.
        tell(&guard, number, Duration::from_millis(u64::from(self.count.min(5)))).await
    }
}

type AnyHeld = Box<dyn Deref<Target = Guard> + Send + Sync>;

async fn take(client: &Client, path: &str, way: Way) -> Result<Result<AnyHeld, AcquireError>> {
    Ok(match way {
        Way::Lead => {
            Election::new(client, path)?.campaign().await.map(|held| Box::new(held) as AnyHeld)
        }
        _ => Mutex::new(client, path)?.acquire().await.map(|held| Box::new(held) as AnyHeld),
    })
}

/// Says what becomes of it.
async fn tell(guard: &Guard, number: u32, look: Duration) -> Result<()> {
    say(clock::now(), &format!("HELD {number}"));
    let mut suspect = false;
    // Always a moment at which the guard had not told of the loss yet.
    let mut believed = clock::now();
    loop {
        let state = guard.state();
        if let HolderState::Lost(reason) = state {
            say(believed, &format!("GONE {number} {reason:?}"));
            return future::pending().await;
        }
        let is_suspect = matches!(state, HolderState::Suspect { .. });
        if is_suspect && !suspect {
            say(clock::now(), &format!("SUSPECT {number}"));
        }
        suspect = is_suspect;
        believed = clock::now();
        tokio::time::sleep(look).await;
    }
}
