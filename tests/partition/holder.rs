//! A program that takes a lock once with this library, keeps it, and prints what the library says.

use std::future;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{Client, Mutex, State};
use lockkeeper_testkit::clock;

/// Arguments: `CONNECT LOCK_PATH SESSION_MS`, as those of the programs in `tests/interop`.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let [servers, path, session_ms] = arguments else {
        anyhow::bail!("arguments: CONNECT LOCK_PATH SESSION_MS");
    };
    let timeout = Duration::from_millis(session_ms.parse().context("SESSION_MS")?);
    let client = Client::builder().session_timeout(timeout).connect(servers).await?;
    let lock = Mutex::new(&client, path)?;
    let guard = loop {
        match lock.acquire().await {
            Ok(guard) => break guard,
            Err(error) => say(clock::now(), &format!("RETRY {error}")),
        }
    };
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
