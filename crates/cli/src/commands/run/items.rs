//! `lockkeeper queue work`: runs a command for each item of a queue.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use lockkeeper::overview::PathUse;
use lockkeeper::{Clock, Failure as _, Item, Queue, QueueError, Raw, ZnodePath};
use tokio::time::sleep;

use super::events::{Event, Events};
use super::job::{CommandOptions, Job, Ran};
use super::lock::Held;
use super::release::keep_engine;
use super::supervise::{EndRequest, OnRevoke};
use super::watchdog::Watchdog;
use crate::session::connect::Connection;
use crate::session::{path_use, waiting};
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::tell;
use crate::shared::signals::Signals;

/// The longest pause before a retry.
const MAX_PAUSE: Duration = Duration::from_secs(60);

const NOTES: &str = "\
The command gets the item on its standard input. Its environment contains LOCKKEEPER_ITEM, the id of the item; \
LOCKKEEPER_ATTEMPT, 1 or more; LOCKKEEPER_TOKEN, which is larger each time an item is taken; and the variables of \
lockkeeper run.

Its exit code decides about the item: 0, it is done; 65, its data is bad, and it becomes a dead letter; 126 or 127, \
the command cannot be executed, so the item is given back and queue work exits with that code; any other code, it is \
tried again, after --retry-after, then twice as long and so on up to a minute. After --max-tries it becomes a dead \
letter. A command that runs for longer than --max-run has failed.

An item belongs to one command at a time. If the item is lost (the servers could not be reached for too long) or \
cancelled, the command is ended as by lockkeeper run. If queue work is killed, so is the command, and the item goes \
to the next worker. INT, TERM, HUP and QUIT are forwarded to the command; queue work exits after the command, and an \
item whose command then failed is given back.

An item that is done is never taken again. If a worker fails after its command has changed other systems and before \
the item is done, the command runs again: let it reject an id that it has already processed.

Examples:
  lockkeeper queue put jobs cat.jpg dog.jpg
  lockkeeper queue work jobs -- sh -c 'read -r name; ./resize \"$name\"'
  lockkeeper queue work jobs --until-empty -c 'xargs ./resize'

Exit codes: 0, ended by --until-empty or --items; 126 and 127; 128 + n, signal n came; others: lockkeeper run --help";

/// Run a command for each item, one at a time; run several workers for parallel work
#[derive(Debug, Args)]
#[command(override_usage = "lockkeeper queue work [OPTIONS] <NAME> -- <CMD>...", after_long_help = NOTES)]
pub(crate) struct WorkOptions {
    /// The queue
    #[arg(value_parser = names::lock, value_name = "NAME")]
    name: ZnodePath,

    /// Exit when no item can be taken
    #[arg(long)]
    until_empty: bool,

    /// Exit after N items
    #[arg(long, value_name = "N", value_parser = names::nonzero)]
    items: Option<usize>,

    /// Make an item a dead letter after it was taken N times
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    max_tries: u32,

    /// The pause before the first retry of an item
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = names::duration,
          allow_hyphen_values = true)]
    retry_after: Duration,

    /// The value of the global option.
    #[arg(skip)]
    quiet: bool,

    #[command(flatten)]
    job: CommandOptions,
}

/// What to do after an item.
enum After {
    Next,
    /// The item was not ended, and does not count.
    Again,
    End(u8),
}

/// Works on items until it must end.
pub(crate) async fn work(global: &Global, mut options: WorkOptions) -> Result<u8, Failure> {
    options.quiet = global.quiet;
    options.job.check()?;
    options.job.check_is_there()?;
    let events =
        Events::open(options.job.json_log.as_deref(), std::slice::from_ref(&options.name))?;
    let connection = Connection::open_within(global, &mut None).await?;
    connection.introduce_engine(global);
    connection.tell_outages(global);
    let mut watchdog = Watchdog::start(&connection)?;
    let result = work_on(&connection, &options, &events, &mut watchdog).await;
    let (client, name) = (&connection.client, &options.name);
    let result = path_use::explained(client, name, PathUse::Queue, result).await;
    connection.close().await;
    // Not earlier: if this process is killed while an item is given back, the watchdog closes the session.
    watchdog.dismiss();
    result.inspect_err(|failure| events.failed(failure))
}

async fn work_on(
    connection: &Connection,
    options: &WorkOptions,
    events: &Events,
    watchdog: &mut Watchdog,
) -> Result<u8, Failure> {
    let times = options.job.times(connection, options.quiet)?;
    let mut signals = Signals::listen()?;
    let queue = Queue::<Bytes>::builder(&connection.client, options.name.as_str())
        .max_tries(options.max_tries)
        .backoff(options.retry_after, MAX_PAUSE.max(options.retry_after))
        .label(options.job.label())
        .build_with(Raw)
        .map_err(|error| Failure::of_recipe(&error))?;
    let job = Job { connection, options: &options.job, on_revoke: OnRevoke::Term, times, events };
    let worker = Worker { job, options, queue };

    let mut left = options.items;
    while left != Some(0) {
        let item = tokio::select! {
            biased;
            signal = signals.next_of_wait() => return Ok(signal_code(signal.as_raw())),
            item = worker.next() => match item? {
                Some(item) => item,
                None => return Ok(Exit::Ok.code()),
            },
            failure = connection.keep_engine() => return Err(failure),
        };
        match worker.handle(item, &mut signals, watchdog).await? {
            After::Next => left = left.map(|left| left - 1),
            After::Again => {}
            After::End(code) => return Ok(code),
        }
    }
    Ok(Exit::Ok.code())
}

