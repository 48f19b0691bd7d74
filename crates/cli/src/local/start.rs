//! Finds the machine-local engine, or starts it.
//!
//! `start.lock` prevents races. A command holds it shared from the check of the socket until it has a session. A
//! process that starts an engine holds it exclusively, so if two commands run at once, one starts the engine and the
//! other finds it. An engine that is about to end because it has no sessions also takes it exclusively, so it cannot
//! end after a command has found it.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::process::Stdio;
use std::time::Duration;

use lockkeeper::{Client, ClientBuilder, Clock, Contact};
use lockkeeper_engine::Durability;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::control::{self, ControlRequest};
use super::home::{Home, Scope};
use super::system::WAY_OUT;
use super::{daemon, other_engines, system};
use crate::shared::exit::{Exit, Failure};
use crate::shared::output::tell;
use crate::shared::program::helper_process;
use crate::shared::{names, trust};

/// The environment variable with the durability of an engine that is started.
pub(super) const DURABILITY: &str = "LOCKKEEPER_LOCAL_DURABILITY";

/// The environment variable with the time that an engine runs without sessions.
const IDLE: &str = "LOCKKEEPER_LOCAL_IDLE";

/// How long an engine may be away before commands that wait for a lock start it again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// How often a command that connects checks whether the engine still runs.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The minimum time for a connection, even for a command that does not want to wait.
pub(crate) const MIN_CONNECT_TIME: Duration = Duration::from_secs(1);

/// How long the data may be in use by an engine that does not listen.
const START_LIMIT: Duration = Duration::from_secs(5);

/// How often to start an engine that ends before it can be used.
const TRIES: u32 = 5;

/// A session with this machine's engine.
#[derive(Debug)]
pub(crate) struct LocalSession {
    pub(crate) client: Client,
    pub(crate) engine: LocalEngine,
    /// The connection string for another process.
    pub(crate) servers: String,
}

/// Opens a session with the engine in a home, which is started if necessary. Waits for the end of the engine's quiet
/// time, unless that exceeds the limit.
pub(crate) async fn with_engine(
    home: Home,
    builder: ClientBuilder,
    limit: Option<Duration>,
) -> Result<LocalSession, Failure> {
    let is_first = !home.log().exists();
    let mut tries = 0;
    loop {
        tries += 1;
        let found = ensure(&home, None)?;
        outwait_quiet(&home, limit).await?;

        let servers = home.connect_string();
        let connected = tokio::select! {
            connected = builder.clone().connect(&servers) => connected,
            // No other process can start an engine while this one holds the lock.
            () = death(&home), if tries < TRIES => {
                drop(found);
                continue;
            }
        };

        match connected {
            Ok(client) => {
                let engine = LocalEngine { home, is_first };
                return Ok(LocalSession { client, engine, servers });
            }
            // The engine was killed or stopped after it was found.
            Err(_) if !is_alive(&home) && tries < TRIES => drop(found),
            Err(error) => return Err(Failure::from(error).advise(&see_log(&home))),
        }
    }
}

/// Waits while clients of the previous engine may still hold locks: no session starts during that time.
async fn outwait_quiet(home: &Home, limit: Option<Duration>) -> Result<(), Failure> {
    let patience = limit.map_or(Duration::MAX, |limit| limit.max(MIN_CONNECT_TIME));
    let answer = control::ask_within(home, ControlRequest::Status, patience)?;
    let left = Duration::from_millis(answer.map_or(0, |answer| answer.status.quiet_ms));
    if left.is_zero() || limit.is_some_and(|limit| limit < left) {
        return Ok(());
    }
    tell(&format!(
        "waiting for {:.0} s: clients of the previous engine may still hold locks",
        left.as_secs_f64().ceil()
    ));
    sleep(left).await;
    Ok(())
}

/// Waits until no engine is running.
async fn death(home: &Home) {
    while is_alive(home) {
        sleep(LOOK_AGAIN).await;
    }
}

/// The engine that a session is with.
#[derive(Clone, Debug)]
pub(crate) struct LocalEngine {
    home: Home,
    /// Whether this is the first engine in this home.
    is_first: bool,
}

impl LocalEngine {
    /// Warns a user who acquires or awaits a lock about other engines, whose locks do not exclude this engine's. Each
    /// engine is named once. A user who has chosen a separate engine is not warned.
    pub(crate) fn introduce(&self) {
        if self.is_expected() {
            return;
        }

        let others = other_engines::unknown(&self.home);
        if others.is_empty() {
            return self.announce();
        }
        for other in others {
            let way_out = match other.owner == trust::me() {
                true => "set LOCKKEEPER_HOME, or HOME, to one directory for all your jobs",
                false => WAY_OUT,
            };
            tell(&format!(
                "warning: another engine is running on this machine, {other}: its locks do not exclude yours; \
                 {way_out}"
            ));
        }
    }

    /// Prints a notice when the first engine of this home was started.
    pub(crate) fn announce(&self) {
        if self.is_first && !self.is_expected() {
            tell(&format!(
                "started an engine for {}: the locks of other users do not exclude yours; {WAY_OUT}",
                trust::user(trust::me())
            ));
        }
    }

    fn is_expected(&self) -> bool {
        self.home.scope() == Scope::System || system::is_declined()
    }

