//! `lockkeeper elect`: runs a command while this program leads.

use std::time::{Duration, SystemTime};

use clap::Args;
use lockkeeper::{Clock, Contact, Election, ZnodePath};

use super::events::{Event, Events};
use super::job::{CommandOptions, Job};
use super::lock::{Held, Lock};
use super::release::{HOPELESS_LIMIT, RELEASE_LIMIT, release};
use super::supervise::{EndRequest, OnRevoke};
use super::wait::{self, WaitOutcome};
use super::watchdog::Watchdog;
use crate::session::connect::Connection;
use crate::session::waiting::WaitOptions;
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::tell;
use crate::shared::signals::Signals;

const NOTES: &str = "\
The candidates wait in a queue, and the first one leads and runs its command. If the command ends by itself, elect \
exits with its exit code. If the lead is lost, or another program requests it (lockkeeper revoke NAME), the command \
is ended as by lockkeeper run, and the candidate joins the end of the queue. So lockkeeper revoke moves the lead to \
the next candidate.

The command gets the environment of lockkeeper run; LOCKKEEPER_TOKEN is larger for every later leader. An election \
is a lock: lockkeeper show NAME lists the candidates, and lockkeeper leader NAME prints the leader with its --data.

Examples:
  lockkeeper elect scheduler -- ./scheduler
  lockkeeper elect api --data 10.0.0.7:8080 -- ./serve
  while addr=$(lockkeeper leader api); do ...; done

Exit codes: the command's own; 1, not elected (-n, -w; or the code of -E); others: lockkeeper run --help";

/// Run a command while leading an election; wait until then
#[derive(Debug, Args)]
#[command(override_usage = "lockkeeper elect [OPTIONS] <NAME> -- <CMD>...", after_long_help = NOTES)]
pub(crate) struct ElectOptions {
    /// The election, such as scheduler
    #[arg(id = "election", value_parser = names::lock, value_name = "NAME")]
    election: ZnodePath,

    /// Data for others to read while this candidate leads, such as its address: lockkeeper leader
    #[arg(long, value_name = "TEXT", value_parser = names::remark)]
    data: Option<String>,

    /// The candidate's name [default: HOST-PROCESS]
    #[arg(long, value_name = "NAME", value_parser = names::remark)]
    name: Option<String>,

    /// Do not wait: exit if another candidate leads
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    nonblock: bool,

    #[command(flatten)]
    wait: WaitOptions,

    #[command(flatten)]
    job: CommandOptions,
}

/// How a term as the leader ended.
enum TermEnd {
    /// The candidate runs for election again.
    Again,
    Over(u8),
}

/// Runs for election, and runs the command whenever this candidate leads, until the command ends by itself.
pub(crate) async fn elect(global: &Global, mut options: ElectOptions) -> Result<u8, Failure> {
    options.job.check()?;
    let events =
        Events::open(options.job.json_log.as_deref(), std::slice::from_ref(&options.election))?;
    let connection = options.wait.connect(global).await?;
    if options.nonblock {
        options.wait.limit = Some(Duration::ZERO);
    }
    let mut watchdog = Watchdog::start(&connection)?;
    let result = stand(&connection, &options, &events, &mut watchdog).await;
    let is_lost = result.as_ref().is_err_and(|failure| failure.code() == Exit::Lost.code());
    if !is_lost || connection.client.contact() == Contact::Connected {
        connection.close().await;
    }
    // Not earlier: if this process is killed while it resigns, the watchdog closes the session.
    watchdog.dismiss();
    result.inspect_err(|failure| events.failed(failure))
}

async fn stand(
    connection: &Connection,
    options: &ElectOptions,
    events: &Events,
    watchdog: &mut Watchdog,
) -> Result<u8, Failure> {
    let times = options.job.times(connection, options.wait.quiet)?;
    let mut signals = Signals::listen()?;
    let mut election = Election::builder(&connection.client, options.election.as_str());
    if let Some(name) = &options.name {
        election = election.id(name);
    }
    let lock = Lock::Lead(election.build()?);
    let job = Job { connection, options: &options.job, on_revoke: OnRevoke::Term, times, events };

    loop {
        let began = Clock.now();
        let waited_ms = || Clock.now().since(began).as_millis();
        let waited =
            wait::acquire(connection, &lock, options.wait, &mut signals, watchdog, events).await?;
        match waited {
            WaitOutcome::Held(held) => {
                events.write(Event::acquired(&held, waited_ms()));
                match term(&job, options, *held, &mut signals, watchdog).await? {
                    TermEnd::Again => tell(&format!("{}: waiting to lead again", options.election)),
                    TermEnd::Over(code) => return Ok(code),
                }
            }
            WaitOutcome::Conflict => {
                let code = options.wait.conflict_exit_code;
                events.write(Event::Conflict { code, waited_ms: waited_ms() });
                return Ok(code);
            }
            WaitOutcome::Signal(signal) => {
                let code = signal_code(signal.as_raw());
                events.write(Event::Interrupted { code, waited_ms: waited_ms() });
                return Ok(code);
            }
        }
    }
}

/// Runs the command while this candidate leads, and resigns afterwards.
async fn term(
    job: &Job<'_>,
    options: &ElectOptions,
    held: Held,
    signals: &mut Signals,
    watchdog: &mut Watchdog,
) -> Result<TermEnd, Failure> {
    let Job { connection, events, .. } = *job;
    let granted = Clock.now();
    let resign = async |held, limit| release(connection, held, limit, granted, events).await;
    held.guards().iter().for_each(|guard| guard.note_held_since(SystemTime::now()));

    if let (Held::Lead(leadership), Some(data)) = (&held, &options.data)
        && let Err(error) = leadership.proclaim(data).await
        && leadership.is_held()
    {
        let failure = Failure::of_recipe(&error);
        resign(held, RELEASE_LIMIT).await;
        return Err(failure);
    }
    // This process or the servers may have been paused since the election.
    if !job.times.leaves_time(&held) {
        resign(held, HOPELESS_LIMIT).await;
        return Ok(TermEnd::Again);
    }

    watchdog.follow(connection);
    let ready = watchdog.begin_next().and_then(|()| signals.listen_for_child());
    let ran = match ready {
        Ok(()) => {
            let mut loss = job.loss(&held, watchdog);
            job.run(&held, &mut loss, signals, Vec::new(), None).await
        }
        Err(failure) => Err(failure),
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(failure) => {
            resign(held, RELEASE_LIMIT).await;
            return Err(failure);
        }
    };

    resign(held, ran.release_limit(connection)).await;
    Ok(match (ran.lost, ran.end_request) {
        (_, EndRequest::BySignal(_)) => TermEnd::Over(ran.code),
        (Some(Exit::Lost), _) | (None, EndRequest::ByRequest) => TermEnd::Again,
        _ => TermEnd::Over(ran.code),
    })
}
