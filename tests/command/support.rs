//! A user with a home directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lockkeeper::Client;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::{command, scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A directory for one test, and the command in it. Its engine is stopped on drop.
pub(crate) struct Home {
    folder: TempDir,
    program: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { folder: scratch::folder()?, program: command::lockkeeper()? })
    }

    /// The directory of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What is `LOCKKEEPER_HOME`.
    pub(crate) fn engine(&self) -> PathBuf {
        self.folder().join("home")
    }

    /// What a client of the engine connects to.
    pub(crate) fn connect_string(&self) -> String {
        format!("unix:{}", self.engine().join("engine.sock").display())
    }

    /// `lockkeeper` with these arguments, which are split at blanks.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        self.command_of(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn command_of(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("LOCKKEEPER_HOME", self.engine()).current_dir(self.folder());
        // Tests must not use the engines of this machine's users.
        command.env("LOCKKEEPER_SYSTEM_HOME", "none");
        // Nor are their configuration files.
        command.env("LOCKKEEPER_SYSTEM_CONFIG", "none").env("XDG_CONFIG_HOME", self.folder());
        for variable in [
            "LOCKKEEPER_CONFIG",
            "LOCKKEEPER_CONNECT",
            "LOCKKEEPER_CONNECT_TIMEOUT",
            "LOCKKEEPER_REQUIRE_SERVERS",
            "LOCKKEEPER_STRICT_SERVERS",
            "LOCKKEEPER_LOCK",
            "LOCKKEEPER_LOG",
            "LOCKKEEPER_DIGEST",
            "LOCKKEEPER_SUPER_DIGEST",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// The same below strace with these options, which ends with its status.
    pub(crate) fn traced(&self, strace: &[&str], arguments: &str) -> Command {
        let traced = self.command(arguments);
        let mut command = Command::new("strace");
        command.args(strace).arg("--").arg(traced.get_program()).args(traced.get_args());
        for (name, value) in traced.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.folder());
        command
    }

    /// Runs it to its end.
    pub(crate) fn ends(&self, arguments: &str) -> Result<Ended> {
        Ended::of(&mut self.command(arguments))
    }

    /// Runs a shell script under a lock, to its end.
    pub(crate) fn runs(&self, options: &str, script: &str) -> Result<Ended> {
        Ended::of(&mut self.script(options, script))
    }

    /// Starts a shell script under a lock.
    pub(crate) fn starts(&self, name: &str, options: &str, script: &str) -> Result<Process> {
        Process::spawn(name, &self.script(options, script), self.folder())
    }

    /// The same for one that says this, and waits until it has.
    pub(crate) async fn says(
        &self,
        words: &str,
        name: &str,
        options: &str,
        script: &str,
    ) -> Result<Process> {
        let mut process = self.starts(name, options, script)?;
        process.prints(words, LIMIT).await?;
        Ok(process)
    }

    /// Starts a command that does nothing under a lock, and waits until it is held.
    pub(crate) async fn holds(&self, name: &str, options: &str) -> Result<Process> {
        self.says("held", name, options, "echo held; exec sleep 600").await
    }

    /// Starts `lockkeeper` with these arguments, which are split at blanks.
    pub(crate) fn spawns(&self, name: &str, arguments: &str) -> Result<Process> {
        Process::spawn(name, &self.command(arguments), self.folder())
    }

    fn script(&self, options: &str, script: &str) -> Command {
        let mut arguments = vec!["run"];
        arguments.extend(options.split_whitespace());
        arguments.extend(["--", "sh", "-c", script]);
        self.command_of(&arguments)
    }

    /// What a subcommand says with `--json`.
    pub(crate) fn json(&self, arguments: &str) -> Result<Value> {
        let ended = self.ends(&format!("--json {arguments}"))?;
        serde_json::from_str(&ended.stdout).with_context(|| format!("no JSON: {ended:?}"))
    }

    /// Waits until so many are in line for a lock, the holder included.
    pub(crate) fn in_line(&self, lock: &str, count: usize) -> Result<()> {
        self.in_line_at("", lock, count)
    }

    /// The same with options that say where the lock is.
    pub(crate) fn in_line_at(&self, options: &str, lock: &str, count: usize) -> Result<()> {
        eventually(&format!("{count} in line for {lock}"), || {
            let shown = self.json(&format!("{options} show {lock}"))?;
            Ok(shown["contenders"].as_array().map(Vec::len) == Some(count))
        })
    }

    /// The process of the engine.
    pub(crate) fn engine_pid(&self) -> Result<i32> {
        let status = self.json("local status")?;
        let pid = status["pid"].as_i64().context("no engine")?;
        Ok(i32::try_from(pid)?)
    }

    /// Sends a signal to the engine, and returns which process that was.
    pub(crate) fn signal_engine(&self, signal: Signal) -> Result<Pid> {
        let pid = Pid::from_raw(self.engine_pid()?).context("no engine")?;
        kill_process(pid, signal)?;
        Ok(pid)
    }

    /// A session with the engine, separate from the commands.
    pub(crate) async fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.connect_string()).await?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Without an engine this has no effect.
        let _ = self.command("local stop").output();
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Result<Self> {
        let Output { status, stdout, stderr } = command.output()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self { code: status.code(), stdout: text(&stdout), stderr: text(&stderr) })
    }

    /// Fails unless it ended with this code, after one line on standard error with all of this.
    #[track_caller]
    pub(crate) fn complains(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("lockkeeper: "), "{self:?}");
        has_all(&self.stderr, parts);
    }

    /// Fails unless it ended well, without a word on standard error.
    #[track_caller]
    pub(crate) fn is_fine(&self) {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
    }
}

/// Fails unless all of this is in it.
#[track_caller]
pub(crate) fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !so()? {
        if start.elapsed() > LIMIT {
            bail!("not within {LIMIT:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether a process still runs. A zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}
