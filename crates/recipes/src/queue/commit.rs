//! The writes of one handle: those that come while one is under way are made together, in one transaction.
//!
//! Each is applied once or not at all, also when replies are lost ([`crate::exact`]). A step that servers refuse
//! fails the write that it belongs to; the others are made without it.

use bytes::Bytes;
use lockkeeper_client::{OpResult, SessionId, Transaction, TransactionError, Zxid};

use crate::exact::{Applied, ExactWriter, WriteError};
use crate::exact::shared_write::{SharedCall, SharedWrite, WriteTurn};
use crate::queue::claim::Claim;
use crate::queue::error::CommitError;

/// How many steps are made in one transaction, if they belong to several writes.
const MOST_STEPS: usize = 400;

/// How much data is, in bytes. Servers take 1 MiB by default, and so would all but the longest.
const MOST_DATA: usize = 128 << 10;

/// What a handle wants to be written.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) steps: Transaction,
    /// The claim that it makes. If nobody waits for it any more when it is made, it is given back.
    pub(super) claim: Option<Claim>,
}

/// A write that was applied.
#[derive(Debug)]
pub(super) struct Written {
    /// What each step was answered; `None` if the outcome marker alone tells that it was applied.
    pub(super) results: Option<Vec<OpResult>>,
    pub(super) zxid: Zxid,
    /// The session that made it.
    pub(super) session: SessionId,
    pub(super) claim: Option<Claim>,
}

pub(super) type Answer = Result<Written, CommitError>;
pub(super) type Writes = SharedWrite<Write, Answer, Box<ExactWriter>>;
type Call = SharedCall<Write, Answer>;

/// Makes the writes that wait, with those that come meanwhile, and answers them.
pub(super) async fn write_batches(
    new_writer: impl Fn() -> ExactWriter,
    mut turn: WriteTurn<Write, Answer, Box<ExactWriter>>,
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
fn first_batch(waiting: &mut Vec<Call>) -> Vec<Call> {
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

async fn write_together(writer: &mut ExactWriter, mut calls: Vec<Call>) {
    while !calls.is_empty() {
        let written = writer.commit(|marked| {
            calls.iter().fold(marked, |all, call| all.and(&call.question.steps))
        });
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
fn owner_of(calls: &[Call], mut index: usize) -> Option<(usize, usize)> {
    for (place, call) in calls.iter().enumerate() {
        match index.checked_sub(call.question.steps.len()) {
            None => return Some((place, index)),
            Some(rest) => index = rest,
        }
    }
    None
}

fn answer_all(calls: Vec<Call>, applied: &Applied, session: SessionId) {
    let mut first = 0;
    for mut call in calls {
        let end = first + call.question.steps.len();
        let results = applied.results.as_ref().and_then(|all| all.get(first..end));
        first = end;

        let claim = call.question.claim.take().inspect(Claim::made);
        let results = results.map(<[OpResult]>::to_vec);
        call.answer(Ok(Written { results, zxid: applied.zxid, session, claim }));
    }
}

/// A write that is made without others.
pub(super) async fn write_alone(writer: &mut ExactWriter, mut write: Write) -> Answer {
    let applied = writer.commit(|marked| marked.and(&write.steps)).await;
    if let Err(WriteError::Unknown(_)) = applied {
        write.claim.take().into_iter().for_each(Claim::in_doubt);
    }
    let Applied { results, zxid } = applied.map_err(CommitError::Write)?;
    let claim = write.claim.take().inspect(Claim::made);
    Ok(Written { results, zxid, session: writer.marked_session(), claim })
}

/// The data of what has none.
pub(super) fn nothing() -> Bytes {
    Bytes::new()
}
