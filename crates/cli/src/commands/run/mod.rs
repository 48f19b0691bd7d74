//! `lockkeeper run`: a command that runs while a lock is held.

mod above;
mod attend;
mod child;
pub(crate) mod elect;
mod events;
pub(crate) mod exec;
mod group;
pub(crate) mod hold;
pub(crate) mod items;
mod job;
mod lock;
mod loss;
mod once;
mod pause;
mod processes;
mod release;
mod rest;
mod terminal;
mod wait;
pub(crate) mod watchdog;

use std::time::{Duration, SystemTime};

use clap::Args;
use lockkeeper::{Clock, Contact, Instant, ZnodePath};

use crate::session::connect::Connection;
use crate::session::waiting::WaitOptions;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::signals::Signals;

use attend::{CalledOff, OnRevoke};
use events::{Event, Events};
use job::{CommandOptions, Job};
use lock::{Held, Lock, LockOptions};
use loss::Terms;
use once::{Once, Turn};
use release::{HOPELESS_LIMIT, RELEASE_LIMIT, keep_engine, release};
use rest::Rest;
use wait::WaitOutcome;
use watchdog::Watchdog;

/// What is a shell after `flock FILE`, and would be one more lock.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// After a wait of this length, since when a lock is held differs much from since when its holder is in line.
/// Shorter ones, as in a busy queue, are not worth a write.
const LONG_WAIT: Duration = Duration::from_secs(1);

const NOTES: &str = "\
The command gets these in its environment: LOCKKEEPER_LOCK, the lock; LOCKKEEPER_NODE, the \
holder's node; LOCKKEEPER_TOKEN, a fencing token that is larger for every later holder; \
LOCKKEEPER_CONNECT, the servers, \
which go over those of configuration files; the files of --tls-ca, --tls-cert, --tls-key and --digest-file, \
and --tls-name, under the names of their variables; LOCKKEEPER_OUTER_LOCKS, by which a run in it does not \
wait for this one; LOCKKEEPER_RUN, by which all that it has started is found; LOCKKEEPER_DEADLINE_UNIX_MS, until when the lock was certain as \
the command began (it is renewed while servers answer). With several locks, the first three have a \
line for each lock, in the order of their paths. With --one-of, LOCKKEEPER_NAME is the last part of the path \
that is held. With --once-per and --every, LOCKKEEPER_KEY is the key, or the \
time at which the command was due (UTC), and LOCKKEEPER_ATTEMPT is 1, or more if earlier runs for it have no \
end. LOCKKEEPER_DIGEST is taken out of it: \
lockkeeper in the command finds credentials by LOCKKEEPER_DIGEST_FILE.

The command runs in a process group of its own, which gets INT, TERM, HUP, QUIT, USR1 and USR2 \
when lockkeeper does. The lock is released when the command ends, even if processes that it has \
started live on. If lockkeeper is killed, the command and all that it has started are too (on Linux; not a \
set-user-ID program, nor what has left the process group and has another environment), and then a watchdog \
process releases the lock. If lockkeeper is stopped (Ctrl-Z, STOP) until the lease runs out, the watchdog kills the \
command.

A lock is of one kind: without options, for one holder at a time; with --shared and --write, for \
many readers or one writer; with --permits, for N holders. A command that takes a lock in use as \
another kind fails. A name is a lock, or has locks below it (backups/nightly, \
backups/weekly), and not both.

Several locks (lockkeeper run a b -- CMD) are held together or not at all, each for one holder at a \
time. Runs that share some of their locks never wait for each other in a circle, whatever order they \
name them in. While one lock is waited for, those that come before it in the order of their paths are \
held. -n takes them only if all are free. The loss of one, or a request for one, ends the command.

With --one-of (lockkeeper run --one-of gpu/{0..7} -- CMD), one of them is held: the first that is free, or that is given \
back to this run in its turn. All have the same part before the last /, which is the pool; LOCKKEEPER_NAME is the last part of \
the one that is held, and LOCKKEEPER_LOCK the pool. Runs may name different ones of a pool. A name of a pool is no lock of \
its own: a run without --one-of does not exclude these.

With -c, /bin/sh runs the line. All parts of it are in the process group that is ended with the lock.

The time of --max-run counts from the start of the command, also while the machine is suspended or the \
command stands still (Ctrl-Z, --on-outage pause). Then the command gets TERM and, after --kill-after, \
KILL; one that an outage has stopped is killed at once. What it has started is killed \
too, and the code is 124, as that of timeout(1).

With --at-least, the lock stays held for so long from the grant, also if the command ends before. INT, \
TERM, HUP, QUIT, a request for the lock or its loss end that rest; after a signal that was passed on, \
or a request, there is none. The code is the command's in each case. If lockkeeper is killed in the \
rest, the lock is free at once.

