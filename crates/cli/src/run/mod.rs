//! `lockkeeper run`: a command that runs while a lock is held.

mod above;
mod child;
pub(crate) mod exec;
mod group;
mod lock;
mod loss;
mod pause;
mod signals;
mod terminal;
mod wait;
pub(crate) mod watchdog;

use std::ffi::OsString;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lockkeeper::{Contact, Guard, State, ZnodePath};
use rustix::process::Signal;
use tokio::task::spawn_blocking;

use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::{report, tell};
use crate::{names, nested};

use child::{Change, Child, Ended, Step};
use lock::{Held, Which};
use loss::{Loss, OnLost, OnOutage, Terms};
use signals::Signals;
use wait::{Outcome, Wait};
use watchdog::Watchdog;

/// How long a release may take; afterwards the session expires by itself.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The same when no server has been heard of for a while.
const HOPELESS_LIMIT: Duration = Duration::from_millis(500);

const NOTES: &str = "\
The command gets these in its environment: LOCKKEEPER_LOCK, the lock; LOCKKEEPER_NODE, the \
holder's node; LOCKKEEPER_TOKEN, a fencing token that is larger for every later holder; \
LOCKKEEPER_CONNECT, the servers, \
which go over those of configuration files; LOCKKEEPER_OUTER_LOCKS, by which a run in it does not \
wait for this one; LOCKKEEPER_DEADLINE_UNIX_MS, until when the lock was certain as \
the command began (it is renewed while servers answer). LOCKKEEPER_DIGEST is taken out of it: \
lockkeeper in the command finds credentials by LOCKKEEPER_DIGEST_FILE.

The command runs in a process group of its own, which gets INT, TERM, HUP, QUIT, USR1 and USR2 \
when lockkeeper does. The lock is released when the command ends, even if processes that it has \
started live on. If lockkeeper is killed, the command is too (on Linux; not a set-user-ID \
program, nor what has left the command's process group), and then a watchdog process releases the \
lock. If lockkeeper is stopped (Ctrl-Z, STOP) until the lease runs out, the watchdog kills the \
command.

A lock is of one kind: without options, for one holder at a time; with --shared and --write, for \
many readers or one writer; with --permits, for N holders. A command that takes a lock in use as \
another kind fails. A name is a lock, or has locks below it (backups/nightly, \
backups/weekly), and not both.

Without servers (--connect, or a configuration file: see lockkeeper settings), an engine on this \
machine keeps the lock: the one for all users if root has \
enabled it (lockkeeper local enable --system), or else this user's own. The locks of the engines of \
two users do not exclude each other; a warning says so, unless --quiet.

If another program asks for the lock (lockkeeper revoke), the command gets TERM, unless --on-revoke \
ignore says otherwise, and the lock is released when it has ended.

If no server renews the lease, the command is ended before anyone else can have the lock: TERM, \
then KILL after --kill-after. See docs/guarantees.md for what is promised.

With --on-outage pause, its process group is stopped instead, and goes on with the same token if the \
lock was held all the time; if it is lost, or --grace is over, the command is killed where it stands. \
Connections of the command may end meanwhile, and what has left its process group is not stopped. A \
signal that the command is to get waits until it goes on.

Exit codes:
  the command's own, or 128 + n if signal n ended it
  1        the lock was not free (-n, -w), or the code of -E
  64       wrong usage
  65       the lock is of another kind, or above or below one, or has
           another number of permits; bad data
  69       something that the local engine needs is taken
  70       a bug in lockkeeper
  71       the system refuses a process
  73       LOCKKEEPER_HOME cannot be written, or is not yours alone
  74       the disk of the local engine failed
  75       no server could be reached
  77       no permission on the servers, or this machine's engine
  78       a configuration file, a certificate or a key is wrong;
           no servers are named (--require-servers), or the servers that
           are named are not one service
  79       the lock was lost while the command ran
  126/127  the command cannot be executed / does not exist
  128 + n  signal n came while waiting for the lock";

/// Run a command while holding a lock
#[derive(Debug, Args)]
#[command(after_help = "The command's environment and all exit codes: lockkeeper run --help", after_long_help = NOTES)]
pub(crate) struct Options {
    /// The lock, such as backups/nightly
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,

    /// Do not wait if the lock is not free
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,

    /// Wait no longer than this
    #[arg(short, long, value_name = "DURATION", value_parser = names::duration,
          allow_hyphen_values = true)]
    wait: Option<Duration>,

    /// The exit code if the lock was not free
    #[arg(short = 'E', long, value_name = "N", default_value_t = Exit::No.code())]
    conflict_exit_code: u8,

    /// What happens to the command when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    on_lost: OnLost,

    /// What happens to the command on a request for the lock (lockkeeper revoke)
    #[arg(long, value_enum, default_value_t = OnRevoke::Term)]
    on_revoke: OnRevoke,

    /// What happens to the command when no server renews the lease. `pause` stops its process group
    /// before the deadline; it goes on if the servers prove that the lock was held all the time, and is
    /// killed if not. For a command that may stand still at any point
    #[arg(long, value_enum, default_value_t = OnOutage::End)]
    on_outage: OnOutage,

    /// How long an outage may stop the command (--on-outage pause) before it is killed [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = names::duration,
          allow_hyphen_values = true)]
    grace: Option<Duration>,

    /// How long the command may take to end after TERM; the longer this is, the shorter the server
    /// outage that the command survives [default: 2s, or two fifteenths of a shorter session timeout]
    #[arg(long, value_name = "DURATION", value_parser = names::duration,
          allow_hyphen_values = true)]
    kill_after: Option<Duration>,

    /// Do not say who holds the lock, how short an outage would end the command, nor that other users
    /// have engines of their own
    #[arg(short, long)]
    quiet: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    which: Which,
}

