//! `hold`, and the commands that follow a lock: `show --watch`, `ls --watch`, `--exit-code`, `revoke --wait`.

use anyhow::{Context, Result};
use lockkeeper::revoke::REQUEST;
use lockkeeper::{CreateMode, Mutex, ZnodePath};
use lockkeeper_testkit::process::Process;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ended, Home, LIMIT, eventually};

/// Starts a command in the background.
fn starts(home: &Home, name: &str, arguments: &[&str]) -> Result<Process> {
    Process::spawn(name, &home.command_of(arguments), home.folder())
}

#[tokio::test]
async fn a_hold_is_released_by_its_user() -> Result<()> {
    let home = Home::new()?;
    for (signal, name) in [(Signal::INT, "int"), (Signal::TERM, "term"), (Signal::HUP, "hup")] {
        let mut hold = starts(&home, name, &["hold", "l", "--why", "restoring"])?;
        hold.prints("/l is held, token ", LIMIT).await?;
        home.ends("run -n l -- true")?
            .complains(1, &["held by", "(hold): restoring", "held since"]);
        hold.signal(signal)?;
        assert_eq!(hold.end(LIMIT).await?.code(), Some(0), "{}", hold.tail());
        assert!(hold.stdout().ends_with(", until Ctrl-C\n"), "{}", hold.tail());
        home.ends("show --exit-code l")?.is_fine();
    }
    Ok(())
}

#[tokio::test]
async fn a_hold_is_shown_with_its_reason() -> Result<()> {
    let home = Home::new()?;
    let mut hold =
        starts(&home, "hold", &["--json", "hold", "l", "--why", "restoring", "--for", "1h"])?;
    hold.prints("\n", LIMIT).await?;
    let told: Value = serde_json::from_str(&hold.stdout())?;
    let (since, until) = (told["held_since_unix_ms"].as_i64(), told["until_unix_ms"].as_i64());
    assert!(until.context("a time")? > since.context("a time")?, "{told}");

    // The note is not waited for.
    eventually("it is noted", || {
        let held = home.json("show l")?["contenders"][0].clone();
        assert_eq!((&held["node"], &held["token"]), (&told["node"], &told["token"]));
        assert_eq!(
            (&held["owner"]["why"], &held["owner"]["label"]),
            (&"restoring".into(), &"hold".into())
        );
        assert!(held["owner"]["user"].is_string(), "{held}");
        Ok(held["held_since_unix_ms"] == told["held_since_unix_ms"]
            && held["held_since_kind"] == "noted")
    })?;
    Ok(())
}

#[tokio::test]
async fn a_hold_ends_at_its_time() -> Result<()> {
    let home = Home::new()?;
    let ended = home.ends("hold -q l --for 10ms")?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stdout.contains("/l is held, token"), "{ended:?}");
    let past = home.ends("hold l --until 2020-01-01T00:00:00Z")?;
    past.complains(64, &["--until is in the past", "2020"]);
    home.ends("hold l --until noon")?.complains(64, &["18:30", "time zone"]);
    home.ends("hold l --until 18:30 --for 1h")?.complains(64, &["--until", "--for"]);
    let long = "a".repeat(1025);
    Ended::of(&mut home.command_of(&["hold", "l", "--why", &long]))?.complains(64, &["1025 bytes"]);
    Ok(())
}

#[tokio::test]
async fn a_hold_that_is_killed_frees_the_lock_at_once() -> Result<()> {
    let home = Home::new()?;
    // The session outlives the test.
    let mut hold = starts(&home, "hold", &["hold", "l", "--session-timeout", "10m"])?;
    hold.prints("is held", LIMIT).await?;
    hold.kill();
    home.ends("wait -q -w 30s l")?.is_fine();
    Ok(())
}

