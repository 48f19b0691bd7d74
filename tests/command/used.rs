//! A path that another recipe uses, and options that mean the same everywhere.

use anyhow::{Context, Result};
use lockkeeper::{CreateMode, ExclusiveNode, WorkerIds, ZnodePath};
use lockkeeper_testkit::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Ended, Home, LIMIT, eventually};

/// Symptom: `id` and `members join` put their nodes into a queue, a value or the line of a lock, and said nothing.
#[tokio::test]
async fn a_path_that_another_recipe_uses_is_refused() -> Result<()> {
    let home = Home::new()?;
    for line in [
        "queue put f/queue a",
        "value set f/value x",
        "counter add f/counter -1",
        "id f/ids",
        "run --one-of f/pool/a -- true",
    ] {
        home.ends(line)?.is_fine();
    }
    let _lock = home.holds("lock", "f/lock").await?;
    let mut member = home.spawns("member", "members join f/group --name m")?;
    member.prints("is a member", LIMIT).await?;
    let mut instance =
        home.spawns("instance", "service register f/service --address a --port 1")?;
    instance.prints("is an instance", LIMIT).await?;
    let _party = home.spawns("party", "barrier enter f/barrier 2 --name p")?;
    eventually("it waits", || Ok(home.json("barrier show f/barrier")?["waiting"] == json!(["p"])))?;
    // What is below a path that no recipe uses says nothing.
    home.ends("run -n other/lock -- true")?.is_fine();
    home.ends("id other")?.is_fine();
    let before = home.ends("export")?.stdout;

    for (path, what) in [
        ("f/queue", "a queue"),
        ("f/value", "a value"),
        ("f/counter", "a counter"),
        ("f/ids", "a source of ids"),
        ("f/pool", "a pool"),
        ("f/lock", "a lock"),
        ("f/group", "a group"),
        ("f/service", "a service"),
        ("f/barrier", "a barrier"),
    ] {
        for (line, own) in [
            (format!("id {path} -n"), "a source of ids"),
            (format!("members join {path} --name x -- true"), "a group"),
            (format!("service register {path} --address b --port 2 -- true"), "a service"),
            (format!("counter add {path}"), "a counter"),
            (format!("value set {path} text"), "a value"),
            (format!("barrier close {path}"), "a barrier"),
            (format!("barrier close {path} --while-held"), "a barrier"),
            (format!("barrier wait {path} -n"), "a barrier"),
            (format!("barrier wait {path} -w 1s"), "a barrier"),
            (format!("wait -w 0 {path}"), "a lock"),
        ] {
            if own == what || line.starts_with("wait") && what == "a lock" {
                continue;
            }
            let parts = [&format!("/{path} is {what}, not "), "see lockkeeper "];
            home.ends(&line)?.complains(65, &parts.map(|part| part as &str));
        }
        if what != "a lock" {
            let shown = home.ends(&format!("show {path}"))?;
            assert!(shown.stdout.contains(&format!("is {what}, not a lock")), "{shown:?}");
        }
    }
    let after = home.ends("export")?.stdout;
    let nodes = |text: &str| text.lines().filter(|line| line.contains("\"path\"")).count();
    assert_eq!(nodes(&before), nodes(&after), "{after}");
    Ok(())
}

/// Symptom: an error had the data of a value and no name for it; `run` advised a lock inside the value, and `value set`
/// to overwrite the semaphore.
#[test]
fn an_error_names_what_is_there_and_advises_no_damage() -> Result<()> {
    let home = Home::new()?;
    home.ends("value set value x")?.is_fine();
    home.ends("run --permits 3 semaphore -- true")?.is_fine();
    for (line, own) in [
        ("queue put value x", "a queue"),
        ("queue take -n value", "a queue"),
        ("queue ls value", "a queue"),
        ("queue bury value a", "a queue"),
        ("queue work value -- true", "a queue"),
        ("counter get value", "a counter"),
        ("run value -- true", "a lock"),
        ("run -n value -- true", "a lock"),
        ("run --permits 2 value -- true", "a lock"),
        ("run value other -- true", "a lock"),
        ("elect value -- true", "a lock"),
        ("run --one-of value/a -- true", "a pool"),
    ] {
        let told = format!("/value is a value, not {own}; see lockkeeper value get /value");
        home.ends(line)?.complains(65, &[&told]);
    }
    for (line, own) in [
        ("value set semaphore x", "a value"),
        ("value get semaphore", "a value"),
        ("queue put semaphore x", "a queue"),
        ("counter add semaphore", "a counter"),
        ("run --one-of semaphore/a -- true", "a pool"),
    ] {
        let told = format!("/semaphore is a lock with 3 permits, not {own}; see lockkeeper show");
        home.ends(line)?.complains(65, &[&told]);
    }
    // What the library says of anything else stays.
    home.ends("value set l/below x")?.is_fine();
    home.ends("run l -- true")?.complains(65, &["/l cannot be a lock", "/l/all"]);
    Ok(())
}

