//! `lockkeeper queue`.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ended, Home, LIMIT, eventually};

fn put(home: &Home, arguments: &str, input: &[u8]) -> Result<Ended> {
    let mut command = home.command(&format!("queue put {arguments}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("no input")?.write_all(input)?;
    let output = child.wait_with_output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ended {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

fn work(home: &Home, options: &str, script: &str) -> std::process::Command {
    let mut arguments = vec!["queue", "work", "jobs", "--retry-after", "10ms"];
    arguments.extend(options.split_whitespace());
    arguments.extend(["-c", script]);
    home.command_of(&arguments)
}

#[test]
fn an_item_comes_out_byte_for_byte() -> Result<()> {
    let home = Home::new()?;
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    put(&home, "jobs", &bytes)?.is_fine();
    let output = home.command("queue take jobs").output()?;
    assert_eq!(output.stdout, bytes);
    put(&home, "jobs", &bytes)?.is_fine();
    let shown = home.json("queue take jobs")?;
    assert!(shown["text"].is_null() && shown["base64"].is_string(), "{shown}");

    assert_eq!(put(&home, "--lines jobs", b"a\n\nc\n")?.stdout.lines().count(), 3);
    let taken: Vec<_> =
        (0..3).map(|_| Ok(home.ends("queue take -n jobs")?.stdout)).collect::<Result<_>>()?;
    assert_eq!(taken, ["a", "", "c"]);
    let none = home.ends("queue take -n jobs")?;
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""), "{none:?}");
    assert_eq!(home.ends("queue take -w 10ms jobs")?.code, Some(1));
    Ok(())
}

/// A reader that has gone leaves the item in the queue.
#[test]
fn an_item_that_could_not_be_printed_stays() -> Result<()> {
    let home = Home::new()?;
    put(&home, "jobs", b"x")?.is_fine();
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let status = home.command("queue take jobs").stdout(writer).stderr(Stdio::null()).status()?;
    assert_eq!(status.code(), Some(74), "{status}");
    let closed = Ended::of(
        std::process::Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" >&-"])
            .arg(home.command("").get_program())
            .args(["queue", "take", "-n", "jobs"])
            .envs(home.command("").get_envs().filter_map(|(name, value)| Some((name, value?)))),
    )?;
    closed.complains(74, &["standard output is closed"]);
    assert_eq!(home.ends("queue take -n jobs")?.stdout, "x");
    Ok(())
}

/// Symptom: a reader that was slower than the lease cost the item, which was printed, and came twice.
#[tokio::test]
async fn a_slow_reader_costs_no_lease() -> Result<()> {
    let home = Home::new()?;
    // More than a pipe holds.
    put(&home, "jobs", &vec![b'x'; 300_000])?.is_fine();
    let mut command = home.command("--session-timeout 1s queue take jobs");
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    eventually("it is being printed", || Ok(home.json("queue ls jobs")?["claimed"] == 1))?;
    // Longer than the session of a process that does nothing.
    let client = home.client().await?;
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_secs(3) {
        client.exists(&lockkeeper::ZnodePath::root()).await?;
    }
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut child.stdout.take().context("no output")?, &mut text)?;
    assert_eq!((child.wait()?.code(), text.len()), (Some(0), 300_000));
    assert_eq!(home.ends("queue take -n jobs")?.code, Some(1), "it was taken once");
    client.close().await;
    Ok(())
}

#[test]
fn a_priority_and_an_id_are_as_the_help_says() -> Result<()> {
    let home = Home::new()?;
    home.ends("queue put jobs --priority 10 lazy")?.is_fine();
    home.ends("queue put jobs --priority 1 soon")?.is_fine();
    home.ends("queue put jobs --id a now")?.is_fine();
    home.ends("queue put jobs --id a now")?.complains(69, &["already has an item a"]);
    home.ends("queue put jobs --id a/b now")?.complains(64, &["letters, digits"]);
    let taken: Vec<_> =
        (0..3).map(|_| Ok(home.ends("queue take -n jobs")?.stdout)).collect::<Result<_>>()?;
    assert_eq!(taken, ["now", "soon", "lazy"]);
    Ok(())
}

