//! A program that holds locks through the library, each with a session of its own, and prints what
//! their guards say.
//!
//! Each line is a time (`CLOCK_MONOTONIC`, in nanoseconds), a word (`HELD`, `SUSPECT`, `GONE`), the
//! number of the lock, and, after `GONE`, the reason.

use std::future;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{Client, ClientBuilder, LeaseMode, Mutex, State};
use lockkeeper_testkit::clock;
use tokio::task::JoinSet;

/// How often a guard is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Takes the locks `PATH-0`, `PATH-1`, ... and keeps them. Their sessions begin spread over
/// `SPREAD_MS`, so that their heartbeats are.
///
/// Arguments: `CONNECT PATH COUNT SESSION_MS|default quorum|direct end|jeopardy SPREAD_MS`.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let [servers, path, count, timeout, lease, at_deadline, spread] = arguments else {
        bail!(
            "arguments: CONNECT PATH COUNT SESSION_MS|default quorum|direct end|jeopardy SPREAD_MS"
        );
    };
    let rides_out = at_deadline == "jeopardy";
    let count: u32 = count.parse().context("COUNT")?;
    let spread = Duration::from_millis(spread.parse().context("SPREAD_MS")?);
    let builder = builder(timeout, lease)?;

    let mut holders = JoinSet::new();
    for number in 0..count {
        let begin = spread.mul_f64((f64::from(number) + fastrand::f64()) / f64::from(count));
        let (builder, servers) = (builder.clone(), servers.clone());
        let path = format!("{path}-{number}");
        holders.spawn(async move {
            tokio::time::sleep(begin).await;
            hold(builder, &servers, &path, number, rides_out).await
        });
    }
    while let Some(ended) = holders.join_next().await {
        ended??;
    }
    Ok(())
}

fn builder(timeout: &str, lease: &str) -> Result<ClientBuilder> {
    let builder = match lease {
        "quorum" => Client::builder(),
        "direct" => Client::builder().lease(LeaseMode::Direct),
        _ => bail!("{lease} is no lease"),
    };
    Ok(match timeout {
        "default" => builder,
        ms => builder.session_timeout(Duration::from_millis(ms.parse().context("SESSION_MS")?)),
    })
}

async fn hold(
    builder: ClientBuilder,
    servers: &str,
    path: &str,
    number: u32,
    rides_out: bool,
) -> Result<()> {
    let client = builder.connect(servers).await?;
    let lock = Mutex::new(&client, path)?;
    let guard = lock.acquire().await?;
    if rides_out && let Err(reason) = guard.allow_jeopardy() {
        bail!("{path}: lost before it was held: {reason}");
    }
    say(clock::now(), &format!("HELD {number}"));

    // Always a moment at which the guard had not told of the loss yet.
    let mut believed = clock::now();
    let mut suspect = false;
    loop {
        let state = guard.state();
        if let State::Lost(reason) = state {
            say(believed, &format!("GONE {number} {reason:?}"));
            return future::pending().await;
        }
        if matches!(state, State::Suspect { .. }) && !suspect {
            say(clock::now(), &format!("SUSPECT {number}"));
        }
        suspect = matches!(state, State::Suspect { .. });
        believed = clock::now();
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints a line with a time.
pub(crate) fn say(at: Duration, what: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever reads it may be gone.
    let _ = writeln!(out, "{} {what}", at.as_nanos()).and_then(|()| out.flush());
}
