//! `--json-log`: what happens to a run, as programs read it.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use anyhow::{Context, Result};
use lockkeeper::ZnodePath;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::support::{Ended, Home, LIMIT, eventually};

/// The events in a log.
fn events(home: &Home, log: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(home.folder().join(log))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let line = |line: &str| serde_json::from_str(line).with_context(|| format!("no JSON: {line}"));
    text.lines().map(line).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

#[test]
fn every_step_of_a_run_is_a_line() -> Result<()> {
    let home = Home::new()?;
    let script = "echo $LOCKKEEPER_TOKEN; sleep 0.1; exit 3";
    let ended = home.runs("--json-log log a", script)?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), ""), "{ended:?}");
    let events = events(&home, "log")?;
    assert_eq!(names(&events), ["acquired", "started", "ended", "released"]);

    for event in &events {
        assert_eq!((&event["run"], &event["pid"]), (&events[0]["run"], &events[0]["pid"]));
        assert_eq!(event["locks"], serde_json::json!(["/a"]));
        let time = event["time"].as_str().context("no time")?;
        // RFC 3339 in UTC, to the millisecond.
        assert!(time.len() == 24 && time.ends_with('Z') && &time[19..20] == ".", "{time}");
        assert!(event["host"].as_str().is_some_and(|host| !host.is_empty()), "{event}");
    }
    assert_eq!(events[0]["tokens"][0].as_str(), Some(ended.stdout.trim()));
    assert!(events[0]["waited_ms"].is_u64(), "{}", events[0]);
    assert!(events[1]["command_pid"].as_i64().is_some_and(|pid| pid > 0), "{}", events[1]);
    assert_eq!(events[2]["code"], 3);
    let (ran, held) = (events[2]["ran_ms"].as_u64(), events[3]["held_ms"].as_u64());
    assert!(ran.is_some_and(|ran| ran >= 100) && held >= ran, "{events:?}");
    assert_eq!(events[3]["confirmed"], true);
    Ok(())
}

#[tokio::test]
async fn waits_and_what_ends_them_are_told() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "l").await?;

    home.ends("run -q -n -E 9 --json-log n l -- true")?;
    let n = events(&home, "n")?;
    assert_eq!((names(&n), &n[0]["code"]), (vec!["conflict"], &Value::from(9)));

    let mut waiter = home.starts("waiter", "-q --json-log w l", "true")?;
    eventually("it waits", || Ok(events(&home, "w").is_ok_and(|events| !events.is_empty())))?;
    waiter.signal(Signal::TERM)?;
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(143), "{}", waiter.tail());
    assert_eq!(waiter.stderr(), "", "it is quiet");
    let w = events(&home, "w")?;
    assert_eq!(names(&w), ["waiting", "interrupted"]);
    assert!(w[0]["holder"].as_str().is_some_and(|holder| holder.contains("held by")), "{w:?}");
    assert_eq!(w[1]["code"], 143);

    home.ends("revoke l")?;
    holder.end(LIMIT).await?;
    home.ends("run --json-log f --connect 127.0.0.1:1 -w 1ms l -- true")?;
    let f = events(&home, "f")?;
    assert_eq!((names(&f), &f[0]["code"]), (vec!["failed"], &Value::from(75)));
    Ok(())
}

#[tokio::test]
async fn what_ends_a_command_is_told() -> Result<()> {
    let home = Home::new()?;
    home.runs("-q --max-run 100ms --json-log max l", "sleep 60")?;
    let max = events(&home, "max")?;
    assert_eq!(names(&max), ["acquired", "started", "overran", "ended", "released"]);
    assert_eq!((&max[2]["max_run_ms"], &max[3]["code"]), (&Value::from(100), &Value::from(124)));

    let script = "echo $LOCKKEEPER_NODE; exec sleep 60";
    let mut process = home.says("\n", "lost", "--json-log lost l", script).await?;
    let client = home.client().await?;
    client.delete(&ZnodePath::new(process.stdout().trim())?, None).await?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    client.close().await;
    let lost = events(&home, "lost")?;
    assert_eq!(names(&lost), ["acquired", "started", "lost", "ended"]);
    assert!(lost[2]["reason"].as_str().is_some_and(|why| why.contains("/l is lost")), "{lost:?}");

    let mut process = home.says("\n", "revoked", "--json-log revoked l", script).await?;
    home.ends("revoke l")?;
    process.end(LIMIT).await?;
    let revoked = events(&home, "revoked")?;
    assert_eq!(names(&revoked), ["acquired", "started", "revoked", "ended", "released"]);
    assert_eq!(revoked[2]["lock"], "/l");
    Ok(())
}