#[tokio::test]
async fn a_hold_that_stood_still_for_too_long_says_that_the_lock_is_lost() -> Result<()> {
    let home = Home::new()?;
    let mut hold = starts(&home, "hold", &["hold", "-q", "l", "--session-timeout", "1s"])?;
    hold.prints("is held", LIMIT).await?;
    hold.signal(Signal::STOP)?;
    // Another program has held it in the meantime.
    home.ends("run -q l -- true")?.is_fine();
    hold.signal(Signal::CONT)?;
    assert_eq!(hold.end(LIMIT).await?.code(), Some(79), "{}", hold.tail());
    assert!(hold.stderr().contains("/l was lost"), "{}", hold.tail());
    Ok(())
}

#[tokio::test]
async fn holders_are_told_who_asks_and_why() -> Result<()> {
    let home = Home::new()?;
    let mut hold = starts(&home, "hold", &["hold", "l"])?;
    hold.prints("is held", LIMIT).await?;
    let arguments = ["--json", "revoke", "--wait", "--reason", "an upgrade", "l"];
    let asked = Ended::of(&mut home.command_of(&arguments))?;
    assert_eq!(asked.code, Some(0), "{asked:?}");
    let asked: Value = serde_json::from_str(&asked.stdout)?;
    assert_eq!(asked["holders"][0]["outcome"], "gave-way");
    assert_eq!(hold.end(LIMIT).await?.code(), Some(1), "{}", hold.tail());
    let told = hold.stderr();
    assert!(
        told.contains("release requested by ") && told.contains(": an upgrade; releasing"),
        "{told}"
    );

    let mut run = home.holds("run", "l").await?;
    Ended::of(&mut home.command_of(&arguments))?;
    assert_eq!(run.end(LIMIT).await?.code(), Some(143), "{}", run.tail());
    assert!(run.stderr().contains(": an upgrade; ending the command"), "{}", run.tail());
    Ok(())
}

#[tokio::test]
async fn a_holder_that_stays_is_told_of_and_shown_with_the_request() -> Result<()> {
    let home = Home::new()?;
    let _run = home.holds("run", "--on-revoke ignore l").await?;
    // K48: the time behind a blank was taken for the lock.
    for line in ["revoke --wait 2s l", "revoke l --wait 2s", "revoke --wait 2s"] {
        home.ends(line)?.complains(64, &["--wait=2s"]);
    }
    home.ends("revoke 2s --wait")?.is_fine();
    let asked = home.ends("revoke --wait=10ms --reason maintenance l")?;
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(asked.stdout.contains("was asked to release /l, and still holds it"), "{asked:?}");

    let text = home.ends("show l")?.stdout;
    assert!(text.contains("asked to release by ") && text.contains(": maintenance"), "{text}");
    let held = home.json("ls")?["locks"][0]["contenders"][0].clone();
    assert_eq!(
        (&held["revoked"], &held["revoke_request"]["reason"]),
        (&true.into(), &"maintenance".into())
    );
    Ok(())
}

/// Curator's holders compare the data of their node with the request.
#[tokio::test]
async fn a_holder_of_another_program_gets_the_plain_request() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let client = home.client().await?;
    client.ensure(&ZnodePath::new("/l")?, CreateMode::Container).await?;
    let node = ZnodePath::new("/l/_c_x-lock-")?;
    let node = client.create(&node, "10.0.0.7", CreateMode::EphemeralSequential).await?.path;
    home.ends("revoke --reason maintenance l")?.is_fine();
    assert_eq!(&client.data(&node).await?.0[..], REQUEST);
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn why_a_contender_waits_is_shown() -> Result<()> {
    let home = Home::new()?;
    let _holder = home.holds("holder", "--permits 3 --take 2 l").await?;
    let _waiter = home.starts("waiter", "--permits 3 --take 2 l", "true")?;
    home.in_line("l", 2)?;
    let shown = home.json("show l")?;
    assert_eq!(shown["permits_free"], 1);
    assert_eq!(shown["contenders"][1]["blocked_by"], serde_json::json!([1]));
    assert_eq!(shown["contenders"][0]["blocked_by"], serde_json::json!([]));
    let text = home.ends("show l")?.stdout;
    assert!(text.contains("1: 2 wanted, 1 free"), "{text}");
    // A holder that was granted the lock at once does not say when.
    assert!(text.contains("in line") && !text.contains("held "), "{text}");
    assert_eq!(shown["contenders"][0]["held_since_unix_ms"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn exit_codes_say_whether_a_lock_is_free() -> Result<()> {
    let home = Home::new()?;
    home.ends("show --exit-code l")?.is_fine();
    home.ends("ls --exit-code")?.is_fine();
    let _holder = home.holds("holder", "l").await?;
    for (arguments, code) in [
        ("show --exit-code l", 1),
        ("show l", 0),
        ("ls --exit-code", 1),
        ("ls --exit-code other", 0),
        ("ls", 0),
    ] {
        let ended = home.ends(arguments)?;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), ""), "{arguments}");
    }
    home.ends("show --exit-code --watch l")?.complains(64, &["--watch"]);
    Ok(())
}

