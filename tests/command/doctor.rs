//! `doctor` says what is wrong with a service.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Client, CreateMode, ErrorCode, LeaseMode, Timing, ZnodePath};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::wall_clock::WallClock;
use lockkeeper_testkit::zookeeper::{self, ZooKeeperEnsemble};

use crate::faulty::{Fault, front};
use crate::serve::{SERVER, address_of, in_memory, served};
use crate::support::{Ended, Home};

/// Fails unless it found this, and nothing that is worse.
#[track_caller]
fn finds(ended: &Ended, part: &str) {
    finds_all(ended, &[part]);
}

/// Fails unless it found each of these, in this order, and nothing that is as bad.
#[track_caller]
fn finds_all(ended: &Ended, parts: &[&str]) {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""), "{ended:?}");
    let faults: Vec<_> = ended.stdout.lines().filter(|line| line.starts_with("fault: ")).collect();
    assert_eq!(faults.len(), parts.len(), "{parts:?} are not all in {ended:?}");
    for (fault, part) in faults.iter().zip(parts) {
        assert!(fault.contains(part), "{part:?} is not {fault:?}");
    }
}

#[track_caller]
fn finds_nothing(ended: &Ended) {
    ended.is_fine();
    assert!(ended.stdout.contains("no problems found"), "{ended:?}");
    assert!(ended.stdout.contains("locks survive an outage shorter"), "{ended:?}");
}

/// An engine without room refused znodes, and the doctor said that nothing was wrong.
///
/// Fails without `of_room`.
#[tokio::test]
async fn a_full_engine_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = served(&home, "s", &format!("{SERVER} --data-budget 200000")).await?;
    let client = Client::connect(&address).await?;
    let folder = ZnodePath::new("/filled")?;
    client.create(&folder, "", CreateMode::Persistent).await?;
    let mut filled = Vec::new();
    for data in [1_000, 0] {
        let node = folder.child("n-")?;
        filled.push(loop {
            let data = vec![0; data];
            match client.create(&node, data, CreateMode::PersistentSequential).await {
                Ok(_) => {}
                Err(error) => break error.code(),
            }
        });
    }
    assert_eq!(filled, [Some(ErrorCode::QuotaExceeded); 2]);
    finds(&home.ends(&format!("--connect {address} doctor l"))?, "reject data (quota exceeded)");
    Ok(())
}

#[tokio::test]
async fn a_healthy_service_is_healthy() -> Result<()> {
    let home = Home::new()?;
    let local = home.ends("doctor")?;
    finds_nothing(&local);
    assert!(local.stdout.contains("standalone"), "behind its socket too: {local:?}");

    let (_server, address) = in_memory(&home).await?;
    let ended = home.ends(&format!("--connect {address}/teams/a doctor"))?;
    finds_nothing(&ended);
    assert!(ended.stdout.contains("lockkeeper-"), "{ended:?}");
    assert!(ended.stdout.contains("standalone"), "{ended:?}");

    let report = home.json(&format!("--connect {address} doctor"))?;
    assert_eq!(report["servers"][0]["role"], "standalone", "{report}");
    // What follows from the defaults; the suite outage measures that it is true.
    let seconds = Duration::from_secs;
    let timing = Timing::new(LeaseMode::Quorum, seconds(15), seconds(2));
    let told = |name: &str| report[name].as_u64().map(Duration::from_millis);
    let (lease, outage) = (told("lease_ms"), told("outage_ms"));
    assert_eq!((lease, outage), (Some(timing.lease()), Some(timing.outage())), "{report}");
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
    finds(&home.ends(&format!("--connect {first},{second} doctor"))?, "contend for other locks");
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

/// If the configured tick is too short, quorum leases last longer than sessions.
#[tokio::test]
async fn a_tick_that_is_told_wrongly_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = served(&home, "s", &format!("{SERVER} --tick 3s")).await?;
    let doctor = |tick| home.ends(&format!("--connect {address} --server-tick {tick} doctor"));
    finds(&doctor("2s")?, "use --server-tick 3s");
    finds_nothing(&doctor("3s")?);
    let longer = doctor("4s")?;
    finds_nothing(&longer);
    assert!(longer.stdout.contains("tick is 3 s"), "{longer:?}");
    Ok(())
}

#[tokio::test]
async fn direct_leases_of_several_servers_are_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let twice = address.replace("127.0.0.1", "localhost");
    let ended = home.ends(&format!("--connect {address},{twice} --lease direct doctor"))?;
    finds(&ended, "use --lease quorum");
    Ok(())
}

