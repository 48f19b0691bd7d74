//! How long until the next one is granted after a holder is killed, against the time for which the
//! server keeps a session (a key, a lease) that it does not hear of.
//!
//! All systems at once: nothing here depends on how fast anything is.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use lockkeeper::{Client, Mutex};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::process::Process;

use crate::bench::Bench;
use crate::locks::redis::{self, RedisLock};
use crate::locks::{etcd, postgres};
use crate::measure::Lock;
use crate::peers::{child, ready_line};
use crate::system::{Fsync, System};

/// The shortest that a server with a tick of two seconds grants.
const TIMEOUT: Duration = Duration::from_secs(4);

/// In seconds, as etcd counts.
const TIMEOUT_SECONDS: i64 = 4;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    const SYSTEMS: [System; 5] = [
        System::Engine(Durability::Os),
        System::OnZooKeeper,
        System::Redis(Fsync::Everysec),
        System::Etcd,
        System::Postgres,
    ];
    for round in 0..bench.settings.kills {
        let (folder, mut waiting) = (bench.peers.folder()?, Vec::new());
        for system in SYSTEMS {
            match bench.peers.server_of(system).await {
                Ok(server) => {
                    let grant = grant(system, server, round, folder.clone());
                    waiting.push((system, tokio::spawn(grant)));
                }
                Err(_) => bench.skip(&system.to_string(), &anyhow!("it does not run")),
            }
        }

        for (system, grant) in waiting {
            match grant.await? {
                Ok(after) => {
                    let after = after.as_secs_f64();
                    eprintln!("        killed  {system}: {after:.2} s");
                    let relative = after / TIMEOUT.as_secs_f64();
                    bench.note(system, 1, "granted_after_s", after);
                    bench.note(system, 1, "granted_after_timeouts", relative);
                }
                Err(error) => bench.skip(&system.to_string(), &error),
            }
        }
    }
    Ok(())
}

/// How long after the end of its holder a lock of this system is granted to the next one.
async fn grant(system: System, server: String, round: usize, folder: PathBuf) -> Result<Duration> {
    match system {
        System::Redis(_) => with_redis(&server, round).await,
        System::Etcd => with_etcd(&server, round).await,
        System::Postgres => with_postgres(&server).await,
        _ => lockkeeper(&server, &format!("/locks/killed-{round}"), &folder).await,
    }
}

/// The holder is a process of its own, killed with SIGKILL.
async fn lockkeeper(servers: &str, path: &str, folder: &Path) -> Result<Duration> {
    let session = TIMEOUT.as_millis().to_string();
    let arguments = ["hold", servers, path, &session];
    let name = format!("holder-{}", servers.replace([':', '/'], "-"));
    let mut holder = Process::spawn(&name, &child(&arguments)?, folder)?;
    ready_line(&mut holder).await?;

    let client = Client::connect(servers).await?;
    let lock = Mutex::new(&client, path)?;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    // The waiter is in line by then, and the holder's last ping is some time ago, as it would be.
    tokio::time::sleep(Duration::from_millis(500)).await;

    let start = Instant::now();
    holder.kill();
    let guard = waiting.await??;
    let after = start.elapsed();
    guard.release().await?;
    client.close().await;
    Ok(after)
}

/// A holder that does nothing any more is a killed one: the key lives for its time.
async fn with_redis(address: &str, round: usize) -> Result<Duration> {
    let connection = redis::connect(address).await?;
    let key = format!("killed-{round}");
    let mut set = ::redis::cmd("SET");
    set.arg(&key).arg("nobody").arg("PX").arg(TIMEOUT.as_millis() as u64);
    let start = Instant::now();
    let () = set.query_async(&mut connection.0.clone()).await?;
    let mut lock = RedisLock::new(&connection, key, Duration::from_millis(10));
    let token = lock.acquire().await?;
    let after = start.elapsed();
    lock.release(token).await?;
    Ok(after)
}

/// A lease that nobody renews.
async fn with_etcd(address: &str, round: usize) -> Result<Duration> {
    let name = format!("killed-{round}");
    let start = Instant::now();
    let holder = etcd::EtcdSession::connect(address, TIMEOUT_SECONDS).await?;
    holder.lock(&name).await?;
    let next = etcd::EtcdSession::connect(address, 60).await?;
    next.lock(&name).await?;
    Ok(start.elapsed())
}

/// The server sees the connection close, and knows no session beyond it.
async fn with_postgres(address: &str) -> Result<Duration> {
    const KEY: i64 = -2;
    let holder = postgres::PostgresSession::connect(address).await?;
    holder.lock(KEY).await?;
    let next = postgres::PostgresSession::connect(address).await?;
    let waiting = {
        let next = next.clone();
        tokio::spawn(async move { next.lock(KEY).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    let start = Instant::now();
    drop(holder);
    waiting.await??;
    Ok(start.elapsed())
}
