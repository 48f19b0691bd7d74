//! The writes of one handle: those that come while one is under way are made together, in one transaction.
//!
//! Each is applied once or not at all, also when replies are lost ([`crate::exact`]). A step that servers refuse
//! fails the write that it belongs to; the others are made without it.

use bytes::Bytes;
use lockkeeper_client::{
    Client, OpResult, SessionId, Transaction, TransactionError, ZnodePath, Zxid,
};

use crate::exact::shared_write::{SharedCall, SharedWrite, WriteTurn};
use crate::exact::{Applied, ExactWriter, WriteError, Writers};
use crate::queue::error::CommitError;

/// How many steps are made in one transaction, if they belong to several writes.
const MOST_STEPS: usize = 400;

/// How much data is, in bytes. Servers take 1 MiB by default, and so would all but the longest.
const MOST_DATA: usize = 128 << 10;

/// What a write makes, and whoever asked for it must see to.
pub(super) trait Duty: Send + Sync + 'static {
    /// It is made.
    fn made(&self);

    /// It is unknown whether it was made.
    fn in_doubt(self);
}

/// What a handle wants to be written.
#[derive(Debug)]
pub(super) struct Write<C> {
    pub(super) steps: Transaction,
    /// The claim that it makes. If nobody waits for it any more when it is made, it is given back.
    pub(super) claim: Option<C>,
}

/// A write that was applied.
#[derive(Debug)]
pub(super) struct Committed<C> {
    /// What each step was answered; `None` if the outcome marker alone tells that it was applied.
    pub(super) results: Option<Vec<OpResult>>,
    pub(super) zxid: Zxid,
    /// The session that made it.
    pub(super) session: SessionId,
    pub(super) claim: Option<C>,
}

pub(super) type Answer<C> = Result<Committed<C>, CommitError>;
type Call<C> = SharedCall<Write<C>, Answer<C>>;

/// Makes the writes of one handle.
#[derive(Debug)]
pub(super) struct Committer<C> {
    pub(super) client: Client,
    markers: ZnodePath,
    writes: SharedWrite<Write<C>, Answer<C>, Box<ExactWriter>>,
    /// For work that runs under a lock.
    alone: Writers,
}

impl<C: Duty> Committer<C> {
    pub(super) fn new(client: &Client, markers: ZnodePath) -> Self {
        let alone = Writers::new(client, markers.clone());
        Self { client: client.clone(), markers, writes: SharedWrite::new(), alone }
    }

    /// Makes a write, together with others that come meanwhile.
    pub(super) async fn commit(&self, write: Write<C>) -> Answer<C> {
        // What another task sends is not bound to the lock that work runs under. A claim need not be: it is given
        // back with the call that it is made for.
        if self.client.is_bound() && write.claim.is_none() {
            return self.commit_alone(&write.steps, None).await;
        }
        let (client, markers) = (self.client.clone(), self.markers.clone());
        let new_writer = move || ExactWriter::new(&client, &markers);
        let answer = self.writes.ask(&self.client, write, |turn| write_batches(new_writer, turn));
        answer.await.unwrap_or(Err(CommitError::Panicked))
    }

    /// Makes a write without others; `session`: in this one or not at all.
    pub(super) async fn commit_alone(
        &self,
        steps: &Transaction,
        session: Option<SessionId>,
    ) -> Answer<C> {
        let mut writer = self.alone.take();
        let applied = writer.commit_in(session, |marked| marked.and(steps)).await;
        let Applied { results, zxid } = applied.map_err(CommitError::Write)?;
        Ok(Committed { results, zxid, session: writer.marked_session(), claim: None })
    }
}

/// Makes the writes that wait, with those that come meanwhile, and answers them.
async fn write_batches<C: Duty>(
    new_writer: impl Fn() -> ExactWriter,
    mut turn: WriteTurn<Write<C>, Answer<C>, Box<ExactWriter>>,
) {
    while let Some(mut waiting) = turn.next() {
        let mut writer = turn.state.take().unwrap_or_else(|| Box::new(new_writer()));
        while !waiting.is_empty() {
            let together = first_batch(&mut waiting);
            write_together(&mut writer, together).await;
        }
        turn.state = Some(writer);
    }
}

/// Takes away as many from the front as fit into one transaction, at least one.
fn first_batch<C>(waiting: &mut Vec<Call<C>>) -> Vec<Call<C>> {
    let (mut steps, mut data) = (0, 0);
    let fit = waiting.iter().take_while(|call| {
        steps += call.question.steps.len();
        data += call.question.steps.data_len();
        steps <= MOST_STEPS && data <= MOST_DATA
    });
    let fit = fit.count().max(1);
    let rest = waiting.split_off(fit);
    std::mem::replace(waiting, rest)
}

async fn write_together<C: Duty>(writer: &mut ExactWriter, mut calls: Vec<Call<C>>) {
    while !calls.is_empty() {
        let written = writer
            .commit(|marked| calls.iter().fold(marked, |all, call| all.and(&call.question.steps)));
        match written.await {
            Ok(applied) => {
                answer_all(calls, &applied, writer.marked_session());
                return;
            }
            Err(WriteError::NotApplied(TransactionError::Failed { index, op, path, code }))
                if let Some((culprit, index)) = owner_of(&calls, index) =>
            {
                let failed = TransactionError::Failed { index, op, path, code };
                let failed = CommitError::Write(WriteError::NotApplied(failed));
                calls.remove(culprit).answer(Err(failed));
            }
            // It may be one of them that is too long.
            Err(WriteError::TooLong(_)) if calls.len() > 1 => {
                for call in calls {
                    Box::pin(write_together(writer, vec![call])).await;
                }
                return;
            }
            Err(error) => {
                for mut call in calls {
                    let claim = call.question.claim.take();
                    if let (WriteError::Unknown(_), Some(claim)) = (&error, claim) {
                        // Whether or not the caller is still there to hear of it.
                        claim.in_doubt();
                    }
                    call.answer(Err(CommitError::Write(error.clone())));
                }
                return;
            }
        }
    }
}

/// The write that this step belongs to, and the step's number in it.
fn owner_of<C>(calls: &[Call<C>], mut index: usize) -> Option<(usize, usize)> {
    for (place, call) in calls.iter().enumerate() {
        match index.checked_sub(call.question.steps.len()) {
            None => return Some((place, index)),
            Some(rest) => index = rest,
        }
    }
    None
}

fn answer_all<C: Duty>(calls: Vec<Call<C>>, applied: &Applied, session: SessionId) {
    let mut first = 0;
    for mut call in calls {
        let end = first + call.question.steps.len();
        let results = applied.results.as_ref().and_then(|all| all.get(first..end));
        first = end;

        let claim = call.question.claim.take().inspect(Duty::made);
        let results = results.map(<[OpResult]>::to_vec);
        call.answer(Ok(Committed { results, zxid: applied.zxid, session, claim }));
    }
}

/// The name of a node that a step has created.
pub(super) fn created_name(result: &OpResult) -> Option<&str> {
    match result {
        OpResult::Create { path } | OpResult::Create2 { path, .. } => {
            path.rsplit_once('/').map(|(_, name)| name)
        }
        _ => None,
    }
}

/// The data of what has none.
pub(super) fn nothing() -> Bytes {
    Bytes::new()
}