impl Options {
    fn how_to_wait(&self) -> Wait {
        let limit = if self.nonblock { Some(Duration::ZERO) } else { self.wait };
        Wait { limit, quiet: self.quiet }
    }

    fn grace(&self) -> Result<Option<Duration>, Failure> {
        loss::grace(self.on_outage, self.on_lost, self.grace)
    }
}

/// What happens to the command on a request for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnRevoke {
    /// TERM; the lock is released when it has ended
    Term,
    /// Nothing
    Ignore,
}

/// Runs the command, and gives its exit code.
pub(crate) async fn run(global: &Global, mut options: Options) -> Result<u8, Failure> {
    // Until the signals are listened to they end this process, which has nothing to leave behind.
    check(&options)?;
    let connection = Connection::open_within(global, &mut options.wait).await?;
    if !options.quiet {
        connection.introduce_engine();
    }
    // There is no moment at which we have the lock and are not watched.
    let mut watchdog = Watchdog::start(&connection)?;
    let result = with_session(&connection, &options, &mut watchdog).await;

    let is_lost = result.as_ref().is_ok_and(|code| *code == Exit::Lost.code());
    // After a loss, only a server that is there is told: without one, the session expires.
    if !is_lost || connection.client.contact() == Contact::Connected {
        connection.close().await;
    }
    // Not before: if we are killed while we release the lock, it closes the session.
    watchdog.dismiss();
    result
}

/// Refuses what could never work before anything is started for it.
fn check(options: &Options) -> Result<(), Failure> {
    if options.command.first().is_none_or(|program| program.is_empty()) {
        let message = "the command is an empty text; a variable that is not set, perhaps?";
        return Err(Failure::new(Exit::Usage, message));
    }
    options.grace()?;
    options.which.check()
}

