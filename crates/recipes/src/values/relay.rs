//! Work of one handle that is moved on by whoever waits for some of it.
//!
//! Guarantees  one piece of work at a time, which goes on as long as anybody who waits for anything is
//!             polled: a call that was begun and that nobody polls stalls no other, and a call that
//!             is dropped takes nothing with it.
//! Not         work that goes on by itself: what nobody waits for stands still until the next call.
//!
//! There is no task of its own behind it, so it ends with its handle, and cannot be lost. Whoever moves it
//! on may be in a runtime that ends, or stands still, before the work can go on. So the work has nothing of
//! it: its timers are those of the client's runtime, which serves the connection, and its wake-ups are not
//! put off by the budget of a task. The price is that everyone who waits is woken when the work can go on,
//! and looks at a flag.
//!
//! When the client's runtime has ended, a timer of it panics whoever polls it. So work is dropped then, and
//! those that it was to answer are told that there is no answer.
//!
//! When work panics, so does the call that moved it on, and the others that it was to answer are told that
//! there is no answer. The next piece of work begins anew.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use lockkeeper_client::Client;
use tokio::sync::oneshot;

/// A piece of work, which gives back what the next one begins with.
pub(super) type Work<S> = Pin<Box<dyn Future<Output = S> + Send>>;

/// Where calls by the clones of a handle wait, and the work that they wait for.
pub(super) struct Relay<S> {
    client: Client,
    stage: Mutex<Stage<S>>,
    waiting: Arc<Waiting>,
}

enum Stage<S> {
    /// With what the last piece of work has left: nothing at first, and when that has panicked.
    Idle(Option<S>),
    Busy(Work<S>),
}

impl<S> Relay<S> {
    pub(super) fn new(client: &Client) -> Self {
        let (stage, waiting) = (Mutex::new(Stage::Idle(None)), Arc::default());
        Self { client: client.clone(), stage, waiting }
    }

    /// Whether the client's runtime has ended, and no work can go on any more.
    pub(super) fn has_ended(&self) -> bool {
        // A client that is closed otherwise answers what was sent, and its timers run.
        self.client.is_closed() && {
            // Only a runtime that has ended takes no task.
            let task = self.client.tokio_runtime().spawn(pending::<()>());
            let is_refused = task.is_finished();
            task.abort();
            is_refused
        }
    }

    /// Waits for an answer that some piece of work gives, and moves the work on meanwhile. Whenever none
    /// is under way, `start` makes the next one, or gives back what is left if there is nothing to do.
    /// `None` if the piece of work that was to give the answer has panicked, or was dropped as the client's
    /// runtime [has ended](Relay::has_ended).
    pub(super) async fn answered<T>(
        &self,
        answer: oneshot::Receiver<T>,
        start: impl Fn(Option<S>) -> Result<Work<S>, Option<S>>,
    ) -> Option<T> {
        let slot = WakerSlot::take(&self.waiting);
        let mut answer = pin!(answer);
        let answered = poll_fn(|context| {
            slot.wakes(context.waker());
            // Also with an answer: what others wait for has then been begun.
            self.advance(&start);
            answer.as_mut().poll(context)
        });
        answered.await.ok()
    }

    fn advance(&self, start: &impl Fn(Option<S>) -> Result<Work<S>, Option<S>>) {
        // Before the lock, and so dropped after it.
        let _on_panic = WakeOnPanic(&self.waiting);
        let mut stage = lock(&self.stage);
        loop {
            // What it stays at if something panics.
            let (mut work, is_new) = match std::mem::replace(&mut *stage, Stage::Idle(None)) {
                Stage::Idle(left) => match start(left) {
                    Ok(work) => (work, true),
                    Err(left) => {
                        *stage = Stage::Idle(left);
                        return;
                    }
                },
                Stage::Busy(work) => (work, false),
            };
            if !self.waiting.take_news() && !is_new {
                *stage = Stage::Busy(work);
                return;
            }
            if self.has_ended() {
                // And so is all that is still to come.
                drop(work);
                continue;
            }

            match self.poll(&mut work) {
                Poll::Ready(left) => *stage = Stage::Idle(Some(left)),
                Poll::Pending => {
                    *stage = Stage::Busy(work);
                    return;
                }
            }
        }
    }

    /// Moves work on that is not that of whoever polls it: it is not bound to a lock that this one holds, its
    /// timers are the client's, and it does not use up what this task has left of its turn, as tokio gives
    /// the rest to the scheduler of this one to wake.
    fn poll(&self, work: &mut Work<S>) -> Poll<S> {
        let _timers = self.client.tokio_runtime().enter();
        let waker = Waker::from(Arc::clone(&self.waiting));
        let mut context = Context::from_waker(&waker);
        let work = pin!(tokio::task::unconstrained(work));
        lockkeeper_client::unbound(|| work.poll(&mut context))
    }
}

