//! The usual lock in Redis: `SET key token NX PX`, and a script that deletes the key only if it
//! still has the token.
//!
//! All locks of a client share one multiplexed connection, which is Redis's fastest way. Redis
//! cannot wait for a key, so a waiter asks again and again.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::measure::Lock;
use anyhow::{Result, ensure};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

const DELETE_IF_OURS: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// How long a key lives at most, in milliseconds.
const LIFE_MS: u64 = 30_000;

type Releasing = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A lock.
pub(crate) struct RedisLock {
    connection: MultiplexedConnection,
    /// The script, as Redis knows it.
    script: String,
    key: String,
    pause: Duration,
    /// A release that nobody waits for: it is put on its way just ahead of the next acquire.
    releasing: Option<Releasing>,
}

/// Connects, and loads the script.
pub(crate) async fn connect(address: &str) -> Result<(MultiplexedConnection, String)> {
    let client = redis::Client::open(format!("redis://{address}/"))?;
    // Its default is half a second, which a disk that syncs slowly exceeds under load.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(DELETE_IF_OURS);
    let script = load.query_async(&mut connection).await?;
    Ok((connection, script))
}

impl RedisLock {
    /// The lock of this key; a waiter pauses for so long between two attempts.
    pub(crate) fn new(
        (connection, script): &(MultiplexedConnection, String),
        key: String,
        pause: Duration,
    ) -> Self {
        let (connection, script) = (connection.clone(), script.clone());
        Self { connection, script, key, pause, releasing: None }
    }

    async fn try_acquire(&mut self, token: &str) -> Result<bool> {
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(token).arg("NX").arg("PX").arg(LIFE_MS);
        let answer: Option<String> = set.query_async(&mut self.connection).await?;
        Ok(answer.is_some())
    }

    fn releasing(&self, token: String) -> Releasing {
        let mut eval = redis::cmd("EVALSHA");
        eval.arg(&self.script).arg(1).arg(&self.key).arg(token);
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let deleted: i64 = eval.query_async(&mut connection).await?;
            ensure!(deleted == 1, "the key was gone before the release");
            Ok(())
        })
    }
}

impl Lock for RedisLock {
    type Guard = String;

    async fn acquire(&mut self) -> Result<String> {
        let token = format!("{:032x}", fastrand::u128(..));
        if let Some(releasing) = self.releasing.take() {
            // Sent in this order over the one connection, without a round trip between them.
            let (released, acquired) = tokio::join!(releasing, self.try_acquire(&token));
            released?;
            if acquired? {
                return Ok(token);
            }
        }

        while !self.try_acquire(&token).await? {
            // Not all at the same moment.
            sleep(self.pause.mul_f64(0.5 + fastrand::f64())).await;
        }
        Ok(token)
    }

    async fn release(&mut self, token: String) -> Result<()> {
        self.releasing(token).await
    }

    fn let_go(&mut self, token: String) {
        self.releasing = Some(self.releasing(token));
    }
}
