//! Finds the machine-local engine, or starts it.
//!
//! `start.lock` makes this safe. A command holds it shared from the look at the socket until it
//! has a session. Whoever starts an engine holds it exclusively, so that of two commands one
//! starts it and the other finds it. An engine that is about to end for want of sessions takes it
//! exclusively, too, so that none ends under a command that has just found it.

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

use super::control::{self, Question};
use super::home::{Home, Scope};
use super::system::WAY_OUT;
use super::{daemon, neighbours, system};
use crate::shared::exit::{Exit, Failure};
use crate::shared::output::tell;
use crate::shared::program::helper_process;
use crate::shared::{names, trust};

/// The variable that says what an engine promises, for whoever starts it.
pub(super) const DURABILITY: &str = "LOCKKEEPER_LOCAL_DURABILITY";

/// The variable that says how long an engine stays without sessions.
const IDLE: &str = "LOCKKEEPER_LOCAL_IDLE";

/// How long an engine may be away before those who wait for a lock start it again.
const REVIVAL: Duration = Duration::from_secs(1);

/// How soon somebody who connects looks whether the engine is there still.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long a connection gets at least, for somebody who does not want to wait.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// How long the data may be in use by an engine that does not listen.
const START_LIMIT: Duration = Duration::from_secs(5);

/// How often an engine that ends again before it can be used is started anew.
const TRIES: u32 = 5;

/// A session with this machine's engine.
#[derive(Debug)]
pub(crate) struct LocalSession {
    pub(crate) client: Client,
    pub(crate) engine: LocalEngine,
    /// What another process connects to.
    pub(crate) servers: String,
}

/// A session with the engine in a home, which is started if need be. Waits for the end of its quiet time,
/// unless that is beyond a limit.
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
            // Nobody else could start another one while we hold on to it.
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
            // Killed, or stopped by hand, since we looked.
            Err(_) if !is_alive(&home) && tries < TRIES => drop(found),
            Err(error) => return Err(Failure::from(error).advise(&see_log(&home))),
        }
    }
}

/// No session begins while clients of an engine before may hold locks.
async fn outwait_quiet(home: &Home, limit: Option<Duration>) -> Result<(), Failure> {
    let patience = limit.map_or(Duration::MAX, |limit| limit.max(LEAST_PATIENCE));
    let answer = control::ask_within(home, Question::Status, patience)?;
    let left = Duration::from_millis(answer.map_or(0, |answer| answer.status.quiet_ms));
    if left.is_zero() || limit.is_some_and(|limit| limit < left) {
        return Ok(());
    }
    tell(&format!(
        "waiting for {:.0} s: clients of the engine before this one may still hold locks",
        left.as_secs_f64().ceil()
    ));
    sleep(left).await;
    Ok(())
}

/// Waits until there is no engine.
async fn death(home: &Home) {
    while is_alive(home) {
        sleep(LOOK_AGAIN).await;
    }
}

/// The engine that somebody has a session with.
#[derive(Clone, Debug)]
pub(crate) struct LocalEngine {
    home: Home,
    /// Whether no engine has ever run in this home before.
    is_first: bool,
}

impl LocalEngine {
    /// Warns a user who takes or awaits a lock of the other engines, whose locks do not exclude it: once of each.
    /// A user who has asked for an engine of their own knows.
    pub(crate) fn introduce(&self) {
        if self.is_expected() {
            return;
        }

        let others = neighbours::unknown(&self.home);
        if others.is_empty() {
            return self.announce();
        }
        for other in others {
            let way_out = match other.owner == trust::me() {
                true => "set LOCKKEEPER_HOME, or HOME, to one directory for all your jobs",
                false => WAY_OUT,
            };
            tell(&format!(
                "warning: another engine is up on this machine, {other}: its locks do not exclude yours; \
                 {way_out}"
            ));
        }
    }

    /// Tells a user that there is an engine now, when the first one has started.
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

    /// Starts another one whenever it dies. It reads the same data, so that sessions go on there.
    /// Ends only if one cannot be started.
    pub(crate) async fn keep(&self, client: &Client) -> Failure {
        let mut status = client.status();
        loop {
            if status.wait_for(|now| now.contact != Contact::Connected).await.is_err() {
                // The end of the client is told to whoever uses it.
                return std::future::pending().await;
            }

            // One that is stopped to be started again needs no help.
            sleep(REVIVAL).await;
            if is_alive(&self.home) {
                continue;
            }

            if !self.home.is_ours() {
                tell("this machine's engine has ended; waiting until root starts it again");
                return std::future::pending().await;
            }
            tell("this machine's engine has ended: starting it again");
            // Kept until there is a session: an engine without one may end.
            let _found = match self.revive().await {
                Ok(found) => found,
                Err(failure) => return failure,
            };
            let back = status.wait_for(|now| now.contact == Contact::Connected);
            let _ = tokio::time::timeout(REVIVAL, back).await;
        }
    }

    async fn revive(&self) -> Result<Option<File>, Failure> {
        let home = self.home.clone();
        let panicked = |_| Failure::new(Exit::Bug, "the start of an engine has panicked");
        spawn_blocking(move || ensure(&home, None)).await.map_err(panicked)?
    }
}

/// Makes sure that there is an engine. It does not end for want of sessions while the file lives;
/// the machine's engine never does, and its users have no file.
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

        // Not from shared to exclusive: two commands would wait for each other.
        lock.unlock().map_err(lock_failed)?;
        lock.lock().map_err(lock_failed)?;
        if !is_alive(home) {
            start_or_find(home, durability)?;
        }

        // Exclusive becomes shared: in a gap the engine that was just started could take it, and end
        // because nobody has a session yet. Where the system leaves one, the next look finds out.
        lock.lock_shared().map_err(lock_failed)?;
        if is_alive(home) {
            return Ok(Some(lock));
        }
    }

    let message = "the machine-local engine ends as soon as it has started";
    Err(Failure::new(Exit::NoServer, message).advise(&see_log(home)))
}

/// What a user can do nothing about who may only use the engine.
fn not_running(home: &Home) -> Failure {
    let directory = home.directory().display();
    let message = format!("this machine's engine ({directory}) is not running");
    Failure::new(Exit::NoServer, message).advise("root can start it: sudo lockkeeper local start")
}

/// Starts an engine, unless one comes up meanwhile.
///
/// The data may be in use for a moment: by an engine that does not listen yet, whose starter was
/// killed, or by one that was killed and whose files the system has still to close.
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

/// Nobody listens behind a socket that refuses, and whatever accepts is alive; so is one whose queue is full, for
/// whose room a connection would have to wait.
fn is_alive(home: &Home) -> bool {
    let connected = SocketAddrUnix::new(home.socket()).and_then(|address| {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    matches!(connected, Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS))
}

/// What a variable says, if it is set.
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
    // Read here, where the user sees what is wrong with them.
    let durability = match durability {
        Some(durability) => durability,
        None => from_environment(DURABILITY, str::parse)?.unwrap_or(Durability::Sync),
    };
    let idle = from_environment(IDLE, names::some_time)?;
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
        // It is closed with the report, or with the process if that dies without one.
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
