//! `status`: everything below a path, and what looks wrong.

use std::fs;

use anyhow::Result;

use crate::support::{Home, LIMIT, eventually};

#[tokio::test]
async fn each_recipe_is_shown_and_what_looks_wrong_is_a_warning() -> Result<()> {
    let home = Home::new()?;
    assert_eq!(
        home.ends("status")?.stdout,
        "no warnings\nlocks: 0 held, 0 waiting for 0 of them\n"
    );
    home.ends("queue put jobs a --id one")?.is_fine();
    home.ends("queue bury jobs one --reason broken")?.is_fine();
    home.ends("queue put jobs b")?.is_fine();
    let _lock = home.holds("lock", "f/lock").await?;
    let _waits = home.starts("waits", "f/lock", "true")?;
    home.in_line("f/lock", 2)?;
    let _thing = home.says("held", "thing", "--one-of gpu/0 gpu/1", "echo held; sleep 60").await?;
    let mut member = home.spawns("member", "members join f/group --name m")?;
    member.prints("is a member", LIMIT).await?;
    let _leader = home.spawns("leader", "elect f/leader --name first -- sleep 60")?;
    eventually("it leads", || Ok(home.ends("leader f/leader")?.code == Some(0)))?;

    let shown = home.json("status")?;
    let names = |list: &str| -> Vec<String> {
        let rows = shown[list].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["path"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names("queues"), ["/jobs"], "{shown}");
    assert_eq!(names("pools"), ["/gpu"], "{shown}");
    assert_eq!(names("groups"), ["/f/group"], "{shown}");
    assert_eq!(names("elections"), ["/f/leader"], "{shown}");
    assert_eq!(shown["elections"][0]["leader"]["id"], "first", "{shown}");
    assert_eq!(shown["locks"]["waiters"], 1, "{shown}");
    let warnings = shown["warnings"].as_array().cloned().unwrap_or_default();
    let kinds: Vec<_> = warnings.iter().map(|it| it["warning"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["no_consumers", "dead_letters"], "{shown}");
    let waits = |session: &serde_json::Value| session["waits"] == serde_json::json!(["/f/lock"]);
    let sessions = shown["sessions"].as_array().cloned().unwrap_or_default();
    assert_eq!(sessions.iter().filter(|it| waits(it)).count(), 1, "{shown}");

    let text = home.ends("status")?.stdout;
    for part in ["warning: /jobs has 1 dead letter\n", "SESSION", "ELECTION", "first", "POOL"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!(home.ends("status --exit-code")?.code, Some(1));
    assert_eq!(home.ends("status f --exit-code")?.code, Some(0));
    let long = home.ends("status f --long 1ms")?.stdout;
    assert!(long.contains("a contender has waited for /f/lock for "), "{long}");
    Ok(())
}

#[tokio::test]
async fn what_is_usual_comes_from_a_recording() -> Result<()> {
    let home = Home::new()?;
    let _lock = home.holds("lock", "l").await?;
    let node = home.json("show l")?["contenders"][0]["node"].as_str().unwrap().to_owned();
    let line = |event: &str, node: &str, at: u64, lasted: u64| {
        let line = serde_json::json!({
            "at_unix_ms": at, "event": event, "lock": "/l", "node": node, "lasted_ms": lasted,
        });
        format!("{line}\n")
    };
    let mut history: String = (0..5).map(|_| line("ended", "/l/x", 1_000, 1_000)).collect();
    history.push_str(&line("granted", &node, 2_000, 0));
    fs::write(home.folder().join("history"), history)?;
    let text = home.ends("status --file history")?.stdout;
    assert!(
        text.contains("warning: /l has been held for ") && text.contains(", usually 1s\n"),
        "{text}"
    );
    fs::write(home.folder().join("history"), "no history\n")?;
    home.ends("status --file history")?.complains(65, &["history"]);
    Ok(())
}