async fn with_session(
    connection: &Connection,
    options: &Options,
    watchdog: &mut Watchdog,
) -> Result<u8, Failure> {
    let client = &connection.client;
    let timing = client.timing();
    let terms = Terms::fit(timing, options.on_lost, options.kill_after, options.grace()?)?;
    if !options.quiet {
        terms.warn_of_short_outages(timing);
    }

    let mut signals = Signals::listen()?;
    let lock = options.which.lock(client, &options.lock, &program(options))?;

    let wait = options.how_to_wait();
    if wait.limit.is_none() {
        nested::check(connection, lock.path(), |outer| lock.goes_together_with(outer)).await?;
    }
    let checks = async {
        above::check(client, lock.path()).await?;
        lock.check_layout(client).await?;
        lock.check_delay(client).await
    };

    match wait::acquire(connection, &lock, wait, checks, &mut signals, watchdog).await? {
        Outcome::Held(guard) => hold(connection, options, terms, *guard, signals, watchdog).await,
        Outcome::Conflict => Ok(options.conflict_exit_code),
        Outcome::Signal(signal) => Ok(crate::exit::signal_code(signal.as_raw())),
    }
}

/// What the holder is called where the queue is shown. Not the arguments: they may be secret.
fn program(options: &Options) -> String {
    let program = options.command.first().map(Path::new).and_then(Path::file_name);
    program.unwrap_or_default().to_string_lossy().into_owned()
}

/// Runs the command under the guard, and releases the lock.
async fn hold(
    connection: &Connection,
    options: &Options,
    terms: Terms,
    guard: Held,
    mut signals: Signals,
    watchdog: &mut Watchdog,
) -> Result<u8, Failure> {
    if !terms.leaves_time(&guard) {
        // We stood still, or the servers did, since the lock was granted.
        let message = format!("{} was lost before the command was started", guard.path());
        release(connection, guard, HOPELESS_LIMIT).await;
        return Err(Failure::new(Exit::Lost, message));
    }

    watchdog.follow(connection);
    let mut loss = Loss::new(&options.lock, terms, watchdog, &guard);
    let environment = child::Environment { connection, lock: &options.lock, guard: &guard };
    let started =
        signals.listen_for_child().and_then(|()| loss.spawn(&options.command, &environment));
    let mut child = match started {
        Ok(child) => child,
        Err(failure) => {
            release(connection, guard, RELEASE_LIMIT).await;
            return Err(failure);
        }
    };

    let attended = tokio::select! {
        ended = attend(&mut child, &mut loss, &guard, options.on_revoke, &mut signals) => ended,
        never = keep_engine(connection) => match never {},
    };
    // Without us, nobody else ends it.
    let ended = attended.inspect_err(|_| child.signal(Signal::KILL))?;
    child.finish(&ended);

    let cut_off = loss.conclude(&ended);
    let is_reached = connection.client.contact() == Contact::Connected;
    let (limit, code) = match cut_off {
        // The lock ends with the session, and there is nobody who could end it earlier.
        Some(exit) if !is_reached => (Duration::ZERO, exit.code()),
        Some(exit) => (HOPELESS_LIMIT, exit.code()),
        None => (RELEASE_LIMIT, ended.code()),
    };
    if cut_off.is_some() {
        end_leftovers(&child).await;
    }
    release(connection, guard, limit).await;
    Ok(code)
}

/// Ends what a command left behind that was cut off. It is not ours to wait for, nor to run for another
/// moment once another program may have the lock.
async fn end_leftovers(child: &Child) {
    child.signal(Signal::KILL);
    let group = child.group();
    let _ = spawn_blocking(move || group::ends_within(group, HOPELESS_LIMIT)).await;
}

/// Starts this machine's engine again whenever it dies. If that fails, the user is told; the
/// command goes on for as long as the lease does.
async fn keep_engine(connection: &Connection) -> std::convert::Infallible {
    report(&connection.keep_engine().await);
    std::future::pending().await
}

