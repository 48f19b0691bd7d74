//! Programs that take a lock once with this library, or lead, keep it, and print what it says.

use std::future;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{AcquireError, Client, Election, Guard, Mutex, State};
use lockkeeper_testkit::clock;

/// Arguments: `CONNECT LOCK_PATH SESSION_MS`, as those of the programs in `tests/interop`.
pub(crate) async fn hold(arguments: &[String]) -> Result<()> {
    let (client, path) = connect(arguments).await?;
    let lock = Mutex::new(&client, path)?;
    let guard = until_it_is_so(async || lock.acquire().await).await;
    watch(&guard).await
}

/// The same by an election.
pub(crate) async fn lead(arguments: &[String]) -> Result<()> {
    let (client, path) = connect(arguments).await?;
    let election = Election::new(&client, path)?;
    let leadership = until_it_is_so(async || election.campaign().await).await;
    watch(&leadership).await
}

async fn connect(arguments: &[String]) -> Result<(Client, &str)> {
    let [servers, path, session_ms] = arguments else {
        anyhow::bail!("arguments: CONNECT LOCK_PATH SESSION_MS");
    };
    let timeout = Duration::from_millis(session_ms.parse().context("SESSION_MS")?);
    let client = Client::builder().session_timeout(timeout).connect(servers).await?;
    Ok((client, path))
}

async fn until_it_is_so<T>(attempt: impl AsyncFn() -> Result<T, AcquireError>) -> T {
    loop {
        match attempt().await {
            Ok(held) => return held,
            Err(error) => say(clock::now(), &format!("RETRY {error}")),
        }
    }
}

/// Says what becomes of it.
async fn watch(guard: &Guard) -> Result<()> {
    say(clock::now(), "HELD");
    let mut suspect = false;
    // Always a moment at which it had not been told of the loss yet.
    let mut believed = clock::now();
    loop {
        match guard.state() {
            State::Lost(reason) => {
                say(believed, &format!("GONE {reason:?}"));
                return future::pending().await;
            }
            State::Suspect { .. } if !suspect => say(clock::now(), "SUSPENDED"),
            _ => {}
        }
        suspect = matches!(guard.state(), State::Suspect { .. });
        believed = clock::now();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn say(at: Duration, what: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever reads it may be gone.
    let _ = writeln!(out, "{} {what}", at.as_nanos()).and_then(|()| out.flush());
}
