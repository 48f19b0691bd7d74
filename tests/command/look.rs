//! `ls` and `show`: holders and waiters.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockkeeper::{CreateMode, ExclusiveNode, Mutex, ZnodePath};

use crate::support::{Ended, Home, LIMIT, eventually};

#[tokio::test]
async fn holders_and_waiters_are_shown() -> Result<()> {
    let home = Home::new()?;
    let holder = home.holds("holder", "a/b").await?;
    let _waiter = home.starts("waiter", "a/b", "true")?;
    home.in_line("a/b", 2)?;

    let shown = home.json("show a/b")?;
    assert_eq!((&shown["lock"], &shown["exists"]), (&"/a/b".into(), &true.into()));
    let contenders = shown["contenders"].as_array().context("an array")?;
    for (index, (entry, state)) in contenders.iter().zip(["holds", "waits"]).enumerate() {
        assert_eq!(entry["position"], index + 1);
        assert_eq!(entry["state"], state);
        assert_eq!(entry["kind"], "exclusive");
        assert_eq!(entry["owner"]["program"], "lockkeeper");
        assert!(entry["token"].as_str().is_some_and(|token| token.parse::<i64>().is_ok()));
        assert!(entry["session"].as_str().is_some_and(|session| session.starts_with("0x")));
        assert!(entry["since_unix_ms"].is_u64() && entry["age_ms"].is_u64());
        assert!(entry["node"].as_str().is_some_and(|node| node.starts_with("/a/b/_c_")));
    }
    assert_eq!(contenders[0]["owner"]["pid"], holder.id());
    assert_eq!(contenders[0]["owner"]["label"], "sh");

    let text = home.ends("show a/b")?.stdout;
    assert!(text.contains("/a/b: held, 1 waiting"), "{text}");
    assert!(text.contains(&format!("pid {} (sh)", holder.id())), "{text}");

    let listed = home.json("ls")?;
    assert_eq!(listed["locks"][0]["lock"], "/a/b");
    assert_eq!(
        (&listed["locks"][0]["holders"], &listed["locks"][0]["waiters"]),
        (&1.into(), &1.into())
    );
    let text = home.ends("ls /a")?.stdout;
    assert!(text.contains("/a/b") && text.contains(&format!("pid {}", holder.id())), "{text}");
    Ok(())
}

#[test]
fn a_free_lock_is_free() -> Result<()> {
    let home = Home::new()?;
    assert_eq!(home.ends("show nothing")?.stdout, "/nothing: free\n");
    assert_eq!(home.json("show nothing")?["exists"], false);
    assert_eq!(home.ends("ls")?.stdout, "no lock below / is held\n");
    assert_eq!(home.json("ls nothing")?["locks"], serde_json::json!([]));
    Ok(())
}

#[tokio::test]
async fn what_is_no_contender_is_flagged() -> Result<()> {
    let home = Home::new()?;
    let _holder = home.holds("holder", "l").await?;
    let client = home.client().await?;
    client.create(&ZnodePath::new("/l/config")?, "x", CreateMode::Persistent).await?;
    let shown = home.json("show l")?;
    assert_eq!(shown["foreign"], serde_json::json!(["config"]));
    let text = home.ends("show l")?.stdout;
    assert!(text.contains("not contenders") && text.contains("config"), "{text}");
    client.close().await;
    Ok(())
}

/// Symptom: it was shown like other holders, and programs waited for it forever.
#[tokio::test]
async fn a_holder_that_no_sessions_end_deletes_is_told() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let client = home.client().await?;
    client.ensure(&ZnodePath::new("/l")?, CreateMode::Container).await?;
    let left = ZnodePath::new("/l/x-lock-")?;
    let left = client.create(&left, "", CreateMode::PersistentSequential).await?.path;

    let text = home.ends("show l")?.stdout;
    assert!(text.contains("persistent node"), "{text}");
    let parts = ["/l is blocked by", left.as_str(), "not ephemeral", "delete it"];
    home.ends("run -q l -- true")?.complains(65, &parts);
    home.ends("revoke --force-after 0s l")?.is_fine();
    home.runs("l", "true")?.is_fine();
    client.close().await;
    Ok(())
}

