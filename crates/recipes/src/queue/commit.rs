//! Combines the writes of one handle: those that arrive during a write go together into the next transaction.
//!
//! Each is applied once or not at all, even when replies are lost ([`crate::exact`]). A step that servers refuse
//! fails the write that it belongs to; the others are sent without it.

use bytes::Bytes;
use lockkeeper_client::{
    Client, OpResult, SessionId, Transaction, TransactionError, ZnodePath, Zxid,
};

use crate::exact::shared_write::{SharedCall, SharedWrite, WriteTurn};
use crate::exact::{Applied, ExactWriter, WriteError, Writers};
use crate::queue::error::CommitError;

/// The maximum number of steps in one transaction of several writes.
const MAX_BATCH_STEPS: usize = 400;

/// The maximum size of data in such a transaction, in bytes: well below the servers' default limit of 1 MiB.
const MAX_BATCH_BYTES: usize = 128 << 10;

/// The result of a write that needs cleanup.
pub(super) trait WriteObserver: Send + Sync + 'static {
    /// The write was applied.
    fn made(&self);

    /// It is unknown whether the write was applied.
    fn in_doubt(self);
}

/// A node, and its version if a certain one is required.
type Condition = (ZnodePath, Option<i32>);

/// A write that a handle requests.
#[derive(Debug)]
pub(super) struct Write<C> {
    /// Nodes that must exist at these versions, shared by several writes. Checked first.
    conditions: Vec<Condition>,
    pub(super) steps: Transaction,
    /// Whether to wake the first consumer in line. Done last.
    rings: bool,
    /// The claim that it makes. If its caller has gone when it is made, the item is given back.
    claim: Option<C>,
}

impl<C> Write<C> {
    pub(super) fn new(steps: Transaction) -> Self {
        Self { conditions: Vec::new(), steps, rings: false, claim: None }
    }

    pub(super) fn if_at(mut self, node: &ZnodePath, version: Option<i32>) -> Self {
        self.conditions.push((node.clone(), version));
        self
    }

    pub(super) fn ringing(self) -> Self {
        Self { rings: true, ..self }
    }

    pub(super) fn claiming(self, claim: C) -> Self {
        Self { claim: Some(claim), ..self }
    }
}

/// An applied write.
#[derive(Debug)]
pub(super) struct Committed<C> {
    /// The result of each step, without conditions and ring; `None` if only the outcome marker shows that the write
    /// was applied.
    pub(super) results: Option<Vec<OpResult>>,
    pub(super) zxid: Zxid,
    /// When it was applied, in milliseconds since 1970 by the servers' clock, if an answer has the time.
    pub(super) at_unix_ms: Option<u64>,
    /// The session that wrote it.
    pub(super) session: SessionId,
    pub(super) claim: Option<C>,
}

pub(super) type Answer<C> = Result<Committed<C>, CommitError>;
type Call<C> = SharedCall<Write<C>, Answer<C>>;

/// Sends the writes of one handle.
#[derive(Debug)]
pub(super) struct Committer<C> {
    pub(super) client: Client,
    markers: ZnodePath,
    /// The node that is written to wake consumers.
    ring: ZnodePath,
    writes: SharedWrite<Write<C>, Answer<C>, Box<ExactWriter>>,
    /// For work that runs under a lock.
    alone: Writers,
}

impl<C: WriteObserver> Committer<C> {
    pub(super) fn new(client: &Client, markers: ZnodePath, ring: ZnodePath) -> Self {
        let alone = Writers::new(client, markers.clone());
        Self { client: client.clone(), markers, ring, writes: SharedWrite::new(), alone }
    }

    /// Makes a write, combined with others that arrive at the same time.
    pub(super) async fn commit(&self, write: Write<C>) -> Answer<C> {
        // Writes of other tasks are not bound to the lock that work runs under. A claim need not be: it is given
        // back with the call that it is made for.
        if self.client.is_bound() && write.claim.is_none() {
            return self.commit_alone(write, None).await;
        }
        let batches = |turn| {
            let (client, markers) = (self.client.clone(), self.markers.clone());
            let new_writer = move || ExactWriter::new(&client, &markers);
            write_batches(new_writer, self.ring.clone(), turn)
        };
        let answer = self.writes.ask(&self.client, write, batches);
        answer.await.unwrap_or(Err(CommitError::Panicked))
    }

