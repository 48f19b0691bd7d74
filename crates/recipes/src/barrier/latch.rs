//! [`CountDownLatch`]: it opens when its count reaches zero.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{
    Client, CreateMode, ErrorCode, Stat, Transaction, TransactionError, ZnodePath, present,
};

use crate::barrier::error::BarrierError;
use crate::barrier::gate::{GoneWait, within};
use crate::barrier::layout::Kind;
use crate::barrier::requests::{again, make};
use crate::exact::{DEFAULT_MARKERS, WriteError, Writers};

/// A latch that opens when its count reaches zero, and stays open until it is [reset](CountDownLatch::reset).
/// Cheap to clone.
///
/// # Guarantees
///
/// - Each confirmed [count down](CountDownLatch::count_down) counts once, even when its reply is lost.
/// - A wait ends when the count reaches zero, also if the latch is reset at once, and not before. The last count
///   down opens the latch in the same transaction.
///
/// # Not guaranteed
///
/// - A program that counts down and is killed before it has recorded that counts again when it is restarted. To
///   count each program once, use a [`DoubleBarrier`](crate::DoubleBarrier), which knows them by name.
/// - Counts are not exact if nodes are deleted, or servers are set back.
///
/// # Session loss
///
/// A wait continues with the next session. A count down in flight is [`BarrierError::Unknown`] if the session
/// ends before it is answered.
///
/// # Znodes
///
/// `<path>` is persistent and has the version of the layout. `<path>/count` has what is left and the full count,
/// as `4/6`. `<path>/closed` exists while the count is not zero. Missing parents are created as container nodes.
/// `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral.
///
/// # Cost
///
/// - Counting down costs 2 round trips (1 read, 1 write), and 2 more for each time that another program wrote first.
/// - Waiting costs 1 round trip and 1 event, and another round trip if the latch is open.
/// - The first use of a latch creates its nodes: 1 write more.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::CountDownLatch;
///
/// let latch = CountDownLatch::new(&client, "/latches/loaded", 2)?;
/// assert_eq!(latch.count_down().await?, 1);
/// assert_eq!(latch.count_down().await?, 0);
/// latch.wait().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CountDownLatch {
    client: Client,
    path: ZnodePath,
    from: u64,
    count: ZnodePath,
    closed: ZnodePath,
    writers: Arc<Writers>,
}

lockkeeper_client::shown_by_path!(CountDownLatch);

impl CountDownLatch {
    /// A latch at a path such as `/latches/loaded`. Its first user creates it with this count. All programs must
    /// use the same count; any other is [`BarrierError::OtherCount`] on use. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a latch.
    pub fn new(client: &Client, path: &str, count: u64) -> Result<Self, BarrierError> {
        let path = BarrierError::check_path(client, path)?;
        let child = |name| path.child(name).expect("a plain name");
        let (count_node, closed) = (child("count"), child("closed"));
        let markers = ZnodePath::new(DEFAULT_MARKERS).expect("a path");
        let writers = Arc::new(Writers::new(client, markers));
        Ok(Self { client: client.clone(), path, from: count, count: count_node, closed, writers })
    }

    /// The latch's path.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// Counts down by one, and returns what is left. A count of zero stays zero. Costs two round trips (1 read, 1
    /// write).
    ///
    /// # Errors
    /// [`BarrierError::Unknown`] if the session ended before the outcome was known. With any other error, nothing
    /// was counted: a request was refused, or no server could be reached for a session timeout.
    ///
    /// # Session loss
    /// Fails with [`BarrierError::Unknown`] if the write was sent; otherwise continues with the next session.
    ///
    /// # Cancel safety
    /// When dropped, it is counted once or not at all.
    pub async fn count_down(&self) -> Result<u64, BarrierError> {
        self.change(|left| left.checked_sub(1)).await
    }

    /// The count that is left. Costs one round trip (1 read).
    ///
    /// # Errors
    /// If a request is refused, or no server can be reached for a session timeout.
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn count(&self) -> Result<u64, BarrierError> {
        Ok(self.read().await?.0)
    }

    /// Returns when the count has reached zero. Costs one round trip (1 read) and one event, and another round
    /// trip if the latch is open.
    ///
    /// # Errors
    /// If a request is refused, no server can be reached for a session timeout, or the client is closed.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// Safe. No watch is left behind.
    pub async fn wait(&self) -> Result<(), BarrierError> {
        self.opened(&GoneWait::new(&self.client, &self.closed)).await
    }

