//! Runs a command once for each key, or once in each period, on the first machine that gets the lock.

use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use lockkeeper::{Begun, IfUnfinished, OnceError, OnceKey, OnceRecord, OnceRun, Tick, ZnodePath};

use super::events::{Event, Events};
use super::lock::Held;
use crate::commands::ticks;
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::output::tell;
use crate::shared::signals::Signals;
use crate::shared::{names, view};

/// Whether a command runs once, and for which key or period.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Once, on whichever machine comes first")]
pub(super) struct Once {
    /// Run the command unless a run of this lock with the same KEY has ended on any machine. KEY is, for example, a
    /// release or the number of a migration. If it has, the exit code is that of the earlier run
    #[arg(long, value_name = "KEY", conflicts_with = "every")]
    once_per: Option<String>,

    /// Run the command once in each period, on one of all machines whose timers start it: 10s, 5m, 1h, 1d. The
    /// period divides a day and is counted from midnight, local time. The run waits for the lock until the next
    /// period starts, unless -n or -w sets a shorter limit
    #[arg(long, value_name = "PERIOD", value_parser = period, allow_hyphen_values = true)]
    every: Option<Duration>,

    /// What to do if an earlier run started and its end is not recorded, for example after a crash
    /// [default: rerun]
    #[arg(long, value_enum, value_name = "WHAT")]
    if_unfinished: Option<OnUnfinished>,

    /// What the command is due for, by the clock when this process started.
    #[arg(skip)]
    due: Option<OnceKey>,

    /// When it is due again.
    #[arg(skip)]
    next: Option<SystemTime>,
}

/// What to do after a run without a recorded end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnUnfinished {
    /// Run the command again: at least once
    Rerun,
    /// Do not run the command again: at most once
    Skip,
}

/// The other options that records and messages need.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnceTerms<'a> {
    /// The name of the command.
    pub(super) label: &'a str,
    /// The exit code if the command does not run and has never run.
    pub(super) conflict: u8,
    /// Whether to omit notices about expected results.
    pub(super) quiet: bool,
}

