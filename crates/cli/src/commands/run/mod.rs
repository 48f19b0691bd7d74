//! `lockkeeper run`: runs a command while holding a lock.

mod at_least;
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
mod parent_lock;
mod pause;
mod processes;
mod release;
mod supervise;
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

use at_least::AtLeast;
use events::{Event, Events};
use job::{CommandOptions, Job};
use lock::{Held, Lock, LockOptions};
use loss::LeaseTimes;
use once::{Once, Turn};
use release::{HOPELESS_LIMIT, RELEASE_LIMIT, keep_engine, release};
use supervise::{EndRequest, OnRevoke};
use wait::WaitOutcome;
use watchdog::Watchdog;

/// A name that is a shell after `flock FILE`, and would be taken for another lock.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// After a wait of at least this length, the time of the grant is written: it differs from the time in the queue. After
/// shorter waits, as in a busy queue, it is not worth a write.
const LONG_WAIT: Duration = Duration::from_secs(1);

const NOTES: &str = "\
The environment of the command contains LOCKKEEPER_LOCK, the lock; LOCKKEEPER_NODE, the holder's node; \
LOCKKEEPER_TOKEN, a fencing token that is larger for every later holder; LOCKKEEPER_CONNECT, the servers, which \
override those of configuration files; the files of --tls-ca, --tls-cert, --tls-key and --digest-file, and --tls-name, \
under the names of their variables; LOCKKEEPER_OUTER_LOCKS, the locks already held, so that a nested run fails instead \
of deadlocking; LOCKKEEPER_RUN, which marks all processes of the run; LOCKKEEPER_DEADLINE_UNIX_MS, until when the lock \
was certain when the command started (it is renewed while servers answer). With several locks, the first three have \
one line for each lock, in the order of their paths. With --one-of, LOCKKEEPER_NAME is the last part of the held path. \
With --once-per and --every, LOCKKEEPER_KEY is the key, or the time at which the command was due (UTC), and \
LOCKKEEPER_ATTEMPT is 1, or more if earlier runs have no recorded end. LOCKKEEPER_DIGEST is removed: lockkeeper in the \
command finds credentials by LOCKKEEPER_DIGEST_FILE.

The command runs in a separate process group, to which lockkeeper forwards INT, TERM, HUP, QUIT, USR1 and USR2. The \
lock is released when the command ends, even if processes that it has started are still running. If lockkeeper is \
killed, the command and all processes that it has started are killed as well (on Linux; except set-user-ID programs, \
and processes that have left the process group and have another environment), and a watchdog process then releases \
the lock. If lockkeeper is stopped (Ctrl-Z, STOP) until the lease runs out, the watchdog kills the command.

A lock has one kind: exclusive without options; with --shared and --write, many readers or one writer; with \
--permits, N holders. A command that asks for another kind than the one in use fails. A name is either a lock or \
a folder of locks (backups/nightly, backups/weekly), not both.

Several locks (lockkeeper run a b -- CMD) are held together or not at all, each exclusively. Runs that share some of \
their locks never deadlock, in whatever order they name them. While a run waits for one lock, it holds those that come \
before it in the order of their paths. -n acquires them only if all are free. If one lock is lost or requested, the \
command is ended.

With --one-of (lockkeeper run --one-of gpu/{0..7} -- CMD), the run holds one of the locks: the first that is free, or \
the one that it gets in its turn. All names have the same part before the last /, which is the pool. LOCKKEEPER_NAME \
is the last part of the held name, and LOCKKEEPER_LOCK is the pool. Runs may name different locks of a pool. A name of \
a pool is not a lock by itself: a run without --one-of does not exclude runs with it.

With -c, /bin/sh runs the line. All processes of the line are in the process group that is ended with the lock.

The time of --max-run starts with the command. It includes times when the machine is suspended or the command is \
stopped (Ctrl-Z, --on-outage pause). Then the command gets TERM and, after --kill-after, KILL; a command that an \
outage has paused is killed immediately. The processes that it has started are killed as well, and the exit code is \
124, as with timeout(1).

With --at-least, the lock stays held for this time from the grant, even if the command ends earlier. INT, TERM, HUP, \
QUIT, a request for the lock or its loss end that time; after Ctrl-C, a forwarded signal or a request, it is \
skipped. The exit code is always the command's. If lockkeeper is killed during that time, the lock is free immediately.

With --once-per KEY, the start and the end of the command are recorded on the servers, each in one transaction that \
also checks that the lock is held. --every PERIOD does the same for the time at which the command was due, by this \
machine's clock at the start of the run; after a later time has started, no earlier one starts. If the command has \
already run, the exit code is that of the earlier run, which is not an error. If it has not run and will not, \
because a later time has started or because of --if-unfinished skip, the exit code is that of -E. With --every, the \
run waits for the lock until the next time is due, so that waiting runs do not accumulate. Do not combine it with -n \
if another machine is to take over after a crash: the waiting run takes over. A command counts as unfinished if a \
signal or --max-run ended it, if it was asked to end and failed, or if it cannot be executed. *Exactly* once is \
impossible: a machine may die after the command has ended and before that is recorded. By default the command then \
runs again (at least once). lockkeeper ticks LOCK lists the runs; the last 1000 keys and 1000 times are kept.

Without servers (--connect, or a configuration file: see lockkeeper settings), an engine on this machine keeps the \
lock: the one for all users if root has enabled it (lockkeeper local enable --system), or else this user's own. \
Locks in the engines of different users do not exclude each other; a warning reports this, unless --quiet is set.

