//! `record` and `why`: what has happened to a lock.

use std::fs;

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Home, LIMIT, eventually};

/// A recorder that has begun.
fn recorder(home: &Home, options: &str) -> Result<Process> {
    let recorder = home.spawns("recorder", &format!("record --file history {options}"))?;
    eventually("the recording begins", || Ok(lines(home)?.contains("recording_began")))?;
    Ok(recorder)
}

fn lines(home: &Home) -> Result<String> {
    Ok(fs::read_to_string(home.folder().join("history")).unwrap_or_default())
}

/// The events of a lock, as soon as there are so many.
fn events(home: &Home, lock: &str, count: usize) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    eventually(&format!("{count} events of {lock}"), || {
        let ended = home.ends(&format!("why {lock} --file history --json"))?;
        let shown: Value = serde_json::from_str(&ended.stdout)?;
        found = shown["events"].as_array().cloned().context("an array")?;
        Ok(found.len() >= count)
    })?;
    Ok(found)
}

#[tokio::test]
async fn a_history_tells_who_had_the_lock_and_who_waited() -> Result<()> {
    let home = Home::new()?;
    let mut recorder = recorder(&home, "")?;
    let mut holder = home.holds("holder", "a/b").await?;
    let until_told = "until test -e go; do sleep 0.02; done";
    let mut waiter = home.starts("waiter", "a/b", until_told)?;
    home.in_line("a/b", 2)?;
    home.ends("revoke a/b --reason upgrade")?.is_fine();
    holder.end(LIMIT).await?;
    // A hold that begins and ends between two reads of the recorder would not be in the history.
    events(&home, "a/b", 6)?;
    fs::write(home.folder().join("go"), "")?;
    waiter.end(LIMIT).await?;

    let found = events(&home, "a/b", 7)?;
    let told: Vec<_> = found.iter().map(|line| line["event"].as_str().unwrap_or("")).collect();
    let expected = ["recording_began", "granted", "waits", "asked", "ended", "granted", "ended"];
    assert_eq!(told, expected, "{found:#?}");
    let who = |index: usize| found[index]["node"].as_str().unwrap_or("").to_owned();
    assert_eq!([who(1), who(3), who(4)], [who(1), who(1), who(1)], "{found:#?}");
    assert_eq!([who(2), who(5), who(6)], [who(2), who(2), who(2)], "{found:#?}");
    assert!(found[3]["request"].as_str().is_some_and(|it| it.contains("upgrade")), "{found:#?}");
    // What it saw the beginning of has a length, and the waiter waited as long as the holder was before it.
    assert!(found[4]["lasted_ms"].is_u64() && found[5]["lasted_ms"].is_u64(), "{found:#?}");

    // A contender is not a lock of its own.
    let all = lines(&home)?;
    assert_eq!(all.matches("granted").count(), 2, "{all}");
    let pid = Pid::from_raw(i32::try_from(recorder.id())?).context("a process")?;
    kill_process(pid, Signal::TERM)?;
    assert_eq!(recorder.end(LIMIT).await?.code(), Some(143), "{}", recorder.tail());
    let text = home.ends("why a/b --file history")?.stdout;
    for word in ["recording began", "granted", "asked to release", "held", "recording ended"] {
        assert!(text.contains(word), "{text}");
    }
    let last = home.ends("why a/b --file history -n 1")?.stdout;
    assert!(last.contains("recording ended") && !last.contains("granted"), "{last}");
    Ok(())
}

/// Two recordings in one file told everything twice, and threw half of it away.
#[tokio::test]
async fn a_file_has_one_recording_and_a_line_that_was_cut_spoils_no_other() -> Result<()> {
    let home = Home::new()?;
    fs::write(home.folder().join("history"), "{\"at_unix_ms\":17959444")?;
    home.ends("why l --file history")?
        .complains(65, &["history", "not a file of lockkeeper record"]);
    let _recorder = recorder(&home, "")?;
    home.ends("record --file history")?.complains(69, &["another recording"]);
    home.runs("l", "true")?.is_fine();
    let found = events(&home, "l", 3)?;
    assert_eq!(found[0]["event"], "recording_began", "{found:#?}");
    assert!(!lines(&home)?.contains("lockkeeper-outcomes"));
    Ok(())
}

#[tokio::test]
async fn what_was_there_before_is_told_as_that() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "l").await?;
    let _recorder = recorder(&home, "")?;
    holder.kill();
    let found = events(&home, "l", 3)?;
    assert_eq!((&found[1]["event"], &found[2]["event"]), (&"held".into(), &"ended".into()));
    assert!(found[2].get("lasted_ms").is_none(), "nobody saw when it began: {found:#?}");
    Ok(())
}

#[tokio::test]
async fn a_history_is_bounded_and_nothing_is_told_of_what_was_not_seen() -> Result<()> {
    let home = Home::new()?;
    let nothing = home.ends("why l --file history")?;
    nothing.complains(65, &["history"]);
    let _recorder = recorder(&home, "--max-size 4096")?;
    for _ in 0..20 {
        home.runs("l", "true")?.is_fine();
    }
    eventually("an older half", || Ok(home.folder().join("history.old").exists()))?;
    let sizes = ["history", "history.old"].map(|name| fs::metadata(home.folder().join(name)));
    // The newer half is missing for a moment while it becomes the older one.
    let sizes = sizes.map(|size| size.map_or(0, |it| it.len()));
    assert!(sizes.iter().sum::<u64>() <= 4096, "{sizes:?}");
    assert!(events(&home, "l", 4)?.len() >= 4);
    let other = home.ends("why other --file history")?;
    assert_eq!(other.code, Some(1), "{other:?}");
    Ok(())
}

/// A history that is silent while servers were away would say that nothing happened.
#[tokio::test]
async fn servers_that_were_away_are_in_the_history() -> Result<()> {
    let home = Home::new()?;
    let _holder = home.holds("holder", "l").await?;
    let _recorder = recorder(&home, "")?;
    home.signal_engine(Signal::KILL)?;
    let found = events(&home, "l", 4)?;
    let told: Vec<_> = found.iter().map(|line| line["event"].as_str().unwrap_or("")).collect();
    assert_eq!(told, ["recording_began", "held", "servers_away", "servers_back"], "{found:#?}");
    let text = home.ends("why l --file history")?.stdout;
    assert!(text.contains("servers away") && text.contains("servers back"), "{text}");
    Ok(())
}