With --once-per KEY, the beginning and the end of the command are recorded on the servers, each in one \
transaction with a check that the lock is held. --every PERIOD does so for the time at which the command was \
due, by the clock of this machine as the run began; after a later one has begun, no earlier one begins. If the command has run \
already, the exit code is that of its run, and that is not an error. If it has not run and will not, since a \
later time has begun or with --if-unfinished skip, the code is that of -E. With --every, the lock is waited for \
until the next time is due, so that runs which wait do not become more and more. Do not combine with -n if another machine is to take over \
when one dies: the run that waits does. A command that a signal or --max-run ended, that was asked to end and failed, or that cannot be executed, \
counts as unfinished. \
*Exactly* once is not to be had: a machine may die when the command has ended and that is not recorded. By \
default the command then runs again (at least once). lockkeeper ticks LOCK lists the runs; 1000 keys and 1000 times are kept.

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
  1        the lock was not free (-n, -w), or the wait was part of a
           deadlock (--detect-deadlocks), or the code of -E; of other
           commands: the answer is no
  64       wrong usage
  65       the lock is of another kind, or above or below one, or has
           another number of permits; bad data
  69       something that the local engine needs is taken
  70       a bug in lockkeeper
  71       the system refuses a process
  73       LOCKKEEPER_HOME cannot be written, or is not yours alone;
           or the server has no room: its disk or memory is full, or a
           quota is reached
  74       a disk failed: the local engine's, or where output goes
  75       no server could be reached
  77       no permission on the servers, or this machine's engine
  78       a configuration file, certificate, key or clock is wrong;
           no servers are named (--require-servers), or the servers that
           are named are not one service
  79       the lock was lost while the command ran, or hold held it
  124      the command ran for longer than --max-run
  126/127  the command cannot be executed / does not exist
  128 + n  signal n came while waiting for the lock";

const USAGE: &str = "lockkeeper run [OPTIONS] <LOCK>... -- <CMD>...\n       \
                     lockkeeper run [OPTIONS] <LOCK>... -c <CMDLINE>";

/// Run a command while holding a lock
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
#[command(after_help = "The command's environment and all exit codes: lockkeeper run --help", after_long_help = NOTES)]
pub(crate) struct RunOptions {
    /// The lock, such as backups/nightly; of several, all are held or none
    #[arg(value_parser = names::lock, value_name = "LOCK", required = true)]
    locks: Vec<ZnodePath>,

    /// Hold one of the locks that are named, as things of a pool: run --one-of gpu/{0..7}. LOCKKEEPER_NAME says
    /// which. bash expands the braces, and /bin/sh does not (cron): name each there, as gpu/0 gpu/1
    #[arg(long, conflicts_with_all = ["shared", "write", "permits", "lock_delay", "profile"])]
    one_of: bool,

    /// Do not wait if the lock is not free
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    nonblock: bool,

    #[command(flatten)]
    wait: WaitOptions,

    /// What happens to the command on a request for the lock (lockkeeper revoke)
    #[arg(long, value_enum, default_value_t = OnRevoke::Term)]
    on_revoke: OnRevoke,

    /// Hold the lock for so long from the grant, also if the command ends before. For a job that is to run once
    /// each time it is due, use --every
    #[arg(long, value_name = "DURATION", value_parser = names::duration,
          allow_hyphen_values = true)]
    at_least: Option<Duration>,

    #[command(flatten)]
    job: CommandOptions,

    #[command(flatten)]
    once: Once,

    #[command(flatten)]
    which: LockOptions,
}

/// Runs the command, and gives its exit code.
pub(crate) async fn run(global: &Global, mut options: RunOptions) -> Result<u8, Failure> {
    // Until the signals are listened to they end this process, which has nothing to leave behind.
    check(&mut options)?;
    let events = Events::open(options.job.json_log.as_deref(), &options.locks)?;
    let result = in_session(global, &mut options, &events).await;
    result.inspect_err(|failure| events.failed(failure))
}

