//! Revocation between our programs and those on Apache Curator, in both directions.

use anyhow::{Result, ensure};
use lockkeeper::revoke::{RevokeOutcome, revoke_within};
use lockkeeper::{Mutex, ZnodePath};

use crate::theirs::Language::Java;
use crate::theirs::{LIMIT, Place, Theirs};

const LOCK: &str = "/locks/orders";

#[tokio::test]
async fn a_holder_on_curator_gives_way_to_us() -> Result<()> {
    let Some(Place { connect, client }) = Place::with("revocation", &[Java]).await? else {
        return Ok(());
    };
    let mut holder = Theirs::start(Java, "Revoker", &["hold", &connect, LOCK])?;
    holder.prints("HELD\n").await?;
    let went = revoke_within(&client, &ZnodePath::new(LOCK)?, LIMIT).await?;
    ensure!(went.len() == 1 && went[0].1 == RevokeOutcome::GaveWay, "{went:?}");
    holder.ends().await?;
    ensure!(holder.process.stdout() == "HELD\nASKED\nRELEASED\n", "{}", holder.process.tail());
    Mutex::new(&client, LOCK)?.try_acquire().await?.expect("free").release().await?;
    Ok(())
}

#[tokio::test]
async fn one_of_ours_gives_way_to_a_program_on_curator() -> Result<()> {
    let Some(Place { connect, client }) = Place::with("revocation", &[Java]).await? else {
        return Ok(());
    };
    let guard = Mutex::new(&client, LOCK)?.acquire().await?;
    let node = guard.node().to_string();
    let mut asker = Theirs::start(Java, "Revoker", &["ask", &connect, &node])?;
    tokio::time::timeout(LIMIT, guard.revoke_requested()).await??;
    guard.release().await?;
    asker.ends().await
}