/// Symptom: `barrier open` deleted a counter.
#[test]
fn a_barrier_is_no_counter() -> Result<()> {
    let home = Home::new()?;
    home.ends("counter add c 7")?.is_fine();
    for verb in ["open", "close", "show"] {
        home.ends(&format!("barrier {verb} c"))?.complains(65, &["/c is a counter, not a barrier"]);
    }
    assert_eq!(home.ends("counter get c")?.stdout, "7\n");
    home.ends("barrier close gate")?.is_fine();
    home.ends("barrier open gate")?.is_fine();
    Ok(())
}

#[test]
fn the_exit_code_ends_the_item() -> Result<()> {
    let home = Home::new()?;
    home.ends("queue put jobs good bad worse")?.is_fine();
    let script = "read -r item; echo $item $LOCKKEEPER_ATTEMPT >>ran; \
                  case $item in good) ;; bad) exit 3;; worse) exit 65;; esac";
    let ended = Ended::of(&mut work(&home, "--items 4 --max-tries 2", script))?;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(fs::read_to_string(home.folder().join("ran"))?, "good 1\nbad 1\nworse 1\nbad 2\n");

    let shown = home.json("queue ls jobs")?;
    let dead = shown["dead_letters"].as_array().context("no dead letters")?;
    let reasons: Vec<_> = dead.iter().filter_map(|letter| letter["reason"].as_str()).collect();
    assert_eq!(reasons, ["exit code 65", "tried 2 times: exit code 3"], "{shown}");
    assert_eq!((shown["waiting"].as_u64(), shown["claimed"].as_u64()), (Some(0), Some(0)));

    let back = home.ends("queue retry --all jobs")?;
    assert_eq!((back.code, back.stdout.lines().count()), (Some(0), 2), "{back:?}");
    let id = back.stdout.lines().next().context("no id")?;
    home.ends(&format!("queue bury jobs {id} --reason later"))?.is_fine();
    let shown = home.json("queue ls jobs")?;
    assert_eq!(shown["dead_letters"][0]["reason"], "later", "{shown}");
    home.ends(&format!("queue cancel jobs {id}"))?.is_fine();
    home.ends(&format!("queue cancel jobs {id}"))?.complains(1, &["does not have item"]);
    assert_eq!(home.json("queue ls jobs")?["waiting"], 1);
    Ok(())
}

