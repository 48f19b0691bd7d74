//! Work in a session that may take long: it ends with its time or with a signal, and leaves nothing behind.

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

/// How long is waited.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Limit {
    /// Wait no longer than this; then the exit code is 1
    #[arg(id = "wait", short, long = "wait", visible_alias = "timeout", value_name = "DURATION",
          value_parser = names::duration, allow_hyphen_values = true)]
    pub(crate) time: Option<Duration>,

    /// Do not wait
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
}

impl Limit {
    /// Whether nothing is waited for.
    pub(crate) fn is_none(self) -> bool {
        self.nonblock || self.time == Some(Duration::ZERO)
    }
}

/// How often the reader of what is printed now and then is looked for.
const TICK: Duration = Duration::from_secs(1);

/// Waits for what is to be printed next; `None` if the reader has gone.
pub(crate) async fn unless_unread<T>(next: impl Future<Output = T>) -> Option<T> {
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

/// How work ended.
#[derive(Debug)]
pub(crate) enum Lasted<T> {
    Done(T),
    /// Its time was over.
    TimeUp,
    Signal(Signal),
}

impl<T> Lasted<T> {
    /// The exit code, where what is done has one of its own.
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

/// Does something in a session of its own, for at most so long. This machine's engine is started again whenever it
/// dies. However it ends, the session is closed, and with it goes all that the work has left.
pub(crate) async fn lasting<T>(
    global: &Global,
    mut limit: Option<Duration>,
    work: impl AsyncFnOnce(&Connection) -> Result<T, Failure>,
) -> Result<Lasted<T>, Failure> {
    let connection = Connection::open_within(global, &mut limit).await?;
    connection.introduce_engine(global);
    let mut signals = Signals::listen()?;
    let ended = tokio::select! {
        // What was done counts, also if the time is over as well.
        biased;
        done = work(&connection) => done.map(Lasted::Done),
        signal = signals.next() => Ok(Lasted::Signal(signal)),
        failure = connection.keep_engine() => Err(failure),
        () = waiting::over(limit) => match connection.client.contact() {
            Contact::Connected => Ok(Lasted::TimeUp),
            // What was seen last may not be so any more.
            _ => Err(Failure::new(Exit::NoServer, "the time is over, and no server can be reached")),
        },
    };
    connection.close().await;
    ended
}
