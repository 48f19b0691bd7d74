//! Every figure of `ls`, `show`, `wait`, `local` and `engine` is what the server says of it, and the
//! times that `run` tells come true.

use std::fs;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use lockkeeper::{Client, CreateMode, LeaseMode, ZnodePath};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::serve::served;
use crate::support::{Ended, Home, LIMIT, eventually};

/// Milliseconds since 1970.
fn now_ms() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// The times that are written like this, in milliseconds: `250ms`, `4s`.
fn meant(text: &str) -> Result<RangeInclusive<u64>> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let count: u64 = number.parse().with_context(|| format!("no time: {text}"))?;
    match &text[number.len()..] {
        "ms" => Ok(count..=count),
        "s" => Ok(count * 1_000..=count * 1_000 + 999),
        unit => anyhow::bail!("{unit} in {text}: the test is not that long"),
    }
}

/// Fails unless some of these times were meant.
#[track_caller]
fn fits(text: &str, possible: RangeInclusive<u64>) -> Result<()> {
    let meant = meant(text)?;
    let fits = meant.start() <= possible.end() && possible.start() <= meant.end();
    assert!(fits, "{text} is none of {possible:?} ms");
    Ok(())
}

/// A holder of the lock `a/b` for longer than a second, and two waiters.
struct Queue {
    home: Home,
    holder: lockkeeper_testkit::process::Process,
    _waiters: Vec<lockkeeper_testkit::process::Process>,
    client: Client,
}

impl Queue {
    async fn new() -> Result<Self> {
        let home = Home::new()?;
        let holder =
            home.says("\n", "holder", "a/b", "echo $LOCKKEEPER_TOKEN; exec sleep 60").await?;
        let mut waiters = Vec::new();
        for name in ["one", "two"] {
            waiters.push(home.starts(name, "a/b", "true")?);
        }
        home.in_line("a/b", 3)?;
        let client = home.client().await?;
        let queue = Self { home, holder, _waiters: waiters, client };
        // So that seconds are not mistaken for milliseconds.
        let since = queue.since(&queue.shown()?[0]).await?;
        eventually("it is a second old", || Ok(now_ms()? > since + 1_100))?;
        Ok(queue)
    }

    fn shown(&self) -> Result<Vec<Value>> {
        let shown = self.home.json("show a/b")?;
        Ok(shown["contenders"].as_array().context("an array")?.clone())
    }

    /// When the node of a contender was created, by the server.
    async fn since(&self, contender: &Value) -> Result<u64> {
        let node = ZnodePath::new(contender["node"].as_str().context("a node")?)?;
        let (_, stat) = self.client.data(&node).await?;
        Ok(u64::try_from(stat.ctime)?)
    }
}

#[tokio::test]
async fn tokens_sessions_and_times_are_those_of_the_nodes() -> Result<()> {
    let queue = Queue::new().await?;
    let before = now_ms()?;
    let shown = queue.shown()?;
    let after = now_ms()?;
    let text = queue.home.ends("show a/b")?.stdout;
    let later = now_ms()?;

    assert_eq!(shown[0]["token"], queue.holder.stdout().trim(), "what the holder was told");
    for (contender, line) in shown.iter().zip(text.lines().skip(2)) {
        let node = ZnodePath::new(contender["node"].as_str().context("a node")?)?;
        let (_, stat) = queue.client.data(&node).await?;
        let since = u64::try_from(stat.ctime)?;
        let (token, session) = (stat.czxid.0.to_string(), stat.ephemeral_owner.to_string());
        assert_eq!(contender["token"], token);
        assert_eq!(contender["session"], session);
        assert_eq!(contender["since_unix_ms"], since);
        let age = contender["age_ms"].as_u64().context("an age")?;
        assert!((before - since..=after - since).contains(&age), "{age} ms since {since}");

        let words: Vec<_> = line.split_whitespace().collect();
        let [.., told_token, told_session] = words[..] else { anyhow::bail!("{text}") };
        // "in line 4s", and the contender that it waits for.
        let line_at = words.iter().rposition(|word| *word == "line").context("in line")?;
        let told = words.get(line_at + 1).context("since when")?;
        assert_eq!((told_token, told_session), (token.as_str(), session.as_str()), "{text}");
        assert_eq!(words[0], contender["position"].to_string(), "{text}");
        fits(told, after - since..=later - since)?;
    }
    assert!(text.starts_with("/a/b: held, 2 waiting\n"), "{text}");
    Ok(())
}

