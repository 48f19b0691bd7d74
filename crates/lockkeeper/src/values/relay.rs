//! Work of one handle that is moved on by whoever waits for some of it.
//!
//! Guarantees  one piece of work at a time, which goes on as long as anybody who waits for anything is
//!             polled: a call that was begun and that nobody polls stalls no other, and a call that
//!             is dropped takes nothing with it.
//! Not         work that goes on by itself: what nobody waits for stands still until the next call.
//!
//! There is no task of its own behind it, so it ends with its handle, and cannot be lost. It runs in the
//! runtime of whoever moves it on. A timer in it, such as the pause before a request is tried again, stays
//! that of the runtime in which it was begun, and panics when that one has ended. The price is that
//! everyone who waits is woken when the work can go on, and looks at a flag.
//!
//! When work panics, what it had begun with is lost: all who wait and all later calls panic too.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::oneshot;

/// A piece of work, which gives back what the next one begins with.
pub(super) type Work<S> = Pin<Box<dyn Future<Output = S> + Send>>;

/// Where calls by the clones of a handle wait, and the work that they wait for.
pub(super) struct Relay<S> {
    stage: Mutex<Stage<S>>,
    waiting: Arc<Waiting>,
}

enum Stage<S> {
    Idle(S),
    Busy(Work<S>),
    /// Only while it changes, or is polled; for good if that panics.
    Between,
}

impl<S> Relay<S> {
    pub(super) fn new(state: S) -> Self {
        Self { stage: Mutex::new(Stage::Idle(state)), waiting: Arc::default() }
    }

    /// Waits for an answer that some piece of work gives, and moves the work on meanwhile. Whenever none
    /// is under way, `start` makes the next one, or gives the state back if there is nothing to do.
    pub(super) async fn answered<T>(
        &self,
        answer: oneshot::Receiver<T>,
        start: impl Fn(S) -> Result<Work<S>, S>,
    ) -> T {
        let slot = WakerSlot::take(&self.waiting);
        let mut answer = pin!(answer);
        let answered = poll_fn(|context| {
            slot.wakes(context.waker());
            // Also with an answer: what others wait for has then been begun.
            self.advance(&start);
            answer.as_mut().poll(context)
        });
        answered.await.expect("every call is answered")
    }

    /// # Panics
    /// If a piece of work has panicked before.
    fn advance(&self, start: &impl Fn(S) -> Result<Work<S>, S>) {
        // Before the lock, and so dropped after it.
        let _on_panic = WakeOnPanic(&self.waiting);
        let mut stage = lock(&self.stage);
        let waker = Waker::from(Arc::clone(&self.waiting));
        loop {
            let (mut work, is_new) = match std::mem::replace(&mut *stage, Stage::Between) {
                Stage::Idle(state) => match start(state) {
                    Ok(work) => (work, true),
                    Err(state) => {
                        *stage = Stage::Idle(state);
                        return;
                    }
                },
                Stage::Busy(work) => (work, false),
                Stage::Between => {
                    panic!("an earlier call by this handle or a clone of it panicked")
                }
            };
            if !self.waiting.take_news() && !is_new {
                *stage = Stage::Busy(work);
                return;
            }

            // It is not the work of whoever polls it, and not bound to a lock that this one holds.
            let mut context = Context::from_waker(&waker);
            match lockkeeper_client::unbound(|| work.as_mut().poll(&mut context)) {
                Poll::Ready(state) => *stage = Stage::Idle(state),
                Poll::Pending => {
                    *stage = Stage::Busy(work);
                    return;
                }
            }
        }
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

    use tokio::sync::Notify;

    use super::*;

    /// A handle whose work answers all that wait, when it is let through a gate.
    struct Handle {
        relay: Relay<usize>,
        asked: Mutex<Vec<oneshot::Sender<usize>>>,
        gate: Arc<Notify>,
        polls: Arc<AtomicUsize>,
    }

    impl Handle {
        fn new() -> Self {
            let (gate, polls) = (Arc::default(), Arc::default());
            Self { relay: Relay::new(0), asked: Mutex::default(), gate, polls }
        }

        /// Gives the number of the piece of work that answered.
        async fn call(&self) -> usize {
            let (sender, answer) = oneshot::channel();
            lock(&self.asked).push(sender);
            self.relay
                .answered(answer, |count| {
                    let batch = std::mem::take(&mut *lock(&self.asked));
                    if batch.is_empty() {
                        return Err(count);
                    }
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
        }
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Whichever of those who wait is polled, the work goes on, and the next piece is begun.
    #[test]
    fn whoever_is_polled_moves_the_work_on() {
        let handle = Handle::new();
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

    #[test]
    fn a_call_that_is_dropped_takes_nothing_with_it() {
        let handle = Handle::new();
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

    /// Nobody hangs: neither who waits already, nor who comes later.
    #[tokio::test]
    async fn after_a_panic_in_the_work_every_call_panics() {
        let relay = Arc::new(Relay::new(()));
        let gate = Arc::new(Notify::new());
        let call = || {
            let (relay, gate) = (Arc::clone(&relay), Arc::clone(&gate));
            tokio::spawn(async move {
                // Kept by whoever asks: it is never answered.
                let (_sender, answer) = oneshot::channel::<()>();
                relay
                    .answered(answer, |()| {
                        let gate = Arc::clone(&gate);
                        Ok(Box::pin(async move {
                            gate.notified().await;
                            panic!("as it is meant to");
                        }))
                    })
                    .await;
            })
        };
        let (first, second) = (call(), call());
        tokio::task::yield_now().await;
        gate.notify_one();
        for call in [first, second, call()] {
            let ended = tokio::time::timeout(Duration::from_secs(30), call).await;
            assert!(ended.expect("it hangs").expect_err("it panics").is_panic());
        }
    }

    /// However many wait: what moves on is looked at once for each time that it can.
    #[tokio::test]
    async fn the_work_is_polled_only_when_it_can_go_on() {
        const CALLS: usize = 100;
        let handle = Arc::new(Handle::new());
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
