//! What the answers to a transaction with an outcome marker mean.

use bytes::Bytes;
use lockkeeper_client::{Error, ErrorCode, OpResult, Outcome, Stat, TransactionError, Zxid};

use lockkeeper_client::retry::{TooLong, is_transient};

/// The data of a marker whose step was sent alone. It is empty otherwise.
const GIVEN_UP: &[u8] = b"given up";

/// The effect of the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The result of each step; `None` if only the marker shows that the transaction was applied.
    pub(crate) results: Option<Vec<OpResult>>,
    /// The transaction's zxid.
    pub(crate) zxid: Zxid,
    /// When it was applied, in milliseconds since 1970 by the servers' clock; `None` if no answer has the time.
    pub(crate) at_unix_ms: Option<u64>,
}

impl Applied {
    /// `marker`: the outcome marker, as the transaction has left it.
    fn new(results: Option<Vec<OpResult>>, zxid: Zxid, marker: Option<&Stat>) -> Self {
        let at_unix_ms = marker.and_then(|stat| u64::try_from(stat.mtime).ok());
        Self { results, zxid, at_unix_ms }
    }
}

/// The name of a node that a step has created.
pub(crate) fn created_name(result: &OpResult) -> Option<&str> {
    match result {
        OpResult::Create { path } | OpResult::Create2 { path, .. } => {
            path.rsplit_once('/').map(|(_, name)| name)
        }
        _ => None,
    }
}

/// Why a transaction was not applied, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// It was not applied.
    NotApplied(TransactionError),
    /// It was not applied, and was given up: the connection was lost each time that it was sent.
    TooLong(TooLong),
    /// The session ended, or no server could be reached for a session timeout, before the outcome was known.
    Unknown(TransactionError),
}

impl WriteError {
    /// Whether the first step was refused with one of these codes.
    pub(crate) fn refuses_first(&self, codes: &[ErrorCode]) -> bool {
        matches!(
            self,
            Self::NotApplied(TransactionError::Failed { index: 0, code, .. })
                if codes.contains(code)
        )
    }
}

/// What to do after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Return this result.
    Done(Result<Applied, WriteError>),
    /// Send the same transaction again, in the same session.
    Again(Error),
    /// The transaction was not applied, and the marker is unusable: start over with another marker, in the
    /// session of that time.
    OtherMarker,
}

/// One transaction, over all the times that it is sent in one session.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// The version of the marker.
    marker: i32,
    /// Whether an earlier sending may have been applied.
    doubted: bool,
    /// Why the transaction is not sent any more.
    given_up: Option<TooLong>,
}

impl Attempt {
    pub(super) fn new(marker: i32) -> Self {
        Self { marker, doubted: false, given_up: None }
    }

    /// From now on, sends only the step on the marker. Its result shows whether the transaction was applied
    /// before, and it prevents a transaction that is still in flight from being applied later. The data that it
    /// writes distinguishes it from the transaction if its own answer is lost too.
    pub(super) fn give_up(&mut self, why: TooLong) {
        self.given_up.get_or_insert(why);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.is_some()
    }

    /// The data that the step on the marker writes.
    pub(super) fn mark(&self) -> Bytes {
        Bytes::from_static(if self.is_given_up() { GIVEN_UP } else { b"" })
    }

    /// Whether the next request must be followed by a read of the marker.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// The version of the marker after this transaction, or after the step on the marker alone.
    pub(super) fn raised(&self) -> i32 {
        self.marker.wrapping_add(1)
    }

    /// Evaluates the answer to the transaction, and the read of the marker if there was one.
    pub(super) fn answered(
        &mut self,
        answer: Result<(Vec<OpResult>, Zxid), TransactionError>,
        look: Option<Result<Option<Stat>, Error>>,
    ) -> Next {
        match answer {
            Ok(_) if let Some(why) = self.given_up => Next::Done(Err(WriteError::TooLong(why))),
            Ok((mut results, zxid)) => {
                let marker = match results.remove(0) {
                    OpResult::SetData(stat) => Some(stat),
                    _ => None,
                };
                Next::Done(Ok(Applied::new(Some(results), zxid, marker.as_ref())))
            }
            Err(TransactionError::Request(error)) => self.unanswered(error),
            Err(error @ TransactionError::Failed { index: 0, code, .. }) => match code {
                ErrorCode::BadVersion => self.marked(error, look),
                // After a lost answer, only the marker could show the outcome.
                ErrorCode::NoNode if !self.doubted => Next::OtherMarker,
                _ => self.refused(error),
            },
            // The marker was unchanged, so no earlier sending was applied.
            Err(TransactionError::Failed { index, op, path, code }) => {
                let failed = TransactionError::Failed { index: index - 1, op, path, code };
                Next::Done(Err(WriteError::NotApplied(failed)))
            }
            Err(error) => self.refused(error),
        }
    }