/// Whether to run the command.
pub(super) enum Turn<'a> {
    /// Run it. If it runs once, its end is recorded.
    Run(Option<OnceRun<'a>>),
    /// Do not run it; this is the exit code.
    Over(u8),
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Parses a period, which must divide a day.
fn period(text: &str) -> Result<Duration, String> {
    let period = names::nonzero_duration(text)?;
    if period.subsec_nanos() % 1_000_000 == 0 && DAY.as_millis().is_multiple_of(period.as_millis())
    {
        return Ok(period);
    }
    Err("it does not divide a day, so it has no fixed times; use one like 5m, 1h or 1d, or use --once-per \
         with a key"
        .to_owned())
}

impl Once {
    /// Rejects options that cannot be combined, and notes what is due now.
    pub(super) fn check(&mut self, locks: &[ZnodePath], shares: bool) -> Result<(), Failure> {
        let refused = |message: &str| Err(Failure::new(Exit::Usage, message));
        self.due = match (&self.once_per, self.every) {
            (Some(key), _) if key.is_empty() => {
                return refused("the key is empty; perhaps a variable is not set");
            }
            (Some(key), _) => Some(OnceKey::Named(key.clone())),
            (None, Some(period)) => {
                let due = due(period);
                self.next = Some(due + period);
                Some(Tick::at(due).into())
            }
            (None, None) if self.if_unfinished.is_some() => {
                return refused("--if-unfinished requires --once-per or --every");
            }
            (None, None) => return Ok(()),
        };

        match locks.len() {
            1 if shares => refused(
                "--once-per and --every need an exclusive lock: omit --shared and \
                 --permits",
            ),
            1 => Ok(()),
            _ => refused("--once-per and --every work with one lock only, which keeps the records"),
        }
    }

    /// How long to wait for the lock: not beyond the time at which another run is due, so that waiting runs do not
    /// accumulate.
    pub(super) fn limit(&self, wanted: Option<Duration>) -> Option<Duration> {
        let Some(next) = self.next else { return wanted };
        let left = next.duration_since(SystemTime::now()).unwrap_or_default();
        Some(wanted.map_or(left, |wanted| wanted.min(left)))
    }

    /// Environment variables for the command.
    pub(super) fn variables(&self, run: Option<&OnceRun<'_>>) -> Vec<(&'static str, String)> {
        let Some(run) = run else { return Vec::new() };
        vec![
            ("LOCKKEEPER_KEY", ticks::key(run.key())),
            ("LOCKKEEPER_ATTEMPT", run.attempt().to_string()),
        ]
    }

    /// Records the start of the command, if it is to run. A signal ends this like a wait.
    pub(super) async fn begin<'a>(
        &self,
        connection: &Connection,
        held: &'a Held,
        signals: &mut Signals,
        times: OnceTerms<'_>,
        events: &Events,
    ) -> Result<Turn<'a>, Failure> {
        let Some(key) = &self.due else { return Ok(Turn::Run(None)) };
        let OnceTerms { label, conflict, quiet } = times;
        let guard = &held.guards()[0];
        let once = lockkeeper::Once::builder(&connection.client, guard.path().as_str());
        let once = once.label(label).if_unfinished(self.policy()).build()?;
        let begun = tokio::select! {
            begun = once.begin(guard, key.clone()) => begun.map_err(failure)?,
            failure = connection.keep_engine() => return Err(failure),
            signal = signals.next() => return Ok(Turn::Over(signal_code(signal.as_raw()))),
        };

        let (what, key) = (format!("{} for {}", guard.path(), ticks::shown(key)), ticks::key(key));
        let (reason, code) = match begun {
            Begun::Run(run) => {
                if let Some(earlier) = run.earlier() {
                    tell(&again(&what, earlier));
                }
                events.write(Event::Begun { key: &key, attempt: run.attempt() });
                return Ok(Turn::Run(Some(run)));
            }
            Begun::Done(record) => {
                if !quiet {
                    tell(&format!("{what} has already run: {}", ticks::story(&record)));
                }
                let code = record.end.map_or(0, |end| end.code);
                ("done", u8::try_from(code).unwrap_or(u8::MAX))
            }
            Begun::Unfinished(record) => {
                tell(&format!(
                    "{what} is not run again (--if-unfinished skip): {}",
                    ticks::story(&record)
                ));
                ("unfinished", conflict)
            }
            Begun::Passed(tick) => {
                if !quiet {
                    let later = ticks::shown(&tick.into());
                    tell(&format!(
                        "{what} is skipped: the command has already been started for {later}"
                    ));
                }
                ("passed", conflict)
            }
        };
        events.write(Event::NotRun { key: &key, reason, code });
        Ok(Turn::Over(code))
    }

    fn policy(&self) -> IfUnfinished {
        match self.if_unfinished {
            Some(OnUnfinished::Skip) => IfUnfinished::Skip,
            Some(OnUnfinished::Rerun) | None => IfUnfinished::Rerun,
        }
    }
}

/// How a command that runs once has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOutcome {
    pub(super) code: u8,
    /// Whether a signal, `--max-run` or the loss of the lock ended it.
    pub(super) is_cut_off: bool,
    /// Whether it was asked to end, by a signal or a request for the lock.
    pub(super) is_called_off: bool,
}

impl RunOutcome {
    /// Why it counts as unfinished, if it does.
    fn unfinished(self) -> Option<&'static str> {
        let is_unstarted =
            [Exit::CannotExecute, Exit::NotFound].iter().any(|exit| exit.code() == self.code);
        match self {
            Self { is_cut_off: true, .. } => Some("the command did not end by itself"),
            Self { is_called_off: true, code: 1.., .. } => {
                Some("the command was asked to end, and its exit code is not 0")
            }
            _ if is_unstarted => Some("the command could not be executed"),
            _ => None,
        }
    }
}

/// Records the end of a command, unless it counts as unfinished.
pub(super) async fn record_end(
    connection: &Connection,
    run: OnceRun<'_>,
    outcome: RunOutcome,
    limit: Duration,
    events: &Events,
) {
    let (shown, key) = (ticks::shown(run.key()), ticks::key(run.key()));
    if let Some(why) = outcome.unfinished() {
        events.write(Event::Unfinished { key: &key, reason: why });
        return tell(&format!("the run for {shown} counts as unfinished: {why}"));
    }
    let why = tokio::select! {
        recorded = run.end(outcome.code.into()) => match recorded {
            Ok(()) => return,
            Err(error) => error.to_string(),
        },
        failure = connection.keep_engine() => failure.to_string(),
        () = tokio::time::sleep(limit) => format!("no server confirmed it within {limit:?}"),
    };
    events.write(Event::Unfinished { key: &key, reason: &why });
    tell(&format!(
        "the end of the run for {shown} may not be recorded, so it may run again: {why}"
    ));
}