/// The lines of JSON that a command has written so far.
fn lines(process: &Process) -> Result<Vec<Value>> {
    let out = process.stdout();
    let whole = out.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[tokio::test]
async fn a_watch_shows_each_change_and_outlasts_the_engine() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let shows = starts(&home, "show", &["--json", "show", "--watch", "l"])?;
    let lists = starts(&home, "ls", &["--json", "ls", "--watch"])?;
    let holders = |count: usize| {
        eventually(&format!("{count} are seen"), || {
            let (shown, listed) = (lines(&shows)?, lines(&lists)?);
            let shown = shown.last().map(|shown| shown["contenders"].as_array().map(Vec::len));
            let listed = listed.last().map(|listed| listed["locks"].as_array().map(Vec::len));
            Ok(shown == Some(Some(count)) && listed == Some(Some(count)))
        })
    };
    holders(0)?;
    let client = home.client().await?;
    let guard = Mutex::new(&client, "/l")?.acquire().await?;
    holders(1)?;
    let last = lines(&shows)?.pop().context("a line")?;
    let held = &last["contenders"][0];
    assert_eq!(held["held_since_kind"], "observed", "it saw the change: {last}");
    assert!(last["at_unix_ms"].is_u64() && held["held_since_unix_ms"].is_u64(), "{last}");
    guard.release().await?;
    client.close().await;
    holders(0)?;

    home.signal_engine(Signal::KILL)?;
    let _holder = home.holds("holder", "l").await?;
    holders(1)
}

#[tokio::test]
async fn what_has_not_changed_is_not_shown_again() -> Result<()> {
    let home = Home::new()?;
    home.runs("other", "true")?.is_fine();
    let shows = starts(&home, "show", &["--json", "show", "--watch", "l"])?;
    eventually("the first picture", || Ok(lines(&shows)?.len() == 1))?;
    let client = home.client().await?;
    // A change below the path that makes no difference, and one that does.
    client.ensure(&ZnodePath::new("/l")?, CreateMode::Persistent).await?;
    eventually("there is a node", || Ok(lines(&shows)?.len() == 2))?;
    client.set_data(&ZnodePath::new("/l")?, "x", None).await?;
    let guard = Mutex::new(&client, "/l")?.acquire().await?;
    eventually("it is held", || {
        Ok(lines(&shows)?.last().is_some_and(|l| l["contenders"][0]["state"] == "holds"))
    })?;
    assert_eq!(lines(&shows)?.len(), 3, "{}", shows.stdout());
    guard.release().await?;
    client.close().await;
    Ok(())
}

/// Symptom: `show --watch l | head -1` did not end before the lock changed again.
#[test]
fn a_watch_ends_with_its_reader() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let mut command = crate::terminal::with_lockkeeper(&home, "sh")?;
    command.args(["-c", &format!("{} show --watch l | head -1; echo over", program.display())]);
    let ended = Ended::of(&mut command)?;
    assert!(ended.stdout.ends_with("over\n") && ended.stdout.lines().count() == 2, "{ended:?}");
    assert_eq!(ended.stderr, "");
    Ok(())
}
