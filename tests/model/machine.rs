//! A client's machine: a clock that only the search moves, a way to the server that it carries
//! frames over, and a runtime that runs until nothing is left to do.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use lockkeeper::Instant;
use lockkeeper_client::Host;
use lockkeeper_client::runtime::{Boxed, Runtime, Transport};
use lockkeeper_wire::{MAX_FRAME, split_frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use uuid::Uuid;

/// The time of a clock at the start, so that earlier times can be represented.
const EPOCH: Duration = Duration::from_secs(1_000);

/// What a client draws pauses from, at every step anew: so they follow from its own history.
const SEED: u64 = 7;

/// A client's machine.
pub(crate) struct Machine {
    number: usize,
    names: AtomicU64,
    start: tokio::time::Instant,
    ways: Mutex<Ways>,
    activity: Arc<Activity>,
}

/// Its ways to the server.
#[derive(Default)]
struct Ways {
    /// The connection attempts that are not answered yet.
    dials: Vec<oneshot::Sender<Pipe>>,
    link: Option<Arc<Mutex<Link>>>,
}

/// A connection, seen from the network.
#[derive(Debug, Default)]
struct Link {
    incoming: Bytes,
    outgoing: BytesMut,
    end: Option<End>,
    /// Whether the client has let go of it.
    is_dropped: bool,
    reader: Option<Waker>,
}

/// How a connection ends for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// It broke.
    Lost,
    /// The server closed it.
    Closed,
}

/// The polls of the tasks of a machine, for callers that wait until the tasks have settled.
#[derive(Debug, Default)]
struct Activity {
    polls: AtomicU64,
    panics: AtomicU64,
    waiting: Mutex<Option<Waker>>,
}

impl Machine {
    /// The machine of the client with that number. To be called in its runtime.
    pub(crate) fn new(number: usize) -> Self {
        let (start, ways, activity) =
            (tokio::time::Instant::now(), Mutex::default(), Arc::default());
        Self { number, names: AtomicU64::new(0), start, ways, activity }
    }