/// What other libraries wrote must not move the user's cursor.
#[tokio::test]
async fn the_data_of_others_is_shown_without_its_control_characters() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let client = home.client().await?;
    client.ensure(&ZnodePath::new("/l")?, CreateMode::Container).await?;
    let node = ZnodePath::new("/l/x-lock-")?;
    client.create(&node, "10.0.0.7\u{1b}[2J", CreateMode::EphemeralSequential).await?;
    let text = home.ends("show l")?.stdout;
    assert!(text.contains("10.0.0.7") && !text.contains('\u{1b}'), "{text:?}");
    client.close().await;
    Ok(())
}

/// Symptom: `show` said free, `wait` returned, `ls` listed nothing, and `revoke` found no holder.
#[tokio::test]
async fn a_lock_that_is_one_node_is_seen() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let client = home.client().await?;
    let ours = ExclusiveNode::builder(&client, "/node").label("nightly").build()?.acquire().await?;
    let theirs = ZnodePath::new("/controller")?;
    client.create(&theirs, "broker 3", CreateMode::Ephemeral).await?;

    for (lock, who) in [("node", "(nightly)"), ("controller", "broker 3")] {
        let text = home.ends(&format!("show {lock}"))?.stdout;
        assert!(text.contains(&format!("/{lock}: held, no waiters")), "{text}");
        assert!(text.contains(who), "{text}");
        let shown = home.json(&format!("show {lock}"))?;
        let holder = &shown["contenders"][0];
        assert_eq!((&holder["state"], &holder["kind"]), (&"holds".into(), &"exclusive".into()));
        assert_eq!(holder["node"], format!("/{lock}"));
        home.ends(&format!("wait -w 0 {lock}"))?.complains(1, &["is not free", "held by", who]);
        home.ends(&format!("run -n {lock}/below -- true"))?
            .complains(65, &["would be below", "lock in use"]);
        home.ends(&format!("run -n {lock} -- true"))?.complains(65, &[lock, "held as one znode"]);
    }
    let token = home.json("show node")?["contenders"][0]["token"].clone();
    assert_eq!(token, ours.token().to_string());
    let listed = home.json("ls")?;
    let listed = listed["locks"].as_array().context("an array")?;
    let locks: Vec<_> = listed.iter().map(|lock| (&lock["lock"], &lock["holders"])).collect();
    assert_eq!(locks, [(&"/controller".into(), &1.into()), (&"/node".into(), &1.into())]);

    let asked = home.ends("revoke node")?;
    assert!(asked.code == Some(0) && asked.stdout.contains("was asked"), "{asked:?}");
    ours.revoke_requested().await?;
    let vain = home.ends("revoke controller")?;
    assert_eq!(vain.code, Some(1), "{vain:?}");
    assert!(vain.stdout.contains("does not support requests; use --force-after"), "{vain:?}");
    assert_eq!(&client.data(&theirs).await?.0[..], b"broker 3");
    let forced = home.json("revoke --force-after 0s controller")?;
    assert_eq!(forced["holders"][0]["outcome"], "forced");
    home.ends("wait controller")?.is_fine();

    let mut waiting = home.spawns("wait", "wait node")?;
    eventually("it waits", || {
        Ok(waiting.stderr().contains("waiting until /node is free, held by"))
    })?;
    ours.release().await?;
    assert_eq!(waiting.end(LIMIT).await?.code(), Some(0), "{}", waiting.tail());
    client.close().await;
    Ok(())
}

