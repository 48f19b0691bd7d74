//! Where the story happens, and how it is told.

use lockkeeper::{Client, LeaseMode, ZnodePath};

use super::counter::Counter;
use crate::session::connect;
use crate::shared::exit::Failure;
use crate::shared::global::Global;
use crate::shared::output::{colours, print};

/// Where it happens, and how it is told.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) global: &'a Global,
    pub(super) counter: Counter,
    pub(super) root: ZnodePath,
    pub(super) paint: Paint,
}

impl Stage<'_> {
    /// A session of its own, over a connection that is counted.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        // Nothing is done under the demo's locks, so pings may prove them. The heartbeats of a quorum
        // lease would be counted whenever one fell into a measurement.
        let builder = connect::plain_builder(self.global)?.lease(LeaseMode::Direct);
        let client = builder.connect(&self.counter.connect_string()).await;
        client.map_err(|error| {
            let advice = "check --connect; servers may allow fewer connections from one address \
                          (maxClientCnxns) than --waiters asks for";
            Failure::from(error).advise(advice)
        })
    }

    /// Writes a part of the story, unless programs read it.
    pub(super) fn say(&self, text: &str) -> Result<(), Failure> {
        if self.global.json { Ok(()) } else { print(&format!("{text}\n")) }
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
