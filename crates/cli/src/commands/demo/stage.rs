//! The environment of the story and the scenes: sessions, paths and output.

use std::time::{Duration, Instant};

use lockkeeper::{Client, Error, ErrorCode, LeaseMode, ZnodePath};

use super::counter::Counter;
use crate::session::connect;
use crate::shared::exit::Failure;
use crate::shared::global::Global;
use crate::shared::output::{colours, print};

/// The timing of an engine whose sessions expire soon after their program has died.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortSessions {
    pub(super) tick: Duration,
    pub(super) timeout: Duration,
}

/// The servers, and the output.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) global: &'a Global,
    pub(super) servers: String,
    pub(super) counter: Counter,
    pub(super) root: ZnodePath,
    pub(super) paint: Paint,
    /// `None`: the sessions that the options set.
    pub(super) sessions: Option<ShortSessions>,
}

/// A program of a scene: a session over a separate connection, which is counted and can be cut.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) client: Client,
    pub(super) wire: Counter,
}

impl Actor {
    /// Has the same effect on the servers as the death of the program: its connection closes, and it never reconnects.
    /// Returns the time.
    pub(super) fn kill(&self) -> Instant {
        self.wire.cut_off();
        Instant::now()
    }
}

impl Stage<'_> {
    /// A new session, over a connection that is counted together with the others.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        // No work depends on the demo's locks, so any answer may renew their leases. The heartbeats of a quorum lease
        // would be counted if they fell into a measurement.
        self.connect(&self.counter, LeaseMode::Direct).await
    }

    /// A program with a connection that is counted separately.
    pub(super) async fn actor(&self) -> Result<Actor, Failure> {
        let wire = Counter::start(&self.servers).await?;
        let client = self.connect(&wire, self.global.lease()).await?;
        Ok(Actor { client, wire })
    }

    async fn connect(&self, wire: &Counter, lease: LeaseMode) -> Result<Client, Failure> {
        let mut builder = connect::plain_builder(self.global)?.lease(lease);
        if let Some(ShortSessions { tick, timeout }) = self.sessions {
            builder = builder.session_timeout(timeout).server_tick(tick);
        }
        builder.connect(&wire.connect_string()).await.map_err(|error| {
            let advice = "check --connect; servers may allow fewer connections from one address \
                          (maxClientCnxns) than --waiters, or the scene, asks for";
            Failure::from(error).advise(advice)
        })
    }

    /// A path that only this demo uses.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Deletes the remaining znodes.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let client = self.client().await?;
        delete_tree(&client, &self.root).await?;
        client.close().await;
        Ok(())
    }

    /// Writes a line of the story, unless the output is JSON.
    pub(super) fn say(&self, text: &str) -> Result<(), Failure> {
        if self.global.json { Ok(()) } else { print(&format!("{text}\n")) }
    }
}

/// Deletes a node and its descendants. Programs of the scene that are just ending may still change it.
async fn delete_tree(client: &Client, node: &ZnodePath) -> Result<(), Error> {
    loop {
        let names = match client.children(node).await {
            Ok((names, _)) => names,
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(()),
            Err(error) => return Err(error),
        };
        for child in names.iter().filter_map(|name| node.child(name).ok()) {
            Box::pin(delete_tree(client, &child)).await?;
        }

        match client.delete(node, None).await {
            Err(error) if error.code() == Some(ErrorCode::NotEmpty) => {}
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(()),
            deleted => return deleted,
        }
    }
}

/// Colours, if the output supports them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    on: bool,
}

impl Paint {
    pub(super) fn new(global: &Global) -> Self {
        Self { on: !global.json && colours() }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(super) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(super) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