#[tokio::test]
async fn who_is_listed_is_counted_and_since_when() -> Result<()> {
    let queue = Queue::new().await?;
    let since = queue.since(&queue.shown()?[0]).await?;
    let listed = queue.home.json("ls")?;
    let lock = &listed["locks"][0];
    assert_eq!((&lock["holders"], &lock["waiters"]), (&json!(1), &json!(2)), "{listed}");
    let before = now_ms()?;
    let text = queue.home.ends("ls")?.stdout;
    let words: Vec<_> = text.lines().nth(1).context("a row")?.split_whitespace().collect();
    let [_, .., told, waiting] = words[..] else { anyhow::bail!("{text}") };
    assert_eq!(waiting, "2", "{text}");
    fits(told, before - since..=now_ms()? - since)?;

    // The same in a sentence: `... since 12:03:07 (4s ago)`.
    let before = now_ms()?;
    let ended = Ended::of(queue.home.command("wait -w 0 a/b").env("TZ", "UTC"))?;
    let day = since / 1_000 % 86_400;
    let clock = format!("{:02}:{:02}:{:02}", day / 3_600, day / 60 % 60, day % 60);
    let (_, told) = ended.stderr.split_once(&format!(" since {clock} (")).context(clock)?;
    fits(told.split_once(" ago)").context("ago")?.0, before - since..=now_ms()? - since)?;
    Ok(())
}

#[tokio::test]
async fn the_status_counts_sessions_and_time() -> Result<()> {
    let home = Home::new()?;
    let begin = Instant::now();
    let started = home.ends("local start --durability memory")?.stdout;
    let running = Instant::now();
    assert_eq!(started, format!("started, pid {}\n", home.engine_pid()?));
    let again = home.ends("local start")?.stdout;
    let known = format!("already running, pid {}, durability memory\n", home.engine_pid()?);
    assert_eq!(again, known);

    let clients = [home.client().await?, home.client().await?, home.client().await?];
    eventually("a second has passed", || Ok(running.elapsed() > Duration::from_millis(1_100)))?;
    let least = running.elapsed();
    let status = home.json("local status")?;
    let text = home.ends("local status")?.stdout;
    let most = begin.elapsed();
    assert_eq!(status["sessions"], clients.len());
    let uptime = Duration::from_millis(status["uptime_ms"].as_u64().context("a time")?);
    assert!(uptime + Duration::from_millis(1) > least && uptime < most, "{uptime:?}");
    let version = home.ends("--version")?.stdout;
    assert_eq!(version, format!("lockkeeper {}\n", status["version"].as_str().context("text")?));

    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!(line("sessions"), Some("3"), "{text}");
    let told =
        line("running").and_then(|line| line.strip_prefix("yes, for ")).context("running")?;
    let (told, program) = told.split_once(' ').context("two words")?;
    fits(told, least.as_millis() as u64..=most.as_millis() as u64)?;
    assert_eq!(program, format!("(pid {}, {})", status["pid"], version.trim()));

    let stopped = home.ends("local stop")?.stdout;
    assert_eq!(stopped, format!("stopped (pid {})\n", status["pid"]));
    Ok(())
}

/// A node's share of the data's bytes, those of all nodes below it, and how many there are.
async fn weigh(client: &Client, path: &ZnodePath) -> Result<(usize, usize)> {
    let (data, _) = client.data(path).await?;
    let (mut bytes, mut nodes) = (path.as_str().len() + data.len(), 1);
    for name in client.children(path).await?.0 {
        let (more_bytes, more_nodes) = Box::pin(weigh(client, &path.child(&name)?)).await?;
        (bytes, nodes) = (bytes + more_bytes, nodes + more_nodes);
    }
    Ok((bytes, nodes))
}