/// Symptom: `ls --exit-code` said that a lock is held as long as a worker was idle or a member was there.
#[tokio::test]
async fn what_other_recipes_keep_is_not_listed_as_a_lock() -> Result<()> {
    let home = Home::new()?;
    let _idle = home.spawns("idle", "queue work jobs -- true")?;
    eventually("it is idle", || Ok(home.json("queue ls jobs")?["idle"] == json!(1)))?;
    home.ends("queue put busy x")?.is_fine();
    let work = home.command_of(&["queue", "work", "busy", "-c", "echo on; exec sleep 600"]);
    let mut worker = Process::spawn("worker", &work, home.folder())?;
    worker.prints("on", LIMIT).await?;
    let mut kept = Vec::new();
    let mut web = home.spawns("web", "service register f/service --address a --port 1")?;
    web.prints("is an instance", LIMIT).await?;
    kept.push(web);
    kept.push(home.spawns("party", "barrier enter f/barrier 2 --name p")?);
    eventually("it waits", || Ok(home.json("barrier show f/barrier")?["waiting"] == json!(["p"])))?;
    let client = home.client().await?;
    let _id = WorkerIds::new(&client, "/f/ids")?.acquire().await?;
    let outcomes = ZnodePath::new("/lockkeeper-outcomes")?;
    client.ensure(&outcomes, CreateMode::Persistent).await?;
    client.create(&outcomes.child("one")?, "", CreateMode::Ephemeral).await?;

    assert_eq!(home.json("ls")?["locks"], json!([]));
    home.ends("ls --exit-code")?.is_fine();
    assert!(home.ends("status")?.stdout.contains("locks: 0 held"));

    // What may be a lock stays: a member, beside other nodes, in the root, in a pool.
    let mut member = home.spawns("a", "members join f/group --name a")?;
    member.prints("is a member", LIMIT).await?;
    client.create(&ZnodePath::new("/other")?, "broker 3", CreateMode::Ephemeral).await?;
    client.ensure(&ZnodePath::new("/app/config")?, CreateMode::Persistent).await?;
    client.create(&ZnodePath::new("/app/leader")?, "host 7", CreateMode::Ephemeral).await?;
    let _node = ExclusiveNode::new(&client, "/nodes/one")?.acquire().await?;
    let command = home.command_of(&["run", "--one-of", "gpu/0", "-c", "echo on; exec sleep 600"]);
    let mut pool = Process::spawn("pool", &command, home.folder())?;
    pool.prints("on", LIMIT).await?;
    let _lock = home.holds("lock", "f/lock").await?;
    let _below = home.holds("below", "jobs/backup").await?;
    let listed = home.json("ls")?;
    let listed = listed["locks"].as_array().context("an array")?;
    let paths: Vec<_> = listed.iter().filter_map(|lock| lock["lock"].as_str()).collect();
    assert_eq!(
        paths,
        [
            "/app/leader",
            "/f/group/a",
            "/f/lock",
            "/gpu/held/0",
            "/jobs/backup",
            "/nodes/one",
            "/other"
        ]
    );
    assert_eq!(home.ends("ls --exit-code")?.code, Some(1));
    client.close().await;
    Ok(())
}