/// A program that cannot be run would make a dead letter of each item.
#[test]
fn a_command_that_cannot_be_run_ends_no_item() -> Result<()> {
    let home = Home::new()?;
    home.ends("queue put jobs a")?.is_fine();
    for _ in 0..6 {
        home.ends("queue work jobs -- ./nothing")?.complains(127, &["./nothing: not found"]);
    }
    let shown = home.json("queue ls jobs")?;
    assert_eq!(
        (&shown["waiting"], &shown["items"][0]["attempts"]),
        (&1.into(), &0.into()),
        "{shown}"
    );
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_the_worker_and_gives_its_item_back() -> Result<()> {
    let home = Home::new()?;
    home.ends("queue put jobs a")?.is_fine();
    let mut worker =
        Process::spawn("worker", &work(&home, "", "echo on; exec sleep 600"), home.folder())?;
    worker.prints("on", LIMIT).await?;
    worker.signal(Signal::TERM)?;
    assert_eq!(worker.end(LIMIT).await?.code(), Some(143), "{}", worker.tail());
    assert_eq!(home.ends("queue take -n jobs")?.stdout, "a");

    let mut idle = Process::spawn("idle", &work(&home, "", "true"), home.folder())?;
    eventually("it waits", || Ok(home.json("queue ls jobs")?["idle"] == 1))?;
    idle.signal(Signal::INT)?;
    assert_eq!(idle.end(LIMIT).await?.code(), Some(130), "{}", idle.tail());
    assert_eq!(home.json("queue ls jobs")?["workers"], 0, "it has left");
    Ok(())
}

#[tokio::test]
async fn a_cancelled_item_ends_its_command() -> Result<()> {
    let home = Home::new()?;
    let id = home.ends("queue put jobs a")?.stdout;
    let mut worker =
        Process::spawn("worker", &work(&home, "", "echo on; exec sleep 600"), home.folder())?;
    worker.prints("on", LIMIT).await?;
    home.ends(&format!("queue cancel jobs {}", id.trim()))?.is_fine();
    eventually("it is told", || Ok(worker.stderr().contains("was cancelled; ending the command")))?;
    eventually("it waits again", || Ok(home.json("queue ls jobs")?["idle"] == 1))?;
    worker.kill();
    Ok(())
}

/// Five workers, of which one, its command, its watchdog or the engine is killed again and again: each item runs, and its end
/// is recorded once.
#[tokio::test]
async fn each_item_ends_once_whatever_is_killed() -> Result<()> {
    const ITEMS: usize = 60;
    let home = Home::new()?;
    let items: String = (0..ITEMS).map(|item| format!("{item}\n")).collect();
    put(&home, "--lines jobs", items.as_bytes())?.is_fine();

    let script = "read -r item; sleep 0.05; echo $item >>ran";
    let spawn = |number: usize| {
        let options =
            format!("--session-timeout 4s --max-tries 100 --quiet --json-log log.{number}");
        Process::spawn(&format!("worker-{number}"), &work(&home, &options, script), home.folder())
    };
    let mut workers: Vec<_> = (0..5).map(spawn).collect::<Result<_>>()?;
    for kill in 0..16 {
        let (number, before) = (kill % workers.len(), lines(&home, "ran"));
        match kill % 4 {
            0 => {
                workers[number].kill();
                workers[number] = spawn(number)?;
            }
            1 => kill_children(workers[number].id(), "read -r item")?,
            2 => drop(home.signal_engine(Signal::KILL)),
            _ => kill_children(workers[number].id(), "__watchdog")?,
        }
        let all_ran = || Ok(lines(&home, "ran") > before || lines(&home, "ran") >= ITEMS);
        eventually("another item runs", all_ran)?;
    }

    eventually("all are done", || {
        let shown = home.json("queue ls jobs")?;
        let left =
            ["waiting", "claimed", "delayed"].map(|state| shown[state].as_u64().unwrap_or(1));
        Ok(left == [0, 0, 0])
    })?;
    assert_eq!(home.json("queue ls jobs")?["dead"], 0);
    let ran = fs::read_to_string(home.folder().join("ran"))?;
    for item in 0..ITEMS {
        assert!(ran.lines().any(|line| line == item.to_string()), "{item} never ran");
    }

    let mut ends: HashMap<String, usize> = HashMap::new();
    for number in 0..workers.len() {
        let text = fs::read_to_string(home.folder().join(format!("log.{number}")))?;
        let (mut item, mut code) = (None, None);
        for event in text.lines().map(serde_json::from_str::<Value>) {
            let event = event?;
            match event["event"].as_str() {
                Some("acquired") => item = event["item"].as_str().map(str::to_owned),
                Some("ended") => code = event["code"].as_u64(),
                Some("released") if event["confirmed"] == true && code == Some(0) => {
                    *ends.entry(item.take().context("no item")?).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    assert!(ends.values().all(|ends| *ends == 1) && ends.len() <= ITEMS, "{ends:?}");
    Ok(())
}

fn lines(home: &Home, file: &str) -> usize {
    fs::read_to_string(home.folder().join(file)).map_or(0, |text| text.lines().count())
}

/// Kills the children of a process with this among their arguments.
fn kill_children(parent: u32, word: &str) -> Result<()> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    for pid in children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()) {
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if let Some(pid) = Pid::from_raw(pid).filter(|_| arguments.contains(word)) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(())
}