#[tokio::test]
async fn a_check_counts_what_was_backed_up() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --data-dir data";
    let (_server, address) = served(&home, "server", options).await?;
    let (client, other) = (Client::connect(&address).await?, Client::connect(&address).await?);
    for n in 0..7 {
        let path = ZnodePath::new(&format!("/folder{n}"))?;
        client.create(&path, vec![b'x'; 100 * n], CreateMode::Persistent).await?;
    }
    for name in ["/one", "/two", "/three"] {
        other.create(&ZnodePath::new(name)?, name, CreateMode::Ephemeral).await?;
    }
    let last = client.set_data(&ZnodePath::new("/one")?, "changed", None).await?.mzxid;
    let (bytes, nodes) = weigh(&client, &ZnodePath::root()).await?;

    // Both sessions are in it, and what the last change was.
    let copied = home.json("engine backup data copy")?;
    assert_eq!(copied["records"], nodes + 2 + 1, "{copied}");
    let text = home.ends("engine backup data copy2")?.stdout;
    assert!(text.contains(&format!("with {} records", nodes + 2 + 1)), "{text}");
    let checked = home.json("engine check copy")?;
    let file = fs::metadata(home.folder().join("copy/lockkeeper.redb"))?.len();
    let expected = json!({
        "dir": "copy",
        "file_bytes": file,
        "after_crash": false,
        "znodes": nodes,
        "ephemerals": 3,
        "sessions": 2,
        "data_bytes": bytes,
        "last_zxid": last.to_string(),
    });
    assert_eq!(checked, expected);

    let text = home.ends("engine check copy")?.stdout;
    for line in [
        format!("znodes       {nodes}, 3 of them ephemeral; {bytes} bytes of paths and data"),
        "sessions     2".to_owned(),
        format!("last change  {last}"),
        format!("file         {file} bytes"),
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in {text}");
    }
    Ok(())
}

/// `run` names the lease, and the longest time for TERM that fits into it: one that is accepted,
/// while a millisecond more is not.
#[tokio::test]
async fn the_longest_kill_after_is_named() -> Result<()> {
    let home = Home::new()?;
    home.ends("local start --durability memory")?.is_fine();
    let builder = Client::builder().session_timeout(Duration::from_secs(15));
    let client = builder.lease(LeaseMode::Direct).connect(&home.connect_string()).await?;
    let lease = format!("a lease of {}ms", client.timing().lease().as_millis());
    client.close().await;

    let refused = home.ends("run --kill-after 14s l -- true")?;
    refused.complains(64, &["--kill-after 14000ms is too long", &lease]);
    let (_, rest) = refused.stderr.split_once("use at most ").context("a limit")?;
    let most: u64 = rest.split_once("ms").context("ms")?.0.parse()?;
    home.ends(&format!("run --kill-after {most}ms l -- true"))?.is_fine();
    let more = most + 1;
    let refused = home.ends(&format!("run --kill-after {more}ms l -- true"))?;
    refused.complains(64, &[&format!("--kill-after {more}ms is too long")]);
    Ok(())
}

/// If the lease is not renewed, the displayed remaining seconds end within a lease after the
/// death of the engine, and not before the last known deadline.
#[tokio::test]
async fn the_seconds_that_are_left_end_with_the_lease() -> Result<()> {
    const TIMEOUT: u64 = 3_000;

    let home = Home::new()?;
    let script = "trap 'date +%s%3N; kill $job; exit 0' TERM; sleep 60 & job=$!; echo held; wait";
    let options = format!("--session-timeout {TIMEOUT}ms l");
    let mut holder = home.says("held", "holder", &options, script).await?;
    let pid = Pid::from_raw(home.engine_pid()?).context("no process id")?;
    // For good, as a disk that dies.
    fs::write(home.engine().join("data/FORMAT"), "something else\n")?;
    kill_process(pid, Signal::KILL)?;
    let killed = now_ms()?;
    assert_eq!(holder.end(LIMIT).await?.code(), Some(79), "{}", holder.tail());

    let told = holder.stderr();
    let (told, _) = told.split_once(" s are left").with_context(|| told.clone())?;
    let left: f64 = told.rsplit(' ').next().context("a number")?.parse()?;
    let term: u64 = holder.stdout().lines().last().context("a time")?.parse()?;
    let end = term + (left * 1_000.0) as u64;
    // Told just before the TERM, and rounded.
    assert!(left > 0.0 && end <= killed + TIMEOUT + 50, "{left} s at {} ms", term - killed);
    Ok(())
}

/// A server that takes connections and says nothing.
#[test]
fn the_time_after_which_a_connection_is_given_up_is_told() -> Result<()> {
    let home = Home::new()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let begin = Instant::now();
    let ended = home.ends(&format!("--connect {address} wait -w 2s l"))?;
    let took = begin.elapsed();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.stderr.contains("giving up after 2s\n"), "{ended:?}");
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
    Ok(())
}