/// Takes items, and runs the command for each.
struct Worker<'a> {
    job: Job<'a>,
    options: &'a WorkOptions,
    queue: Queue<Bytes>,
}

impl Worker<'_> {
    /// The next item; `None` if the queue is empty and this command does not wait.
    async fn next(&self) -> Result<Option<Item<Bytes>>, Failure> {
        loop {
            let taken = match self.options.until_empty {
                true => self.queue.try_take().await,
                false => self.queue.take().await.map(Some),
            };
            match taken {
                Ok(item) => return Ok(item),
                Err(error @ QueueError::Deleted { .. }) => return Err(Failure::of_recipe(&error)),
                Err(error) if error.is_retryable() => {
                    tracing::debug!(%error, "taking again");
                    self.job.connection.client.reachable().await;
                    sleep(waiting::LOOK_AGAIN).await;
                }
                Err(error) => return Err(Failure::of_recipe(&error)),
            }
        }
    }

    /// Runs the command for an item, and ends the item.
    async fn handle(
        &self,
        item: Item<Bytes>,
        signals: &mut Signals,
        watchdog: &mut Watchdog,
    ) -> Result<After, Failure> {
        let Job { connection, events, .. } = self.job;
        let granted = Clock.now();
        let variables = vec![
            ("LOCKKEEPER_ITEM", item.id().to_owned()),
            ("LOCKKEEPER_ATTEMPT", item.attempt().to_string()),
        ];
        let input = file_of(item.value())?;
        let held = Held::Item(Box::new(item));
        events.write(Event::acquired(&held, 0));
        // This process may have been paused since the item was taken.
        if !self.job.times.leaves_time(&held) {
            return Ok(After::Again);
        }

        watchdog.follow(connection);
        watchdog.begin_next()?;
        signals.listen_for_child()?;
        let mut loss = self.job.loss(&held, watchdog);
        let ran = self.job.run(&held, &mut loss, signals, variables, Some(input)).await?;
        let Held::Item(item) = held else { unreachable!("it was one") };
        let after = tokio::select! {
            after = self.end(&item, &ran) => after,
            never = keep_engine(connection) => match never {},
        };
        let held_ms = Clock.now().since(granted).as_millis();
        events.write(Event::Released { held_ms, confirmed: item.is_ended() });
        Ok(after)
    }

    /// Ends an item according to the result of its command.
    async fn end(&self, item: &Item<Bytes>, ran: &Ran) -> After {
        let id = item.id();
        let next = match ran.end_request {
            EndRequest::BySignal(signal) => After::End(signal_code(signal.as_raw())),
            _ => After::Next,
        };
        if ran.lost == Some(Exit::Lost) {
            self.say(&format!("item {id} was lost and goes to the next worker"));
            return if matches!(next, After::End(_)) { next } else { After::Again };
        }
        if ran.lost.is_some() {
            return After::End(ran.code);
        }

        let not_run = [Exit::CannotExecute.code(), Exit::NotFound.code()].contains(&ran.code);
        let ended = match ran.code {
            0 => item.done().await,
            // The command was asked to end, or would fail for every item.
            code if not_run && !ran.is_by_signal => return After::End(code),
            _ if ran.end_request != EndRequest::No => return next,
            code if code == Exit::Data.code() => {
                self.say(&format!("item {id}: exit code {code}: it is now a dead letter"));
                item.bury(format!("exit code {code}")).await
            }
            code => {
                let reason = match (ran.overran, ran.is_by_signal) {
                    (true, _) => "it ran for longer than --max-run".to_owned(),
                    (_, true) => format!("signal {}", code.saturating_sub(128)),
                    _ => format!("exit code {code}"),
                };
                let is_last = item.attempt() >= self.options.max_tries;
                let then = if is_last { "it is now a dead letter" } else { "it will be retried" };
                self.say(&format!("item {id}: {reason}, try {}: {then}", item.attempt()));
                item.retry(reason).await
            }
        };
        match ended {
            Ok(()) | Err(QueueError::Cancelled { .. }) => {}
            Err(error) => {
                tell(&format!("item {id} may run again: {error}"));
                // Wait, in case a server rejects requests for now.
                sleep(waiting::NOTICE_DELAY).await;
            }
        }
        next
    }

    fn say(&self, what: &str) {
        if !self.options.quiet {
            tell(&format!("{}: {what}", self.options.name));
        }
    }
}

/// The content of an item, as a file for the standard input of its command. Unlike a pipe, a file is never full.
fn file_of(value: &[u8]) -> Result<File, Failure> {
    let made = || {
        let mut file = tempfile::tempfile()?;
        file.write_all(value)?;
        file.rewind()?;
        Ok(file)
    };
    made().map_err(|error: std::io::Error| {
        Failure::new(
            Exit::CannotCreate,
            format!("cannot create a temporary file for an item: {error}"),
        )
    })
}
