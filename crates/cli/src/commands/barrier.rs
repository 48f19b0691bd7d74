//! `lockkeeper barrier`: programs that wait for each other.

use std::convert::Infallible;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper::overview::PathUse;
use lockkeeper::{
    Barrier, BarrierError, BarrierReport, Client, ClosedBarrier, Deaths, DoubleBarrier, ErrorCode,
    LossReason, OwnerInfo, Round, SessionId, ZnodePath,
};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::session::command_line::CommandLine;
use crate::session::connect::Connection;
use crate::session::limited::{Limit, LimitedOutcome, with_limit};
use crate::session::path_use;
use crate::session::user_command::{self, UserCommand};
use crate::session::waiting::NOTICE_DELAY;
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::output::{report, tell};
use crate::shared::signals::Signals;
use crate::shared::{content, names, output, user, view};

/// How long to wait until a barrier of this process is opened. After that, it opens when the session ends.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// The longest pause between two checks for parties that wait for another number.
const MAX_PAUSE: Duration = Duration::from_secs(60);

const NOTES: &str = "\
There are two kinds of barriers, with separate names. A gate is closed or open: programs wait while it is closed \
(close, open, wait). A barrier of parties lets a number of programs begin together and end together (enter).

Exit codes: 1, the answer is no: see the help of each; others: lockkeeper run --help";

const CLOSE_NOTES: &str = "\
Without --while-held the barrier stays closed until a program opens it. With it, the barrier is closed while \
this process runs: one line on standard output confirms this (with --json, one object), and Ctrl-C, TERM, HUP or QUIT \
opens it. If lockkeeper is killed, it opens when its session expires.

Examples:
  lockkeeper barrier close migration && ./migrate; lockkeeper barrier open migration
  lockkeeper barrier close migration --while-held

Exit codes: 0, it is closed, or was while this process ran; 1, another process keeps it closed (with --while-held), or \
has opened it; 79, the session was lost, and so the barrier opened; others: lockkeeper run --help";

const OPEN_NOTES: &str = "\
Waiting programs continue, even if the barrier is closed again immediately. An open barrier is not an error.

Examples:
  lockkeeper barrier open migration
  ./migrate && lockkeeper barrier open migration

Exit codes: 0, it is open; others: lockkeeper run --help";

const WAIT_NOTES: &str = "\
A barrier that was never closed is open. It may be closed again when this command returns.

Examples:
  lockkeeper barrier wait migration && ./start
  lockkeeper barrier wait migration -w 10m
  lockkeeper barrier wait migration -n           only check

Exit codes: 0, it is open, or was; 1, not in time; others: lockkeeper run --help";

const ENTER_NOTES: &str = "\
Waits until this number of parties have entered, each with its own name; all of them must pass the same number. Then \
it runs the command, if there is one, and leaves. It returns when all parties have left or died. Later parties form \
the next round. -w limits the wait for the others to enter: a party that gives up has not entered. If others wait \
for another number of parties, a notice reports it: they do not enter together.

If a party dies inside, the others are notified. If they run a command, they report a failure, because the round is \
not complete. The command is not ended early. Signals are forwarded to it.

The environment of the command contains LOCKKEEPER_BARRIER; LOCKKEEPER_PARTY, the name; LOCKKEEPER_PARTIES, the \
number of parties; LOCKKEEPER_ROUND, the number of the round, from 0; LOCKKEEPER_CONNECT, and the files of \
credentials and certificates under the names of their variables.

Examples:
  lockkeeper barrier enter load-test 5 -- ./load
  lockkeeper barrier enter step1 3 --name $(hostname) && ./step2
  lockkeeper barrier enter load-test 5 -w 1m -- ./load

Exit codes: the command's own; 0 without one; 1, not all parties came in time, or one died inside although the command \
succeeded; 79, the session was lost inside, so that the others saw this party die; others: lockkeeper run --help";

const SHOW_NOTES: &str = "\
Examples:
  lockkeeper barrier show migration
  lockkeeper barrier show load-test --json | jq '.parties[]'

Exit codes: 0; 65, the path is not a barrier; others: lockkeeper run --help";

