//! Spans and events, as a program's subscriber sees them.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lockkeeper::{Mutex as Lock, RwLock, ZnodePath, revoke};
use lockkeeper_testkit::backend::children_reach;
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{LOCK, rehearsed, run};

/// What a subscriber has written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Shows everything on this thread from here on: one line for each event, and one when a span is closed.
    fn start(level: Level) -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self, with: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        text.lines().filter(|line| line.contains(with)).map(str::to_owned).collect()
    }

    /// The only line with this.
    #[track_caller]
    fn line(&self, with: &str) -> String {
        let mut lines = self.lines(with);
        assert_eq!(lines.len(), 1, "{with}: {lines:#?} of {:#?}", self.lines(""));
        lines.remove(0)
    }
}

#[track_caller]
fn contains(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn a_span_tells_how_a_call_went() -> Result<()> {
    run(|backend, _| async move {
        let (log, _guard) = Log::start(Level::DEBUG);
        let (one, other) = (backend.observer().await?, backend.observer().await?);
        let guard = Lock::new(&one, LOCK)?.acquire().await?;
        let token = format!("token={}", guard.token());
        let span = log.line("close");
        contains(&span, &["DEBUG acquire{lock=/locks/orders", r#"kind="exclusive""#]);
        contains(&span, &["position=1", r#"outcome="granted""#, "waited_seconds=", &token]);
        contains(&log.line(" granted"), &["acquire{", "lock=/locks/orders", &token]);

        // The second in line; while it waits, what others log is not in its span.
        let lock = Lock::new(&other, LOCK)?;
        let waiting = tokio::spawn(async move { lock.acquire().await });
        children_reach(&one, &ZnodePath::new(LOCK)?, 2).await?;
        tracing::info!("meanwhile");
        assert!(!log.line("meanwhile").contains("acquire{"));
        assert_eq!(log.lines("close").len(), 1);
        guard.release().await?;
        contains(&log.line(" released"), &["DEBUG", "lock=/locks/orders", &token]);
        let next = waiting.await??;
        contains(&log.lines("close")[1], &["position=2", r#"outcome="granted""#]);

        let lock = RwLock::new(&one, "/locks/prices")?;
        let _reader = lock.read().await?;
        assert!(lock.try_write().await?.is_none());
        contains(&log.lines("close")[3], &[r#"kind="write""#, "position=2", r#"outcome="taken""#]);
        assert!(lock.write_timeout(Duration::from_millis(20)).await.is_err());
        contains(&log.lines("close")[4], &[r#"kind="write""#, r#"outcome="given_up""#]);
        next.release().await?;
        Ok(())
    })
}

#[test]
fn a_loss_is_a_warning_also_if_nothing_has_noticed_it() -> Result<()> {
    run(|backend, _| async move {
        let (log, _guard) = Log::start(Level::WARN);
        let (client, rehearsal) = rehearsed(&backend).await?;
        let guard = Lock::new(&client, LOCK)?.acquire().await?;
        let parts = ["WARN", "lock=/locks/orders", &format!("token={}", guard.token())];
        let session = client.session_id();
        rehearsal.expire_session().await?;
        let mut status = client.status();
        status.wait_for(|status| status.session != session).await?;
        assert!(log.lines("a lock is lost").is_empty());
        drop(guard);
        let line = log.line("a lock is lost");
        contains(&line, &parts);
        contains(&line, &["reason=the session expired", "held_seconds="]);
        assert!(log.lines("acquire").is_empty() && log.lines("released").is_empty());
        Ok(())
    })
}

#[test]
fn a_request_to_release_the_lock_is_an_event() -> Result<()> {
    run(|backend, _| async move {
        let (log, _guard) = Log::start(Level::INFO);
        let (one, other) = (backend.observer().await?, backend.observer().await?);
        let guard = Lock::new(&one, LOCK)?.acquire().await?;
        let asked = guard.revoke_requested();
        revoke::revoke(&other, guard.node()).await.context("a request")?;
        asked.await?;
        contains(&log.line("another program asks"), &["INFO", "lock=/locks/orders", "token="]);
        guard.release().await?;
        Ok(())
    })
}
