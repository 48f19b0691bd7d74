//! [`SharedWrite`]: one write answers the calls of many clones of a handle.
//!
//! The write is a task on the client's runtime. So it continues if callers are dropped or not polled, and if their
//! runtimes are blocked. A task that ends early, by a panic or with its runtime, drops the calls that wait for it;
//! they return without an answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_client::Client;
use tokio::sync::oneshot;

/// Calls with a question `Q` that wait for an answer `A`, and the state `S` that one write leaves to the next.
#[derive(Clone)]
pub(crate) struct SharedWrite<Q, A, S>(Arc<Mutex<Calls<Q, A, S>>>);

struct Calls<Q, A, S> {
    waiting: Vec<SharedCall<Q, A>>,
    /// Whether a task is running that will check for calls again.
    is_running: bool,
    state: Option<S>,
}

/// A waiting call.
pub(crate) struct SharedCall<Q, A> {
    pub(crate) question: Q,
    answer: oneshot::Sender<A>,
}

impl<Q, A> SharedCall<Q, A> {
    pub(crate) fn answer(self, answer: A) {
        // The caller may have been dropped.
        let _ = self.answer.send(answer);
    }
}

impl<Q, A, S> SharedWrite<Q, A, S> {
    pub(crate) fn new() -> Self {
        let calls = Calls { waiting: Vec::new(), is_running: false, state: None };
        Self(Arc::new(Mutex::new(calls)))
    }

    /// Waits for the answer to a question. Spawns `write` unless it is running; `write` must answer calls until
    /// [`WriteTurn::next`] returns `None`. Returns `None` if the task ends before it has answered.
    pub(crate) async fn ask<W>(
        &self,
        client: &Client,
        question: Q,
        write: impl FnOnce(WriteTurn<Q, A, S>) -> W,
    ) -> Option<A>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        if let Some(turn) = self.enter(SharedCall { question, answer: sender }) {
            client.tokio_runtime().spawn(write(turn));
        }
        answer.await.ok()
    }

    fn enter(&self, call: SharedCall<Q, A>) -> Option<WriteTurn<Q, A, S>> {
        let mut calls = lock(&self.0);
        calls.waiting.push(call);
        let is_running = std::mem::replace(&mut calls.is_running, true);
        (!is_running).then(|| WriteTurn {
            calls: Arc::clone(&self.0),
            state: calls.state.take(),
            is_over: false,
        })
    }
}

lockkeeper_client::impl_debug!(SharedWrite<Q, A, S>, self =>);

/// The right to answer the calls. One task has it at a time.
pub(crate) struct WriteTurn<Q, A, S> {
    calls: Arc<Mutex<Calls<Q, A, S>>>,
    /// The state to begin the next write with; `None` at first, and after a task that has ended early.
    pub(crate) state: Option<S>,
    is_over: bool,
}

impl<Q, A, S> WriteTurn<Q, A, S> {
    /// The waiting calls; `None` if none wait, which ends the turn.
    pub(crate) fn next(&mut self) -> Option<Vec<SharedCall<Q, A>>> {
        let mut calls = lock(&self.calls);
        let mut waiting = std::mem::take(&mut calls.waiting);
        waiting.retain(|call| !call.answer.is_closed());
        if waiting.is_empty() {
            (calls.is_running, calls.state) = (false, self.state.take());
            self.is_over = true;
            return None;
        }
        Some(waiting)
    }

    /// Adds the waiting calls to a batch, and removes those whose callers have been dropped.
    pub(crate) fn refresh(&self, batch: &mut Vec<SharedCall<Q, A>>) {
        batch.append(&mut lock(&self.calls).waiting);
        batch.retain(|call| !call.answer.is_closed());
    }
}

impl<Q, A, S> Drop for WriteTurn<Q, A, S> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut calls = lock(&self.calls);
            calls.is_running = false;
            let waiting = std::mem::take(&mut calls.waiting);
            drop(calls);
            drop(waiting);
        }
    }
}

/// Locks a value that a panic elsewhere cannot leave half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    /// Longer than any operation here takes unless it hangs.
    const HANGS: Duration = Duration::from_secs(20);

    type Count = SharedWrite<bool, u32, u32>;

    /// Asks for the number of the write. A write with a question of `true` panics.
    async fn ask(count: &Count, client: &Client, panics: bool) -> Option<u32> {
        let answer = count.ask(client, panics, |mut turn| async move {
            tokio::task::yield_now().await;
            while let Some(batch) = turn.next() {
                let number = turn.state.take().unwrap_or(0) + 1;
                assert!(batch.iter().all(|call| !call.question), "as it is meant to");
                turn.state = Some(number);
                batch.into_iter().for_each(|call| call.answer(number));
            }
        });
        tokio::time::timeout(HANGS, answer).await.expect("it hangs")
    }

    fn client() -> Client {
        Client::builder().connect_later("127.0.0.1:1").unwrap()
    }

    /// Failed when any panic was followed by a second one.
    #[tokio::test]
    async fn a_panic_in_the_work_ends_what_it_was_to_answer_and_nothing_else() {
        let (count, client) = (Count::new(), client());
        assert_eq!(ask(&count, &client, false).await, Some(1));
        let both = async { tokio::join!(ask(&count, &client, false), ask(&count, &client, false)) };
        assert_eq!(both.await, (Some(2), Some(2)), "one write, with what the last one left");

        let both = async { tokio::join!(ask(&count, &client, true), ask(&count, &client, false)) };
        assert_eq!(both.await, (None, None));
        assert_eq!(ask(&count, &client, false).await, Some(1), "nothing was left");
    }

    #[test]
    fn a_runtime_that_ends_leaves_no_call_waiting() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (home, other) = (runtime(), runtime());
        let (count, client) = (Count::new(), home.block_on(async { client() }));
        let forever = |turn| async move {
            let _turn: WriteTurn<bool, u32, u32> = turn;
            std::future::pending().await
        };
        other.block_on(async {
            let waits = async {
                tokio::join!(
                    count.ask(&client, false, forever),
                    ask(&count, &client, false),
                    async { home.shutdown_background() }
                )
            };
            let waited = tokio::time::timeout(HANGS, waits).await.expect("it hangs");
            assert_eq!(waited, (None, None, ()));
            assert_eq!(ask(&count, &client, false).await, None, "nor one that begins later");
        });
    }
}
