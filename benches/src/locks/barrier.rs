//! Parties of a double barrier: ours, and bare requests.

use std::mem::take;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{Client, CreateMode, DoubleBarrier, Round, Transaction, Watcher, ZnodePath};

use super::bare::created;
use crate::measure::Lock;

/// A party of ours.
pub(crate) struct Party {
    barrier: DoubleBarrier,
    name: String,
}

impl Party {
    /// One of so many, by its number.
    pub(crate) fn new(client: &Client, path: &str, parties: usize, number: usize) -> Result<Self> {
        let barrier = DoubleBarrier::new(client, path, parties)?;
        Ok(Self { barrier, name: format!("party-{number}") })
    }
}

impl Lock for Party {
    type Guard = Round;

    async fn acquire(&mut self) -> Result<Round> {
        Ok(self.barrier.enter(&self.name).await?)
    }

    async fn release(&mut self, round: Round) -> Result<()> {
        round.leave().await?;
        Ok(())
    }
}

/// What a party's node holds is about as long.
const OWNER: &[u8] = &[0x55; 100];

/// As long as a party's name with what tells one entry from the others.
const PREFIX: &str = "party-0.0123456789abcdef";

/// Bare requests in place of a double barrier: the same transactions on nodes of the same kind. A party enters, is told
/// that the round has opened, reads it, leaves, and is told that it is over.
///
/// This program tells who comes last and who leaves last, so they list nothing. They watch no other party, and know no
/// lost replies.
pub(crate) struct BareParty {
    client: Client,
    rounds: ZnodePath,
    left: ZnodePath,
    /// The node that each of its transactions writes to.
    marker: ZnodePath,
    /// The round that it enters, or is in.
    number: usize,
    all: Arc<All>,
}

/// What this program knows of the round.
struct All {
    parties: usize,
    entered: Mutex<Vec<ZnodePath>>,
    left: Mutex<Vec<ZnodePath>>,
}

/// A party that is inside: its node, and what tells when the round is over.
pub(crate) struct Inside {
    node: ZnodePath,
    over: Watcher,
}

impl BareParty {
    /// One for each client, at a barrier that is new.
    pub(crate) async fn of_each(clients: &[Client], path: &str) -> Result<Vec<Self>> {
        let path = ZnodePath::new(path)?;
        let entered = Mutex::default();
        let all = Arc::new(All { parties: clients.len(), entered, left: Mutex::default() });
        let (rounds, left) = (path.child("rounds")?, path.child("left")?);
        let mut parties = Vec::new();
        for client in clients {
            for node in [&rounds, &left] {
                client.ensure(node, CreateMode::Persistent).await?;
            }
            let marker = path.child(&format!("marker-{:032x}", fastrand::u128(..)))?;
            client.create(&marker, "", CreateMode::Ephemeral).await?;
            let (client, rounds, left) = (client.clone(), rounds.clone(), left.clone());
            let all = Arc::clone(&all);
            parties.push(Self { client, rounds, left, marker, number: 0, all });
        }
        if let Some(party) = parties.first() {
            party.client.create(&party.round(0)?, "", CreateMode::Persistent).await?;
        }
        Ok(parties)
    }

    fn round(&self, number: usize) -> Result<ZnodePath> {
        Ok(self.rounds.child(&format!("{number:010}"))?)
    }

    /// Where parties leave marks when they leave the round.
    fn marks(&self) -> Result<ZnodePath> {
        Ok(self.left.child(&format!("{:010}", self.number))?)
    }

    fn steps(&self) -> Transaction {
        self.client.transaction().set_data(&self.marker, "", None)
    }

    /// One transaction.
    async fn open(&self, nodes: &[ZnodePath]) -> Result<()> {
        let names: Vec<_> = nodes.iter().map(ZnodePath::name).collect();
        let steps = nodes.iter().fold(self.steps(), |steps, node| steps.check(node, None));
        let steps = steps.set_data(&self.round(self.number)?, names.join(","), Some(0));
        let steps = steps.create(&self.round(self.number + 1)?, "", CreateMode::Persistent);
        steps.create(&self.marks()?, "", CreateMode::Persistent).commit().await?;
        Ok(())
    }

    /// One transaction.
    async fn end(&self, marks: &[ZnodePath]) -> Result<()> {
        let steps = marks.iter().fold(self.client.transaction(), |it, mark| it.delete(mark, None));
        let steps = steps.delete(&self.marks()?, None).delete(&self.round(self.number)?, Some(1));
        steps.commit().await?;
        Ok(())
    }
}

impl All {
    /// All of them, if this is the last one.
    fn add(&self, to: &Mutex<Vec<ZnodePath>>, node: ZnodePath) -> Option<Vec<ZnodePath>> {
        let mut nodes = to.lock().expect("nobody panics");
        nodes.push(node);
        (nodes.len() == self.parties).then(|| take(&mut *nodes))
    }
}

impl Lock for BareParty {
    type Guard = Inside;

    async fn acquire(&mut self) -> Result<Inside> {
        let directory = self.round(self.number)?;
        let entry = directory.child(PREFIX)?;
        let steps = self.steps().check(&directory, Some(0));
        let owner = Bytes::from_static(OWNER);
        let steps = steps.create(&entry, owner, CreateMode::EphemeralSequential);
        // Sent in one go, and in this order.
        let (entered, look) =
            tokio::join!(biased; steps.commit(), self.client.data_watched(&directory));
        let node = created(entered?)?;
        let ((_, stat), mut watcher) = look?;

        if let Some(nodes) = self.all.add(&self.all.entered, node.clone()) {
            self.open(&nodes).await?;
        }
        if stat.version == 0 {
            watcher.changed().await?;
            (_, watcher) = self.client.data_watched(&directory).await?;
        }
        Ok(Inside { node, over: watcher })
    }

    async fn release(&mut self, inside: Inside) -> Result<()> {
        let Inside { node, mut over } = inside;
        let (marks, mark) = (self.marks()?, self.marks()?.child(node.name())?);
        let steps = self.steps().delete(&node, None).create(&mark, "", CreateMode::Persistent);
        steps.set_data(&marks, "", None).commit().await?;
        if let Some(left) = self.all.add(&self.all.left, mark) {
            self.end(&left).await?;
        }
        over.changed().await?;
        self.number += 1;
        Ok(())
    }
}