    /// Starts a new engine whenever this one dies. It reads the same data, so sessions survive. Returns only if the
    /// start fails.
    pub(crate) async fn keep(&self, client: &Client) -> Failure {
        let mut status = client.status();
        loop {
            if status.wait_for(|now| now.contact != Contact::Connected).await.is_err() {
                // Users of the client get the error from their own calls.
                return std::future::pending().await;
            }

            // An engine that is being restarted needs no help.
            sleep(RESTART_DELAY).await;
            if is_alive(&self.home) {
                continue;
            }

            if !self.home.is_ours() {
                tell("this machine's engine has ended; waiting for root to restart it");
                return std::future::pending().await;
            }
            tell("this machine's engine has ended; restarting it");
            // Kept until there is a session: an engine without sessions may end.
            let _found = match self.restart().await {
                Ok(found) => found,
                Err(failure) => return failure,
            };
            let back = status.wait_for(|now| now.contact == Contact::Connected);
            let _ = tokio::time::timeout(RESTART_DELAY, back).await;
        }
    }

    async fn restart(&self) -> Result<Option<File>, Failure> {
        let home = self.home.clone();
        let panicked = |_| Failure::new(Exit::Bug, "the start of an engine has panicked");
        spawn_blocking(move || ensure(&home, None)).await.map_err(panicked)?
    }
}

/// Makes sure that an engine is running. While the returned file is open, the engine does not end for lack of sessions.
/// The machine's engine never does, so its users get no file.
pub(super) fn ensure(home: &Home, durability: Option<Durability>) -> Result<Option<File>, Failure> {
    if !home.is_ours() {
        return if is_alive(home) { Ok(None) } else { Err(not_running(home)) };
    }

    for _ in 0..TRIES {
        let lock = home.start_lock()?;
        lock.lock_shared().map_err(lock_failed)?;
        if is_alive(home) {
            return Ok(Some(lock));
        }

        // Do not upgrade the lock from shared to exclusive: two commands would deadlock.
        lock.unlock().map_err(lock_failed)?;
        lock.lock().map_err(lock_failed)?;
        if !is_alive(home) {
            start_or_find(home, durability)?;
        }

        // Downgrade from exclusive to shared. In a gap, the new engine could take the lock and end because it has no
        // sessions yet. Where the system leaves a gap, the next check notices that.
        lock.lock_shared().map_err(lock_failed)?;
        if is_alive(home) {
            return Ok(Some(lock));
        }
    }

    let message = "the machine-local engine ends immediately after it has started";
    Err(Failure::new(Exit::NoServer, message).advise(&see_log(home)))
}

/// The failure for a user who may use the engine but not start it.
fn not_running(home: &Home) -> Failure {
    let directory = home.directory().display();
    let message = format!("this machine's engine ({directory}) is not running");
    Failure::new(Exit::NoServer, message).advise("root can start it: sudo lockkeeper local start")
}

/// Starts an engine, unless another process has started one.
///
/// The data may be in use for a moment: by an engine that does not listen yet and whose starter was killed, or by an
/// engine that was killed and whose files the system has not closed yet.
fn start_or_find(home: &Home, durability: Option<Durability>) -> Result<(), Failure> {
    let end = Clock.now() + START_LIMIT;
    loop {
        let failure = match start(home, durability) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };

        if is_alive(home) {
            return Ok(());
        }
        if failure.code() != Exit::Taken.code() || Clock.now() >= end {
            return Err(failure);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn lock_failed(error: io::Error) -> Failure {
    Failure::new(Exit::System, format!("cannot lock start.lock: {error}"))
}

fn see_log(home: &Home) -> String {
    format!("see {}", home.log().display())
}

/// A socket without a listener refuses connections. If it accepts, or if its queue is full so that a connection would
/// block, the engine is alive.
fn is_alive(home: &Home) -> bool {
    let connected = SocketAddrUnix::new(home.socket()).and_then(|address| {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    matches!(connected, Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS))
}

/// Parses the value of an environment variable, if it is set.
fn from_environment<T, E: Display>(
    variable: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Failure> {
    let set = std::env::var(variable).ok();
    let value = set.as_deref().map(read).transpose();
    value.map_err(|error| Failure::new(Exit::Usage, format!("{variable}: {error}")))
}

/// Starts an engine in the background, and returns when it listens.
fn start(home: &Home, durability: Option<Durability>) -> Result<(), Failure> {
    let refused = |error: io::Error| {
        Failure::new(Exit::System, format!("cannot start the machine-local engine: {error}"))
    };
    // Parsed here, so that the user sees errors in the variables.
    let durability = match durability {
        Some(durability) => durability,
        None => from_environment(DURABILITY, str::parse)?.unwrap_or(Durability::Sync),
    };
    let idle = from_environment(IDLE, names::nonzero_duration)?;
    let idle = idle.map(|idle| format!("--idle={}", humantime::format_duration(idle)));

    let mut engine = helper_process()
        .map_err(refused)?
        .arg(daemon::WORD)
        .arg("--home")
        .arg(home.directory())
        .args((home.scope() == Scope::System).then_some("--system"))
        .args(["--durability", &durability.to_string()])
        .args(idle)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(home.open_log()?)
        .spawn()
        .map_err(refused)?;

    let mut report = String::new();
    if let Some(mut pipe) = engine.stdout.take() {
        // The pipe is closed after the report, or when the process dies without a report.
        let _ = pipe.read_to_string(&mut report);
    }
    match daemon::Report::read(&report) {
        Some(daemon::Report::Ready) => Ok(()),
        Some(daemon::Report::Failed(failure)) => {
            let _ = engine.wait();
            Err(failure.about("the machine-local engine did not start"))
        }
        None => {
            let how = engine.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
            let message = format!("the machine-local engine ended as it started ({how})");
            Err(Failure::new(Exit::NoServer, message).advise(&see_log(home)))
        }
    }
}
