//! The data of a server is restored from a backup while holders are in jeopardy. Others may have held
//! the locks since, although the backup contains the holders' nodes and sessions.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Client, HolderState, LossReason, Mutex};

use crate::pause::{COUNT, count};
use crate::serve::served;
use crate::support::{Home, LIMIT, eventually};

/// What is done to the data while its server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Nothing,
    /// `engine restore`.
    Restored,
}

/// Without this, the tests below would prove nothing.
#[tokio::test]
async fn a_server_that_comes_back_with_its_data_has_the_holders_go_on() -> Result<()> {
    ends(Done::Nothing).await
}

/// Fails when the backup only gets the name of the directory, which leaves its sessions in it.
#[tokio::test]
async fn a_restore_during_a_jeopardy_ends_it_with_a_loss() -> Result<()> {
    ends(Done::Restored).await
}

/// Looks how a guard of the library and a command come out of an outage with that in it.
async fn ends(done: Done) -> Result<()> {
    let home = Home::new()?;
    let serve = |address: &str| format!("--listen {address} --tick 200ms --data-dir data");
    let (mut server, address) = served(&home, "first", &serve("127.0.0.1:0")).await?;
    let client = Client::builder()
        .session_timeout(Duration::from_secs(4))
        .server_tick(Duration::from_millis(200))
        .connect(&address)
        .await?;
    let guard = Mutex::new(&client, "/orders")?.acquire().await?;
    guard.allow_jeopardy()?;
    let options = format!(
        "--connect {address} --server-tick 200ms --session-timeout 4s --on-outage pause jobs"
    );
    let mut command = home.says("\n", "command", &options, COUNT).await?;

    // It has both nodes and both sessions, and is older than what the holders have seen.
    home.ends("engine backup data backup")?.is_fine();
    guard.verify().await?;
    server.kill();
    guard.jeopardy().await?;
    eventually("it stands still", || Ok(command.stderr().contains("the command is paused")))?;
    let counted = count(&home)?;
    if done == Done::Restored {
        home.ends("engine restore --replace --quiet-time 0s backup data")?.is_fine();
    }

    let (_server, _) = served(&home, "second", &serve(&address)).await?;
    let again = tokio::time::timeout(LIMIT, guard.held_again()).await?;
    if done == Done::Nothing {
        assert_eq!((again, guard.state()), (Ok(()), HolderState::Held));
        guard.verify().await?;
        eventually("it goes on", || Ok(count(&home)? > counted))?;
        fs::write(home.folder().join("go"), "")?;
        assert_eq!(command.end(LIMIT).await?.code(), Some(5), "{}", command.tail());
        return Ok(());
    }
    let lost = again.expect_err("the lock was given back to it");
    assert_eq!(guard.state(), HolderState::Lost(lost));
    assert_eq!(lost, LossReason::SessionExpired);
    assert_eq!(command.end(LIMIT).await?.code(), Some(79), "{}", command.tail());
    assert_eq!(count(&home)?, counted, "it ran after the deadline");
    let next = Mutex::new(&client, "/orders")?.acquire().await?;
    assert!(next.token() > guard.token(), "{} after {}", next.token(), guard.token());
    assert_eq!(guard.state(), HolderState::Lost(lost), "for good");
    Ok(())
}
