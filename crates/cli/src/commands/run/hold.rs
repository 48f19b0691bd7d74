//! `lockkeeper hold`: holds a lock without a command.
//!
//! The watchdog of `run` is used here as well: if lockkeeper is killed, the watchdog closes the session, so the lock is
//! free immediately.

use std::slice;
use std::time::{Duration, SystemTime};

use clap::Args;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use lockkeeper::{Clock, Contact, Guard, LossReason, ZnodePath};
use rustix::process::Signal;
use serde::Serialize;
use tokio::time::sleep;

use super::events::Events;
use super::lock::{Held, LockOptions};
use super::release::{RELEASE_LIMIT, release};
use super::wait::{self, WaitOutcome};
use super::watchdog::Watchdog;
use crate::session::connect::Connection;
use crate::session::waiting::WaitOptions;
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::output::{print, print_to_reader, tell};
use crate::shared::signals::Signals;
use crate::shared::{names, output, view};

/// Timers do not count the time during which the machine is suspended, so the clock is checked at this interval.
const SLICE: Duration = Duration::from_secs(1);

/// The holder's name in the queue.
const LABEL: &str = "hold";

const NOTES: &str = "\
When the lock is held, one line on standard output names the lock, its fencing token, and until when it is held. \
With --json it is one object. Waiting programs, and lockkeeper show and ls, display the user, the host and --why.

The lock is released on Ctrl-C, TERM, HUP or QUIT, at the time of --for or --until, and when another \
program requests it (lockkeeper revoke).

The lock is held as long as this process lives and its servers answer. If it is killed, the lock is free \
immediately, or when the session expires. If it is stopped (Ctrl-Z, or a suspended machine) for longer than the \
lease, the lock is lost, and this command reports that when it resumes (79). A lock cannot be held over a reboot: \
its node would outlive the session, and after a crash no program could know that it is abandoned.

Exit codes: 0, released by its user, or at its time; 1, a request to release it came first, or the lock was \
not free (-n, -w; or the code of -E); 79, the lock was lost; 128 + n, signal n came while waiting for the \
lock. All others: lockkeeper run --help.";

/// Hold a lock without a command, until Ctrl-C or a given time
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct HoldOptions {
    /// The lock, such as backups/nightly
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,

    /// Release it after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = names::nonzero_duration,
          allow_hyphen_values = true, conflicts_with = "until")]
    length: Option<Duration>,

    /// Release it at this time: 18:30 or 18:30:00 (local time, today or else tomorrow), or a time with a date and
    /// a time zone such as 2027-01-31T18:30:00+01:00
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,

    /// The reason, in at most 1024 bytes, for all users who may read the lock
    #[arg(long, value_name = "TEXT", value_parser = names::remark)]
    why: Option<String>,

    /// Do not wait if the lock is not free
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,

    #[command(flatten)]
    wait: WaitOptions,

    #[command(flatten)]
    which: LockOptions,
}

/// A held lock as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownHold<'a> {
    lock: &'a str,
    node: &'a str,
    /// A string: a token may contain more than a number, and may exceed the integers that JSON readers keep exactly.
    token: String,
    session: String,
    held_since_unix_ms: u128,
    /// `null` if it is held until a signal.
    until_unix_ms: Option<i64>,
    /// The same time, by the local clock.
    until: Option<String>,
}

/// Why a hold ended.
enum End {
    Signal,
    Time,
    Asked,
    Lost(LossReason),
}

/// Holds the lock, and returns the exit code.
pub(crate) async fn hold(global: &Global, mut options: HoldOptions) -> Result<u8, Failure> {
    options.which.check(slice::from_ref(&options.lock))?;
    options.which.why = options.why.take();
    options.wait.detects_deadlocks = options.which.detect_deadlocks;
    let limit = &mut options.wait.limit;
    if options.nonblock {
        *limit = Some(Duration::ZERO);
    }
    let mut is_cut = false;
    if let Some(until) = options.until {
        let left = left(until).ok_or_else(|| {
            let message = format!("--until is in the past: it means {}", in_words(until));
            Failure::new(Exit::Usage, message)
        })?;
        is_cut = limit.is_none_or(|limit| limit > left);
        *limit = Some(limit.map_or(left, |limit| limit.min(left)));
    }

    let connection = options.wait.connect(global).await?;
    let mut watchdog = Watchdog::start(&connection)?;
    let result = with_session(global, &connection, &options, &mut watchdog).await;
    let is_lost = result.as_ref().is_err_and(|failure| failure.code() == Exit::Lost.code());
    if !is_lost || connection.client.contact() == Contact::Connected {
        connection.close().await;
    }
    // Not earlier: if this process is killed while it releases the lock, the watchdog closes the session.
    watchdog.dismiss();

    if is_cut && result.as_ref().is_ok_and(|code| *code == options.wait.conflict_exit_code) {
        let until = options.until.filter(|until| left(*until).is_none());
        if let (Some(until), false) = (until, options.wait.quiet) {
            tell(&format!("{} was not free before {}", options.lock, in_words(until)));
        }
    }
    result
}

async fn with_session(
    global: &Global,
    connection: &Connection,
    options: &HoldOptions,
    watchdog: &mut Watchdog,
) -> Result<u8, Failure> {
    let client = &connection.client;
    let mut signals = Signals::listen()?;
    let lock = options.which.lock(client, slice::from_ref(&options.lock), LABEL)?;
    let events = &Events::open(None, &[])?;
    match wait::acquire(connection, &lock, options.wait, &mut signals, watchdog, events).await? {
        WaitOutcome::Held(held) => {
            watchdog.follow(connection);
            keep(global, connection, options, *held, signals, events).await
        }
        WaitOutcome::Conflict => Ok(options.wait.conflict_exit_code),
        WaitOutcome::Signal(signal) => Ok(signal_code(signal.as_raw())),
    }
}

