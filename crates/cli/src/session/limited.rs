//! Work in a session that may take long. A time limit or a signal ends it, and it leaves nothing on the servers.

use std::time::Duration;

use clap::Args;
use lockkeeper::Contact;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::session::connect::Connection;
use crate::session::waiting;
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::has_lost_its_reader;
use crate::shared::signals::Signals;

/// How long to wait.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Limit {
    /// The maximum time to wait; after it the exit code is 1
    #[arg(id = "wait", short, long = "wait", visible_alias = "timeout", value_name = "DURATION",
          value_parser = names::duration, allow_hyphen_values = true)]
    pub(crate) time: Option<Duration>,

    /// Do not wait
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
}

impl Limit {
    /// Whether not to wait at all.
    pub(crate) fn is_none(self) -> bool {
        self.nonblock || self.time == Some(Duration::ZERO)
    }
}

/// How often to check whether the reader has closed the pipe.
const TICK: Duration = Duration::from_secs(1);

/// Waits for the next output; `None` if the reader has closed the pipe.
pub(crate) async fn unless_reader_closed<T>(next: impl Future<Output = T>) -> Option<T> {
    let unread = async {
        while !has_lost_its_reader() {
            sleep(TICK).await;
        }
    };
    tokio::select! {
        biased;
        next = next => Some(next),
        () = unread => None,
    }
}

/// How the work ended.
#[derive(Debug)]
pub(crate) enum LimitedOutcome<T> {
    Done(T),
    /// The time limit has passed.
    TimeUp,
    Signal(Signal),
}

impl<T> LimitedOutcome<T> {
    /// The exit code; `done` gives it if the work was completed.
    pub(crate) fn code(
        self,
        of_done: impl FnOnce(T) -> Result<u8, Failure>,
    ) -> Result<u8, Failure> {
        match self {
            Self::Done(done) => of_done(done),
            Self::TimeUp => Ok(Exit::No.code()),
            Self::Signal(signal) => Ok(signal_code(signal.as_raw())),
        }
    }
}

/// Does work in its own session, with a time limit. Restarts this machine's engine whenever it dies. The session is
/// closed in every case, which deletes everything that the work left in it.
pub(crate) async fn with_limit<T>(
    global: &Global,
    mut limit: Option<Duration>,
    work: impl AsyncFnOnce(&Connection) -> Result<T, Failure>,
) -> Result<LimitedOutcome<T>, Failure> {
    let connection = Connection::open_within(global, &mut limit).await?;
    connection.introduce_engine(global);
    let mut signals = Signals::listen()?;
    let ended = tokio::select! {
        // Completed work counts, even if the time limit has passed as well.
        biased;
        done = work(&connection) => done.map(LimitedOutcome::Done),
        signal = signals.next() => Ok(LimitedOutcome::Signal(signal)),
        failure = connection.keep_engine() => Err(failure),
        () = waiting::over(limit) => match connection.client.contact() {
            Contact::Connected => Ok(LimitedOutcome::TimeUp),
            // Without a connection, the last known state may be outdated.
            _ => Err(Failure::new(Exit::NoServer, "the time limit has passed, and no server can be reached")),
        },
    };
    connection.close().await;
    ended
}