    /// The marker's version shows that an earlier transaction was applied, or the step on the marker alone.
    fn marked(
        &mut self,
        error: TransactionError,
        look: Option<Result<Option<Stat>, Error>>,
    ) -> Next {
        if !self.doubted {
            // Another program has changed the marker.
            return Next::OtherMarker;
        }

        match look {
            Some(Ok(Some(stat))) if stat.version == self.raised() => {
                Next::Done(match self.given_up {
                    Some(why) if stat.data_length > 0 => Err(WriteError::TooLong(why)),
                    _ => Ok(Applied::new(None, stat.mzxid, Some(&stat))),
                })
            }
            Some(Err(error)) => self.unanswered(error),
            // The marker is gone with its session, or another program has changed it.
            _ => self.refused(error),
        }
    }

    fn unanswered(&mut self, error: Error) -> Next {
        self.doubted |= error.outcome() == Outcome::Unknown;
        if is_transient(&error) {
            return Next::Again(error);
        }
        if error.is_session_expired() && !self.doubted {
            return Next::OtherMarker;
        }
        self.refused(error.into())
    }

    /// The attempt is over without an answer that shows the outcome.
    fn refused(&self, error: TransactionError) -> Next {
        Next::Done(Err(match self.doubted {
            true => WriteError::Unknown(error),
            false => WriteError::NotApplied(error),
        }))
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::{OpCode, SessionId};

    use super::*;

    fn failed(index: usize, code: ErrorCode) -> Result<(Vec<OpResult>, Zxid), TransactionError> {
        let (op, path) = (OpCode::SetData, "/x".to_owned());
        Err(TransactionError::Failed { index, op, path, code })
    }

    fn marker(version: i32) -> Option<Result<Option<Stat>, Error>> {
        let stat = Stat { version, mzxid: Zxid(7), ..Stat::of_new(Zxid(3), SessionId(1)) };
        Some(Ok(Some(stat)))
    }

    fn doubted(marker: i32) -> Attempt {
        Attempt { doubted: true, ..Attempt::new(marker) }
    }

    #[test]
    fn a_refused_mark_tells_that_it_was_applied_only_after_a_doubt() {
        let by_marker =
            Next::Done(Ok(Applied::new(None, Zxid(7), Some(&Stat::of_new(Zxid(3), SessionId(1))))));
        let refused = failed(0, ErrorCode::BadVersion);
        assert_eq!(doubted(4).answered(refused.clone(), marker(5)), by_marker);
        assert_eq!(Attempt::new(4).answered(refused.clone(), None), Next::OtherMarker);

        // If the marker is missing, or another program has changed it, the outcome is unknown.
        for look in [Some(Ok(None)), marker(6)] {
            let unknown = WriteError::Unknown(refused.clone().expect_err("failed"));
            assert_eq!(doubted(4).answered(refused.clone(), look), Next::Done(Err(unknown)));
        }
    }

    #[test]
    fn one_that_is_given_up_was_applied_if_the_marker_says_so() {
        let why = TooLong { bytes: 1 << 20, tries: 3 };
        let given_up = || {
            let mut attempt = doubted(4);
            attempt.give_up(why);
            attempt.give_up(TooLong { tries: 9, ..why });
            attempt
        };
        let marked = Ok((vec![OpResult::Check], Zxid(9)));
        let not_applied = Next::Done(Err(WriteError::TooLong(why)));
        assert_eq!(given_up().answered(marked, marker(5)), not_applied);

        let refused = failed(0, ErrorCode::BadVersion);
        let by_marker =
            Next::Done(Ok(Applied::new(None, Zxid(7), Some(&Stat::of_new(Zxid(3), SessionId(1))))));
        assert_eq!(given_up().answered(refused.clone(), marker(5)), by_marker);
        let Some(Ok(Some(stat))) = marker(5) else { unreachable!() };
        let data_length = i32::try_from(given_up().mark().len()).unwrap();
        let of_the_step_alone = Some(Ok(Some(Stat { data_length, ..stat })));
        assert_eq!(given_up().answered(refused, of_the_step_alone), not_applied);
        assert!(doubted(4).mark().is_empty());
        let gone = failed(0, ErrorCode::NoNode);
        let unknown = WriteError::Unknown(gone.clone().expect_err("failed"));
        assert_eq!(given_up().answered(gone, None), Next::Done(Err(unknown)));
    }

    #[test]
    fn a_step_that_is_refused_after_the_mark_means_that_nothing_was_applied() {
        for mut attempt in [Attempt::new(2), doubted(2)] {
            let next = attempt.answered(failed(2, ErrorCode::BadVersion), marker(2));
            let refused = failed(1, ErrorCode::BadVersion).expect_err("failed");
            assert_eq!(next, Next::Done(Err(WriteError::NotApplied(refused))));
        }
    }

    #[test]
    fn a_marker_that_is_gone_is_replaced_unless_something_may_have_been_applied() {
        let gone = failed(0, ErrorCode::NoNode);
        assert_eq!(Attempt::new(2).answered(gone.clone(), None), Next::OtherMarker);
        let unknown = WriteError::Unknown(gone.clone().expect_err("failed"));
        assert_eq!(doubted(2).answered(gone, None), Next::Done(Err(unknown)));
    }
}