    /// Makes a write on its own; `session`: only in this one.
    pub(super) async fn commit_alone(
        &self,
        write: Write<C>,
        session: Option<SessionId>,
    ) -> Answer<C> {
        let mut writer = self.alone.take();
        let batch = Batch::of([&write]);
        let applied = writer.commit_in(session, |marked| batch.add_to(marked, &self.ring)).await;
        let Applied { results, zxid, at_unix_ms } = applied.map_err(|error| {
            let refusal = batch.refusals(&error).pop();
            refusal.map_or(CommitError::Write(error), |(_, refusal)| refusal)
        })?;
        let session = writer.marked_session();
        Ok(Committed { results, zxid, at_unix_ms, session, claim: None })
    }
}

/// Combines the waiting writes and those that arrive before they are sent, and answers them.
async fn write_batches<C: WriteObserver>(
    new_writer: impl Fn() -> ExactWriter,
    ring: ZnodePath,
    mut turn: WriteTurn<Write<C>, Answer<C>, Box<ExactWriter>>,
) {
    while let Some(mut waiting) = turn.next() {
        let mut writer = turn.state.take().unwrap_or_else(|| Box::new(new_writer()));
        while !waiting.is_empty() {
            let together = first_batch(&mut waiting);
            write_together(&mut writer, &ring, together).await;
        }
        turn.state = Some(writer);
    }
}

/// Removes as many from the front as fit into one transaction, at least one.
fn first_batch<C>(waiting: &mut Vec<Call<C>>) -> Vec<Call<C>> {
    let (mut steps, mut data) = (0, 0);
    let fit = waiting.iter().take_while(|call| {
        steps += call.question.steps.len();
        data += call.question.steps.data_len();
        steps <= MAX_BATCH_STEPS && data <= MAX_BATCH_BYTES
    });
    let fit = fit.count().max(1);
    let rest = waiting.split_off(fit);
    std::mem::replace(waiting, rest)
}

/// Writes in one transaction: shared conditions are checked once, and it rings once.
struct Batch<'a, C> {
    conditions: Vec<&'a Condition>,
    writes: Vec<&'a Write<C>>,
}

impl<'a, C> Batch<'a, C> {
    fn of(writes: impl IntoIterator<Item = &'a Write<C>>) -> Self {
        let writes: Vec<_> = writes.into_iter().collect();
        let mut conditions = Vec::new();
        for condition in writes.iter().flat_map(|write| &write.conditions) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        Self { conditions, writes }
    }

    fn add_to(&self, marked: Transaction, ring: &ZnodePath) -> Transaction {
        let checks = |all: Transaction, (node, version): &&(_, _)| all.check(node, *version);
        let all = self.conditions.iter().fold(marked, checks);
        let all = self.writes.iter().fold(all, |all, write| all.and(&write.steps));
        match self.writes.iter().any(|write| write.rings) {
            true => all.set_data(ring, nothing(), None),
            false => all,
        }
    }

    /// The errors of the writes that contain a refused step, the last write first. The other writes can be made
    /// without them.
    fn refusals(&self, refused: &WriteError) -> Vec<(usize, CommitError)> {
        let WriteError::NotApplied(TransactionError::Failed { index, op, path, code }) = refused
        else {
            return Vec::new();
        };
        let failed = |index| {
            let (op, path, code) = (*op, path.clone(), *code);
            TransactionError::Failed { index, op, path, code }
        };
        let step = |index| CommitError::Write(WriteError::NotApplied(failed(index)));
        let places = (0..self.writes.len()).rev();
        if let Some(condition) = self.conditions.get(*index) {
            let owners = places.filter(|it| self.writes[*it].conditions.contains(condition));
            return owners.map(|place| (place, CommitError::NotMet(failed(0)))).collect();
        }
        let mut left = index - self.conditions.len();
        for (place, write) in self.writes.iter().enumerate() {
            match left.checked_sub(write.steps.len()) {
                None => return vec![(place, step(left))],
                Some(rest) => left = rest,
            }
        }
        let ringing = places.filter(|place| self.writes[*place].rings);
        ringing.map(|place| (place, step(self.writes[place].steps.len()))).collect()
    }
}

