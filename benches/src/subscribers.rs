//! Subscribers of one value, who are told of each new one.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use lockkeeper::{Client, CreateMode, Shared, ValueChange, ZnodePath};
use lockkeeper_testkit::clock;
use tokio::sync::mpsc;

/// Where the value is.
pub(crate) const PATH: &str = "/bench-value";

/// How each subscriber follows the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// `Shared::changes`.
    Shared,
    /// A read that leaves a watch, its event, and the next read: what no subscriber can do without on
    /// a server that tells of a change but not what it is.
    Bare,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::Bare => "bare",
        })
    }
}

/// The value, for those who write it.
pub(crate) async fn value(client: &Client) -> Result<Shared<u64>> {
    client.ensure(&ZnodePath::new(PATH)?, CreateMode::Persistent).await?;
    let value = Shared::new(client, PATH)?;
    value.set(&0).await?;
    Ok(value)
}

/// The subscribers of one process.
pub(crate) struct Subscribers {
    count: usize,
    told: mpsc::UnboundedReceiver<Result<(u64, Duration)>>,
}

/// Starts so many, each of which is told of the present value first.
pub(crate) fn start(client: &Client, count: usize, kind: Kind) -> Subscribers {
    let (tell, told) = mpsc::unbounded_channel();
    for _ in 0..count {
        let (client, tell) = (client.clone(), tell.clone());
        tokio::spawn(async move {
            let error = match kind {
                Kind::Shared => follow(&client, &tell).await,
                Kind::Bare => watch(&client, &tell).await,
            };
            // Whoever listens is gone when the process ends.
            drop(error.map_err(|error| tell.send(Err(error))));
        });
    }
    Subscribers { count, told }
}

type Tell = mpsc::UnboundedSender<Result<(u64, Duration)>>;

async fn follow(client: &Client, tell: &Tell) -> Result<()> {
    let value: Shared<u64> = Shared::new(client, PATH)?;
    let mut changes = value.changes();
    loop {
        match changes.next().await? {
            ValueChange::Set(now) => tell.send(Ok((now.value, clock::now())))?,
            other => bail!("{other:?}"),
        }
    }
}

async fn watch(client: &Client, tell: &Tell) -> Result<()> {
    let path = ZnodePath::new(PATH)?;
    loop {
        let ((data, _), mut changed) = client.data_watched(&path).await?;
        let value = std::str::from_utf8(&data)?.trim().parse()?;
        tell.send(Ok((value, clock::now())))?;
        changed.changed().await?;
    }
}

impl Subscribers {
    /// Waits until each has been told of the next value, which is the time at which it was published;
    /// says how long that took.
    pub(crate) async fn all_told(&mut self) -> Result<Duration> {
        let mut last = Duration::ZERO;
        for _ in 0..self.count {
            let (value, at) = self.told.recv().await.context("no subscriber is left")??;
            last = last.max(at.saturating_sub(Duration::from_nanos(value)));
        }
        Ok(last)
    }
}
