//! Session timeouts, and what the default one is.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::Client;
use lockkeeper_engine::Engine;
use lockkeeper_testkit::command;

use crate::outage::holders::Kind;

/// A session timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// What a program has that does not name one.
    Default,
    Seconds(u64),
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::Seconds(seconds) => f.pad(&format!("{seconds} s")),
        }
    }
}

impl Timeout {
    /// Its length, for this kind of holder: the library and the command each have a default.
    pub(crate) async fn of(self, kind: Kind) -> Result<Duration> {
        match (self, kind) {
            (Self::Seconds(seconds), _) => Ok(Duration::from_secs(seconds)),
            (Self::Default, Kind::Guard | Kind::Jeopardy) => default_of_library().await,
            (Self::Default, Kind::Run | Kind::Pause) => default_of_command(),
        }
    }
}

/// Asks a session for it, with an engine that grants everything that is likely.
async fn default_of_library() -> Result<Duration> {
    let engine = Engine::builder().max_session_timeout(Duration::from_secs(60)).start().await?;
    let client = Client::builder().connect(&engine.connect_string()).await?;
    let timeout = client.session_timeout();
    client.close().await;
    Ok(timeout)
}

/// Reads it where users do.
fn default_of_command() -> Result<Duration> {
    let output = Command::new(command::lockkeeper()?).args(["run", "--help"]).output()?;
    let help = String::from_utf8(output.stdout)?;
    let (_, option) = help.split_once("--session-timeout").context("no --session-timeout")?;
    let (_, default) = option.split_once("[default: ").context("no default")?;
    let (seconds, _) = default.split_once("s]").context("the default is not in seconds")?;
    Ok(Duration::from_secs(seconds.parse().context("the default is not in whole seconds")?))
}