/// Symptom: a lock that its last holder had left with a lock delay looked free, and `run -n` did not
/// give a reason.
#[tokio::test]
async fn a_lock_delay_is_shown() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let client = home.client().await?;
    let lock = Mutex::builder(&client, "/l").lock_delay(Duration::from_secs(600)).label("nightly");
    let guard = lock.build()?.acquire().await?;
    assert_eq!(home.json("show l")?["delay"], serde_json::Value::Null);
    let node = guard.node().to_string();
    client.close().await;
    home.in_line("l", 0)?;

    let parts = ["its last holder,", "(nightly), ended without releasing it", "lock delay of 10m"];
    let text = home.ends("show l")?.stdout;
    assert!(text.starts_with("/l: not free\n") && parts.iter().all(|p| text.contains(p)), "{text}");
    let delay = &home.json("show l")?["delay"];
    assert_eq!((&delay["delay_ms"], &delay["waited_out"]), (&600_000.into(), &false.into()));
    assert_eq!((&delay["left_by"], &delay["owner"]["label"]), (&node.into(), &"nightly".into()));
    assert!(home.ends("ls")?.stdout.contains("lock delay of 10m"));
    assert_eq!(home.json("ls")?["locks"][0]["delay"], *delay);
    home.ends("wait -w 0 l")?.complains(1, &parts);
    let refused = home.ends("run -n --lock-delay 1s l -- true")?;
    refused.complains(1, &parts);
    refused.complains(1, &["9m 59s of its lock delay", "without -n"]);
    home.ends("run -w 10ms --lock-delay 1s l -- true")?.complains(1, &parts);
    // Runs without a delay of their own obey it, and other kinds of locks do not take the path.
    home.ends("run -n l -- true")?.complains(1, &parts);
    home.ends("run -w 10ms l -- true")?.complains(1, &parts);
    for kind in ["--shared", "--write", "--permits 2"] {
        home.ends(&format!("run -q {kind} l -- true"))?.complains(65, &parts);
    }

    let _waiter = home.starts("waiter", "--lock-delay 1s l", "true")?;
    home.in_line("l", 1)?;
    let text = home.ends("show l")?.stdout;
    assert!(
        text.contains("not held, 1 waiting") && text.contains("at most 10m are left"),
        "{text}"
    );
    assert_eq!(home.json("show l")?["contenders"][0]["state"], "waits");
    assert_eq!(home.json("show l")?["delay"]["waited_out"], true);
    Ok(())
}

#[tokio::test]
async fn a_lock_delay_is_waited_for() -> Result<()> {
    const DELAY: Duration = Duration::from_millis(1500);
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let client = home.client().await?;
    let _guard = Mutex::builder(&client, "/l").lock_delay(DELAY).build()?.acquire().await?;
    client.close().await;
    home.in_line("l", 0)?;
    let start = Instant::now();
    let ended = home.ends("wait l")?;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(start.elapsed() >= DELAY);
    home.ends("run -n l -- true")?.is_fine();
    Ok(())
}

#[test]
fn the_log_is_as_detailed_as_asked_for() -> Result<()> {
    let home = Home::new()?;
    let log = |filter: &str| -> Result<String> {
        let ended = Ended::of(home.command("ls").env("LOCKKEEPER_LOG", filter))?;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        Ok(ended.stderr)
    };
    assert_eq!(log("")?, "");
    assert!(log("debug")?.contains("DEBUG"));
    assert!(log("off,lockkeeper_client=debug")?.contains("DEBUG"));
    assert_eq!(log("debug,lockkeeper_client=off")?, "");
    assert!(log(" off , lockkeeper_client=debug,")?.contains("DEBUG"));
    // Not understood, and said so; the rest counts.
    let told =
        "lockkeeper: LOCKKEEPER_LOG: `lockkeeper=loud` is neither a level nor target=level\n";
    assert_eq!(log("lockkeeper=loud")?, told);
    let both = log("lockkeeper=loud,debug")?;
    assert!(both.starts_with(told) && both.contains("DEBUG"), "{both}");
    let mistyped = ["debgu", "lockkeeper=", "=debug", "lockkeeper =debug", "[commit]=debug"];
    for part in mistyped {
        assert!(log(part)?.contains(&format!("`{part}` is neither a level")), "{part}");
    }
    Ok(())
}