/// Symptom: two programs that said another number of parties waited side by side without a word.
#[tokio::test]
async fn another_number_of_parties_is_told() -> Result<()> {
    let home = Home::new()?;
    let mut two = home.spawns("two", "barrier enter d 2 --name a")?;
    eventually("it waits", || Ok(home.json("barrier show d")?["waiting"] == json!(["a"])))?;
    assert_eq!(home.ends("barrier show d")?.stdout, "/d: 1 of 2 parties waits for round 0: a\n");
    let three = home.spawns("three", "barrier enter d 3 --name b")?;
    eventually("it waits", || Ok(home.json("barrier show d")?["waiting"] == json!(["a", "b"])))?;
    let quiet = home.spawns("quiet", "barrier enter -q d 3 --name c")?;
    eventually("all wait", || {
        Ok(home.json("barrier show d")?["waiting"] == json!(["a", "b", "c"]))
    })?;
    for (process, parts) in [
        (&two, ["for 3 parties", "this party for 2"]),
        (&three, ["a waits for 2 parties", "this party for 3"]),
    ] {
        eventually("it is told", || {
            let said = process.stderr();
            Ok(parts.iter().all(|part| said.contains(part)))
        })?;
    }
    assert_eq!(quiet.stderr(), "");
    let shown = home.json("barrier show d")?;
    assert_eq!(
        shown["parties"],
        json!([
            { "party": "a", "wanted": 2 },
            { "party": "b", "wanted": 3 },
            { "party": "c", "wanted": 3 },
        ]),
        "{shown}"
    );
    two.signal(Signal::TERM)?;
    assert_eq!(two.end(LIMIT).await?.code(), Some(143), "{}", two.tail());

    let inside =
        home.command_of(&["barrier", "enter", "d", "3", "--name", "e", "-c", "exec sleep 600"]);
    let mut inside = Process::spawn("inside", &inside, home.folder())?;
    eventually("they are inside", || {
        // Those without a command have left.
        Ok(home.json("barrier show d")?["inside"] == json!(["e"]))
    })?;
    assert_eq!(home.json("barrier show d")?["waiting"], json!([]));
    inside.signal(Signal::TERM)?;
    assert_eq!(inside.end(LIMIT).await?.code(), Some(143), "{}", inside.tail());
    Ok(())
}

/// Symptom: "no such item".
#[tokio::test]
async fn an_item_that_is_worked_on_is_told_with_its_holder() -> Result<()> {
    let home = Home::new()?;
    home.ends("queue put jobs --id a x")?.is_fine();
    home.ends("queue put jobs --id b x")?.is_fine();
    let work = home.command_of(&["queue", "work", "jobs", "-c", "echo on; exec sleep 600"]);
    let mut worker = Process::spawn("worker", &work, home.folder())?;
    worker.prints("on", LIMIT).await?;
    let pid = format!("pid {}", worker.id());
    let parts = ["item a", "is being worked on by", &pid];
    home.ends("queue bury jobs a")?.complains(1, &parts);
    home.ends("queue retry jobs a")?.complains(1, &parts);
    home.ends("queue retry jobs b")?.complains(1, &["item b", "is waiting, not a dead letter"]);
    home.ends("queue bury jobs none")?.complains(1, &["does not have item none"]);
    let shown = home.json("queue bury jobs a none")?;
    assert_eq!((&shown["done"], &shown["missing"]), (&json!([]), &json!(["none"])), "{shown}");
    assert_eq!(shown["left"][0]["id"], "a", "{shown}");
    assert_eq!(shown["left"][0]["holder"]["pid"], worker.id(), "{shown}");
    Ok(())
}

#[test]
fn a_delayed_item_is_listed_with_its_time() -> Result<()> {
    let home = Home::new()?;
    home.ends("queue put jobs --delay 2h x")?.is_fine();
    let text = home.ends("queue ls jobs")?.stdout;
    assert!(text.contains("  due in 1h 59m\n") || text.contains("  due in 2h\n"), "{text}");
    Ok(())
}

