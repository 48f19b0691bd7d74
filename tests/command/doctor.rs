//! `doctor` says what is wrong with a service.

use anyhow::{Context, Result};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::zookeeper;

use crate::serve::served;
use crate::support::{Ended, Home};

const SERVER: &str = "--listen 127.0.0.1:0 --durability memory";

/// Fails unless it found this, and nothing that is worse.
#[track_caller]
fn finds(ended: &Ended, part: &str) {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""), "{ended:?}");
    let faults: Vec<_> = ended.stdout.lines().filter(|line| line.starts_with("fault: ")).collect();
    assert!(faults.len() == 1 && faults[0].contains(part), "{part:?} is not all in {ended:?}");
}

#[track_caller]
fn finds_nothing(ended: &Ended) {
    ended.is_fine();
    assert!(ended.stdout.contains("nothing is wrong"), "{ended:?}");
    assert!(ended.stdout.contains("takes no lock away"), "{ended:?}");
}

#[tokio::test]
async fn a_healthy_service_is_healthy() -> Result<()> {
    let home = Home::new()?;
    let local = home.ends("doctor")?;
    finds_nothing(&local);
    assert!(local.stdout.contains("standalone"), "behind its socket too: {local:?}");

    let (_server, address) = served(&home, "s", SERVER).await?;
    let ended = home.ends(&format!("--connect {address}/teams/a doctor"))?;
    finds_nothing(&ended);
    assert!(ended.stdout.contains("lockkeeper-"), "{ended:?}");
    assert!(ended.stdout.contains("standalone"), "{ended:?}");

    let report = home.json(&format!("--connect {address} doctor"))?;
    assert_eq!(report["servers"][0]["role"], "standalone", "{report}");
    let (lease, outage) = (report["lease_ms"].as_u64(), report["outage_ms"].as_u64());
    assert!(lease.context("no lease")? > outage.context("no outage")?, "{report}");
    let left = home.ends(&format!("--connect {address} ls"))?;
    assert!(!left.stdout.contains("doctor"), "it leaves nothing: {left:?}");
    Ok(())
}

/// Both answer, and each has locks of its own: two hold what is named alike.
#[tokio::test]
async fn servers_of_two_services_are_found() -> Result<()> {
    let home = Home::new()?;
    let (_one, first) = served(&home, "one", SERVER).await?;
    let (_two, second) = served(&home, "two", &format!("{SERVER} --data-dir two")).await?;
    finds(&home.ends(&format!("--connect {first},{second} doctor"))?, "contends for other locks");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_away_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_one, first) = served(&home, "one", SERVER).await?;
    let (mut two, second) = served(&home, "two", &format!("{SERVER} --data-dir two")).await?;
    two.kill();
    finds(&home.ends(&format!("--connect {first},{second} doctor"))?, "does not answer");

    let none = home.ends(&format!("--connect {second} --connect-timeout 1s doctor"))?;
    assert_eq!(none.code, Some(75), "{none:?}");
    Ok(())
}

/// With a tick that is told too short, leases under a quorum last longer than sessions.
#[tokio::test]
async fn a_tick_that_is_told_wrongly_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = served(&home, "s", &format!("{SERVER} --tick 3s")).await?;
    let doctor = |tick| home.ends(&format!("--connect {address} --server-tick {tick} doctor"));
    finds(&doctor("2s")?, "give --server-tick 3s");
    finds_nothing(&doctor("3s")?);
    let longer = doctor("4s")?;
    finds_nothing(&longer);
    assert!(longer.stdout.contains("tick is 3 s"), "{longer:?}");
    Ok(())
}

#[tokio::test]
async fn direct_leases_of_several_servers_are_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = served(&home, "s", SERVER).await?;
    let twice = address.replace("127.0.0.1", "localhost");
    let ended = home.ends(&format!("--connect {address},{twice} --lease direct doctor"))?;
    finds(&ended, "use --lease quorum");
    Ok(())
}

#[tokio::test]
async fn an_open_znode_above_a_lock_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = served(&home, "s", SERVER).await?;
    home.runs(&format!("--connect {address} l"), "true")?.is_fine();
    let ann = format!("--connect {address} --digest ann:secret");
    finds(&home.ends(&format!("{ann} doctor l"))?, "/l: everyone may create znodes below it");
    finds_nothing(&home.ends(&format!("{ann} doctor other"))?);
    Ok(())
}

/// It said that no credentials were shown, whatever was shown.
#[tokio::test]
async fn credentials_that_an_open_list_wastes_are_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = served(&home, "s", SERVER).await?;
    let doctor = |options| home.ends(&format!("--connect {address} {options} doctor"));
    let none = doctor("")?;
    assert!(none.stdout.contains("no credentials are shown"), "{none:?}");
    let wasted = doctor("--digest ann:secret --acl open")?;
    finds_nothing(&wasted);
    assert!(!wasted.stdout.contains("no credentials"), "{wasted:?}");
    assert!(wasted.stdout.contains("--acl open"), "{wasted:?}");
    let used = doctor("--digest ann:secret")?;
    assert!(!used.stdout.contains("credentials"), "{used:?}");
    Ok(())
}

#[tokio::test]
async fn zookeeper_tells_who_it_is() -> Result<()> {
    if !peers::ready("command: doctor", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let home = Home::new()?;
    let address = zookeeper::shared_chroot().await?;
    let ended = home.ends(&format!("--connect {address} --server-tick 500ms doctor"))?;
    finds_nothing(&ended);
    assert!(ended.stdout.contains(", ZooKeeper 3."), "{ended:?}");
    Ok(())
}
