//! The thread that does TLS handshakes.
//!
//! A handshake is a signature: with a key of RSA 4096, ten milliseconds of a processor, and a client needs to
//! send no more than a hello for it. On the thread that owns the tree, a thousand hellos made everyone wait.

use std::future::Future;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::StartError;
use crate::thread;

/// Runs handshakes, one at a time, on a thread that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Handshakes {
    handle: Handle,
    /// Dropped: the end.
    _end: oneshot::Sender<()>,
}

impl Handshakes {
    pub(crate) fn start() -> Result<Self, StartError> {
        let runtime = Builder::new_current_thread().build();
        let runtime = runtime.map_err(StartError::refused("a thread for TLS"))?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        thread::spawn("lockkeeper-tls", move || _ = runtime.block_on(ended))
            .map_err(StartError::no_thread)?;
        Ok(Self { handle, _end: end })
    }

    /// Does a handshake on the thread, with a socket that the caller's runtime goes on to watch. `None` if the
    /// thread has ended. Dropping the future ends the handshake.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        handshake: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut task = AbortOnDrop(self.handle.spawn(handshake));
        (&mut task.0).await.ok()
    }
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

    /// The handshake does not let go of its thread before the caller's one has gone on. On one thread, neither
    /// would.
    ///
    /// Seen to fail with handshakes on the caller's thread.
    #[tokio::test]
    async fn a_handshake_keeps_its_callers_thread_free() {
        let handshakes = Handshakes::start().unwrap();
        let (begun, has_begun) = oneshot::channel();
        let (has_gone_on, wait) = mpsc::channel();
        let handshake = handshakes.run(async move {
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
    async fn who_gives_up_ends_the_handshake() {
        let handshakes = Handshakes::start().unwrap();
        let (still_there, ended) = oneshot::channel::<()>();
        let endless = handshakes.run(async move {
            let _still_there = still_there;
            std::future::pending::<()>().await;
        });
        tokio::select! {
            biased;
            _ = endless => panic!("it has ended"),
            () = std::future::ready(()) => {}
        }
        let ended = tokio::time::timeout(LONG, ended).await;
        assert!(ended.is_ok_and(|sent| sent.is_err()), "it is dropped");
    }
}
