//! What no lock in the order of arrival can do without, with a node for each that waits.

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper::{Client, CreateMode, OpResult, Sequence, ZnodePath};

use crate::measure::Lock;

/// What a lock's node holds is about as long.
const DATA: &[u8] = &[0x55; 100];

/// As long as a lock's, which has an id in it to be found by if the answer to the create is lost:
/// each listing carries the names of all that wait.
const PREFIX: &str = "_c_00000000-0000-0000-0000-000000000000-bare-";

/// What is done when the node ahead has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecondLook {
    /// It is taken for the own turn, although those further ahead may be there still. No lock can
    /// do that: there would be two holders whenever somebody in the middle of the line leaves it.
    Never,
    /// If there were more ahead, the line is listed again.
    IfMoreWereAhead,
}

/// Bare requests in place of a lock: a create, a listing, a watch on the node ahead, its event, a
/// delete. It is sure of nothing else that a lock has to be sure of: it does not watch its own
/// node, and knows no lost connections.
pub(crate) struct BareLock {
    client: Client,
    line: ZnodePath,
    prefix: ZnodePath,
    second_look: SecondLook,
    /// A node to be deleted in one transaction with the next create.
    left: Option<ZnodePath>,
    /// The line as it was at the own turn, if that is known.
    seen: Option<Vec<String>>,
}

impl BareLock {
    /// Among the children of `line`, which is made if need be.
    pub(crate) async fn new(client: &Client, line: &str, second_look: SecondLook) -> Result<Self> {
        let line = ZnodePath::new(line)?;
        client.ensure(&line, CreateMode::Persistent).await?;
        let (client, prefix) = (client.clone(), line.child(PREFIX)?);
        Ok(Self { client, line, prefix, second_look, left: None, seen: None })
    }

    /// Creates the next node, and lists the line unless it is known.
    async fn enter(&mut self) -> Result<(ZnodePath, Vec<String>)> {
        const MODE: CreateMode = CreateMode::EphemeralSequential;
        let (data, seen) = (Bytes::from_static(DATA), self.seen.take());
        let Some(left) = self.left.take() else {
            let made = self.client.create(&self.prefix, data, MODE);
            let listed = self.list();
            return Ok((made.await?.path, listed.await?));
        };

        let replaced = self.client.transaction().delete(&left, None);
        let replaced = replaced.create(&self.prefix, data, MODE).commit();
        let Some(mut line) = seen else {
            // Polled in this order, and so sent in it.
            let (results, listed) = tokio::join!(biased; replaced, async { self.list().await });
            return Ok((created(results?)?, listed?));
        };
        let own = created(replaced.await?)?;

        // If its number is the next one, nobody has come since.
        let last = line.last().context("it was in the line")?;
        if number(own.name())? != number(last)? + 1 {
            return Ok((own, self.list().await?));
        }
        line.retain(|name| name != left.name());
        line.push(own.name().to_owned());
        Ok((own, line))
    }

    /// The line in order: all have the same prefix, and numbers of the same length.
    fn list(&self) -> impl Future<Output = Result<Vec<String>>> + use<> {
        let listed = self.client.children(&self.line);
        async {
            let (mut names, _) = listed.await?;
            names.sort_unstable();
            Ok(names)
        }
    }
}

/// The node that the last operation of a transaction has made.
pub(crate) fn created(results: Vec<OpResult>) -> Result<ZnodePath> {
    match results.into_iter().next_back() {
        Some(OpResult::Create { path } | OpResult::Create2 { path, .. }) => {
            Ok(ZnodePath::new(&path)?)
        }
        _ => anyhow::bail!("a create is answered by something else"),
    }
}

fn number(name: &str) -> Result<i32> {
    let number = name.strip_prefix(PREFIX).and_then(Sequence::parse);
    Ok(number.context("not a node of this line")?.0)
}

impl Lock for BareLock {
    type Guard = ZnodePath;

    async fn acquire(&mut self) -> Result<ZnodePath> {
        let (own, line) = self.enter().await?;
        let place = line.iter().position(|name| name == own.name()).context("it is not listed")?;
        let Some(ahead) = place.checked_sub(1) else {
            self.seen = Some(line);
            return Ok(own);
        };

        // If it could not be watched, it is gone.
        let watched = self.client.data_watched(&self.line.child(&line[ahead])?).await;
        if let Ok((_, mut watcher)) = watched {
            watcher.changed().await?;
        }
        if ahead > 0 && self.second_look == SecondLook::IfMoreWereAhead {
            self.seen = Some(self.list().await?);
        }
        Ok(own)
    }

    async fn release(&mut self, own: ZnodePath) -> Result<()> {
        self.seen = None;
        Ok(self.client.delete(&own, None).await?)
    }

    fn let_go(&mut self, own: ZnodePath) {
        self.left = Some(own);
    }
}

impl Drop for BareLock {
    /// Those behind it are still waiting.
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            drop(self.client.delete(&left, None));
        }
    }
}
