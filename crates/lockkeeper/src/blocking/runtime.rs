//! The thread that serves a client, and waiting for it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use lockkeeper_client::{Client, Contact, Status};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

/// For how long the last handle waits at its end until the session is closed.
const GOODBYE: Duration = Duration::from_secs(1);

/// A thread with a runtime, which lives as long as there is a handle.
#[derive(Debug)]
pub(super) struct Runtime {
    handle: Handle,
    /// Dropped: the end. The session to wait for is put in.
    stop: Option<oneshot::Sender<watch::Receiver<Status>>>,
    status: Option<watch::Receiver<Status>>,
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Runtime {
    pub(super) fn start() -> std::io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<watch::Receiver<Status>>();
        let (end, ended) = mpsc::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();

        thread::Builder::new().name("lockkeeper".into()).spawn(move || {
            runtime.block_on(async {
                if let Ok(mut status) = stopped.await {
                    let closed = status.wait_for(|status| status.contact == Contact::Closed);
                    let _ = tokio::time::timeout(GOODBYE, closed).await;
                }
            });
            drop(runtime);
            // Nobody may be waiting any more.
            let _ = end.send(());
        })?;

        Ok(Self { handle, stop: Some(stop), status: None, ended: Mutex::new(ended) })
    }

    /// Sets the session that is waited for at the end.
    pub(super) fn serves(&mut self, client: &Client) {
        self.status = Some(client.status());
    }

    /// Runs a future on this thread, while the runtime's own thread serves its connection.
    ///
    /// Not by the runtime's own `block_on`, which panics in async code.
    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        let _context = self.handle.enter();
        // In async code, the task around this has a budget, and nothing here can refill it.
        let mut future = pin!(tokio::task::unconstrained(future));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Waits until a state differs from `last`, and gives it.
    pub(super) fn wait_changed<T: Clone + PartialEq>(
        &self,
        mut states: watch::Receiver<T>,
        last: &T,
    ) -> T {
        self.wait(async {
            // The other end goes only after its last state, which says that it has ended.
            let _ = states.wait_for(|state| state != last).await;
            states.borrow().clone()
        })
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // A program may end right after this, and the locks are given back by the thread.
        if let (Some(stop), Some(status)) = (self.stop.take(), self.status.take()) {
            let _ = stop.send(status);
            let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = ended.recv_timeout(GOODBYE);
        }
    }
}