/// Passes signals on and watches the lease, until the child has ended.
async fn attend(
    child: &mut Child,
    loss: &mut Loss<'_>,
    guard: &Guard,
    on_revoke: OnRevoke,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let mut request = pin!(guard.revoke_requested());
    let mut listens = on_revoke == OnRevoke::Term;
    loop {
        tokio::select! {
            // An ended child comes first: nothing that has no process any more is signalled.
            biased;
            signal = signals.next() => {
                if let Some(ended) = handle_signal(signal, child, loss, guard)? {
                    return Ok(ended);
                }
            }
            step = loss.next(guard, child) => child.take(step),
            requested = &mut request, if listens => {
                listens = false;
                // A loss is seen to above.
                if requested.is_ok() {
                    give_way(child, loss, guard);
                }
            }
        }
    }
}

/// Passes a signal on to the child, or sees to what it tells of child processes. Returns how the child
/// ended, if it did.
fn handle_signal(
    signal: Signal,
    child: &mut Child,
    loss: &mut Loss<'_>,
    guard: &Guard,
) -> Result<Option<Ended>, Failure> {
    match signal {
        Signal::CHILD => {
            let ended = follow(child, loss)?;
            if ended.is_none()
                && let Some(step) = loss.keep_watchdog()
            {
                child.take(step);
            }
            return Ok(ended);
        }
        // The lease went on while all stood still. If there is no time left for the child, the loss
        // is noticed next, and the child never gets to run.
        Signal::CONT if loss.lets_run(guard) => child.resume(),
        Signal::CONT => child.continued(),
        other => {
            child.signal(other);
            if loss.is_paused() {
                let path = guard.path();
                tell(&format!("{path}: the signal waits until the command goes on"));
            }
        }
    }
    Ok(None)
}

/// Ends the child, as another program asks for the lock.
fn give_way(child: &mut Child, loss: &Loss<'_>, guard: &Guard) {
    let path = guard.path();
    tell(&format!("{path}: another program asks for it; ending the command"));
    match loss.is_paused() {
        // It gets to it when it goes on.
        true => child.signal(Signal::TERM),
        false => child.take(Step::Term),
    }
}

/// Sees to all that has happened to the child since the last look; how it ended, if it did.
fn follow(child: &mut Child, loss: &Loss<'_>) -> Result<Option<Ended>, Failure> {
    while let Some(change) = child.poll()? {
        match change {
            Change::Ended(ended) => return Ok(Some(ended)),
            // By us, or just before.
            Change::Stopped(_) if loss.is_paused() => {}
            // By the watchdog: it is to go on when the lock is held again.
            Change::Stopped(Some(Signal::STOP)) if loss.is_late() => {}
            Change::Stopped(by) => child.stopped(by),
            Change::Continued if loss.is_paused() => child.take(Step::Stop),
            Change::Continued => child.continued(),
        }
    }
    Ok(None)
}

/// Releases the lock. If no server confirms it in time, the command has still done its work.
async fn release(connection: &Connection, guard: Held, limit: Duration) {
    if matches!(guard.state(), State::Lost(_)) {
        return;
    }

    let lock = guard.path().clone();
    let why = tokio::select! {
        released = guard.release() => match released {
            Ok(()) => return,
            Err(error) => error.to_string(),
        },
        failure = connection.keep_engine() => failure.to_string(),
        () = tokio::time::sleep(limit) => match limit {
            Duration::ZERO => "no server can be reached".to_owned(),
            limit => format!("no server has confirmed it within {limit:?}"),
        },
    };

    let rest = connection.client.session_timeout();
    tell(&format!("{lock} may not be free before its session expires, within {rest:?}: {why}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_the_help() {
        let table: Vec<_> = NOTES.lines().filter(|line| line.starts_with("  ")).collect();
        for exit in Exit::value_variants() {
            let code = exit.code().to_string();
            let told = table.iter().any(|line| line.split([' ', '/']).any(|word| word == code));
            assert!(told || *exit == Exit::Ok, "{exit:?}");
        }
        // Manual pages are indented.
        let fits = |line: &&str| line.len() + 7 < 80;
        assert!(table.iter().all(fits), "they would be broken in a terminal");
    }
}
