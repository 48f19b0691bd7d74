//! A machine with two users: root, and `nobody`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::{command, scratch};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::support::{Ended, LIMIT, eventually};

/// The user and the group `nobody`.
pub(crate) const NOBODY: u32 = 65534;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    Nobody,
}

impl Who {
    pub(crate) const BOTH: [Self; 2] = [Self::Root, Self::Nobody];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Root => Self::Nobody,
            Self::Nobody => Self::Root,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Nobody => "nobody",
        }
    }
}

/// The two users, each with a home. They have a network namespace for themselves, so that the
/// sockets of other tests, and of this machine's users, are not in their table. Their engines are
/// stopped on drop.
pub(crate) struct Machine {
    folder: TempDir,
    program: PathBuf,
    network: Process,
}

impl Machine {
    /// `None`, and a word on standard error, where that takes permissions that we do not have.
    pub(crate) fn new(test: &str) -> Result<Option<Self>> {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: {test}: only root can play two users");
            return Ok(None);
        }
        let folder = scratch::folder()?;
        let root = folder.path().parent().context("no folder of the process")?;
        for path in [root, folder.path()] {
            fs::set_permissions(path, Permissions::from_mode(0o711))?;
        }
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "--", "sh", "-c", "echo apart; exec sleep infinity"]);
        let network = Process::spawn("network", &keeper, folder.path())?;
        let program = command::lockkeeper()?;
        let mut machine = Self { folder, program, network };
        eventually("a network namespace", || Ok(machine.network.stdout() == "apart\n"))?;
        machine.make_homes()?;
        Ok(Some(machine))
    }

    fn make_homes(&mut self) -> Result<()> {
        for who in Who::BOTH {
            fs::create_dir(self.home(who))?;
            fs::set_permissions(self.home(who), Permissions::from_mode(0o700))?;
        }
        chown(self.home(Who::Nobody), Some(NOBODY), Some(NOBODY))?;

        // The target directory of the build may be within a user's home. A shell tries it, because
        // setpriv itself may still have the permissions of root.
        let mut attempt = Command::new("setpriv");
        attempt.args(["--reuid", "nobody", "--clear-groups", "--"]);
        attempt.args(["sh", "-c", "exec \"$0\" --version"]).arg(&self.program);
        attempt.stdout(Stdio::null()).stderr(Stdio::null());
        if !attempt.status()?.success() {
            let copy = self.folder().join("lockkeeper");
            // Copied by a separate process: a process started by another thread would inherit the copy open
            // for writing, and the copy could not be executed.
            let copied = Command::new("cp").arg(&self.program).arg(&copy).status()?;
            ensure!(copied.success(), "cannot copy {}", self.program.display());
            self.program = copy;
        }
        Ok(())
    }

    /// The directory of the test, which both may enter.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What is `HOME`.
    pub(crate) fn home(&self, who: Who) -> PathBuf {
        self.folder().join(who.name())
    }

    /// Where the engine for both lives once it is enabled.
    pub(crate) fn system(&self) -> PathBuf {
        self.folder().join("system")
    }

    /// Where the user's own engine lives.
    pub(crate) fn own(&self, who: Who) -> PathBuf {
        self.home(who).join(".local/state/lockkeeper")
    }

    /// `lockkeeper` of a user, with these arguments, which are split at blanks.
    pub(crate) fn command(&self, who: Who, arguments: &str) -> Command {
        self.command_of(who, &arguments.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn command_of(&self, who: Who, arguments: &[&str]) -> Command {
        let mut command = self.program_of(who, self.program());
        command.args(arguments);
        command
    }

    /// The file of `lockkeeper`.
    pub(crate) fn program(&self) -> &str {
        self.program.to_str().unwrap_or_default()
    }

    /// Another program of a user.
    pub(crate) fn program_of(&self, who: Who, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.network.id()));
        command.args(["--", "setpriv", "--reuid", who.name(), "--clear-groups"]);
        if who == Who::Nobody {
            command.args(["--regid", &NOBODY.to_string()]);
        }
        command.args(["--", program]).current_dir("/");
        for (variable, _) in std::env::vars_os() {
            let of_ours = variable.to_str().is_some_and(|name| name.starts_with("LOCKKEEPER_"));
            if of_ours || variable == "XDG_STATE_HOME" || variable == "XDG_CONFIG_HOME" {
                command.env_remove(variable);
            }
        }
        command.env("HOME", self.home(who)).env("LOCKKEEPER_SYSTEM_HOME", self.system());
        command.env("LOCKKEEPER_SYSTEM_CONFIG", self.folder().join("config.toml"));
        command
    }

    /// Runs it to its end.
    pub(crate) fn ends(&self, who: Who, arguments: &str) -> Result<Ended> {
        Ended::of(&mut self.command(who, arguments))
    }

    /// The same, where it must end well.
    #[track_caller]
    pub(crate) fn does(&self, who: Who, arguments: &str) -> Result<String> {
        let ended = self.ends(who, arguments)?;
        assert_eq!(ended.code, Some(0), "{arguments}: {ended:?}");
        Ok(ended.stdout)
    }

    /// Starts a command of a user that holds a lock until [`Machine::let_go`].
    pub(crate) async fn holds(&self, who: Who, lock: &str) -> Result<Process> {
        let script =
            format!("echo held; while [ ! -e {} ]; do sleep 0.05; done", self.go().display());
        let command = self.command_of(who, &["run", lock, "--", "sh", "-c", &script]);
        let mut process = Process::spawn(who.name(), &command, self.folder())?;
        process.prints("held", LIMIT).await?;
        Ok(process)
    }

    /// Makes the holder of a lock end, and waits for it.
    pub(crate) async fn let_go(&self, holder: &mut Process) -> Result<()> {
        fs::write(self.go(), "")?;
        assert_eq!(holder.end(LIMIT).await?.code(), Some(0), "{}", holder.tail());
        Ok(fs::remove_file(self.go())?)
    }

    fn go(&self) -> PathBuf {
        self.folder().join("go")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for who in Who::BOTH {
            // Without an engine this has no effect.
            let _ = self.command(who, "local stop").output();
            let mut own = self.command(who, "local stop");
            let _ = own.env("LOCKKEEPER_SYSTEM_HOME", "none").output();
        }
    }
}
