//! Revocation between our programs and those on Apache Curator, in both directions, on a real
//! ZooKeeper.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use lockkeeper::revoke::{RevokeOutcome, revoke_within};
use lockkeeper::{Client, Mutex, ZnodePath};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{java, scratch};

const LOCK: &str = "/locks/orders";
const LIMIT: Duration = Duration::from_secs(60);

/// The program on Curator. To be made before a lock is held: the compiler holds up everything else
/// of a test, heartbeats too.
fn curator() -> Result<java::Program> {
    java::Program::compile(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/CuratorRevoker.java"),
    )
}

fn start(program: &java::Program, folder: &Path, arguments: [&str; 3]) -> Result<Process> {
    let mut command = program.command();
    command.args(arguments);
    Process::spawn(arguments[0], &command, folder)
}

#[tokio::test]
async fn a_holder_on_curator_gives_way_to_us() -> Result<()> {
    if !peers::ready("revocation: Curator holds", &[Peer::ZooKeeper, Peer::Curator]) {
        return Ok(());
    }
    let (connect, folder) = (shared_chroot().await?, scratch::folder()?);
    let mut holder = start(&curator()?, folder.path(), ["hold", &connect, LOCK])?;
    holder.prints("HELD\n", LIMIT).await?;
    let client = Client::connect(&connect).await?;
    let went = revoke_within(&client, &ZnodePath::new(LOCK)?, LIMIT).await?;
    ensure!(went.len() == 1 && went[0].1 == RevokeOutcome::GaveWay, "{went:?}");
    ensure!(holder.end(LIMIT).await?.success(), "{}", holder.tail());
    ensure!(holder.stdout() == "HELD\nASKED\nRELEASED\n", "{}", holder.tail());
    Mutex::new(&client, LOCK)?.try_acquire().await?.expect("free").release().await?;
    Ok(())
}

#[tokio::test]
async fn one_of_ours_gives_way_to_a_program_on_curator() -> Result<()> {
    if !peers::ready("revocation: Curator asks", &[Peer::ZooKeeper, Peer::Curator]) {
        return Ok(());
    }
    let (connect, folder, program) = (shared_chroot().await?, scratch::folder()?, curator()?);
    let client = Client::connect(&connect).await?;
    let guard = Mutex::new(&client, LOCK)?.acquire().await?;
    let node = guard.node().to_string();
    let mut asker = start(&program, folder.path(), ["ask", &connect, &node])?;
    tokio::time::timeout(LIMIT, guard.revoke_requested()).await??;
    guard.release().await?;
    ensure!(asker.end(LIMIT).await?.success(), "{}", asker.tail());
    Ok(())
}