    /// Like [`CountDownLatch::wait`], with a time limit. Returns whether the latch is open. An outage of the
    /// servers does not end the call. Costs the same.
    ///
    /// # Errors
    /// If a request is refused, or the client is closed.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// Safe. No watch is left behind.
    pub async fn wait_timeout(&self, timeout: Duration) -> Result<bool, BarrierError> {
        let wait = GoneWait::new(&self.client, &self.closed);
        within(&self.client, timeout, || self.opened(&wait)).await
    }

    /// Closes the latch again with its full count, whatever was left. Costs two round trips (1 read, 1 write).
    ///
    /// # Errors
    /// As [`CountDownLatch::count_down`].
    ///
    /// # Session loss
    /// As [`CountDownLatch::count_down`].
    ///
    /// # Cancel safety
    /// When dropped, the latch may be reset.
    pub async fn reset(&self) -> Result<(), BarrierError> {
        self.change(|_| Some(self.from)).await.map(drop)
    }

    /// Writes a new count, computed from the current one, and closes or opens the latch in the same transaction.
    /// Returns the new count; `None` leaves the latch unchanged.
    async fn change(&self, to: impl Fn(u64) -> Option<u64>) -> Result<u64, BarrierError> {
        let mut writer = self.writers.take();
        loop {
            writer.let_others().await;
            let (before, version) = self.read().await?;
            let Some(left) = to(before) else { return Ok(before) };
            let steps = |steps: Transaction| {
                let steps = steps.set_data(&self.count, self.data(left), Some(version));
                match (before, left) {
                    (1.., 0) => steps.delete(&self.closed, None),
                    (0, 1..) => steps.create(&self.closed, "", CreateMode::Persistent),
                    _ => steps,
                }
            };
            match writer.commit(steps).await {
                Ok(_) => return Ok(left),
                Err(error) if error.refuses_first(&[ErrorCode::BadVersion, ErrorCode::NoNode]) => {
                    writer.lost().await;
                }
                Err(error) => self.again_to_write(error).await?,
            }
        }
    }

    /// Returns when the latch is open, or was open at some time since the first call with this wait.
    async fn opened(&self, wait: &GoneWait<'_>) -> Result<(), BarrierError> {
        // It was closed and no longer is.
        while !wait.gone(|_, _| Ok(())).await? {
            // It is open, or does not exist yet.
            match self.found().await? {
                Some((0, _)) => return Ok(()),
                Some(_) => {}
                None => self.make().await?,
            }
        }
        Ok(())
    }

    /// The count that is left, and the version of its node. Creates the latch if it is missing.
    async fn read(&self) -> Result<(u64, i32), BarrierError> {
        loop {
            match self.found().await? {
                Some((left, stat)) => return Ok((left, stat.version)),
                None => self.make().await?,
            }
        }
    }

    /// The count that is left; `None` if the latch does not exist.
    async fn found(&self) -> Result<Option<(u64, Stat)>, BarrierError> {
        loop {
            match present(self.client.data(&self.count).await) {
                Ok(None) => return Ok(None),
                Ok(Some((data, stat))) => return Ok(Some((self.number(&data)?, stat))),
                Err(error) => again(&self.path, error).await?,
            }
        }
    }

    /// Parses the count from the node's data.
    fn number(&self, data: &Bytes) -> Result<u64, BarrierError> {
        let text = std::str::from_utf8(data).ok().and_then(|text| text.split_once('/'));
        let numbers = text.and_then(|(left, of)| Some((left.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((left, from)) if from == self.from => Ok(left),
            Some((_, found)) => {
                let (path, given) = (self.path.clone(), self.from);
                Err(BarrierError::OtherCount { path, found, given })
            }
            None => {
                let found = format!("{:?}", String::from_utf8_lossy(&data[..data.len().min(64)]));
                Err(BarrierError::Foreign { path: self.count.clone(), kind: "latch", found })
            }
        }
    }

    fn data(&self, left: u64) -> String {
        format!("{left}/{}", self.from)
    }

    /// Creates the latch. Another program may have created it first.
    async fn make(&self) -> Result<(), BarrierError> {
        let is_closed = (self.from > 0).then(|| (&self.closed, String::new()));
        let below = [(&self.count, self.data(self.from))].into_iter().chain(is_closed);
        make(&self.client, &self.path, Kind::Latch, below).await
    }

    /// Returns when a write that was not applied may be repeated.
    async fn again_to_write(&self, error: WriteError) -> Result<(), BarrierError> {
        match error {
            WriteError::NotApplied(TransactionError::Request(error)) => {
                again(&self.path, error).await
            }
            error => Err(BarrierError::write(&self.path, error)),
        }
    }
}
