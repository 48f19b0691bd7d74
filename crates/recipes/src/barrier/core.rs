//! State shared by the clones of a [`DoubleBarrier`](crate::DoubleBarrier): its location and the round that
//! parties enter.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Client, CreateMode, Error, ErrorCode, Stat, Watcher, ZnodePath, present};

use crate::barrier::error::BarrierError;
use crate::barrier::layout::{
    BarrierNodes, Kind, Parties, PartyName, RoundState, newest_round, rounds_before,
};
use crate::barrier::requests::{again, make};
use crate::exact::Writers;
use crate::exact::shared_write::lock;
use crate::last_time::LastTime;

/// Minimum time between two cleanups of old rounds by one handle.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// How many rounds with deaths are kept. A party whose round node is missing assumes that all parties have left it.
const MAX_KEPT_ROUNDS: usize = 100;

/// What the death of a party inside a round means for the other parties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deaths {
    /// The round fails: [`Round::failed`](crate::Round::failed) returns, and
    /// [`Round::leave`](crate::Round::leave) returns
    /// an error without waiting.
    #[default]
    FailRound,
    /// The others continue: [`Round::leave`](crate::Round::leave) waits for them and returns the names of the
    /// dead parties.
    Report,
}

/// State shared by the clones of a handle.
#[derive(Debug)]
pub(super) struct BarrierCore {
    pub(super) client: Client,
    pub(super) places: BarrierNodes,
    pub(super) parties: Parties,
    pub(super) deaths: Deaths,
    pub(super) owner: Bytes,
    /// The round that parties enter, if known.
    pub(super) newest: Mutex<Option<u32>>,
    /// The time of the last cleanup of old rounds.
    pub(super) swept: LastTime,
    pub(super) writers: Writers,
}

/// One reading of a round: the data of its node, with a watch, and the names of its children.
pub(super) type RoundListing = (Bytes, Stat, Watcher, Vec<String>);

impl BarrierCore {
    /// Reads a round; `None` if its node is missing. Sets the watch before it lists. `lists`: with the children's
    /// names.
    pub(super) async fn look(
        &self,
        directory: &ZnodePath,
        lists: bool,
    ) -> Result<Option<RoundListing>, Error> {
        let data = self.client.data_watched(directory);
        let names = lists.then(|| self.client.children(directory));
        let Some(((data, stat), watcher)) = present(data.await)? else { return Ok(None) };
        let Some(names) = names else { return Ok(Some((data, stat, watcher, Vec::new()))) };
        Ok(present(names.await)?.map(|(names, _)| (data, stat, watcher, names)))
    }

    pub(super) fn read(&self, data: &[u8]) -> Result<RoundState, BarrierError> {
        let path = self.places.rounds.clone();
        let foreign = |found| BarrierError::Foreign { path, kind: "double barrier", found };
        RoundState::read(data).map_err(foreign)
    }

    /// The number of the round that parties enter, cached if known.
    pub(super) async fn round(&self) -> Result<u32, BarrierError> {
        let known = *lock(&self.newest);
        match known {
            Some(known) => Ok(known),
            None => self.look_for_round().await,
        }
    }

    /// Reads the number from the servers. Creates the barrier if it is missing.
    pub(super) async fn look_for_round(&self) -> Result<u32, BarrierError> {
        loop {
            match present(self.client.children(&self.places.rounds).await) {
                Ok(Some((names, _))) => {
                    if let Some(number) = newest_round(&names) {
                        self.note_newest(number);
                        return Ok(number);
                    }
                    let first = self.places.round(0);
                    match self.client.create(&first, "", CreateMode::Persistent).await {
                        Ok(_) => {}
                        Err(error) if error.code().is_some_and(is_of_others) => {}
                        Err(error) => self.again(error).await?,
                    }
                }
                Ok(None) => self.make().await?,
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// The names of the parties that are inside the rounds before this one.
    pub(super) async fn inside_before(&self, round: u32) -> Result<Vec<String>, Error> {
        let rounds = present(self.client.children(&self.places.rounds).await)?;
        let rounds = rounds.map(|(names, _)| names).unwrap_or_default();
        let mut numbers: Vec<_> = rounds_before(&rounds, round).collect();
        numbers.sort_unstable();
        let directories: Vec<_> = numbers.iter().map(|it| self.places.round(*it)).collect();
        // Pipelined.
        let asked: Vec<_> = directories.iter().map(|it| self.client.children(it)).collect();

        let mut inside = Vec::new();
        for answer in asked {
            let nodes = present(answer.await)?.map(|(nodes, _)| nodes).unwrap_or_default();
            let mut parties: Vec<_> =
                nodes.iter().filter_map(|node| PartyName::read(node)).collect();
            parties.sort_unstable_by_key(PartyName::number);
            inside.extend(parties.iter().map(|party| party.name().to_owned()));
        }
        Ok(inside)
    }

    pub(super) fn note_newest(&self, number: u32) {
        let mut newest = lock(&self.newest);
        *newest = Some(newest.map_or(number, |known| known.max(number)));
    }

    /// Creates the barrier. Another program may have created it first.
    async fn make(&self) -> Result<(), BarrierError> {
        let BarrierNodes { path, rounds, left } = &self.places;
        let first = self.places.round(0);
        let below = [rounds, &first, left].map(|node| (node, String::new()));
        make(&self.client, path, Kind::Rounds, below).await
    }

    /// Returns when a failed request may be repeated.
    pub(super) async fn again(&self, error: Error) -> Result<(), BarrierError> {
        again(&self.places.path, error).await
    }

    /// Deletes old rounds, before this one, in the background: the record of a round in which a party has died, and
    /// all nodes of a round in which all parties have died. Keeps the newest ones, because a party that was cut off
    /// may still read them.
    pub(super) fn sweep_periodically(self: &Arc<Self>, opened: u32) {
        if !self.swept.is_due(SWEEP_INTERVAL, self.client.now()) {
            return;
        }
        let core = Arc::clone(self);
        self.client.tokio_runtime().spawn(async move {
            // The next cleanup continues where this one fails.
            let Ok((names, _)) = core.client.children(&core.places.rounds).await else { return };
            let mut numbers: Vec<_> = rounds_before(&names, opened).collect();
            numbers.sort_unstable();
            let old = numbers.len().saturating_sub(MAX_KEPT_ROUNDS);
            for number in numbers.drain(..old) {
                let directory = core.places.round(number);
                let Ok((_, stat)) = core.client.data(&directory).await else { return };
                if stat.num_children > 0 {
                    continue;
                }
                let marks = core.places.left(number);
                let left = present(core.client.children(&marks).await).ok().flatten();
                let left = left.map(|(names, _)| names).unwrap_or_default();
                let marked = left.iter().filter_map(|name| marks.child(name).ok());
                for node in marked.chain([marks.clone(), directory]) {
                    drop(core.client.delete(&node, None));
                }
            }
        });
    }

    /// Ends a round that all parties have left, and returns whether it has. If not, the caller reads the round again.
    pub(super) async fn end(&self, number: u32, parties: &[PartyName]) -> bool {
        let places = &self.places;
        let (directory, marks) = (places.round(number), places.left(number));
        let steps = parties.iter().fold(self.client.transaction(), |steps, party| {
            steps.delete(&places.left_mark(number, party), None)
        });
        // No party has died.
        let steps = steps.delete(&marks, None).delete(&directory, Some(1));
        steps.commit().await.is_ok()
    }
}

/// Whether another program has created or deleted the node first.
fn is_of_others(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NodeExists | ErrorCode::NoNode)
}