#[tokio::test]
async fn editions_are_told_with_their_times() -> Result<()> {
    let home = Home::new()?;
    let long = "x".repeat(300_000);
    std::fs::write(home.folder().join("long"), &long)?;
    home.ends("value set v one")?.is_fine();
    let mut set = home.command("value set v");
    Ended::of(set.stdin(std::fs::File::open(home.folder().join("long"))?))?.is_fine();
    for text in ["three", "four", "five"] {
        home.ends(&format!("value set v {text}"))?.is_fine();
    }
    let shown = home.json("value get v")?;
    assert_eq!((&shown["edition"], &shown["text"]), (&json!(5), &json!("five")), "{shown}");
    let shown = home.json("value get v --edition 1")?;
    assert_eq!((&shown["edition"], &shown["text"]), (&json!(1), &json!("one")), "{shown}");
    assert_eq!(home.json("value get none")?["edition"], Value::Null);

    // Each is what the servers' clock said when the node of the value was written.
    let client = home.client().await?;
    let node = ZnodePath::new("/v")?;
    let changed = client.exists(&node).await?.context("no value")?.mtime;
    let times = |shown: &Value| -> Vec<Option<i64>> {
        let all = shown["editions"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(|it| it["published_unix_ms"].as_i64()).collect()
    };
    let history = home.json("value history v")?;
    let plain = times(&history);
    assert_eq!(plain[4], Some(changed), "{history}");
    assert!(plain.iter().all(Option::is_some) && plain.is_sorted(), "{history}");
    assert_eq!(history["editions"][1]["edition"], 2, "{history}");
    assert_eq!(history["editions"][1]["bytes"], 300_000, "{history}");

    // A rollback has a time of its own, and shares its node with the older one.
    for (older, newer) in [(3, 6), (2, 7)] {
        assert_eq!(home.ends(&format!("value rollback v {older}"))?.stdout, format!("{newer}\n"));
        let changed = client.exists(&node).await?.context("no value")?.mtime;
        let history = home.json("value history v")?;
        assert_eq!(times(&history).last(), Some(&Some(changed)), "{history}");
    }
    let rolled = times(&home.json("value history v")?);
    assert_eq!(rolled[..3], [None, plain[3], plain[4]]);
    let text = home.ends("value history v")?.stdout;
    let start = "EDITION  BYTES   PUBLISHED\n3        5\n4        4       20";
    assert!(text.starts_with(start), "{text}");
    // The older one is not kept any more, and the time stays that of the rollback.
    home.ends("value set v eight")?.is_fine();
    assert_eq!(times(&home.json("value history v")?)[..4], rolled[1..]);
    client.close().await;
    Ok(())
}

/// Symptom: with nothing to list, `members ls` ended with 0 and `pool ls` with 1.
#[test]
fn a_list_of_nothing_is_a_list() -> Result<()> {
    let home = Home::new()?;
    for line in
        ["ls", "members ls n", "service ls s/n", "service ls s --all", "pool ls n", "queue ls n"]
    {
        home.ends(line)?.is_fine();
        let ended = home.ends(&format!("--json {line}"))?;
        ended.is_fine();
        serde_json::from_str::<Value>(&ended.stdout)?;
    }
    assert_eq!(home.ends("pool ls n")?.stdout, "no pool at /n\n");
    assert_eq!(home.ends("queue ls n")?.stdout, "no queue at /n\n");
    assert_eq!(home.json("queue ls n")?["exists"], false);
    for line in
        ["value get n", "value history n", "leader n", "queue take -n n", "service pick s/n"]
    {
        assert_eq!(home.ends(line)?.code, Some(1), "{line}");
    }
    Ok(())
}

#[test]
fn options_mean_the_same_everywhere() -> Result<()> {
    let home = Home::new()?;
    let shell = "echo $LOCKKEEPER_CONNECT >/dev/null; exit 7";
    for line in [
        "run l",
        "elect e --name me --data 10.0.0.7",
        "members join g --name me --data x",
        "service register s/web --address a --port 1 --name me --data {}",
        "barrier enter d 1 --name me",
        "watch n --until-failure",
    ] {
        let mut arguments: Vec<_> = line.split(' ').collect();
        arguments.extend(["-q", "-c", shell]);
        let ended = Ended::of(&mut home.command_of(&arguments))?;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(7), ""), "{line}: {ended:?}");
        let empty = [&arguments[..arguments.len() - 1], &[""]].concat();
        Ended::of(&mut home.command_of(&empty))?.complains(64, &["the command is empty"]);
    }
    for line in ["queue put -q jobs x", "queue ls -q jobs", "value set -q v x", "counter get -q c"]
    {
        home.ends(line)?.is_fine();
    }
    Ok(())
}

/// Symptom: the help of `elect` and `queue work` mentioned a lock, which they do not have.
#[test]
fn the_help_says_what_is_lost() -> Result<()> {
    let home = Home::new()?;
    for (command, what) in [("run", "the lock"), ("elect", "the lead"), ("queue work", "the item")]
    {
        let help = home.ends(&format!("{command} --help"))?.stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let part = format!("What to do with the command when {what} is lost");
        assert!(help.contains(&part), "{help}");
        assert!(help.contains(&format!("prove that {what} was held all the time")), "{help}");
    }
    let help = home.ends("elect --help")?.stdout;
    assert!(help.contains("The exit code if another candidate led"), "{help}");
    let help = home.ends("value set --help")?.stdout;
    assert!(
        help.contains("An empty text or input, such as /dev/null, is an empty value"),
        "{help}"
    );
    let mut empty = home.command("value set v");
    Ended::of(empty.stdin(std::process::Stdio::null()))?.is_fine();
    assert_eq!(home.json("value get v")?["bytes"], 0);
    Ok(())
}
