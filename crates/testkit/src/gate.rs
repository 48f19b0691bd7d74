//! Simulated pauses and crashes of programs.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use lockkeeper::Instant;
use lockkeeper_client::Host;
use lockkeeper_client::runtime::{Boxed, Runtime, Transport};
use uuid::Uuid;

/// Suspends all work that passes through it, as SIGSTOP or a suspended host does. Work at a gate that stays closed for
/// good has crashed.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    /// Suspends all work from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Resumes all work.
    pub fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("not poisoned"));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Wraps work so that it is suspended while the gate is closed.
    pub fn through<F: Future>(self: &Arc<Self>, work: F) -> Gated<F> {
        Gated { gate: Arc::clone(self), work: Box::pin(work) }
    }
}

/// Work that is suspended while its gate is closed.
pub struct Gated<F> {
    gate: Arc<Gate>,
    work: Pin<Box<F>>,
}

impl<F> fmt::Debug for Gated<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.gate.closed.load(Ordering::SeqCst) {
            let mut waiting = self.gate.waiting.lock().expect("not poisoned");
            waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        self.work.as_mut().poll(context)
    }
}

/// A client's runtime whose tasks pass through a gate: the client can crash alone.
#[derive(Debug)]
pub struct GatedRuntime {
    /// The underlying runtime.
    pub host: Arc<dyn Runtime>,
    /// The gate; closing it for good crashes the client.
    pub gate: Arc<Gate>,
}

impl Runtime for GatedRuntime {
    fn now(&self) -> Instant {
        self.host.now()
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        address: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        self.host.connect(host, address)
    }

    fn addresses<'a>(&'a self, host: &'a Host) -> Boxed<'a, Vec<IpAddr>> {
        self.host.addresses(host)
    }

    fn unique_id(&self) -> Uuid {
        self.host.unique_id()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        self.host.spawn(Box::pin(self.gate.through(task)));
    }
}
