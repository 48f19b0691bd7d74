//! `ls` and `show`: who holds and who waits.

use anyhow::{Context, Result};
use lockkeeper::{CreateMode, ZnodePath};

use crate::support::{Ended, Home, LIMIT};

#[tokio::test]
async fn holders_and_waiters_are_shown() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.starts("holder", "a/b", "echo held; exec sleep 60")?;
    holder.prints("held", LIMIT).await?;
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
    let mut holder = home.starts("holder", "l", "echo held; exec sleep 60")?;
    holder.prints("held", LIMIT).await?;
    let client = home.client().await?;
    client.create(&ZnodePath::new("/l/config")?, "x", CreateMode::Persistent).await?;
    let shown = home.json("show l")?;
    assert_eq!(shown["foreign"], serde_json::json!(["config"]));
    let text = home.ends("show l")?.stdout;
    assert!(text.contains("not contenders") && text.contains("config"), "{text}");
    client.close().await;
    Ok(())
}

/// It was shown as a holder like others, and whoever waited for it waited for good.
#[tokio::test]
async fn a_holder_that_no_sessions_end_deletes_is_told() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let client = home.client().await?;
    client.ensure(&ZnodePath::new("/l")?, CreateMode::Container).await?;
    let left = ZnodePath::new("/l/x-lock-")?;
    let left = client.create(&left, "", CreateMode::PersistentSequential).await?.path;

    let text = home.ends("show l")?.stdout;
    assert!(text.contains("not ephemeral"), "{text}");
    let parts = ["/l is taken by", left.as_str(), "not ephemeral", "delete it"];
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
        "lockkeeper: LOCKKEEPER_LOG: `lockkeeper=loud` is neither a level nor like target=level\n";
    assert_eq!(log("lockkeeper=loud")?, told);
    let both = log("lockkeeper=loud,debug")?;
    assert!(both.starts_with(told) && both.contains("DEBUG"), "{both}");
    let mistyped = ["debgu", "lockkeeper=", "=debug", "lockkeeper =debug", "[commit]=debug"];
    for part in mistyped {
        assert!(log(part)?.contains(&format!("`{part}` is neither a level")), "{part}");
    }
    Ok(())
}