fn again(what: &str, earlier: &OnceRecord) -> String {
    format!(
        "{what} runs again: {}; for commands that must not run twice, use --if-unfinished skip",
        ticks::story(earlier)
    )
}

fn failure(error: OnceError) -> Failure {
    match &error {
        OnceError::Lost { path, reason } => {
            let message = format!("{path} was lost before the command was started: {reason}");
            Failure::new(Exit::Lost, message)
        }
        OnceError::Ahead { by } => {
            let message = format!(
                "this machine's clock is {} ahead of the servers': the command would run too early, \
                 and other machines would then not run it",
                view::duration(*by)
            );
            Failure::new(Exit::Config, message).advise("set the clock that is wrong")
        }
        _ => ticks::failure(error),
    }
}

/// When the command was last due, by this machine's clock.
fn due(period: Duration) -> SystemTime {
    cut(Timestamp::now(), period, TimeZone::system()).into()
}

/// The last multiple of `period` since midnight that is before `now`.
fn cut(now: Timestamp, period: Duration, zone: TimeZone) -> Timestamp {
    let local = now.to_zoned(zone.clone()).datetime();
    let since_midnight = local.duration_since(local.date().at(0, 0, 0, 0));
    let period = i128::try_from(period.as_nanos()).unwrap_or(i128::MAX);
    let over = since_midnight.as_nanos().rem_euclid(period);
    let over = SignedDuration::from_nanos(i64::try_from(over).unwrap_or_default());

    // Clock changes are whole hours, so within an hour local times have their usual distance.
    let within_an_hour = period <= i128::from(3_600_000_000_000_i64);
    let at = match within_an_hour {
        true => now.checked_sub(over).ok(),
        false => local
            .checked_sub(over)
            .ok()
            .and_then(|at| at.to_zoned(zone).ok())
            .map(|at| at.timestamp()),
    };
    at.map_or(now, |at| at.min(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_text(now: &str, period: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).expect("a time zone");
        cut(now.parse().unwrap(), names::duration(period).unwrap(), zone).to_string()
    }

    #[test]
    fn ticks_are_counted_from_midnight_local_time() {
        for (now, period, zone, tick) in [
            ("2026-11-27T03:04:59.9Z", "5m", "UTC", "2026-11-27T03:00:00Z"),
            ("2026-11-27T03:05:00Z", "5m", "UTC", "2026-11-27T03:05:00Z"),
            ("2026-11-27T03:05:07.5Z", "1s", "UTC", "2026-11-27T03:05:07Z"),
            ("2026-11-27T23:30:00Z", "1d", "Europe/Berlin", "2026-11-27T23:00:00Z"),
            ("2026-11-27T22:30:00Z", "1d", "Europe/Berlin", "2026-11-26T23:00:00Z"),
            ("2026-11-27T09:00:00Z", "1h", "Asia/Kolkata", "2026-11-27T08:30:00Z"),
            // The clocks go forward at 02:00, and at 06:00 it is only five hours since midnight.
            ("2026-03-29T04:00:00Z", "6h", "Europe/Berlin", "2026-03-29T04:00:00Z"),
            // And back at 03:00: both half past two are of the tick at two, once.
            ("2026-10-25T00:30:00Z", "2h", "Europe/Berlin", "2026-10-25T00:00:00Z"),
            ("2026-10-25T01:30:00Z", "2h", "Europe/Berlin", "2026-10-25T00:00:00Z"),
            ("2026-10-25T01:30:00Z", "5m", "Europe/Berlin", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(cut_text(now, period, zone), tick, "{now} {period} {zone}");
        }
    }

    /// Symptom of cron's own steps: `*/7` fires four minutes apart at the hour.
    #[test]
    fn a_period_divides_a_day() {
        for text in ["1s", "500ms", "5m", "90m", "1h", "1d", "12h"] {
            assert!(period(text).is_ok(), "{text}");
        }
        for text in ["7m", "25h", "2d", "0", "-5m", "7s", "1ns"] {
            assert!(period(text).is_err(), "{text}");
        }
    }
}
