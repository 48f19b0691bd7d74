//! The thread for TLS handshakes.
//!
//! A handshake needs a signature: with a key of RSA 4096, this takes ten milliseconds of processor time, and a client
//! only needs to send a hello to cause it. On the thread that owns the tree, a thousand hellos made all clients wait.

use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::error::StartError;
use crate::thread;

/// Runs handshakes, one at a time, on a thread that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Handshakes {
    handle: Handle,
    /// Dropping it ends the thread.
    _end: oneshot::Sender<()>,
}

impl Handshakes {
    pub(crate) fn start() -> Result<Self, StartError> {
        // New handshakes, and those that another thread wakes, come first: these only wait for their turns.
        let runtime = Builder::new_current_thread().global_queue_interval(1).build();
        let runtime = runtime.map_err(StartError::refused("a thread for TLS"))?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        thread::spawn("lockkeeper-tls", move || _ = runtime.block_on(ended))
            .map_err(StartError::no_thread)?;
        Ok(Self { handle, _end: end })
    }

    /// Runs a handshake on the thread, with a socket that the caller's runtime continues to watch. `None` if the thread
    /// has ended. Dropping the future ends the handshake.
    ///
    /// Handshakes with the same `turn`, a semaphore with one permit, together get as much of the thread as one that has
    /// a turn of its own.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        turn: Arc<Semaphore>,
        handshake: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut task = AbortOnDrop(self.handle.spawn(in_turns(turn, handshake)));
        (&mut task.0).await.ok()
    }
}

/// Waits for the turn before each step of a future. A signature is computed within one step.
async fn in_turns<T>(turn: Arc<Semaphore>, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let permit = turn.acquire().await;
        // Goes to the end of the queue with the turn: ready tasks with another turn run first.
        suspend(Waker::wake_by_ref).await;
        let step = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        drop(permit);
        match step {
            Poll::Ready(done) => return done,
            // The step's own wakers wake this task.
            Poll::Pending => suspend(|_| {}).await,
        }
    }
}

/// Suspends the task once.
async fn suspend(wake: impl Fn(&Waker)) {
    let mut is_due = true;
    poll_fn(|context| match replace(&mut is_due, false) {
        true => {
            wake(context.waker());
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    fn turn() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(1))
    }

    /// Symptom: hellos of one address were handled before those of all other addresses that arrived later.
    ///
    /// Seen to fail without turns: the other one is the last.
    #[tokio::test]
    async fn n42_origins_take_turns_however_many_handshakes_each_has() {
        const MANY: usize = 100;
        let handshakes = Handshakes::start().unwrap();
        let (go, gone) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        let handshake = |name: &'static str, turn: &Arc<Semaphore>| {
            let (turn, done) = (turn.clone(), done.clone());
            handshakes.run(turn, async move { done.send(name).unwrap() })
        };
        let (one, other) = (turn(), turn());
        let first = handshakes.run(one.clone(), async move { gone.recv().is_err() });
        let many = (0..MANY).map(|_| handshake("one", &one));
        let all = many.chain([handshake("other", &other)]);

        // All of them wait in their order before the first step of the second ends.
        let mut first = pin!(first);
        let mut all: Vec<_> = all.map(Box::pin).collect();
        poll_fn(|context| {
            let begun = first.as_mut().poll(context).is_pending();
            let waiting = all.iter_mut().map(|one| one.as_mut().poll(context).is_pending());
            assert!(begun && waiting.filter(|waits| *waits).count() == MANY + 1);
            Poll::Ready(())
        })
        .await;
        drop(go);
        first.await.unwrap();
        for handshake in all {
            handshake.await.unwrap();
        }
        let order: Vec<&str> = order.try_iter().collect();
        let place = order.iter().position(|name| *name == "other").unwrap();
        assert!(place < MANY / 10, "{place}");
    }

    /// The handshake blocks its thread until the caller's thread has continued. On a single thread, neither would.
    ///
    /// Seen to fail with handshakes on the caller's thread.
    #[tokio::test]
    async fn a_handshake_keeps_its_callers_thread_free() {
        let handshakes = Handshakes::start().unwrap();
        let (begun, has_begun) = oneshot::channel();
        let (has_gone_on, wait) = mpsc::channel();
        let handshake = handshakes.run(turn(), async move {
            begun.send(()).unwrap();
            wait.recv_timeout(LONG)
        });
        let caller = async {
            has_begun.await.unwrap();
            has_gone_on.send(())
        };
        let (handshake, caller) = tokio::join!(handshake, caller);
        assert_eq!((handshake, caller), (Some(Ok(())), Ok(())));
    }

    /// Seen to fail with handshakes that are left to themselves.
    #[tokio::test]
    async fn a_caller_that_gives_up_ends_the_handshake() {
        let handshakes = Handshakes::start().unwrap();
        let (still_there, ended) = oneshot::channel::<()>();
        let endless = handshakes.run(turn(), async move {
            let _still_there = still_there;
            std::future::pending::<()>().await;
        });
        tokio::select! {
            biased;
            _ = endless => panic!("it must not end"),
            () = std::future::ready(()) => {}
        }
        let ended = tokio::time::timeout(LONG, ended).await;
        assert!(ended.is_ok_and(|sent| sent.is_err()), "it is dropped");
    }
}
