//! Child processes that are monitored and that never outlive the test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

const POLL: Duration = Duration::from_millis(10);
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A running child whose output goes to files. It is killed on drop, and by the kernel when the test process ends in
/// any way.
///
/// Not bound to a runtime: it may outlive the one in which it was started.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts `command` with its output in `folder`, in `<name>.out` and `<name>.err`, and an empty standard input.
    ///
    /// The command's program, arguments, environment and working directory are used; its standard streams are ignored.
    ///
    /// # Errors
    ///
    /// The files cannot be created, or `setpriv` (of util-linux) is not installed. A program that does not exist shows
    /// only later, as exit code 127 of `setpriv`.
    pub fn spawn(name: &str, command: &Command, folder: &Path) -> Result<Self> {
        let stdout = folder.join(format!("{name}.out"));
        let stderr = folder.join(format!("{name}.err"));
        let mut mortal = mortal(command);
        mortal.stdin(Stdio::null()).stdout(create(&stdout)?).stderr(create(&stderr)?);
        let child = spawn_from_lasting_thread(mortal)
            .with_context(|| format!("cannot start {name} through setpriv"))?;
        Ok(Self { name: name.to_owned(), child, stdout, stderr })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// The process has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid()?, signal)
            .with_context(|| format!("cannot send {signal:?} to {} ({})", self.name, self.id()))
    }

    /// Stops all its threads with SIGSTOP, and returns when they have stopped: after the signal alone, threads on other
    /// cores run for a moment longer.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let pid = self.pid()?;
        let start = Instant::now();

        // Does not collect the exit, so that the exit status remains for `status`.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while waitid(WaitId::Pid(pid), stopped)
            .with_context(|| format!("cannot wait for {} to stop", self.name))?
            .is_none()
        {
            if start.elapsed() > STOP_LIMIT {
                bail!("{} did not stop within {STOP_LIMIT:?}", self.name);
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Resumes it after [`Process::pause`].
    ///
    /// # Errors
    ///
    /// The process has ended and was waited for.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        pid.with_context(|| format!("{} has no process id", self.name))
    }

    /// Ends it with SIGKILL and waits until it is gone. Does nothing if it has ended already.
    pub fn kill(&mut self) {
        // Fails only for a process that has been waited for, which is the desired state.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its exit status if it has ended.
    ///
    /// # Errors
    ///
    /// The operating system reports an error.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits until it ends.
    ///
    /// # Errors
    ///
    /// It has not ended within `limit`. The error shows the end of its output.
    pub async fn end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            if start.elapsed() >= limit {
                bail!("{} has not ended after {limit:?}\n{}", self.name, self.tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until its standard output contains `text`.
    ///
    /// # Errors
    ///
    /// It ended without printing it, or `limit` passed. The error shows the end of its output.
    pub async fn prints(&mut self, text: &str, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let ended = self.status()?;
            if self.stdout().contains(text) {
                return Ok(());
            }
            if let Some(status) = ended {
                bail!("{} ended ({status}) before it printed {text:?}\n{}", self.name, self.tail());
            }
            if start.elapsed() >= limit {
                bail!("{} has not printed {text:?} after {limit:?}\n{}", self.name, self.tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The last lines of both outputs, for an error message.
    pub fn tail(&self) -> String {
        [(&self.stdout, "stdout"), (&self.stderr, "stderr")]
            .map(|(file, stream)| {
                let text = read(file);
                let lines: Vec<&str> = text.lines().collect();
                let last = &lines[lines.len().saturating_sub(30)..];
                format!("--- {stream} of {}\n{}\n", self.name, last.join("\n"))
            })
            .concat()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The same command under a parent-death signal, and with default signal handlers: a shell that runs the suites in the
/// background ignores some signals. `setpriv` and `env` replace themselves with the program, so that the process id is
/// the program's own.
pub fn mortal(command: &Command) -> Command {
    let mut mortal = Command::new("setpriv");
    mortal.args(["--pdeathsig", "KILL", "--"]);
    mortal.args(["env", "--default-signal=HUP,INT,QUIT,TERM", "--"]);
    started_by(mortal, command)
}

/// A command that another one starts: its words follow those of `starter`.
pub(crate) fn started_by(mut starter: Command, command: &Command) -> Command {
    starter.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => starter.env(key, value),
            None => starter.env_remove(key),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        starter.current_dir(folder);
    }
    starter
}

/// Runs a tool to its end. `refusal` describes its failure.
///
/// # Errors
///
/// The tool does not start or fails; the error contains its output.
pub(crate) fn run_tool(tool: &mut Command, refusal: &str) -> Result<()> {
    let output = tool.stdin(Stdio::null()).output();
    let output =
        output.with_context(|| format!("cannot start {}", tool.get_program().display()))?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        bail!("{refusal} ({}):\n{messages}", output.status);
    }
    Ok(())
}

/// Starts a child from a thread that lives as long as this process.
///
/// The kernel sends the parent-death signal when the *thread* that started the child ends. A test has a thread of its
/// own, which ends with the test, while many tests may share a server.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();

    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                // The caller waits for the answer below.
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, answer) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    spawner.send((command, reply)).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot create {}", path.display()))
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The path of `program` in `PATH`.
pub fn find(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program.as_ref()))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str, folder: &Path) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("GREETING", "hello");
        Process::spawn("shell", &command, folder).unwrap()
    }

    #[tokio::test]
    async fn output_and_status_are_kept() {
        let folder = scratch::folder().unwrap();
        let mut process = shell("echo $GREETING; echo oh >&2; exit 3", folder.path());
        assert_eq!(process.end(LIMIT).await.unwrap().code(), Some(3));
        assert_eq!(process.stdout(), "hello\n");
        assert_eq!(process.stderr(), "oh\n");
    }

    #[tokio::test]
    async fn waiting_for_a_line_ends_with_the_process() {
        let folder = scratch::folder().unwrap();
        let mut process = shell("echo one; sleep 60", folder.path());
        process.prints("one", LIMIT).await.unwrap();
        process.kill();
        let error = process.prints("two", LIMIT).await.unwrap_err().to_string();
        assert!(error.contains("ended (signal: 9 (SIGKILL))"), "{error}");
    }

    /// A server that the first test started was gone when the second test used it: the kernel
    /// had taken the end of the test's thread for the death of the parent.
    #[tokio::test]
    async fn a_child_outlives_the_thread_that_asked_for_it() {
        let folder = scratch::folder().unwrap();
        let path = folder.path().to_owned();
        let mut process = thread::spawn(move || shell("sleep 60", &path)).join().unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(process.status().unwrap(), None);
    }
}