/// A subcommand of `barrier`.
#[derive(Debug, Subcommand)]
#[command(after_long_help = NOTES)]
pub(crate) enum BarrierTask {
    /// Close it: programs wait for it to open
    #[command(after_long_help = CLOSE_NOTES)]
    Close {
        #[command(flatten)]
        barrier: BarrierName,

        /// Open it again when this process ends
        #[arg(long)]
        while_held: bool,
    },
    /// Open it, regardless of which program closed it
    #[command(after_long_help = OPEN_NOTES)]
    Open(BarrierName),
    /// Wait until it is open
    #[command(after_long_help = WAIT_NOTES)]
    Wait {
        #[command(flatten)]
        barrier: BarrierName,

        #[command(flatten)]
        limit: Limit,
    },
    /// Wait until all parties have entered, run a command, and wait until all have left
    #[command(after_long_help = ENTER_NOTES)]
    Enter(EnterOptions),
    /// Show whether it is closed, or which parties wait
    #[command(after_long_help = SHOW_NOTES)]
    Show(BarrierName),
}

#[derive(Debug, Args)]
pub(crate) struct BarrierName {
    /// The barrier
    #[arg(id = "barrier", value_name = "NAME", value_parser = names::lock)]
    name: ZnodePath,
}

#[derive(Debug, Args)]
pub(crate) struct EnterOptions {
    #[command(flatten)]
    barrier: BarrierName,

    /// The number of parties, including this one
    #[arg(value_name = "PARTIES", value_parser = names::nonzero)]
    parties: usize,

    /// The name of this party [default: HOST-PROCESS]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The maximum time to wait for the others to enter; after it the exit code is 1
    #[arg(id = "wait", short, long = "wait", visible_alias = "timeout", value_name = "DURATION",
          value_parser = names::nonzero_duration, allow_hyphen_values = true)]
    time: Option<Duration>,

    #[command(flatten)]
    command: CommandLine,
}

/// A barrier that this process keeps closed, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownClosing<'a> {
    barrier: &'a str,
    /// A string: a token may contain more than a number, and may exceed the integers that JSON readers keep exactly.
    token: String,
    session: String,
}

/// A barrier as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownBarrier<'a> {
    barrier: &'a str,
    /// `gate` if it can be closed and open, `parties` if parties enter it. A missing barrier is an open gate.
    kind: &'static str,
    /// Only for a gate.
    closed: Option<bool>,
    since_unix_ms: Option<u64>,
    /// The session that keeps it closed; `null` if it stays closed without one.
    session: Option<String>,
    /// The process that keeps it closed, if it is known.
    owner: Option<OwnerInfo>,
    /// The number of the round that parties wait for.
    round: Option<u32>,
    /// The parties that wait for others.
    waiting: Option<Vec<String>>,
    /// The same parties, with the number of parties that each one waits for.
    parties: Option<Vec<WaitingParty>>,
    /// The parties that have entered a round and not left it.
    inside: Option<Vec<String>>,
    #[serde(skip)]
    groups: Vec<(Option<usize>, Vec<String>)>,
}

#[derive(Debug, Serialize)]
struct WaitingParty {
    party: String,
    /// `null` if it waits for named parties.
    wanted: Option<usize>,
}

/// Closes, opens or shows the barrier, or waits for it.
pub(crate) async fn barrier(global: &Global, task: BarrierTask) -> Result<u8, Failure> {
    match task {
        BarrierTask::Close { barrier, while_held: true } => keep(global, &barrier.name).await,
        BarrierTask::Close { barrier, .. } => close(global, &barrier.name).await,
        BarrierTask::Open(barrier) => {
            let opened = Connection::during(global, async |connection| {
                check_is_barrier(&connection.client, &barrier.name, true).await?;
                gate(connection, &barrier.name)?.open().await.map_err(failed)
            });
            opened.await.map(|()| Exit::Ok.code())
        }
        BarrierTask::Wait { barrier, limit } => wait(global, &barrier.name, limit).await,
        BarrierTask::Enter(options) => enter(global, options).await,
        BarrierTask::Show(barrier) => show(global, &barrier.name).await,
    }
}

fn failed(error: BarrierError) -> Failure {
    match &error {
        BarrierError::AlreadyClosed { .. }
        | BarrierError::ClosedByGuard { .. }
        | BarrierError::TimedOut { .. }
        | BarrierError::PartyDied { .. } => Failure::new(Exit::No, error.to_string()),
        BarrierError::Lost { .. } => Failure::new(Exit::Lost, error.to_string()),
        _ => Failure::of_recipe(&error),
    }
}

