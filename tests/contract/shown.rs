//! What is shown of a client.

use anyhow::Result;
use lockkeeper_testkit::backend::Backend;

/// Symptom: the debug output of a guard, which may be logged, contained the session's password. With it,
/// any client can end the session and acquire the lock.
///
/// Fails with what the compiler derives.
#[tokio::test]
async fn no_secret_is_shown_with_a_guard() -> Result<()> {
    let backend = Backend::embedded().await?;
    let alice = backend.participant().await?;
    alice.client.authenticate("digest", "alice:wonderland");
    let guard = crate::mutex(&alice)?.acquire().await?;
    let shown = format!("{guard:?} {:?}", alice.client);
    let session = format!("session {}", guard.session());
    assert!(shown.contains("/locks/orders") && shown.contains(&session), "{shown}");
    for secret in ["password", "wonderland"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    Ok(())
}
