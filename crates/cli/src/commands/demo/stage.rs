//! Where the story happens, and how it is told.

use std::time::{Duration, Instant};

use lockkeeper::{Client, Error, ErrorCode, LeaseMode, ZnodePath};

use super::counter::Counter;
use crate::session::connect;
use crate::shared::exit::Failure;
use crate::shared::global::Global;
use crate::shared::output::{colours, print};

/// Sessions that end soon after their program, on an engine that is made for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortSessions {
    pub(super) tick: Duration,
    pub(super) timeout: Duration,
}

/// Where it happens, and how it is told.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) global: &'a Global,
    pub(super) servers: String,
    pub(super) counter: Counter,
    pub(super) root: ZnodePath,
    pub(super) paint: Paint,
    /// `None`: as the options say.
    pub(super) sessions: Option<ShortSessions>,
}

/// A program of a scene: a session over a connection of its own, which is counted and can be cut.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) client: Client,
    pub(super) wire: Counter,
}

impl Actor {
    /// Does to the servers what the death of a program does: its connection ends, and it does not come
    /// back. Gives the time.
    pub(super) fn kill(&self) -> Instant {
        self.wire.cut_off();
        Instant::now()
    }
}

impl Stage<'_> {
    /// A session of its own, over a connection that is counted together with the others.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        // Nothing is done under the demo's locks, so pings may prove them. The heartbeats of a quorum
        // lease would be counted whenever one fell into a measurement.
        self.connect(&self.counter, LeaseMode::Direct).await
    }

    /// A program with a connection that is counted by itself.
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

    /// The path of a lock, or of something else, of this demo alone.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Deletes what is left.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let client = self.client().await?;
        delete_tree(&client, &self.root).await?;
        client.close().await;
        Ok(())
    }

    /// Writes a part of the story, unless programs read it.
    pub(super) fn say(&self, text: &str) -> Result<(), Failure> {
        if self.global.json { Ok(()) } else { print(&format!("{text}\n")) }
    }
}

/// Deletes a node and all below it. Programs of the scene that end just then may still change it.
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

/// Colours, where they are seen.
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