#[tokio::test]
async fn a_pause_and_its_end_are_told() -> Result<()> {
    let home = Home::new()?;
    let options = "--session-timeout 3s --on-outage pause --json-log log l";
    let script = "echo ready; while [ ! -e go ]; do sleep 0.01; done";
    let mut process = home.says("ready", "paused", options, script).await?;
    let engine = home.signal_engine(Signal::STOP)?;
    eventually("it is paused", || Ok(names(&events(&home, "log")?).contains(&"paused")))?;
    kill_process(engine, Signal::CONT)?;
    eventually("it goes on", || {
        let text = fs::read_to_string(home.folder().join("log"))?;
        Ok(text.contains("\"resumed\"") || text.contains("\"lost\""))
    })?;
    fs::write(home.folder().join("go"), "")?;
    process.end(LIMIT).await?;
    let log = events(&home, "log")?;
    assert_eq!(names(&log)[2], "paused");
    if names(&log)[3] == "resumed" {
        assert!(log[3]["paused_ms"].is_u64(), "{log:?}");
    }
    Ok(())
}

/// Lines of several runs, in one file, are whole.
#[tokio::test]
async fn several_runs_share_a_file() -> Result<()> {
    let home = Home::new()?;
    let mut runs = Vec::new();
    for number in 0..8 {
        let options = format!("--json-log log lock-{number}");
        runs.push(home.starts(&format!("run-{number}"), &options, "true")?);
    }
    for run in &mut runs {
        assert_eq!(run.end(LIMIT).await?.code(), Some(0), "{}", run.tail());
    }
    let events = events(&home, "log")?;
    assert_eq!(events.len(), 8 * 4, "{events:?}");
    let ids: HashSet<_> = events.iter().filter_map(|event| event["run"].as_str()).collect();
    assert_eq!(ids.len(), 8);
    Ok(())
}

/// A log that cannot be written disturbs neither the lock nor the command.
///
/// Fails with a pipe that is opened to wait for its reader.
#[test]
fn a_log_that_is_full_is_told_once() -> Result<()> {
    let home = Home::new()?;
    let ended = home.runs("--json-log /dev/full l", "exit 3")?;
    ended.complains(3, &["--json-log", "no further events"]);

    home.ends("run --json-log no/folder l -- touch ran")?.complains(73, &["--json-log no/folder"]);
    assert!(!home.folder().join("ran").exists());
    let pipe = home.folder().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into())?;
    home.ends("run --json-log pipe l -- touch ran")?.complains(73, &["--json-log pipe"]);

    // Nobody reads it, and it has room for some lines only.
    let reader = fs::File::options().read(true).write(true).open(&pipe)?;
    let mut writer = fs::File::options()
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(&pipe)?;
    while std::io::Write::write(&mut writer, &[b'\n'; 4096]).is_ok() {}
    home.runs("--json-log pipe l", "exit 3")?.complains(3, &["no further events"]);
    drop(reader);
    Ok(())
}

#[test]
fn standard_error_can_be_the_log() -> Result<()> {
    let home = Home::new()?;
    let ended = home.runs("--json-log - l", "exit 3")?;
    assert_eq!(names(&parse(&ended.stderr)?), ["acquired", "started", "ended", "released"]);

    // A file that others write to, too, keeps all lines.
    let file = fs::File::create(home.folder().join("err"))?;
    let mut command = home.command_of(&["run", "--json-log", "-", "l", "-c", "echo word >&2"]);
    command.stderr(Stdio::from(file));
    assert_eq!(Ended::of(&mut command)?.code, Some(0));
    let text = fs::read_to_string(home.folder().join("err"))?;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    // The command may be faster than the line that says that it runs.
    assert!(lines[1..=2].contains(&"word"), "{text}");
    Ok(())
}

/// The page has every event, and every field.
#[test]
fn the_page_has_all_names() -> Result<()> {
    let page = include_str!("../../docs/run-log.md");
    let home = Home::new()?;
    home.runs("-q --max-run 100ms --json-log log l", "sleep 60")?;
    home.ends("run --json-log log --connect 127.0.0.1:1 -w 1ms l -- true")?;
    for event in events(&home, "log")? {
        let name = event["event"].as_str().context("no name")?;
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` ")));
        let row = row.with_context(|| format!("{name} is not in the page"))?;
        for field in event.as_object().context("an object")?.keys() {
            let is_common = page.contains(&format!("- `{field}`"));
            assert!(is_common || row.contains(&format!("`{field}`")), "{name}: {field}");
        }
    }
    Ok(())
}