/// Wakes all who wait when work panics, as nobody else will.
struct WakeOnPanic<'a>(&'a Arc<Waiting>);

impl Drop for WakeOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            Arc::clone(self.0).wake();
        }
    }
}

/// The wakers of all who wait. The work wakes all of them, as any of them may be one that nobody polls.
#[derive(Default)]
struct Waiting(Mutex<WakerSlots>);

#[derive(Default)]
struct WakerSlots {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
    /// Whether the work can go on.
    news: bool,
}

impl Waiting {
    fn take_news(&self) -> bool {
        std::mem::take(&mut lock(&self.0).news)
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = {
            let mut slots = lock(&self.0);
            slots.news = true;
            std::mem::take(&mut slots.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }
}

/// The place of one who waits.
struct WakerSlot<'a> {
    waiting: &'a Waiting,
    number: u64,
}

impl<'a> WakerSlot<'a> {
    fn take(waiting: &'a Waiting) -> Self {
        let mut slots = lock(&waiting.0);
        slots.next += 1;
        Self { waiting, number: slots.next }
    }

    fn wakes(&self, waker: &Waker) {
        let mut slots = lock(&self.waiting.0);
        slots
            .wakers
            .entry(self.number)
            .and_modify(|old| old.clone_from(waker))
            .or_insert_with(|| waker.clone());
    }
}

impl Drop for WakerSlot<'_> {
    fn drop(&mut self) {
        lock(&self.waiting.0).wakers.remove(&self.number);
    }
}