If another program requests the lock (lockkeeper revoke), the command gets TERM, unless --on-revoke ignore is set, and \
the lock is released when the command has ended.

If no server renews the lease, the command is ended before another program can have the lock: TERM, then KILL after \
--kill-after. See docs/guarantees.md for the guarantees.

With --on-outage pause, its process group is stopped instead. The command resumes with the same token if the lock was \
held all the time; if the lock is lost, or --grace has passed, the command is killed while it is stopped. \
Connections of the command may break during the pause, and processes that have left its process group are not \
stopped. Signals for the command are delivered when it resumes.

Exit codes:
  the command's own, or 128 + n if signal n terminated it
  1        the lock was not free (-n, -w), or the wait was part of a
           deadlock (--detect-deadlocks), or the code of -E; for other
           commands: the answer is no
  64       wrong usage
  65       the lock has another kind, is above or below another lock,
           or has another number of permits; bad data
  69       port, socket or data directory already in use
  70       a bug in lockkeeper
  71       cannot create a process
  73       LOCKKEEPER_HOME cannot be written, or other users can write
           to it; or the server is out of space: its disk or memory is
           full, or a quota is reached
  74       a disk failed: the local engine's, or that of the output
  75       no server could be reached
  77       no permission on the servers, or on this machine's engine
  78       a configuration file, certificate, key or clock is wrong;
           no servers are configured (--require-servers), or the servers
           do not belong to one service
  79       the lock was lost while the command ran, or during hold
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
    /// The lock, such as backups/nightly; if several, all are held or none
    #[arg(value_parser = names::lock, value_name = "LOCK", required = true)]
    locks: Vec<ZnodePath>,

    /// Hold one of the named locks, as things of a pool: run --one-of gpu/{0..7}. LOCKKEEPER_NAME is the one
    /// held. bash expands the braces, /bin/sh (cron) does not: there, write each name, as in gpu/0 gpu/1
    #[arg(long, conflicts_with_all = ["shared", "write", "permits", "lock_delay", "profile"])]
    one_of: bool,

    /// Do not wait if the lock is not free
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    nonblock: bool,

    #[command(flatten)]
    wait: WaitOptions,

    /// What to do with the command when another program requests the lock (lockkeeper revoke)
    #[arg(long, value_enum, default_value_t = OnRevoke::Term)]
    on_revoke: OnRevoke,

    /// Hold the lock for at least this time from the grant, even if the command ends earlier. For a job that must
    /// run once each time it is due, use --every
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

/// Runs the command, and returns the exit code.
pub(crate) async fn run(global: &Global, mut options: RunOptions) -> Result<u8, Failure> {
    // Until signals are handled, they end this process, which has no state to clean up yet.
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
    // Started first, so that the lock is never held without a watchdog.
    let mut watchdog = Watchdog::start(&connection)?;
    let result = with_session(&connection, options, events, &mut watchdog).await;

    let is_lost = result.as_ref().is_ok_and(|code| *code == Exit::Lost.code());
    // After a loss, close the session only if a server is reachable: otherwise, it expires.
    if !is_lost || connection.client.contact() == Contact::Connected {
        connection.close().await;
    }
    // Not earlier: if this process is killed while it releases the lock, the watchdog closes the session.
    watchdog.dismiss();
    result
}

/// Rejects options that could never work, before anything is started.
fn check(options: &mut RunOptions) -> Result<(), Failure> {
    options.job.check()?;
    let others = options.locks.iter().skip(1).filter(|_| options.job.command.is_line());
    if let Some(shell) = others.into_iter().find(|lock| SHELLS.contains(&lock.name())) {
        let message = format!("{shell} would be the name of a lock here, not a shell");
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
    let times = options.job.times(connection, options.wait.quiet)?;

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
            let run = Granted { connection, options, times, granted, events };
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

/// A run that has acquired its lock.
struct Granted<'a> {
    connection: &'a Connection,
    options: &'a RunOptions,
    times: LeaseTimes,
    granted: Instant,
    events: &'a Events,
}

impl Granted<'_> {
    /// Runs the command under the lock, and releases the lock.
    async fn hold(
        self,
        held: Held,
        mut signals: Signals,
        watchdog: &mut Watchdog,
    ) -> Result<u8, Failure> {
        let Self { connection, options, times, granted, events } = self;
        let release = async |held, limit| release(connection, held, limit, granted, events).await;
        // This process or the servers may have been paused since the lock was granted.
        let too_late = || {
            let message = format!("{} was lost before the command was started", held.name());
            Failure::new(Exit::Lost, message)
        };
        if !times.leaves_time(&held) {
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
            Ok(Turn::Run(once)) if times.leaves_time(&held) => once,
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
            Job { connection, options: &options.job, on_revoke: options.on_revoke, times, events };
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

        let is_called_off = ran.end_request != EndRequest::No;
        if let Some(once) = once {
            let is_cut_off = ran.is_by_signal || ran.is_cut_off();
            let outcome = once::RunOutcome { code: ran.code, is_cut_off, is_called_off };
            once::record_end(connection, once, outcome, RELEASE_LIMIT, events).await;
        }

        if let Some(time) = options.at_least.filter(|_| ran.lost.is_none() && !is_called_off) {
            let on_revoke = options.on_revoke;
            let rest =
                AtLeast { until: granted + time, on_revoke, quiet: options.wait.quiet, events };
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
        // Manual pages indent the text.
        let fits = |line: &&str| line.len() + 7 < 80;
        assert!(table.iter().all(fits), "longer lines would wrap in a terminal");
    }
}