async fn write_together<C: WriteObserver>(
    writer: &mut ExactWriter,
    ring: &ZnodePath,
    mut calls: Vec<Call<C>>,
) {
    while !calls.is_empty() {
        let batch = Batch::of(calls.iter().map(|call| &call.question));
        let first = batch.conditions.len();
        match writer.commit(|marked| batch.add_to(marked, ring)).await {
            Ok(applied) => {
                answer_all(calls, first, &applied, writer.marked_session());
                return;
            }
            // Only one of them may be too long.
            Err(WriteError::TooLong(_)) if calls.len() > 1 => {
                for call in calls {
                    Box::pin(write_together(writer, ring, vec![call])).await;
                }
                return;
            }
            Err(error) => {
                let refusals = batch.refusals(&error);
                if refusals.is_empty() {
                    answer_none(calls, &error);
                    return;
                }
                for (culprit, refusal) in refusals {
                    calls.remove(culprit).answer(Err(refusal));
                }
            }
        }
    }
}

/// Answers that no write is known to be applied.
fn answer_none<C: WriteObserver>(calls: Vec<Call<C>>, error: &WriteError) {
    for mut call in calls {
        let claim = call.question.claim.take();
        if let (WriteError::Unknown(_), Some(claim)) = (error, claim) {
            // The caller may have gone.
            claim.in_doubt();
        }
        call.answer(Err(CommitError::Write(error.clone())));
    }
}

/// `first`: the index of the first own step of the first write.
fn answer_all<C: WriteObserver>(
    calls: Vec<Call<C>>,
    mut first: usize,
    applied: &Applied,
    session: SessionId,
) {
    for mut call in calls {
        let end = first + call.question.steps.len();
        let results = applied.results.as_ref().and_then(|all| all.get(first..end));
        first = end;

        let claim = call.question.claim.take().inspect(WriteObserver::made);
        let results = results.map(<[OpResult]>::to_vec);
        let Applied { zxid, at_unix_ms, .. } = *applied;
        call.answer(Ok(Committed { results, zxid, at_unix_ms, session, claim }));
    }
}

/// The data of a node without data.
pub(super) fn nothing() -> Bytes {
    Bytes::new()
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::{ErrorCode, OpCode};

    use super::*;

    /// The answers if this step is refused: the index of each write, and the step's index in it; `None` for its
    /// condition.
    fn refused(batch: &Batch<'_, ()>, index: usize) -> Vec<(usize, Option<usize>)> {
        let (op, path, code) = (OpCode::Check, "/a".to_owned(), ErrorCode::NoNode);
        let failed = TransactionError::Failed { index, op, path, code };
        let refusals = batch.refusals(&WriteError::NotApplied(failed));
        let answers = refusals.into_iter().map(|(place, error)| match error.not_met() {
            Some(_) => (place, None),
            None => (place, error.refused().map(|(index, _)| index)),
        });
        answers.collect()
    }

    #[tokio::test]
    async fn shared_conditions_are_sent_once_and_their_refusal_fails_all_their_writes() {
        let client = Client::builder().connect_later("127.0.0.1:1").unwrap();
        let [one, other, ring] = ["/a", "/b", "/ring"].map(|path| ZnodePath::new(path).unwrap());
        let steps =
            |count| (0..count).fold(client.transaction(), |steps, _| steps.delete(&ring, None));
        let writes: [Write<()>; 4] = [
            Write::new(steps(2)).if_at(&one, None).ringing(),
            Write::new(steps(1)).if_at(&other, None),
            Write::new(steps(3)).if_at(&one, None),
            Write::new(steps(1)).ringing(),
        ];
        let batch = Batch::of(&writes);
        assert_eq!(batch.add_to(client.transaction(), &ring).len(), 2 + 7 + 1);
        assert_eq!(refused(&batch, 0), [(2, None), (0, None)]);
        assert_eq!(refused(&batch, 1), [(1, None)]);
        let of_steps: Vec<_> = (2..9).flat_map(|index| refused(&batch, index)).collect();
        let expected = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2), (3, 0)];
        assert_eq!(of_steps, expected.map(|(place, step)| (place, Some(step))));
        assert_eq!(refused(&batch, 9), [(3, Some(1)), (0, Some(2))]);

        let silent = Batch::of(&writes[1..3]);
        assert_eq!(silent.add_to(client.transaction(), &ring).len(), 2 + 4);
    }
}