/// Locks what stays whole wherever a panic ends those who have it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::runtime::Handle;
    use tokio::sync::Notify;

    use super::*;

    /// What nothing here takes unless it hangs.
    const HANGS: Duration = Duration::from_secs(20);

    /// A handle whose work answers all that wait, when it is let through a gate.
    struct Gated {
        relay: Relay<usize>,
        asked: Mutex<Vec<oneshot::Sender<usize>>>,
        gate: Arc<Notify>,
        polls: Arc<AtomicUsize>,
    }

    impl Gated {
        fn new() -> Self {
            let (gate, polls) = (Arc::default(), Arc::default());
            let relay = relay_within(&Handle::current());
            Self { relay, asked: Mutex::default(), gate, polls }
        }

        /// Gives the number of the piece of work that answered.
        async fn call(&self) -> usize {
            let (sender, answer) = oneshot::channel();
            lock(&self.asked).push(sender);
            self.relay
                .answered(answer, |left| {
                    let batch = std::mem::take(&mut *lock(&self.asked));
                    if batch.is_empty() {
                        return Err(left);
                    }
                    let count = left.unwrap_or(0);
                    let (gate, polls) = (Arc::clone(&self.gate), Arc::clone(&self.polls));
                    Ok(Box::pin(async move {
                        let mut passed = pin!(gate.notified());
                        poll_fn(|context| {
                            polls.fetch_add(1, Ordering::Relaxed);
                            passed.as_mut().poll(context)
                        })
                        .await;
                        for sender in batch {
                            let _ = sender.send(count + 1);
                        }
                        count + 1
                    }))
                })
                .await
                .expect("no work panics")
        }
    }

    /// That of a client that was connected there.
    fn relay_within<S>(runtime: &Handle) -> Relay<S> {
        let _home = runtime.enter();
        Relay::new(&Client::builder().connect_later("127.0.0.1:1").unwrap())
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Whichever of those who wait is polled, the work goes on, and the next piece is begun.
    #[tokio::test]
    async fn whoever_is_polled_moves_the_work_on() {
        let handle = Gated::new();
        let mut first = Box::pin(handle.call());
        assert!(poll(first.as_mut()).is_pending());
        let mut others: Vec<_> = (0..3).map(|_| Box::pin(handle.call())).collect();
        for other in &mut others {
            assert!(poll(other.as_mut()).is_pending());
        }
        handle.gate.notify_one();
        assert!(poll(others[1].as_mut()).is_pending(), "the first one was answered, not this one");
        handle.gate.notify_one();
        assert_eq!(poll(others[2].as_mut()), Poll::Ready(2), "all others together");
        assert_eq!(poll(others[0].as_mut()), Poll::Ready(2));
        assert_eq!(poll(first.as_mut()), Poll::Ready(1), "it has had its answer for long");
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_takes_nothing_with_it() {
        let handle = Gated::new();
        let (mut first, mut second) = (Box::pin(handle.call()), Box::pin(handle.call()));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        drop(first);
        handle.gate.notify_one();
        assert!(poll(second.as_mut()).is_pending());
        drop(second);
        // What is under way is what the next call finds.
        let mut third = Box::pin(handle.call());
        handle.gate.notify_one();
        assert!(poll(third.as_mut()).is_pending());
        handle.gate.notify_one();
        assert_eq!(poll(third.as_mut()), Poll::Ready(3));
        drop(third);
        assert!(lock(&handle.relay.waiting.0).wakers.is_empty());
    }

    /// The call that moved the work on panics with it, another that it was to answer has no answer, and
    /// nobody hangs: neither who waits already, nor who comes later.
    ///
    /// Seen to fail when whatever came after a panic panicked too.
    #[tokio::test]
    async fn a_panic_in_the_work_ends_what_it_was_to_answer_and_nothing_else() {
        let relay = Arc::new(relay_within::<u32>(&Handle::current()));
        let gate = Arc::new(Notify::new());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let call = || {
            let (relay, gate, asked) = (Arc::clone(&relay), Arc::clone(&gate), Arc::clone(&asked));
            let (sender, answer) = oneshot::channel();
            lock(&asked).push(sender);
            tokio::spawn(async move {
                let start = |left: Option<u32>| {
                    let batch: Vec<oneshot::Sender<u32>> = std::mem::take(&mut *lock(&asked));
                    if batch.is_empty() {
                        return Err(left);
                    }
                    let gate = Arc::clone(&gate);
                    Ok(Box::pin(async move {
                        gate.notified().await;
                        assert!(batch.len() == 1, "as it is meant to, with two");
                        let count = left.unwrap_or(0) + 1;
                        for sender in batch {
                            let _ = sender.send(count);
                        }
                        count
                    }) as Work<u32>)
                };
                relay.answered(answer, start).await
            })
        };

        let calls = [call(), call()];
        tokio::task::yield_now().await;
        let waits = call();
        tokio::task::yield_now().await;
        gate.notify_one();
        let mut ended = Vec::new();
        for call in calls {
            ended.push(tokio::time::timeout(HANGS, call).await.expect("it hangs"));
        }
        assert!(
            matches!(&ended[..], [Err(error), Ok(None)] | [Ok(None), Err(error)] if error.is_panic())
        );

        gate.notify_one();
        let answer = tokio::time::timeout(HANGS, waits).await.expect("it hangs");
        assert_eq!(answer.expect("no panic of another call"), Some(1), "nothing was left");
        gate.notify_one();
        assert_eq!(tokio::time::timeout(HANGS, call()).await.expect("it hangs").unwrap(), Some(2));
    }

    /// Calls of a handle in two runtimes. One of them begins what then waits for a timer, and stands still, or
    /// ends.
    ///
    /// Seen to fail with timers of whoever polls: the other call hung.
    #[test]
    fn a_timer_in_the_work_is_that_of_no_caller() {
        let home = runtime();
        let handle = home.handle().clone();
        // It is driven by this thread until the end.
        std::thread::scope(|scope| {
            let (end, ended) = oneshot::channel::<()>();
            scope.spawn(move || home.block_on(ended));
            for ends in [false, true] {
                let relay = relay_within::<()>(&handle);
                let call = || async {
                    let (sender, answer) = oneshot::channel();
                    let sender = Mutex::new(Some(sender));
                    let start = |left| match lock(&sender).take() {
                        None => Err(left),
                        Some(sender) => Ok(Box::pin(async move {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                            let _ = sender.send(());
                        }) as Work<()>),
                    };
                    relay.answered(answer, start).await
                };

                let (mut held, first) = (Box::pin(call()), runtime());
                let _ = first.block_on(async { poll(held.as_mut()) });
                let first = (!ends).then_some(first);
                let second = runtime();
                let other = second.block_on(async { tokio::time::timeout(HANGS, call()).await });
                assert_eq!(other.ok().flatten(), Some(()), "of one that ends: {ends}");
                drop((held, first));
            }
            drop(end);
        });
    }

    /// However many wait: what moves on is looked at once for each time that it can.
    #[tokio::test]
    async fn the_work_is_polled_only_when_it_can_go_on() {
        const CALLS: usize = 100;
        let handle = Arc::new(Gated::new());
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let handle = Arc::clone(&handle);
                tokio::spawn(async move { handle.call().await })
            })
            .collect();
        for _ in 0..CALLS {
            tokio::task::yield_now().await;
        }
        assert_eq!(handle.polls.load(Ordering::Relaxed), 1, "begun by the first");
        let mut seen = Vec::new();
        for call in calls {
            handle.gate.notify_one();
            seen.push(call.await.unwrap());
        }
        assert_eq!((seen[0], &seen[1..]), (1, &[2; CALLS - 1][..]));
        assert_eq!(handle.polls.load(Ordering::Relaxed), 4, "begun, and ended, twice");
    }
}