#[tokio::test]
async fn an_open_znode_above_a_lock_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
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
    let (_server, address) = in_memory(&home).await?;
    let doctor = |options| home.ends(&format!("--connect {address} {options} doctor"));
    let none = doctor("")?;
    assert!(none.stdout.contains("no credentials are configured"), "{none:?}");
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
    let doctor = |tick| home.ends(&format!("--connect {address} --server-tick {tick} doctor"));
    let ended = doctor("500ms")?;
    finds_nothing(&ended);
    assert!(ended.stdout.contains(", ZooKeeper 3."), "{ended:?}");
    finds(&doctor("400ms")?, "use --server-tick 0.5s");
    Ok(())
}

/// Three servers of a version that is known to lose transactions, as Debian has it.
#[tokio::test]
async fn an_ensemble_of_a_version_with_known_faults_is_found() -> Result<()> {
    if !peers::ready("command: doctor", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let home = Home::new()?;
    let ensemble = ZooKeeperEnsemble::start(3).await?;
    let version = ensemble.server(0).four_letter("srvr").await?;
    if !version.starts_with("Zookeeper version: 3.8.0-") {
        // The test of the judgement has these versions too.
        return Ok(());
    }
    let doctor =
        |servers: &str, options: &str| home.ends(&format!("--connect {servers} {options} doctor"));
    let all = doctor(&ensemble.connect_string(), "--server-tick 500ms")?;
    finds_all(&all, &["ZOOKEEPER-4394"; 3]);
    assert_eq!(all.stdout.matches(", follower").count(), 2, "{all:?}");
    assert!(!all.stdout.contains("does not report"), "{all:?}");

    let one = doctor(&ensemble.server(0).connect_string(), "--lease direct")?;
    finds_all(&one, &["ZOOKEEPER-4394", "use --lease quorum"]);
    assert!(one.stdout.contains("name the others as well"), "{one:?}");
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_too_old_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let old = |answer: &str| {
        let (_, rest) = answer.split_once('\n').unwrap_or_default();
        format!("Zookeeper version: 3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf\n{rest}")
    };
    let address = front(&address, Fault::says(old))?;
    finds(&home.ends(&format!("--connect {address} doctor"))?, "3.5.0 is the oldest supported");
    Ok(())
}

/// No real server can be made to have other data than its leader: this one says that it had.
#[tokio::test]
async fn other_data_than_the_leaders_is_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) =
        served(&home, "s", &format!("{SERVER} --four-letter-words mntr")).await?;
    for (count, found) in [(0, false), (2, true)] {
        let says = move |answer: &str| format!("{answer}zk_digest_mismatches_count\t{count}\n");
        let address = front(&address, Fault::says(says))?;
        let ended = home.ends(&format!("--connect {address} doctor"))?;
        match found {
            true => finds(&ended, "had 2 times other data than its leader"),
            false => finds_nothing(&ended),
        }
    }
    Ok(())
}

/// Locks would be lost on it, as its answers take longer than an eighth of the session timeout.
#[tokio::test]
async fn slow_answers_and_commits_are_found() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = served(&home, "s", &format!("{SERVER} --tick 500ms")).await?;
    let address = front(&address, Fault::Slow(Duration::from_millis(300)))?;
    let options = "--server-tick 500ms --session-timeout 2s";
    let ended = home.ends(&format!("--connect {address} {options} doctor"))?;
    finds_all(&ended, &["to answer; locks stay held if no answer takes", "a commit took "]);
    Ok(())
}

/// Leases do not depend on it, so it is not a fault.
#[tokio::test]
async fn a_clock_that_is_wrong_is_told() -> Result<()> {
    if !peers::ready("command: doctor", &[Peer::WallClock]) {
        return Ok(());
    }
    let home = Home::new()?;
    let clock = WallClock::new("server", home.folder())?;
    let mut command = home.command(&format!("serve {SERVER}"));
    clock.show_to(&mut command);
    let mut server = Process::spawn("s", &command, home.folder())?;
    let address = address_of(&mut server)?;
    for (seconds, says) in
        [(-3_600, "differs from ours by 3600 s"), (60, "differs from ours by 60 s")]
    {
        clock.jump_to(seconds)?;
        let ended = home.ends(&format!("--connect {address} doctor"))?;
        finds_nothing(&ended);
        assert!(ended.stdout.contains(says), "{says:?} is not in {ended:?}");
    }
    clock.jump_to(0)?;
    let ended = home.ends(&format!("--connect {address} doctor"))?;
    assert!(!ended.stdout.contains("clock"), "{ended:?}");
    Ok(())
}