async fn in_session(
    global: &Global,
    options: &mut RunOptions,
    events: &Events,
) -> Result<u8, Failure> {
    options.wait.limit = options.once.limit(options.wait.limit);
    options.wait.detects_deadlocks = options.which.detect_deadlocks;
    let connection = options.wait.connect(global).await?;
    if options.nonblock {
        options.wait.limit = Some(Duration::ZERO);
    }
    // There is no moment at which we have the lock and are not watched.
    let mut watchdog = Watchdog::start(&connection)?;
    let result = with_session(&connection, options, events, &mut watchdog).await;

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
fn check(options: &mut RunOptions) -> Result<(), Failure> {
    options.job.check()?;
    let others = options.locks.iter().skip(1).filter(|_| options.job.command.is_line());
    if let Some(shell) = others.into_iter().find(|lock| SHELLS.contains(&lock.name())) {
        let message = format!("{shell} would be a lock here, and no shell");
        let advice =
            "a command follows a --, as in: lockkeeper run demo/hello -- sh -c 'echo hello'";
        return Err(Failure::new(Exit::Usage, message).advise(advice));
    }
    if !options.one_of {
        options.which.check(&options.locks)?;
    }
    let is_for_several = options.which.is_for_several() || options.one_of;
    options.once.check(&options.locks, is_for_several)
}

async fn with_session(
    connection: &Connection,
    options: &RunOptions,
    events: &Events,
    watchdog: &mut Watchdog,
) -> Result<u8, Failure> {
    let client = &connection.client;
    let terms = options.job.terms(connection, options.wait.quiet)?;

    let mut signals = Signals::listen()?;
    let label = options.job.label();
    let lock = match options.one_of {
        true => Lock::one_of(client, &options.locks, &label)?,
        false => options.which.lock(client, &options.locks, &label)?,
    };

    let began = Clock.now();
    let waited_ms = || Clock.now().since(began).as_millis();
    let acquired =
        wait::acquire(connection, &lock, options.wait, &mut signals, watchdog, events).await?;
    match acquired {
        WaitOutcome::Held(held) => {
            let granted = Clock.now();
            if granted.since(began) > LONG_WAIT {
                let now = SystemTime::now();
                held.guards().iter().for_each(|guard| guard.note_held_since(now));
            }
            events.write(Event::acquired(&held, waited_ms()));
            let run = Granted { connection, options, terms, granted, events };
            run.hold(*held, signals, watchdog).await
        }
        WaitOutcome::Conflict => {
            let code = options.wait.conflict_exit_code;
            events.write(Event::Conflict { code, waited_ms: waited_ms() });
            Ok(code)
        }
        WaitOutcome::Signal(signal) => {
            let code = crate::shared::exit::signal_code(signal.as_raw());
            events.write(Event::Interrupted { code, waited_ms: waited_ms() });
            Ok(code)
        }
    }
}

/// A run that has its lock.
struct Granted<'a> {
    connection: &'a Connection,
    options: &'a RunOptions,
    terms: Terms,
    granted: Instant,
    events: &'a Events,
}

impl Granted<'_> {
    /// Runs the command under the lock, and releases it.
    async fn hold(
        self,
        held: Held,
        mut signals: Signals,
        watchdog: &mut Watchdog,
    ) -> Result<u8, Failure> {
        let Self { connection, options, terms, granted, events } = self;
        let release = async |held, limit| release(connection, held, limit, granted, events).await;
        // We stood still, or the servers did, since the lock was granted.
        let too_late = || {
            let message = format!("{} was lost before the command was started", held.name());
            Failure::new(Exit::Lost, message)
        };
        if !terms.leaves_time(&held) {
            let failure = too_late();
            release(held, HOPELESS_LIMIT).await;
            return Err(failure);
        }

        watchdog.follow(connection);
        let words = once::OnceTerms {
            label: &options.job.label(),
            conflict: options.wait.conflict_exit_code,
            quiet: options.wait.quiet,
        };
        let turn = options.once.begin(connection, &held, &mut signals, words, events).await;
        let once = match turn {
            Ok(Turn::Run(once)) if terms.leaves_time(&held) => once,
            over => {
                let code = match over {
                    Ok(Turn::Run(_)) => Err(too_late()),
                    Ok(Turn::Over(code)) => Ok(code),
                    Err(failure) => Err(failure),
                };
                release(held, RELEASE_LIMIT).await;
                return code;
            }
        };
        let job =
            Job { connection, options: &options.job, on_revoke: options.on_revoke, terms, events };
        let mut loss = job.loss(&held, watchdog);
        let variables = options.once.variables(once.as_ref());
        let ran = match signals.listen_for_child() {
            Ok(()) => job.run(&held, &mut loss, &mut signals, variables, None).await,
            Err(failure) => Err(failure),
        };
        let ran = match ran {
            Ok(ran) => ran,
            Err(failure) => {
                drop(once);
                release(held, RELEASE_LIMIT).await;
                return Err(failure);
            }
        };

        let is_called_off = ran.called_off != CalledOff::No;
        if let Some(once) = once {
            let is_cut_off = ran.is_by_signal || ran.is_cut_off();
            let outcome = once::RunOutcome { code: ran.code, is_cut_off, is_called_off };
            once::record_end(connection, once, outcome, RELEASE_LIMIT, events).await;
        }

        if let Some(time) = options.at_least.filter(|_| ran.lost.is_none() && !is_called_off) {
            let on_revoke = options.on_revoke;
            let rest = Rest { until: granted + time, on_revoke, quiet: options.wait.quiet, events };
            rest.hold(keep_engine(connection), &held, &mut loss, &mut signals).await;
        }
        release(held, ran.release_limit(connection)).await;
        Ok(ran.code)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

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