    /// Runs a task of the program.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(Counted { task: Box::pin(task), activity: Arc::clone(&self.activity) });
    }

    /// How long it has been running, by its own clock.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The reading of its clock after that time.
    pub(crate) fn reading(elapsed: Duration) -> Instant {
        Instant::from_start(EPOCH + elapsed)
    }

    /// Runs all tasks until they wait for something.
    pub(crate) async fn settle(&self) {
        let (mut seen, mut quiet) = (self.polls(), 0);
        // A timer that is due wakes its task only after the first pause.
        while quiet < 2 {
            tokio::task::yield_now().await;
            let polls = self.polls();
            quiet = if polls == seen { quiet + 1 } else { 0 };
            seen = polls;
        }
    }

    /// Lets time pass to the next timer that runs a task, unless that takes longer than `limit`.
    /// Returns whether there was one.
    pub(crate) async fn pass_to_timer(&self, limit: Duration) -> bool {
        let seen = self.polls();
        let ran = poll_fn(|context| {
            if self.polls() != seen {
                return Poll::Ready(());
            }
            *self.activity.waiting.lock().expect("the lock is not poisoned") =
                Some(context.waker().clone());
            Poll::Pending
        });
        tokio::select! {
            biased;
            () = ran => true,
            () = tokio::time::sleep(limit) => false,
        }
    }

    /// Whether a task has panicked.
    pub(crate) fn panicked(&self) -> bool {
        self.activity.panics.load(Ordering::Relaxed) > 0
    }

    fn polls(&self) -> u64 {
        self.activity.polls.load(Ordering::Relaxed)
    }

    // ----- the network ------------------------------------------------------------------------

    /// Whether the client waits for a connection.
    pub(crate) fn dials(&self) -> bool {
        self.ways().dials.iter().any(|dial| !dial.is_closed())
    }

    /// Gives the client the connection that it waits for.
    pub(crate) fn connect(&self) {
        let mut ways = self.ways();
        let mut dials = std::mem::take(&mut ways.dials).into_iter();
        // Attempts that were given up are among them.
        let Some(dial) = dials.find(|dial| !dial.is_closed()) else { return };
        let link = Arc::<Mutex<Link>>::default();
        ways.link = Some(Arc::clone(&link));
        dial.send(Pipe(link)).expect("it waits");
    }

    /// A frame arrives.
    pub(crate) fn receive(&self, frame: &Bytes) {
        self.change(|link| {
            let mut all = BytesMut::from(&link.incoming[..]);
            all.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            all.extend_from_slice(frame);
            link.incoming = all.freeze();
        });
    }

    /// The connection ends.
    pub(crate) fn end(&self, end: End) {
        self.change(|link| link.end = Some(end));
        self.ways().link = None;
    }

    /// Takes the frames that were sent, and says whether the client has hung up.
    pub(crate) fn take_sent(&self) -> (Vec<Bytes>, bool) {
        let mut ways = self.ways();
        let Some(link) = &ways.link else { return (Vec::new(), false) };
        let mut frames = Vec::new();
        let is_dropped = {
            let mut link = link.lock().expect("the lock is not poisoned");
            while let Ok(Some(frame)) = split_frame(&mut link.outgoing, MAX_FRAME) {
                frames.push(frame);
            }
            link.is_dropped
        };
        if is_dropped {
            ways.link = None;
        }
        (frames, is_dropped)
    }

    fn change(&self, change: impl FnOnce(&mut Link)) {
        let ways = self.ways();
        let Some(link) = &ways.link else { return };
        let mut link = link.lock().expect("the lock is not poisoned");
        change(&mut link);
        if let Some(reader) = link.reader.take() {
            reader.wake();
        }
    }

    fn ways(&self) -> std::sync::MutexGuard<'_, Ways> {
        self.ways.lock().expect("the lock is not poisoned")
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Runtime for Machine {
    fn now(&self) -> Instant {
        Self::reading(self.elapsed())
    }

    fn connect<'a>(&'a self, _: &'a Host, _: Option<IpAddr>) -> Boxed<'a, io::Result<Transport>> {
        Box::pin(async {
            let (dial, answered) = oneshot::channel();
            self.ways().dials.push(dial);
            match answered.await {
                Ok(pipe) => Ok(Transport::Other(Box::new(pipe), None)),
                Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }

    fn unique_id(&self) -> Uuid {
        let name = self.names.fetch_add(1, Ordering::Relaxed);
        Uuid::from_u64_pair(self.number as u64, name)
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        self.run(task);
    }
}

/// The number of the client that a name was made by.
pub(crate) fn author(name: &str) -> Option<usize> {
    let id = name.strip_prefix("_c_")?.get(..36)?;
    Some(Uuid::parse_str(id).ok()?.as_u64_pair().0 as usize)
}

/// A task whose polls and panics are counted.
struct Counted {
    task: Boxed<'static, ()>,
    activity: Arc<Activity>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.activity.polls.fetch_add(1, Ordering::Relaxed);
        if let Some(waiting) =
            self.activity.waiting.lock().expect("the lock is not poisoned").take()
        {
            waiting.wake();
        }
        fastrand::seed(SEED);
        let poll = AssertUnwindSafe(|| self.task.as_mut().poll(context));
        std::panic::catch_unwind(poll).unwrap_or_else(|_| {
            self.activity.panics.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(())
        })
    }
}

/// A client's end of a connection.
#[derive(Debug)]
struct Pipe(Arc<Mutex<Link>>);

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut link = self.0.lock().expect("the lock is not poisoned");
        if !link.incoming.is_empty() {
            let take = link.incoming.len().min(buffer.remaining());
            buffer.put_slice(&link.incoming[..take]);
            link.incoming.advance(take);
            return Poll::Ready(Ok(()));
        }
        match link.end {
            Some(End::Lost) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(End::Closed) => Poll::Ready(Ok(())),
            None => {
                link.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut link = self.0.lock().expect("the lock is not poisoned");
        if link.end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        link.outgoing.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.0.lock().expect("the lock is not poisoned").is_dropped = true;
    }
}