/// Rejects a znode that another recipe uses, as far as that can be seen. Other libraries write any text into a barrier.
/// `is_opened`: also rejects the other kind of barrier, which the other subcommands detect themselves.
async fn check_is_barrier(
    client: &Client,
    name: &ZnodePath,
    is_opened: bool,
) -> Result<(), Failure> {
    path_use::check(client, name, PathUse::Barrier).await?;
    let (data, stat) = match client.data(name).await {
        Ok(found) => found,
        Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let is_known = !is_opened && PathUse::by_data(&data) == Some(PathUse::Barrier);
    let is_text = content::text(&data).is_some_and(|text| !text.contains(char::is_control));
    let is_other = stat.num_children > 0 || !is_text || data.starts_with(b"{\"lockkeeper");
    match is_other && !is_known && stat.ephemeral_owner == SessionId::NONE {
        true => {
            let message = format!("{name} is in use, and not as a barrier");
            Err(Failure::new(Exit::Data, message).advise("nothing was changed"))
        }
        false => Ok(()),
    }
}

fn gate(connection: &Connection, name: &ZnodePath) -> Result<Barrier, Failure> {
    Barrier::new(&connection.client, name.as_str()).map_err(failed)
}

async fn close(global: &Global, name: &ZnodePath) -> Result<u8, Failure> {
    let closed = Connection::during(global, async |connection| {
        check_is_barrier(&connection.client, name, false).await?;
        gate(connection, name)?.close().await.map_err(failed)
    });
    closed.await.map(|()| Exit::Ok.code())
}

/// Keeps the barrier closed until a signal.
async fn keep(global: &Global, name: &ZnodePath) -> Result<u8, Failure> {
    let connection = Connection::open_within(global, &mut None).await?;
    connection.introduce_engine(global);
    let result = keep_within(global, &connection, name).await;
    connection.close().await;
    result
}

async fn keep_within(
    global: &Global,
    connection: &Connection,
    name: &ZnodePath,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    path_use::check(&connection.client, name, PathUse::Barrier).await?;
    let barrier = gate(connection, name)?;
    let guard = tokio::select! {
        biased;
        closed = barrier.close_while_held() => closed.map_err(failed)?,
        signal = signals.next() => return Ok(signal_code(signal.as_raw())),
        failure = connection.keep_engine() => return Err(failure),
    };
    let shown = ShownClosing {
        barrier: name.as_str(),
        token: guard.token().to_string(),
        session: guard.session().to_string(),
    };
    output::announce(global, &shown, &format!("{name} is closed, until Ctrl-C"))?;

    let reason = tokio::select! {
        biased;
        reason = guard.lost() => reason,
        () = async { while !user_command::is_to_end(signals.next().await) {} } => {
            return open_again(connection, name, guard).await;
        }
        () = async {
            report(&connection.keep_engine().await);
            std::future::pending().await
        } => return Ok(Exit::Ok.code()),
    };
    match reason {
        LossReason::NodeDeleted => {
            tell(&format!("{name} was opened by another program"));
            Ok(Exit::No.code())
        }
        reason => Err(Failure::new(Exit::Lost, format!("{name} is open: {reason}"))),
    }
}

async fn open_again(
    connection: &Connection,
    name: &ZnodePath,
    guard: lockkeeper::ExclusiveGuard,
) -> Result<u8, Failure> {
    let why = match timeout(OPEN_LIMIT, guard.release()).await {
        Ok(Ok(_)) => return Ok(Exit::Ok.code()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no server confirmed it within {OPEN_LIMIT:?}"),
    };
    let rest = connection.client.session_timeout();
    tell(&format!("{name} may stay closed until its session expires, within {rest:?}: {why}"));
    Ok(Exit::Ok.code())
}

async fn wait(global: &Global, name: &ZnodePath, limit: Limit) -> Result<u8, Failure> {
    let ended = match limit.is_none() {
        true => {
            let closed = Connection::during(global, async |connection| {
                path_use::check(&connection.client, name, PathUse::Barrier).await?;
                gate(connection, name)?.inspect().await.map_err(failed)
            });
            if closed.await?.is_none() { LimitedOutcome::Done(()) } else { LimitedOutcome::TimeUp }
        }
        false => {
            let ended = with_limit(global, limit.time, async |connection| {
                path_use::check(&connection.client, name, PathUse::Barrier).await?;
                gate(connection, name)?.wait().await.map_err(failed)
            });
            ended.await?
        }
    };
    if let LimitedOutcome::TimeUp = ended {
        tell(&format!("{name} is closed"));
    }
    ended.code(|()| Ok(Exit::Ok.code()))
}

async fn enter(global: &Global, mut options: EnterOptions) -> Result<u8, Failure> {
    options.command.check()?;
    let connection = Connection::open_within(global, &mut options.time).await?;
    connection.introduce_engine(global);
    let result = enter_within(global, &connection, options).await;
    connection.close().await;
    result
}

async fn enter_within(
    global: &Global,
    connection: &Connection,
    options: EnterOptions,
) -> Result<u8, Failure> {
    let EnterOptions { barrier: BarrierName { name: path }, parties, name, time, command } =
        options;
    let command = command.words();
    let mut signals = Signals::listen()?;
    // Without a command, the death of a party does not make a result incomplete.
    let deaths = if command.is_empty() { Deaths::Report } else { Deaths::FailRound };
    let barrier = DoubleBarrier::builder(&connection.client, path.as_str());
    let barrier = barrier.count(parties).deaths(deaths).build().map_err(failed)?;
    let party = name.unwrap_or_else(user::host_and_process);

    let entered = async {
        match time {
            Some(time) => barrier.enter_timeout(&party, time).await,
            None => barrier.enter(&party).await,
        }
    };
    let round = tokio::select! {
        biased;
        entered = entered => entered.map_err(failed)?,
        signal = signals.next() => return Ok(signal_code(signal.as_raw())),
        failure = connection.keep_engine() => return Err(failure),
        never = tell_of_others(&barrier, parties), if !global.quiet => match never {},
    };

    let code = if command.is_empty() {
        Exit::Ok.code()
    } else {
        let own = [
            ("LOCKKEEPER_BARRIER", path.to_string()),
            ("LOCKKEEPER_PARTY", party.clone()),
            ("LOCKKEEPER_PARTIES", parties.to_string()),
            ("LOCKKEEPER_ROUND", round.number().to_string()),
        ];
        let own = own.into_iter().map(|(name, value)| (name, Some(value.into())));
        let variables = user_command::way_to_servers(connection).chain(own).collect();
        let program = UserCommand { command: &command, variables, input: None };
        tokio::select! {
            ended = program.run(&mut signals, async || {}) => ended?.code,
            () = async {
                report(&connection.keep_engine().await);
                std::future::pending().await
            } => return Ok(Exit::Ok.code()),
        }
    };
    leave(connection, round, &mut signals, code).await
}

/// Prints one notice if others wait for another number of parties. Never returns.
async fn tell_of_others(barrier: &DoubleBarrier, parties: usize) -> Infallible {
    let mut pause = NOTICE_DELAY;
    loop {
        sleep(pause).await;
        // If the state cannot be read now, try again later.
        let report = barrier.inspect().await.ok();
        let groups = report.as_ref().map(groups).unwrap_or_default();
        let others = groups.iter().find(|(wanted, _)| *wanted != Some(parties));
        if let Some((wanted, names)) = others {
            let wait = if names.len() == 1 { "waits" } else { "wait" };
            let wanted = match wanted {
                Some(wanted) => format!("{wanted} parties"),
                None => "named parties".to_owned(),
            };
            tell(&format!(
                "{}: {} {wait} for {wanted}, and this party for {parties}: they do not enter together; \
                 all must pass the same number",
                barrier.path(),
                view::listed(names)
            ));
            break;
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
    std::future::pending().await
}

/// The waiting parties, grouped by the number of parties that they wait for.
fn groups(report: &BarrierReport) -> Vec<(Option<usize>, Vec<String>)> {
    let mut groups: Vec<(Option<usize>, Vec<String>)> = Vec::new();
    for (name, wanted) in report.waiting.iter().zip(&report.wanted) {
        match groups.iter_mut().find(|(of, _)| of == wanted) {
            Some((_, names)) => names.push(name.clone()),
            None => groups.push((*wanted, vec![name.clone()])),
        }
    }
    groups
}

/// Leaves, and waits until all parties have left. If the command has failed, its exit code is returned.
async fn leave(
    connection: &Connection,
    round: Round,
    signals: &mut Signals,
    code: u8,
) -> Result<u8, Failure> {
    let left = tokio::select! {
        biased;
        left = round.leave() => left,
        signal = signals.next() => return Ok(signal_code(signal.as_raw())),
        failure = connection.keep_engine() => return Err(failure),
    };
    match left {
        Ok(died) if died.is_empty() => Ok(code),
        Ok(died) => {
            tell(&format!("{} died inside", view::listed(&died)));
            Ok(code)
        }
        Err(error) => {
            let failure = failed(error);
            if code == Exit::Ok.code() {
                return Err(failure);
            }
            report(&failure);
            Ok(code)
        }
    }
}

async fn show(global: &Global, name: &ZnodePath) -> Result<u8, Failure> {
    let shown = Connection::during(global, async |connection| {
        check_is_barrier(&connection.client, name, false).await?;
        let closed = match gate(connection, name)?.inspect().await {
            Err(BarrierError::Foreign { .. }) => return parties(connection, name).await,
            closed => closed.map_err(failed)?,
        };

        let shown = ShownBarrier::new(name, "gate");
        Ok(match closed {
            None => ShownBarrier { closed: Some(false), ..shown },
            Some(ClosedBarrier { since_unix_ms, session, holder, .. }) => ShownBarrier {
                closed: Some(true),
                since_unix_ms: Some(since_unix_ms),
                session: (session != SessionId::NONE).then(|| session.to_string()),
                owner: holder,
                ..shown
            },
        })
    });
    let shown = shown.await?;
    output::show(global, &shown, || shown.text())?;
    Ok(Exit::Ok.code())
}

/// The present round of a double barrier.
async fn parties<'a>(
    connection: &Connection,
    name: &'a ZnodePath,
) -> Result<ShownBarrier<'a>, Failure> {
    // The barrier exists, so this read does not create it.
    let parties = DoubleBarrier::new(&connection.client, name.as_str(), 1).map_err(failed)?;
    let report = parties.inspect().await.map_err(failed)?;
    let wanted = report.wanted.iter();
    let parties = report
        .waiting
        .iter()
        .zip(wanted)
        .map(|(party, wanted)| WaitingParty { party: party.clone(), wanted: *wanted });
    Ok(ShownBarrier {
        round: Some(report.round),
        parties: Some(parties.collect()),
        groups: groups(&report),
        waiting: Some(report.waiting),
        inside: Some(report.inside),
        ..ShownBarrier::new(name, "parties")
    })
}

impl<'a> ShownBarrier<'a> {
    fn new(name: &'a ZnodePath, kind: &'static str) -> Self {
        Self {
            barrier: name.as_str(),
            kind,
            closed: None,
            since_unix_ms: None,
            session: None,
            owner: None,
            round: None,
            waiting: None,
            parties: None,
            inside: None,
            groups: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let Self { barrier, .. } = self;
        if let Some(round) = self.round {
            let lines = self.groups.iter().map(|(wanted, names)| {
                let (count, listed) = (names.len(), view::listed(names));
                let wait = if count == 1 { "waits" } else { "wait" };
                let wanted = wanted.map_or("the named".to_owned(), |wanted| wanted.to_string());
                format!(
                    "{barrier}: {count} of {wanted} parties {wait} for round {round}: {listed}\n"
                )
            });
            let mut text: String = lines.collect();
            if text.is_empty() {
                text = format!("{barrier}: no party waits for round {round}\n");
            }
            if let Some(inside) = self.inside.as_ref().filter(|inside| !inside.is_empty()) {
                text += &format!("{barrier}: inside: {}\n", view::listed(inside));
            }
            return text;
        }
        let Some(since) = self.since_unix_ms else { return format!("{barrier}: open\n") };
        let since = view::ago(since);
        let until = match (&self.owner, &self.session) {
            (_, None) => "a program opens it".to_owned(),
            (Some(owner), _) => {
                let host = view::printable(&owner.host);
                format!("the end of process {} on {host}", owner.pid)
            }
            (None, Some(session)) => format!("the end of session {session}"),
        };
        format!("{barrier}: closed for {since}, until {until}\n")
    }
}