/// Announces the lock, and holds it.
async fn keep(
    global: &Global,
    connection: &Connection,
    options: &HoldOptions,
    held: Held,
    mut signals: Signals,
    events: &Events,
) -> Result<u8, Failure> {
    let (granted, since) = (Clock.now(), SystemTime::now());
    let guard = &held.guards()[0];
    guard.note_held_since(since);
    let until = options.until.or_else(|| options.length.and_then(after));
    let announced = announce(global, guard, since, until);

    let end = match announced {
        Ok(()) => tokio::select! {
            biased;
            reason = guard.lost() => End::Lost(reason),
            () = end_signal(&mut signals) => End::Signal,
            asked = guard.revoke_requested() => asked.map_or_else(End::Lost, |()| End::Asked),
            () = over(until) => End::Time,
            never = super::keep_engine(connection) => match never {},
        },
        Err(_) => End::Signal,
    };

    let path = guard.path();
    let code = match end {
        End::Lost(reason) => {
            return Err(Failure::new(Exit::Lost, format!("{path} was lost: {reason}")));
        }
        End::Asked => {
            let by = view::by_whom(guard.revoke_request().as_ref());
            tell(&format!("{path}: release requested{by}; releasing it"));
            Exit::No
        }
        End::Signal | End::Time => Exit::Ok,
    };
    release(connection, held, RELEASE_LIMIT, granted, events).await;
    announced.map(|()| code.code())
}

fn announce(
    global: &Global,
    guard: &Guard,
    since: SystemTime,
    until: Option<Timestamp>,
) -> Result<(), Failure> {
    if global.json {
        let shown = ShownHold {
            lock: guard.path().as_str(),
            node: guard.node().as_str(),
            token: guard.token().to_string(),
            session: guard.session().to_string(),
            held_since_unix_ms: view::unix_ms(since),
            until_unix_ms: until.map(Timestamp::as_millisecond),
            until: until.map(|until| local(until).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()),
        };
        return print(&format!("{}\n", output::json(&shown)?));
    }
    let until = until
        .map_or_else(|| "until Ctrl-C".to_owned(), |until| format!("until {}", in_words(until)));
    // A closed pipe is not an error.
    print_to_reader(&format!("{} is held, token {}, {until}\n", guard.path(), guard.token()))
        .map(|_| ())
}

/// Waits for a signal that ends the hold.
async fn end_signal(signals: &mut Signals) {
    while !matches!(signals.next().await, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) {
    }
}

/// Returns at this time, by the local clock. Without a time, never returns.
async fn over(until: Option<Timestamp>) {
    let Some(until) = until else { return std::future::pending().await };
    while let Some(left) = left(until) {
        sleep(left.min(SLICE)).await;
    }
}

/// The time that is left; `None` if the time has passed.
fn left(until: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(until.duration_since(Timestamp::now())).ok();
    left.filter(|left| !left.is_zero())
}

fn after(length: Duration) -> Option<Timestamp> {
    Timestamp::now().checked_add(length).ok()
}

fn local(time: Timestamp) -> Zoned {
    time.to_zoned(TimeZone::system())
}

/// `Fri 2027-01-01 18:30:00 +01:00 (in 2h 5m)`.
fn in_words(time: Timestamp) -> String {
    let when = local(time).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string();
    match left(time) {
        Some(left) => format!("{when} (in {})", view::duration(left)),
        None => when,
    }
}

/// Parses a time of today or else tomorrow, or a timestamp.
fn moment(text: &str) -> Result<Timestamp, String> {
    next_moment(text, &Zoned::now())
}

fn next_moment(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    // Only a time: a timestamp contains a time as well, but is longer.
    let is_time_alone = text.contains(':') && text.len() <= "18:30:00".len();
    if let Some(time) = text.parse::<Time>().ok().filter(|_| is_time_alone) {
        let on = |day: jiff::civil::Date| day.to_datetime(time).to_zoned(now.time_zone().clone());
        let far = |error: jiff::Error| error.to_string();
        let today = on(now.date()).map_err(far)?;
        if today > *now {
            return Ok(today.timestamp());
        }
        let tomorrow = now.date().checked_add(Span::new().days(1)).and_then(on).map_err(far)?;
        return Ok(tomorrow.timestamp());
    }
    let wrong = "write a time such as 18:30, or one with date and time zone such as \
                 2027-01-31T18:30:00+01:00";
    text.parse().map_err(|_| wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2027-03-01T12:00:00+01:00[+01:00]".parse().unwrap()
    }

    #[test]
    fn a_time_alone_is_the_next_one() {
        for (text, moment) in [
            ("12:01", "2027-03-01T11:01:00Z"),
            ("18:30:15", "2027-03-01T17:30:15Z"),
            ("12:00", "2027-03-02T11:00:00Z"),
            ("00:00", "2027-03-01T23:00:00Z"),
            ("2027-03-01T18:30:00+05:00", "2027-03-01T13:30:00Z"),
            ("2027-03-01T18:30Z", "2027-03-01T18:30:00Z"),
        ] {
            assert_eq!(next_moment(text, &now()), Ok(moment.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in ["", "soon", "18", "25:00", "18:61", "2027-03-01", "2027-03-01T18:30", "1h"] {
            assert!(next_moment(text, &now()).is_err_and(|why| why.contains("18:30")), "{text}");
        }
    }
}
