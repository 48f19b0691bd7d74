//! `graph`: the waits-for graph, and `run --detect-deadlocks`.

use anyhow::Result;
use lockkeeper_testkit::process::Process;

use crate::support::{Home, LIMIT};

/// Starts a run that holds `outer`, and acquires `inner` on command.
async fn nested(home: &Home, outer: &str, inner: &str, options: &str) -> Result<Process> {
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let script = format!(
        "echo held; until test -e go-{outer}; do sleep 0.02; done; {} run {options} {inner} -- true; echo inner $?",
        program.display()
    );
    home.says("held", outer, &format!("-q {outer}"), &script).await
}

fn go(home: &Home, outer: &str, inner: &str) -> Result<()> {
    std::fs::write(home.folder().join(format!("go-{outer}")), "")?;
    home.in_line(inner, 2)
}

/// Nothing showed that scripts which hold one lock and ask for the other wait for ever.
#[tokio::test]
async fn a_deadlock_of_scripts_is_shown_and_the_one_that_asks_gives_up() -> Result<()> {
    let home = Home::new()?;
    let mut first = nested(&home, "a", "b", "-q").await?;
    let mut second = nested(&home, "b", "a", "-q --detect-deadlocks -E 9").await?;
    go(&home, "a", "b")?;
    assert_eq!(home.ends("graph --cycles")?.code, Some(0), "one of them does not wait");
    let text = home.ends("graph")?.stdout;
    assert!(text.contains("BLOCKER") && text.contains("/b"), "{text}");

    // Only the first second of the wait is sure to show it.
    go(&home, "b", "a")?;
    let shown = home.ends("graph --cycles --json")?;
    if shown.code == Some(1) {
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout)?;
        let steps = shown["deadlocks"][0]["steps"].as_array().cloned().unwrap_or_default();
        assert_eq!(steps.len(), 2, "{shown}");
        assert_eq!(shown["deadlocks"][0]["certain"], true, "{shown}");
        assert!(steps.iter().all(|step| step["because"] == "command"), "{shown}");
    }
    for (process, code) in [(&mut second, 9), (&mut first, 0)] {
        assert_eq!(process.end(LIMIT).await?.code(), Some(0), "{}", process.tail());
        assert!(process.stdout().contains(&format!("inner {code}\n")), "{}", process.tail());
    }
    let told = second.stderr();
    assert!(told.contains("deadlock: ") && told.contains("gave up waiting for /a"), "{told}");
    assert_eq!(home.ends("graph --cycles")?.code, Some(0));
    Ok(())
}

#[tokio::test]
async fn a_deadlock_that_nobody_leaves_is_shown_until_somebody_does() -> Result<()> {
    let home = Home::new()?;
    let mut first = nested(&home, "a", "b", "-q -w 60").await?;
    let mut second = nested(&home, "b", "a", "-q -w 60").await?;
    go(&home, "a", "b")?;
    go(&home, "b", "a")?;
    let shown = home.ends("graph --cycles")?;
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(shown.stdout.starts_with("deadlock:\n"), "{shown:?}");
    assert_eq!(shown.stdout.matches("whose command waits").count(), 2, "{shown:?}");
    let dot = home.ends("graph --dot")?.stdout;
    assert!(dot.starts_with("digraph") && dot.matches("color=red").count() == 2, "{dot}");
    assert_eq!(dot.matches("style=dashed").count(), 2, "{dot}");
    first.kill();
    second.end(LIMIT).await?;
    Ok(())
}

#[tokio::test]
async fn the_holder_with_the_most_waiters_comes_first() -> Result<()> {
    let home = Home::new()?;
    assert_eq!(home.ends("graph")?.stdout, "no program waits for a lock below /\n");
    let _small = home.holds("small", "small").await?;
    let _large = home.holds("large", "large").await?;
    let _one = home.starts("one", "small", "true")?;
    let _two = [home.starts("two", "large", "true")?, home.starts("three", "large", "true")?];
    home.in_line("small", 2)?;
    home.in_line("large", 3)?;
    let shown = home.json("graph")?;
    let blockers = shown["blockers"].as_array().cloned().unwrap_or_default();
    assert_eq!(blockers.len(), 2, "{shown}");
    assert_eq!((&blockers[0]["lock"], &blockers[0]["waiters"]), (&"/large".into(), &2.into()));
    let waits = shown["waits"].as_array().map(Vec::len);
    assert_eq!((waits, &shown["deadlocks"]), (Some(3), &serde_json::json!([])), "{shown}");
    Ok(())
}
